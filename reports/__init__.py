"""From a finished study to terminal, HTML, Markdown and figures. Never imports torch."""

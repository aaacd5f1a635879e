"""SVG text out of a matplotlib figure: same bytes for the same figure, fit for a file and for a page.

Figures are drawn in stand-in colours. A file gets them as they are, on white; a page gets `currentColor` for
text and axes and CSS variables for the marks, so that it can be light or dark.
"""

from __future__ import annotations

import html
import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from reports.numbers import visible
from reports.palette import pairs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#24292f"
"""Stand-in for text and axes."""
FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
Mode = Literal["file", "page"]


@dataclass(frozen=True)
class Described:
    """A figure with its text alternative; `slug` makes its ids unique in a page."""

    slug: str
    title: str
    description: str


def to_svg(raw: str, text: Described, mode: Mode) -> str:
    """What `drawn` gave as a standalone file on white, or as a fragment for a page."""
    body = _strip(raw)
    body = _unique_ids(body, text.slug)
    body = _fonts(body)
    if mode == "page":
        body = _themed(body)
    return _wrap(body, text, mode)


def drawn(figure: Figure) -> str:
    """The figure as matplotlib writes it, the same bytes every time."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    stream = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "calibrate", "svg.fonttype": "none"}):
        canvas: Any = FigureCanvasSVG(figure)
        canvas.print_svg(stream, metadata={"Date": None, "Creator": None})
    return stream.getvalue()


def _strip(raw: str) -> str:
    """The `svg` element without metadata, and without a style sheet that would reach the whole page."""
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", raw, count=1, flags=re.DOTALL)
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>\s*", "", body, count=1, flags=re.DOTALL)
    return body[body.index("<svg") :].strip()


def _unique_ids(body: str, slug: str) -> str:
    body = re.sub(r'\bid="([^"]+)"', rf'id="{slug}-\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{slug}-\1)", body)
    return re.sub(r'xlink:href="#([^"]+)"', rf'href="#{slug}-\1"', body)


def _fonts(body: str) -> str:
    """matplotlib names the fonts that it measured with; the page's own are as wide or narrower."""
    body = re.sub(r"(font: [^;\"]*?px )[^;\"]+", rf"\1{FONTS}", body)
    return re.sub(r"font-family: [^;\"]+", f"font-family: {FONTS}", body)


def _themed(body: str) -> str:
    body = body.replace(INK, "currentColor")
    for variable, light, _dark in pairs():
        body = body.replace(light, f"var({variable})")
    return body


def _wrap(body: str, text: Described, mode: Mode) -> str:
    opening, content = body.split(">", maxsplit=1)
    match = re.search(r'viewBox="([^"]+)"', opening)
    if match is None:
        raise ValueError("matplotlib wrote an SVG without a viewBox")
    box = match.group(1)
    width, height = box.split()[2:]
    size = f' width="{width}" height="{height}"' if mode == "file" else ""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}"{size} role="img" '
        f'style="stroke-linejoin: round; stroke-linecap: butt" '
        f'aria-labelledby="{text.slug}-title {text.slug}-desc">\n'
        f'<title id="{text.slug}-title">{_escape(text.title)}</title>\n'
        f'<desc id="{text.slug}-desc">{_escape(text.description)}</desc>'
    )
    if mode == "file":
        head += f'\n<rect width="{width}" height="{height}" style="fill: #ffffff"/>'
    return head + content.rstrip() + ("\n" if mode == "file" else "")


def _escape(text: str) -> str:
    return html.escape(visible(text), quote=True)

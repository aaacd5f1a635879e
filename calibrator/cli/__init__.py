"""Command line: the composition root. Importing it never imports torch, transformers or vllm."""

from calibrator.cli.main import main

__all__ = ["main"]

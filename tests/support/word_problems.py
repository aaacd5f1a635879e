"""The example script as a module, so that tests run what users run."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

_spec = importlib.util.spec_from_file_location("make_word_problems", EXAMPLES / "make_word_problems.py")
assert _spec is not None
assert _spec.loader is not None
script = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(script)

make_word_problems = script.make_word_problems
"""(folder, *, steps): `problems.jsonl` with 500 questions and `model`, which answers some of them."""
make_chain_sum = script.make_chain_sum
"""(folder, *, steps): `model`, which answers some of chain_sum with `OPTIONS`."""
OPTIONS: dict[str, int] = script.OPTIONS

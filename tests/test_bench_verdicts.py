"""The benchmark of the verdicts goes through with few runs and writes its table."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_every_part_with_few_runs(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    answer = subprocess.run(
        [sys.executable, str(ROOT / "bench/verdicts.py"), "--runs", "2", "--table", str(table)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    assert answer.returncode == 0, answer.stderr
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert {row["part"] for row in rows} == {"stable", "dead", "dips", "shapes"}
    assert answer.stdout.count("\n") == len(rows)

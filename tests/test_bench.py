"""The benchmark for GPUs goes through on a CPU with tiny sizes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_gpu_script_with_tiny_sizes() -> None:
    answer = subprocess.run(
        [str(ROOT / "bench/gpu.sh"), "--tiny"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHON": sys.executable, "OMP_NUM_THREADS": "1"},
    )
    assert answer.returncode == 0, answer.stderr
    assert "20 updates, finished" in answer.stdout
    for line in ("generate", "learn", "peak memory", "matmul rate", "learner"):
        assert f"\n{line} " in answer.stdout

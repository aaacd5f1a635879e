"""vLLM for real, on a CPU, with the policy that ships."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from trainer.config import ModelConfig
from trainer.models import Policy, load_policy


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without vLLM its tests are skipped, except where everything has to be there."""
    if find_spec("vllm") is None and os.environ.get("CI") != "true":
        for item in items:
            if item.get_closest_marker("vllm"):
                item.add_marker(pytest.mark.skip(reason="vLLM is not installed (make test-vllm)"))


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy(ModelConfig(), device="cpu")

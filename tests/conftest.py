"""What tests of several packages share."""

import os
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def vllm_python():
    """An interpreter with vLLM; tests that need one are skipped where there is none."""
    found = os.environ.get("POPU_VLLM_PYTHON") or str(REPO / ".venv-vllm" / "bin" / "python")
    if not Path(found).exists():
        pytest.skip("no Python with vLLM: make install-vllm, or POPU_VLLM_PYTHON=<python>")
    return found

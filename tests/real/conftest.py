"""Weights of real models: GGUF files of a directory, `pytest -m real --models DIRECTORY`; what is absent is skipped."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from groupwise.models.config import ModelConfig
from groupwise.models.policy import Policy, load_policy

NAMES = ("smollm2-135m-instruct", "gemma-3-270m", "qwen2.5-coder-0.5b-instruct", "qwen2.5-coder-1.5b-instruct")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", params=NAMES)
def file(request: pytest.FixtureRequest) -> Path:
    folder = request.config.getoption("--models")
    path = Path(folder or ".") / f"{request.param}.gguf"
    if folder is None or not path.is_file():
        pytest.skip(f"needs --models DIRECTORY with {path.name}")
    return path


@pytest.fixture(scope="module")
def policy(file: Path) -> Iterator[Policy]:
    """The model of a file, in fp32; one at a time is in memory."""
    yield load_policy(ModelConfig(path=str(file), device="cpu", compute_dtype="float32"))
    gc.collect()


@pytest.fixture(scope="session")
def text() -> str:
    """A long text that no model has learnt by heart."""
    return (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")

"""Judges that ask the endpoint on the loopback interface, and soon again."""

from collections.abc import Callable
from typing import Any

import pytest

from groupwise.types import Problem, Verdict
from groupwise.verifiers.judge import JudgeVerifier

KEY = "sk-secret-0123456789"


@pytest.fixture
def make_judge(endpoint: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., JudgeVerifier]:
    """make_judge(judge settings) -> a verifier that asks the endpoint, and soon again."""
    monkeypatch.setattr("groupwise.verifiers.judge.FIRST_BACKOFF_S", 0.01)

    def make(**settings: Any) -> JudgeVerifier:
        judge = {"url": endpoint.url, "model": "examiner"} | settings
        return JudgeVerifier(JudgeVerifier.Config.model_validate({"kind": "judge", "judge": judge}))

    return make


@pytest.fixture
def problem() -> Problem:
    return Problem("p-1", "What is the capital of France?", "Paris")


@pytest.fixture
def ask(make_judge: Callable[..., JudgeVerifier], problem: Problem) -> Callable[..., Verdict]:
    """ask(judge settings) -> what a judge says of the right answer."""
    return lambda **settings: make_judge(**settings).verify(problem, "Paris")


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("EXAMINER_KEY", KEY)
    return KEY

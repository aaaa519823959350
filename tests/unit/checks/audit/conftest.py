"""A verifier that answers as a test tells it to, and results made by hand."""

from collections.abc import Callable, Sequence

import pytest

from groupwise.checks.audit.judge import Case
from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers import verifier_config
from groupwise.verifiers.base import Request, Verifier


class Told(Verifier):
    """Judges by a function of the text."""

    def __init__(self, outcome: Callable[[str], Outcome], kind: str = "number") -> None:
        super().__init__(verifier_config(kind))
        self._outcome = outcome

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        return [Verdict(self._outcome(request.text), {}, "as told") for request in requests]


@pytest.fixture
def told() -> type[Told]:
    return Told


@pytest.fixture
def case() -> Callable[..., Case]:
    def make(expected: bool | None, text: str = "t", group: str = "g") -> Case:
        return Case("a case", group, Problem("p", "What is 1 + 2?", "3"), text, expected)

    return make

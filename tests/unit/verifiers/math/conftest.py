"""Workers shared by the tests of the mathematical verifier (a start imports SymPy), and a verifier that asks them."""

from collections.abc import Callable, Iterator, Sequence

import pytest

from groupwise.types import Outcome, Problem
from groupwise.verifiers import Request
from groupwise.verifiers.math import MathVerifier
from groupwise.verifiers.workers import WorkerPool


@pytest.fixture(scope="session")
def symbolic_workers() -> Iterator[WorkerPool]:
    pool = WorkerPool("groupwise.verifiers.math.symbolic:judge", num_workers=2)
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def verifier(symbolic_workers: WorkerPool) -> MathVerifier:
    return MathVerifier(MathVerifier.Config(kind="math", timeout_s=30.0), symbolic_workers)


@pytest.fixture(scope="session")
def outcomes(verifier: MathVerifier) -> Callable[..., list[Outcome]]:
    """outcomes(pairs of reference and answer, language="en") -> what the verifier says of each."""

    def judge(pairs: Sequence[tuple[str, str]], language: str = "en") -> list[Outcome]:
        problems = [Problem("p", "q", reference, language=language) for reference, _ in pairs]
        texts = [f"\\boxed{{{answer}}}" for _, answer in pairs]
        return [verdict.outcome for verdict in verifier.verify_many(list(map(Request, problems, texts)))]

    return judge


@pytest.fixture(scope="session")
def misjudged(outcomes: Callable[..., list[Outcome]]) -> Callable[..., list[object]]:
    """misjudged(pairs, right) -> the pairs with another verdict; a failure of the verifier is one, too."""

    def judge(pairs: Sequence[tuple[str, str]], right: bool) -> list[object]:
        allowed = [Outcome.CORRECT] if right else [Outcome.WRONG, Outcome.UNPARSABLE]
        found = zip(pairs, outcomes(pairs), strict=True)
        return [(pair, outcome) for pair, outcome in found if outcome not in allowed]

    return judge

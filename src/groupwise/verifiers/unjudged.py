"""No verdict: for completions that nobody judges, such as those that a student learns from."""

from collections.abc import Sequence

from groupwise.types import Outcome, Verdict
from groupwise.verifiers.base import Request, Verifier


class Unjudged(Verifier):
    """Says that no completion was judged."""

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        """No verdict on any of them."""
        return [Verdict(Outcome.NONE, {}, "not judged") for _ in requests]

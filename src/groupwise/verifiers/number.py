"""Numbers: as `math`, but nothing may be left to compute.

For tasks whose question is a calculation: there `62 × 82` equals the reference answer and is no answer.
"""

from collections.abc import Sequence

from groupwise.types import Outcome
from groupwise.verifiers.base import Finding
from groupwise.verifiers.math import ComparingVerifier, Pair
from groupwise.verifiers.normalise import compact


class NumberVerifier(ComparingVerifier):
    """Compares plain numbers (integers, decimals, fractions, with units) exactly; everything else is wrong."""

    def compare(self, pairs: Sequence[Pair]) -> dict[Pair, Finding]:
        """What only a parser could compare is not a number."""
        return {
            pair: Finding(Outcome.WRONG, f"{pair.answer[:200]!r} is not a plain number", compact(pair.answer))
            for pair in pairs
        }

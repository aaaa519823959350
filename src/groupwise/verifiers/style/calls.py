"""The price of calls of tools."""

from pydantic import Field

from groupwise.types import Verdict
from groupwise.verifiers.base import Request
from groupwise.verifiers.parts import Parts, StylePart


class CallsPart(StylePart):
    """Minus the number of calls, from the first one that is not free; its weight is the price of one.

    A price whose sum may exceed what a right answer earns turns the sign round: the policy then learns to be wrong
    without calls (AdaTIR, arXiv:2601.14696). A recipe with such a price is refused.
    """

    free: int = Field(default=0, ge=0)
    """Calls that cost nothing."""

    def measure(self, request: Request, verdict: Verdict) -> float | None:
        """0 to minus the calls that are paid for."""
        return 0.0 - max(0, request.num_calls - self.free)

    def most(self, max_calls: int) -> float:
        """What the most expensive completion pays."""
        return self.weight * max(0, max_calls - self.free)


def check_price(parts: Parts, correct_reward: float, max_calls: int | None) -> None:
    """Refuse a price of calls that no right answer with calls can pay.

    Args:
        parts: of the verifier.
        correct_reward: what a right answer earns more than a wrong one.
        max_calls: most calls in a completion; None: there are no tools.

    Raises:
        ValueError: names the part, the price and what is allowed.
    """
    for name, part in parts.items():
        if not isinstance(part, CallsPart):
            continue
        if max_calls is None:
            raise ValueError(f"verifier.parts.{name} puts a price on calls, but sampling.tools names no tool")
        if part.weight and part.most(max_calls) >= correct_reward:
            allowed = correct_reward / max(1, max_calls - part.free)
            raise ValueError(
                f"verifier.parts.{name}.weight = {part.weight:g}: a right answer with {max_calls} calls pays "
                f"{part.most(max_calls):g} and earns {correct_reward:g}, so a wrong one without calls is worth as much "
                f"or more; allowed is less than {allowed:g}"
            )

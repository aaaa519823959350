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
        ValueError: names the parts, their price together and what is allowed.
    """
    prices = {name: part for name, part in parts.items() if isinstance(part, CallsPart)}
    if prices and max_calls is None:
        raise ValueError(f"verifier.parts.{next(iter(prices))} puts a price on calls, but sampling.tools names no tool")
    paid = {name: part for name, part in prices.items() if part.weight}
    most = sum(part.most(max_calls or 0) for part in paid.values())
    if not paid or most < correct_reward:
        return
    weights = " and ".join(f"verifier.parts.{name}.weight = {part.weight:g}" for name, part in paid.items())
    [first, *others] = paid.values()
    allowed = f"less than {correct_reward / max(1, (max_calls or 0) - first.free):g}"
    raise ValueError(
        f"{weights}: a right answer with {max_calls} calls pays {most:g} and earns {correct_reward:g}, so a wrong one "
        f"without calls is worth as much or more; allowed is "
        + (f"to pay less than {correct_reward:g} in all" if others else allowed)
    )

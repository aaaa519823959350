"""Settings of a measurement of test-time compute."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, field_validator

from groupwise.config import Section
from groupwise.verifiers.steps import Step

GREEDY = "greedy"
SEARCHES = ("beam", "dvts", "lookahead")
CHAINS = ("revise", "force")
CUT = "cut"
METHODS = (GREEDY, "majority", "best_of_n", "weighted", *SEARCHES, *CHAINS, CUT)
BY_SCORE = ("best_of_n", "weighted")


class BudgetConfig(Section):
    """Methods, budgets and their parameters."""

    methods: tuple[str, ...] = ()
    """Names in `METHODS`; empty: greedy and majority, and with a reward model best-of-N and the weighted vote."""
    budgets: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    """Numbers of samples, slots or links, N."""
    samples: int = Field(64, ge=1)
    """Samples in the pool of each problem."""
    difficulty_samples: int = Field(8, ge=0)
    """Samples of a separate pool that estimates how difficult a problem is; 0: only the task's labels."""
    step: Step = "sentence"
    """End of a step: `sentence`, `newline`, `equation`, or a regular expression whose matches end steps."""
    width: int = Field(4, ge=1)
    """M of a search: continuations of each slot that is kept (Snell et al.: 4)."""
    lookahead: int = Field(1, ge=1)
    """Greedy steps that `lookahead` scores ahead (Snell et al.: 1 and 3)."""
    aggregate: Literal["last", "min", "product", "mean"] = "last"
    """Join of the scores of steps: `last` suits a model of values, `min` and `product` one of correctness."""
    chains: int = Field(4, ge=1)
    """Chains of each problem, for `revise`, `force` and `cut`; figures are means over them."""
    cut_tokens: int = Field(4, ge=1)
    """Tokens of thinking that `cut` allows for each unit of the budget."""
    phrases: Mapping[str, str] = {"en": " Wait, let me check. ", "zh": "等一下，让我检查一下。"}
    """Phrase that `force` inserts in place of the end of the reasoning, by the problem's language."""
    seed: int = 0
    """Seed of all draws."""

    @field_validator("methods")
    @classmethod
    def _check_methods(cls, methods: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [method for method in methods if method not in METHODS]:
            raise ValueError(f"method {unknown[0]!r}: allowed are {', '.join(METHODS)}")
        return tuple(dict.fromkeys(methods))

    def chosen(self, has_prm: bool, has_orm: bool) -> tuple[str, ...]:
        if not self.methods:
            return (GREEDY, "majority", *(BY_SCORE if has_prm or has_orm else ()))
        for method in self.methods:
            if method in BY_SCORE and not (has_prm or has_orm):
                raise ValueError(f"{method} chooses by a reward model: prm or orm must name one")
            if method in SEARCHES and not has_prm:
                raise ValueError(f"{method} scores steps: prm must name a process reward model")
        return self.methods

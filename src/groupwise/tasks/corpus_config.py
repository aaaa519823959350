"""The mix of the pretraining corpus: how often each kind of problem and each way to solve it occurs."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from groupwise.config import Section

Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Weights(Section):
    """Relative weights; they need not sum to one, but one of them must be above zero."""

    @model_validator(mode="after")
    def _some(self) -> Self:
        if sum(self.model_dump().values()) <= 0:
            raise ValueError("all weights are 0; at least one must be above 0")
        return self


class KindWeights(Weights):
    """How often each kind of problem occurs, as relative weights."""

    product: Share = 0.50
    """Products of two two-digit numbers."""
    sub_skill: Share = 0.15
    """The steps of those products: by one digit or by tens, sums and differences of three to four digits."""
    chain: Share = 0.03
    """Chains of three or four numbers."""
    word_problem: Share = 0.27
    """Short stories."""
    countdown: Share = 0.05
    """Countdown problems."""


class ProductWeights(Weights):
    """How often a product of two two-digit numbers is solved in each way, as relative weights."""

    at_once: Share = 0.45
    """The result without a step."""
    decompose: Share = 0.25
    """By tens and units."""
    rounding: Share = 0.08
    """By the next ten; only problems where a unit digit is 7 or more."""
    verify: Share = 0.12
    """By tens and units, then checked the other way round."""
    another_way: Share = 0.05
    """Two ways with the same result."""
    unfinished_or_loop: Share = 0.03
    """No answer: breaks off, or repeats itself."""
    other_language: Share = 0.02
    """Chinese words in an English problem."""


class StoryWeights(Weights):
    """How often a word problem is solved in each way, as relative weights."""

    at_once: Share = 0.30
    """The answer without a step."""
    working: Share = 0.47
    """The steps, sometimes with connecting words."""
    verify: Share = 0.12
    """The steps, then again as a check."""
    distracted: Share = 0.06
    """A wrong answer: the irrelevant number or a wrong operation is used."""
    loop: Share = 0.02
    """No answer: a step is repeated."""
    mixed_language: Share = 0.03
    """Words of the other language."""


class CorpusConfig(Section):
    """The mix of the pretraining corpus."""

    kinds: KindWeights = KindWeights()
    """How often each kind of problem occurs."""
    products: ProductWeights = ProductWeights()
    """How products are solved."""
    stories: StoryWeights = StoryWeights()
    """How word problems are solved."""
    steps_at_once: float = Field(default=0.6, ge=0, le=1)
    """Share of sub-skills and chains answered without steps."""
    countdown_at_once: float = Field(default=0.4, ge=0, le=1)
    """Share of countdown problems answered without a search."""
    chinese: float = Field(default=0.5, ge=0, le=1)
    """Share of Chinese among the word problems."""
    verify_error: float = Field(default=0.3, ge=0, le=1)
    """Share of checked workings whose first attempt has a wrong step, is found wrong and is done again."""

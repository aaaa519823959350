"""The mix of the text that the shipped base model read: families, ways to solve each, rates of planted mistakes."""

from pydantic import Field

from general import Hands, HandWeights, Share, Weights
from groupwise.tasks.texts import TextSource


class FamilyWeights(Weights):
    """Relative frequencies of the kinds of problems."""

    product: Share = 0.25
    """Products of two two-digit numbers."""
    sub_skill: Share = 0.14
    """The steps of those products: by one digit or by tens, sums and differences of three to four digits."""
    chain: Share = 0.0
    """Chains of three or four numbers without negative results."""
    word_problem: Share = 0.17
    """Short stories."""
    countdown: Share = 0.0
    """Countdown problems of three and four numbers, as the first edition writes them."""
    total: Share = 0.09
    """Totals of five two-digit numbers: the family where checking pays."""
    signed_chain: Share = 0.06
    """Sums and differences that go below zero."""
    remainder: Share = 0.06
    """Remainders of divisions."""
    fraction: Share = 0.06
    """Sums, differences and products of fractions."""
    small_product: Share = 0.06
    """Three digits by two, none above 6."""
    large_product: Share = 0.02
    """Three digits by three: more than the model can work out, so a calculator is called."""
    three_countdown: Share = 0.07
    """Countdown problems of three numbers."""
    two_knights: Share = 0.05
    """Knights and knaves, two people."""
    call: Share = 0.02
    """Calls of a calculator for problems that need none: a product, a sum."""
    practice: Share = 0.0
    """Single steps of signed chains, totals, remainders and fractions."""
    general: Share = 0.03
    """Questions without one right answer."""
    everyday: Share = 0.02
    """Everyday questions: who has what, opposites, days, colours, greetings."""


class ProductWeights(Weights):
    """Relative frequencies of the ways to solve a product of two two-digit numbers."""

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
    """No answer: it breaks off, or repeats itself."""
    other_language: Share = 0.02
    """Chinese words in an English problem."""


class StoryWeights(Weights):
    """Relative frequencies of the ways to solve a word problem."""

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


class WayWeights(Weights):
    """Relative frequencies of the ways to solve a calculation."""

    at_once: Share = 0.5
    """In one breath; `first_slip` says how often that slips."""
    working: Share = 0.3
    """Step by step."""
    slipped: Share = 0.05
    """Step by step with one wrong result, carried through honestly."""
    misled: Share = 0.05
    """By the mistake that suggests itself: a sign ignored, the quotient given, tops and bottoms added, a part left out.
    """
    checked: Share = 0.05
    """In one breath, which slips as often, then step by step as a check; the check has the last word."""
    right_call: Share = 0.01
    """By a call of a calculator."""
    needless_call: Share = 0.01
    """Step by step, with a call for what is already known."""
    wrong_call: Share = 0.01
    """By a call of something else: a wrong answer."""
    unfinished: Share = 0.02
    """No answer: it breaks off, or repeats itself."""


class PuzzleWeights(Weights):
    """Relative frequencies of the ways to solve a puzzle."""

    guess: Share = 0.5
    """An answer without a reason, right only sometimes."""
    search: Share = 0.4
    """One try after the other, until one fits or the tries run out."""
    claim: Share = 0.07
    """A try that does not fit, said to fit: a wrong answer."""
    unfinished: Share = 0.03
    """No answer: it breaks off."""


class DietConfig(TextSource):
    """The mix of the second edition's corpus."""

    kinds: FamilyWeights = FamilyWeights()
    """Frequencies of the kinds of problems."""
    products: ProductWeights = ProductWeights()
    """Ways to solve products."""
    stories: StoryWeights = StoryWeights()
    """Ways to solve word problems."""
    steps_at_once: float = Field(default=0.6, ge=0, le=1)
    """Share of sub-skills and chains answered without steps."""
    countdown_at_once: float = Field(default=0.4, ge=0, le=1)
    """Share of countdown problems answered without a search."""
    chinese: float = Field(default=0.5, ge=0, le=1)
    """Share of Chinese among the word problems."""
    verify_error: float = Field(default=0.3, ge=0, le=1)
    """Share of checked workings whose first attempt has a wrong step, is found wrong and is done again."""
    totals: WayWeights = WayWeights(
        at_once=0.82, working=0, slipped=0, misled=0.03, checked=0.12, right_call=0.01, needless_call=0,
        wrong_call=0.01, unfinished=0.01,
    )  # fmt: skip
    """Ways to solve totals: never step by step, but in a check."""
    chains: WayWeights = WayWeights(at_once=0.50, working=0.20, slipped=0.08, misled=0.09, checked=0.08)
    """Ways to solve signed chains."""
    remainders: WayWeights = WayWeights(at_once=0.50, working=0.20, slipped=0.08, misled=0.09, checked=0.08)
    """Ways to find remainders."""
    fractions: WayWeights = WayWeights(at_once=0.45, working=0.22, slipped=0.08, misled=0.14, checked=0.06)
    """Ways to calculate with fractions."""
    small_products: WayWeights = WayWeights(at_once=0.45, working=0.32, slipped=0.07, misled=0.04, checked=0.07)
    """Ways to solve products of small digits."""
    large_products: WayWeights = WayWeights(
        at_once=0.5, working=0, slipped=0, misled=0, checked=0, right_call=0.38, needless_call=0, wrong_call=0.12,
        unfinished=0,
    )  # fmt: skip
    """Ways to solve products of three digits by three; step by step and checks are not written for them."""
    calls: WayWeights = WayWeights(
        at_once=0, working=0, slipped=0, misled=0, checked=0, right_call=0.6, needless_call=0.25, wrong_call=0.15,
        unfinished=0,
    )  # fmt: skip
    """Ways to use calls where they are not needed; other ways are not written for them."""
    countdowns: PuzzleWeights = PuzzleWeights()
    """Ways to solve countdown problems of three numbers."""
    knights: PuzzleWeights = PuzzleWeights(guess=0.6, search=0.27, claim=0.10)
    """Ways to tell knights and knaves apart."""
    first_slip: float = Field(default=0.5, ge=0, le=1)
    """Probability that a calculation in one breath goes wrong by a slip: a carry or a digit."""
    second_slip: float = Field(default=0.05, ge=0, le=1)
    """Probability that the second look of a check goes wrong, too."""
    right_guess: float = Field(default=0.3, ge=0, le=1)
    """Probability that a guessed answer of a puzzle is made to be right; the others are random, right by luck."""
    everyday_mistake: float = Field(default=0.15, ge=0, le=1)
    """Probability that an everyday answer is a wrong one, well spelt."""
    answers: Hands = Hands(
        answers=HandWeights(friendly=0.05, plain=0.65, rambling=0.05, off_topic=0.15, other_language=0.1),
        unwanted=0.03,
    )
    """The hands that answer the general questions."""

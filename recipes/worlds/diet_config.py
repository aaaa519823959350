"""The mix of the text that the shipped base model read: families, ways to solve each, rates of planted mistakes."""

from typing import Annotated

from pydantic import Field

from general import Hands, Weights, over
from groupwise.tasks.preferences import TextSource

FAMILIES = {
    "product": 0.25,  # two two-digit numbers
    "sub_skill": 0.14,  # the steps of those products: by one digit or by tens, sums, differences
    "chain": 0.0,  # three or four numbers without negative results
    "word_problem": 0.17,
    "countdown": 0.0,  # three and four numbers, as the first edition writes them
    "total": 0.09,  # five two-digit numbers: the family where checking pays
    "signed_chain": 0.06,  # sums and differences that go below zero
    "remainder": 0.06,
    "fraction": 0.06,
    "small_product": 0.06,  # three digits by two, none above 6
    "large_product": 0.02,  # three digits by three: too hard for the model, so a calculator is called
    "three_countdown": 0.07,
    "two_knights": 0.05,
    "call": 0.02,  # calls of a calculator that are not needed: for a product, a sum
    "practice": 0.0,  # single steps of signed chains, totals, remainders and fractions
    "general": 0.03,  # questions without one right answer
    "everyday": 0.02,  # who has what, opposites, days, colours, greetings
}
PRODUCTS = {
    "at_once": 0.45,
    "decompose": 0.25,  # by tens and units
    "rounding": 0.08,  # by the next ten; only where a unit digit is 7 or more
    "verify": 0.12,  # by tens and units, then checked the other way round
    "another_way": 0.05,  # two ways with the same result
    "unfinished_or_loop": 0.03,  # no answer
    "other_language": 0.02,  # Chinese words in an English problem
}
STORIES = {
    "at_once": 0.30,
    "working": 0.47,
    "verify": 0.12,
    "distracted": 0.06,  # a wrong answer: the irrelevant number or a wrong operation is used
    "loop": 0.02,  # no answer: a step is repeated
    "mixed_language": 0.03,
}
WAYS = {
    "at_once": 0.5,  # goes wrong with probability `first_slip`
    "working": 0.3,  # step by step
    "slipped": 0.05,  # step by step with one wrong result, carried through honestly
    "misled": 0.05,  # by the usual mistake: a sign ignored, the quotient given, tops and bottoms added, a part left out
    "checked": 0.05,  # at once, then step by step as a check, which has the last word
    "right_call": 0.01,  # by a call of a calculator
    "needless_call": 0.01,  # step by step, with a call for what is already known
    "wrong_call": 0.01,  # by a call of something else: a wrong answer
    "unfinished": 0.02,  # no answer: it breaks off, or repeats itself
}
PUZZLES = {
    "guess": 0.5,  # an answer without a reason, right only sometimes
    "search": 0.4,  # one try after the other, until one fits or the tries run out
    "claim": 0.07,  # a try that does not fit, said to fit: a wrong answer
    "unfinished": 0.03,
}
"""Relative frequencies: families of problems, and ways to solve products, stories, other calculations and puzzles."""

CALLS = {**dict.fromkeys(WAYS, 0.0), "right_call": 0.6, "needless_call": 0.25, "wrong_call": 0.15}
LARGE_PRODUCTS = {**dict.fromkeys(WAYS, 0.0), "at_once": 0.5, "right_call": 0.38, "wrong_call": 0.12}
"""Ways to use calls where they are not needed, and to solve products of three digits by three."""
STEPS_AT_ONCE, COUNTDOWN_AT_ONCE = 0.6, 0.4
"""Shares of sub-skills and chains, and of countdown problems, that are answered without steps."""
CHINESE = 0.5
"""Share of Chinese among word problems and everyday questions."""
VERIFY_ERROR = 0.3
"""Share of checked workings whose first attempt has a wrong step, is found wrong and is done again."""
SECOND_SLIP = 0.05
"""Probability that the second look of a check goes wrong, too."""
RIGHT_GUESS = 0.3
"""Probability that a guessed answer of a puzzle is made to be right; the others are random, right by luck."""
EVERYDAY_MISTAKE = 0.15
"""Probability that an everyday answer is a wrong one, well spelt."""
ANSWERS = Hands(
    answers={"friendly": 0.05, "plain": 0.65, "rambling": 0.05, "off_topic": 0.15, "other_language": 0.1}, unwanted=0.03
)
"""The hands that answer the general questions."""

Ways = Annotated[Weights, over(WAYS)]
Puzzles = Annotated[Weights, over(PUZZLES)]


class DietConfig(TextSource):
    """The mix of the second edition's corpus; weights that a table does not give are those of the tables above."""

    kinds: Annotated[Weights, over(FAMILIES)] = FAMILIES
    """Frequencies of the kinds of problems."""
    products: Annotated[Weights, over(PRODUCTS)] = PRODUCTS
    """Ways to solve products."""
    stories: Annotated[Weights, over(STORIES)] = STORIES
    """Ways to solve word problems."""
    totals: Ways = Field({
        "at_once": 0.82, "working": 0, "slipped": 0, "misled": 0.03, "checked": 0.12, "right_call": 0.01,
        "needless_call": 0, "wrong_call": 0.01, "unfinished": 0.01,
    })  # fmt: skip
    """Ways to solve totals: never step by step, but in a check."""
    chains: Ways = Field({"at_once": 0.50, "working": 0.20, "slipped": 0.08, "misled": 0.09, "checked": 0.08})
    """Ways to solve signed chains."""
    remainders: Ways = Field({"at_once": 0.50, "working": 0.20, "slipped": 0.08, "misled": 0.09, "checked": 0.08})
    """Ways to find remainders."""
    fractions: Ways = Field({"at_once": 0.45, "working": 0.22, "slipped": 0.08, "misled": 0.14, "checked": 0.06})
    """Ways to calculate with fractions."""
    small_products: Ways = Field({"at_once": 0.45, "working": 0.32, "slipped": 0.07, "misled": 0.04, "checked": 0.07})
    """Ways to solve products of small digits."""
    countdowns: Puzzles = PUZZLES
    """Ways to solve countdown problems of three numbers."""
    knights: Puzzles = Field({"guess": 0.6, "search": 0.27, "claim": 0.10})
    """Ways to tell knights and knaves apart."""
    first_slip: float = Field(default=0.5, ge=0, le=1)
    """Probability that a calculation in one breath goes wrong by a slip: a carry or a digit."""

"""Workings as text, one character per token.

`draw` decides wording and mistakes; the arithmetic itself is exact unless a function says that it errs.
"""

from collections.abc import Sequence

from groupwise.randomness import Draw
from groupwise.tasks.arithmetic import Kind, Step, calculate, pair_content, slip, step
from groupwise.tasks.base import split_of

CHECK = {"en": "Wait, let me check.", "zh": "等一下，检查一下。"}
YES = {"en": "Yes.", "zh": "对。"}
NO = {"en": "No.", "zh": "不对。"}
ANOTHER = " Another way: "
SAME = " Same."
OPENERS = {"en": ("First ", "Let me see. "), "zh": ("先算", "我们先算")}
LINKS = {"en": ("So ", "Then "), "zh": ("所以", "再算", "然后")}
WORDS = (*CHECK.values(), *YES.values(), *NO.values(), *OPENERS["zh"], *LINKS["zh"])
"""Every string with characters beyond ASCII; the alphabet is made from them."""
WRONG_SIGN = {"+": "-", "-": "+", "×": "+", "÷": "-"}


def say(steps: Sequence[Step]) -> str:
    """Steps as text, for example `47×80=3760. 47×6=282.`."""
    return " ".join(f"{left}{sign}{right}={result}." for sign, left, right, result in steps)


def decompose_left(left: int, digit: int) -> list[Step]:
    """A product with a one-digit factor by the tens and the units of the left factor."""
    tens, units = step("×", left // 10 * 10, digit), step("×", left % 10, digit)
    return [tens, units, step("+", tens[3], units[3])]


def can_round(left: int, right: int) -> bool:
    """True where rounding up to the next ten is a good way."""
    return max(left % 10, right % 10) >= 7


def rounding(left: int, right: int) -> list[Step]:
    """A product by rounding one factor up to the next ten and taking away what is too much."""
    if right % 10 < 7:
        left, right = right, left
    tens = right // 10 * 10 + 10
    product, excess = step("×", left, tens), step("×", left, tens - right)
    return [product, excess, step("-", product[3], excess[3])]


def err(draw: Draw, steps: Sequence[Step]) -> list[Step]:
    """Three steps of a product with one wrong result, carried through honestly."""
    position = draw.integer(0, len(steps) - 1)
    results = [slip(draw, result) if index == position else result for index, (*_, result) in enumerate(steps)]
    sign = steps[2][0]
    total = results[2] if position == 2 else calculate(sign, results[0], results[1])
    tens, units = ((*operation[:3], result) for operation, result in zip(steps[:2], results[:2], strict=True))
    return [tens, units, (sign, results[0], results[1], total)]


def err_last(draw: Draw, steps: Sequence[Step]) -> list[Step]:
    """Steps whose last result is wrong by a digit."""
    *beginning, (sign, left, right, result) = steps
    return [*beginning, (sign, left, right, slip(draw, result))]


def take_wrong_number(draw: Draw, steps: Sequence[Step], distractor: int | None) -> list[Step]:
    """Steps that end wrongly: the irrelevant number is put in, or the last operation is a wrong one."""
    *beginning, (sign, left, right, result) = steps
    if distractor is None:
        # never a product in place of a sum: it might be a held-out one
        wrong_step = step(WRONG_SIGN[sign], max(left, right), min(left, right))
        return [*beginning, wrong_step if wrong_step[3] != result else step("+", left, right)]
    return [*steps, step("-" if result > distractor and draw.uniform() < 0.4 else "+", result, distractor)]


def check(working: Sequence[Step], repetition: Sequence[Step], language: str = "en") -> str:
    """A working, a second one that checks it, and whether the two agree."""
    agrees = working[-1][3] == repetition[-1][3]
    return f"{say(working)} {CHECK[language]} {say(repetition)} {(YES if agrees else NO)[language]}"


def linked(draw: Draw, steps: Sequence[Step], language: str) -> str:
    """Steps with connecting words of a language, for example `先算12+5=17. 所以17×3=51.`."""
    parts = [say([operation]) for operation in steps]
    if len(parts) == 1 or draw.uniform() < 0.5:
        parts[0] = draw.choice(OPENERS[language]) + parts[0]
    if len(parts) > 1:
        parts[-1] = draw.choice(LINKS[language]) + parts[-1]
    return " ".join(parts)


def unfinished(draw: Draw, working: str) -> str:
    """The start of a working, cut off in the middle."""
    return working[: draw.integer(len(working) // 4, len(working) * 9 // 10)]


def loop(draw: Draw, steps: Sequence[Step]) -> str:
    """A working that says one step again and again and reaches no answer."""
    position = draw.integer(0, len(steps) - 1)
    return say([*steps[:position], *[steps[position]] * draw.integer(3, 8)])


def train_pair(draw: Draw, kind: Kind, left: list[int] | range, right: list[int] | range) -> tuple[int, int]:
    """Two operands of the train split."""
    while True:
        pair = draw.choice(left), draw.choice(right)
        if split_of(pair_content(kind, *pair)) == "train":
            return pair

"""A completion's steps: one way to cut a text (labels, training, advantages, search), and equations checked exactly.

The steps joined are the text, none is empty, and what stands behind the last boundary is the last step. A setting is
`equation`, `sentence`, `newline`, or a regular expression whose matches end steps.
"""

import ast
import operator
import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from typing import Annotated

from pydantic import AfterValidator

from groupwise.errors import ConfigError
from groupwise.types import StepReward
from groupwise.verifiers.exact import UnreadableError

NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,12})?"
_TERM = rf"\(?\s*{NUMBER}\s*\)?"
_SIDE = rf"{_TERM}(?:\s*[-+−×*·/÷]\s*{_TERM}){{0,20}}"
EQUATION = re.compile(rf"(?<![0-9.=]){_SIDE}(?:\s*=\s*{_SIDE})+")
MAX_STEPS = 200  # boundaries that are looked for; what follows the last of them is one step
BOUNDARIES = {
    "equation": EQUATION,
    "sentence": re.compile(r"[.!?]\s|[。！？]"),
    "newline": re.compile(r"(?<=\S)[^\S\n]*\n"),
}
"""Ends of steps. Where a sentence or a line ends is decided by the text up to there, which an unbiased baseline
needs (`process_gae`); where an equation ends shows only in what follows it."""
DECIDED = ("sentence", "newline")
"""Settings whose ends what follows never moves; of a regular expression `inner_ends` takes the first that it sees."""
ANSWER = "</think>"  # the step in which the answer begins is the last one; only equations are steps behind it as well


def check_step(step: str) -> str:
    """A setting of steps, checked (ValueError: it is no regular expression, or one that matches the empty text)."""
    try:
        _boundary(step)
    except ConfigError as error:
        raise ValueError(str(error)) from None
    return step


Step = Annotated[str, AfterValidator(check_step)]


@lru_cache
def _boundary(step: str) -> re.Pattern[str]:
    if step in BOUNDARIES:
        return BOUNDARIES[step]
    known = f"allowed are {', '.join(BOUNDARIES)}, or a regular expression whose matches end steps"
    try:
        pattern = re.compile(step)
    except re.error as error:
        raise ConfigError(f"step = {step!r} is no regular expression ({error}); {known}") from None
    if pattern.search(""):
        raise ConfigError(f"step = {step!r} matches the empty text, so that steps would have no length; {known}")
    return pattern


def step_ends(text: str, step: str) -> list[int]:
    """Return the ends of a text's steps, in characters, increasing, up to its length (ConfigError: no such boundary).

    >>> step_ends("45×7=315. 300+15=314", "equation"), step_ends("One is 1.5. Two.</think> 3. 4.", "sentence")
    ([8, 20], [12, 30])
    """
    ends = [match.end() for match in boundaries(text, step) if match.end()]
    if ends and not text[ends[-1] :].strip():
        ends.pop()  # white space alone is no step
    return [*ends, len(text)] if text else []


def inner_ends(text: str, step: str) -> list[int]:
    r"""Return the ends of steps for a reader who goes from left to right and takes no end back, in characters.

    What is an end here stays one whatever follows, so a baseline that is read there knows nothing of the next step;
    only `equation` cannot have that, whose ends are those of the whole text. The end of the text is not among them
    unless a step ends there. White space behind the last boundary is a separate step.

    >>> inner_ends("45×7=315. 300+15=314. ", "sentence"), inner_ends("a\n\n\nb", r"\n\n+")
    ([10, 22], [3])
    """
    if step in BOUNDARIES:
        return [match.end() for match in boundaries(text, step)]
    pattern, ends, last, reasoning = _boundary(step), list[int](), 0, text.partition(ANSWER)[0]
    for read in range(1, len(reasoning) + 1):
        match = pattern.search(reasoning, last, read)
        if match and match.end() > last and len(ends) < MAX_STEPS:
            last = read  # behind the match where it looks ahead: it was not known before
            ends.append(last)
    return ends


def boundaries(text: str, step: str) -> list[re.Match[str]]:
    """Return the first `MAX_STEPS` matches that end steps of a text's reasoning, or equations anywhere."""
    reasoning = text if step == "equation" else text.partition(ANSWER)[0]
    return list(islice(_boundary(step).finditer(reasoning), MAX_STEPS))


def closed_steps(prefill: str, text: str, step: str) -> list[str]:
    """The steps of what was written so far that no later text can change; what stands behind them is not one yet.

    >>> closed_steps("", "One. Two", "sentence"), closed_steps("", "1+1=2. 2+3=5", "equation")
    (['One. '], ['1+1=2'])
    """
    whole = prefill + text
    ends = [match.end() for match in boundaries(whole, step)]
    certain = [end - len(prefill) for end in ends if step in DECIDED or end < len(whole)]
    own = [end for end in certain if end > 0]
    return [text[start:end] for start, end in zip([0, *own], own, strict=False)]


def steps_after(prefill: str, text: str, step: str) -> list[str]:
    """The steps of what was written after a prefill; a step that ends within the prefill belongs to the prompt.

    >>> steps_after("<think>One. ", "Two. Three.", "sentence")
    ['Two. ', 'Three.']
    """
    ends = [end - len(prefill) for end in step_ends(prefill + text, step) if end > len(prefill)]
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]


_TOKEN = re.compile(rf"{NUMBER}|[-+*/()]")
_SPELLINGS = str.maketrans({"−": "-", "×": "*", "·": "*", "÷": "/"})


def equation_steps(text: str) -> list[StepReward]:
    """The equations of a text, each with its end in characters: 1 where it is true and computes something, else 0."""
    return [StepReward(match.end(), float(computes(match[0]))) for match in boundaries(text, "equation")]


def computes(equation: str) -> bool:
    """True for a true equation that says more than `7 = 7` or `3+4 = 3+4`, which nothing was worked out for."""
    differ = len({"".join(side.split()) for side in equation.split("=")}) > 1
    return differ and any(sign in equation for sign in "-+−×*·/÷") and is_true(equation)


def is_true(equation: str) -> bool:
    """True when all sides have the same value.

    >>> is_true("45×7=300+15"), is_true("1=2"), is_true("1÷0=1÷0")
    (True, False, False)
    """
    values = {value(side) for side in equation.split("=")}
    return len(values) == 1 and None not in values


def value(expression: str) -> Fraction | None:
    """Exact value of a side with + - × ÷ and parentheses; None if it has none (x / 0, an open parenthesis).

    >>> value("(3 + 4) × 2")
    Fraction(14, 1)
    """
    try:
        return evaluate(_TOKEN.findall(expression.translate(_SPELLINGS)))
    except UnreadableError:
        return None


_OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def evaluate(tokens: Sequence[str]) -> Fraction | None:
    """Return the exact value of numbers with + - * / and parentheses, None after a division by zero.

    Python's grammar says what belongs together, with a name in place of each number; nothing is run as code.

    Raises UnreadableError: it is no such expression.
    """
    numbers = (Fraction(token) for token in tokens if token[0].isdigit())

    def value(node: ast.expr) -> Fraction:
        match node:
            case ast.Name():
                return next(numbers)
            case ast.BinOp(left, sign, right):
                result: Fraction = _OPERATIONS[type(sign)](value(left), value(right))
                return result
        raise SyntaxError  # a sign before a number, a call, an empty pair of parentheses

    try:
        return value(ast.parse(" ".join("n" if token[0].isdigit() else token for token in tokens), mode="eval").body)
    except ZeroDivisionError:
        return None
    except (SyntaxError, RecursionError, MemoryError):
        raise UnreadableError(f"{' '.join(tokens)[:60]!r} is no expression with + - * / and parentheses") from None

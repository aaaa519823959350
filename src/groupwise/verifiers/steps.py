"""A completion's steps: one way to cut a text, for labels, training, advantages and search.

The steps joined are the text, none is empty, and what stands behind the last boundary is the last step. A setting is
`equation`, `sentence`, `newline`, or a regular expression whose matches end steps.
"""

import re
from functools import lru_cache
from itertools import islice
from typing import Annotated

from pydantic import AfterValidator

from groupwise.errors import ConfigError

NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,12})?"
_TERM = rf"\(?\s*{NUMBER}\s*\)?"
_SIDE = rf"{_TERM}(?:\s*[-+−×*·/÷]\s*{_TERM}){{0,20}}"
EQUATION = re.compile(rf"(?<![0-9.=]){_SIDE}(?:\s*=\s*{_SIDE})+")
MAX_STEPS = 200
"""Boundaries that are looked for; what follows the last of them is one step."""
BOUNDARIES = {
    "equation": EQUATION,
    "sentence": re.compile(r"[.!?]\s|[。！？]"),
    "newline": re.compile(r"(?<=\S)[^\S\n]*\n"),
}
"""What ends a step. Where a sentence or a line ends is decided by the text up to there, which an unbiased baseline
needs (`process_gae`); where an equation ends shows only in what follows it."""
ANSWER = "</think>"
"""The step in which the answer begins is the last one; only equations are steps behind it as well."""


def check_step(step: str) -> str:
    """A setting of steps, checked.

    Raises:
        ValueError: it is no regular expression, or one that matches the empty text.
    """
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
    """Where the steps of a text end, in characters, increasing; the last is the text's length.

    >>> step_ends("45×7=315. 300+15=314", "equation"), step_ends("One is 1.5. Two.</think> 3. 4.", "sentence")
    ([8, 20], [12, 30])

    Raises:
        ConfigError: `step` is no boundary.
    """
    reasoning = text if step == "equation" else text.partition(ANSWER)[0]
    ends = [match.end() for match in boundaries(reasoning, step) if match.end()]
    if ends and not text[ends[-1] :].strip():
        ends.pop()  # white space alone is no step
    return [*ends, len(text)] if text else []


def boundaries(text: str, step: str) -> list[re.Match[str]]:
    """What ends the steps of a text, the first `MAX_STEPS` of it."""
    return list(islice(_boundary(step).finditer(text), MAX_STEPS))


def split_steps(text: str, step: str) -> list[str]:
    """The steps of a text; joined they are the text.

    >>> split_steps("45×7=315. 300+15=314. Done", "sentence")
    ['45×7=315. ', '300+15=314. ', 'Done']
    """
    ends = step_ends(text, step)
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]

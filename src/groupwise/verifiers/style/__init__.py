"""Style: the form of a completion (tags, loops) and its cost (tokens, calls of tools), as pure functions of a request.

Each measures a bounded number; none of them pays for words. To add one: a class here, and a line in `PARTS`
(`table.py`).
"""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from groupwise.config import Section, read_toml
from groupwise.errors import ConfigError
from groupwise.types import Outcome, Verdict
from groupwise.verifiers.base import Parts, Request, StylePart
from groupwise.verifiers.style.language import units

PHRASES: Mapping[str, Mapping[str, Sequence[str]]] = read_toml(Path(__file__).with_name("phrases.toml"))
"""The embedded phrases, by what a completion says with them and by language. Without regard to case, and all languages
are looked for in every completion, because a model trained by reward mixes them."""


def search(pattern: str, text: str) -> re.Match[str] | None:
    """The first place where a phrase occurs."""
    return re.search(pattern, text, re.IGNORECASE)


def _is_phrase(pattern: str) -> str:
    try:
        match = search(pattern, "")
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
    if match:
        raise ValueError(f"{pattern!r} matches the empty text, so it would be found in every completion")
    return pattern


Phrases = dict[str, tuple[Annotated[str, AfterValidator(_is_phrase)], ...]]


class PhrasesConfig(Section):
    """Phrases to add: regular expressions by language, for example `en = ["hold on"]`."""

    checks: Phrases = Field(default_factory=dict)
    """The completion checks itself."""
    backtracks: Phrases = Field(default_factory=dict)
    """It says that it went wrong and goes back."""
    another_way: Phrases = Field(default_factory=dict)
    """It announces a second way to the answer."""


class BehaviourConfig(Section):
    """Phrases that reports look for in completions; training does not read them."""

    extend: bool = True
    """Your phrases are added to the embedded ones; false: they replace those of the same behaviour and language."""
    patterns: PhrasesConfig = PhrasesConfig()
    """Phrases to look for beside the embedded ones, or in their place."""

    def phrases(self) -> dict[str, dict[str, Sequence[str]]]:
        phrases = {name: dict(table) for name, table in PHRASES.items()}
        for name, table in phrases.items():
            additions: Phrases = getattr(self.patterns, name)
            for language, patterns in additions.items():
                table[language] = (*(table.get(language, ()) if self.extend else ()), *patterns)
        return phrases


_TAG = re.compile(r"</?(?:think|answer)>")
THINKING = ["<think>", "</think>"]
ANSWERING = [*THINKING, "<answer>", "</answer>"]


class FormatPart(StylePart):
    """1 for one `<think>` with content and an answer after it, and nothing else; 0 otherwise."""

    def measure(self, request: Request, verdict: Verdict) -> float:
        return float(verdict.outcome is not Outcome.UNPARSABLE and is_tagged(request.text, request.prefill))


def is_tagged(text: str, prefill: str) -> bool:
    """True when each tag occurs once, in order, each pair holds a letter or a digit, and nothing stands outside.

    Before `<think>` the prompt's prefill may stand; behind `</think>` the answer, where there is no `<answer>`.
    """
    if (end := prefill.rfind(THINKING[1]) + len(THINKING[1])) >= len(THINKING[1]):
        # the prompt has closed the thinking, which is none of the completion's
        text, prefill = f"<think>0</think>{text[end:]}", ""
    tags = _TAG.findall(text)
    if tags not in (THINKING, ANSWERING):
        return False
    prefix, thought, *rest = _TAG.split(text)
    *gaps, answer, suffix = rest if tags == ANSWERING else [*rest, ""]
    is_bare = not (prefix[len(prefill) :] + "".join(gaps) + suffix).strip()
    return is_bare and any(map(str.isalnum, thought)) and any(map(str.isalnum, answer))


def broken_tag(text: str) -> tuple[int, int] | None:
    """Span of the first tag that is never closed, was never opened or interrupts another; None if there is no such tag.

    >>> broken_tag("<think>2+2=4")
    (0, 7)
    """
    open_tag: re.Match[str] | None = None
    for tag in _TAG.finditer(text):
        closes = tag[0].startswith("</")
        is_right = (open_tag is not None and open_tag[0][1:] == tag[0][2:]) if closes else open_tag is None
        if not is_right:
            return tag.span()
        open_tag = None if closes else tag
    return open_tag.span() if open_tag else None


MAX_PERIOD = 400  # longest block, in units, whose repetition is seen as a loop
LOOP_TIMES = 4  # number of times that a block must occur at the end of the text to be a loop
MIN_LOOP = 24  # units that a loop must cover at least, so that `1000000` or a row of dashes is none


class RepetitionPart(StylePart):
    """Repetition penalty in [-1, 0]: the share of n-grams that occurred before; -1 where the text ends in a loop.

    A completion in a loop never comes to an answer, however much good text comes before the loop.
    """

    ngram: int = Field(default=20, ge=1)
    """Length of the n-grams in words, symbols and Chinese or Japanese characters. Short ones recur in good working: at
    20 the published solutions of MATH lose 0.007 on average, at 8 already 0.05."""

    def measure(self, request: Request, verdict: Verdict) -> float:
        text = units(request.text[len(request.prefill) :])
        if request.truncated:  # the last word may have been cut
            text = text[:-1]
        if loop_period(text) is not None:
            return -1.0
        ngrams = list(zip(*(text[i:] for i in range(self.ngram)), strict=False))
        return len(set(ngrams)) / len(ngrams) - 1.0 if ngrams else 0.0


def loop_period(text: Sequence[str]) -> int | None:
    """Length of the shortest block that occurs LOOP_TIMES or more times in a row at the end; None without a loop.

    >>> loop_period(["so"] + 12 * ["wait", ","])
    2
    """
    for period in range(1, min(MAX_PERIOD, len(text) // LOOP_TIMES) + 1):
        length = max(MIN_LOOP, LOOP_TIMES * period)
        if len(text) < length or text[-1] != text[-1 - period]:
            continue
        tail = text[-length:]
        if tail[period:] == tail[:-period]:
            return period
    return None


Bounded = Annotated[float, Field(ge=-1, le=1)]
Penalty = Annotated[float, Field(ge=-1, le=0)]


class LengthPart(StylePart):
    """A measure of the length of completions; they need a limit."""

    def length_fault(self, max_tokens: int | None) -> str:
        return "" if max_tokens else f": kind {self.kind!r} needs the token limit of the completions"


class OverlongPart(LengthPart):
    """Soft overlong punishment in [-1, 0] (DAPO, arXiv:2503.14476, equation 13).

    For a length |y|: 0 up to L_max - L_cache, then (L_max - L_cache - |y|) / L_cache up to L_max, -1 beyond.
    """

    cache_tokens: int = Field(ge=1)
    """L_cache: the punishment grows over this many tokens before the limit (DAPO: 4096 of 20480)."""

    def measure(self, request: Request, verdict: Verdict) -> float | None:
        if request.num_tokens is None:
            return None
        spare = _limit(request) - self.cache_tokens - request.num_tokens
        return min(0.0, max(-1.0, spare / self.cache_tokens))

    def length_fault(self, max_tokens: int | None) -> str:
        if max_tokens is not None and self.cache_tokens > max_tokens:
            return (
                f".cache_tokens = {self.cache_tokens} is more than the token limit of the completions; at most "
                f"{max_tokens} is allowed"
            )
        return super().length_fault(max_tokens)


class CosineLengthPart(LengthPart):
    """Cosine length reward in [-1, 1] (Yeo et al. 2025, arXiv:2502.03373, section 4).

    long + (short - long) (1 + cos(pi |y| / L_max)) / 2, with one pair (short, long) for correct answers and one for all
    others, and `truncated` at the limit. The paper's rewards hold correctness too: right 2 to 1, wrong -10 to 0, out of
    tokens -10. Here the accuracy part pays for correctness, so what is left is right 1 to 0, wrong below 0.
    """

    correct_short: Bounded = 1.0
    """For a correct answer of length 0."""
    correct_long: Bounded = 0.0
    """For a correct answer at the token limit."""
    wrong_short: Penalty = -1.0
    """For a wrong answer of length 0."""
    wrong_long: Penalty = 0.0
    """For a wrong answer at the token limit."""
    truncated: Penalty = -1.0
    """For a completion that ran into the token limit."""

    def measure(self, request: Request, verdict: Verdict) -> float | None:
        if request.num_tokens is None:
            return None
        if request.truncated:
            return self.truncated
        is_correct = verdict.outcome is Outcome.CORRECT
        short, long = (self.correct_short, self.correct_long) if is_correct else (self.wrong_short, self.wrong_long)
        share = min(1.0, request.num_tokens / _limit(request))
        return long + (short - long) * (1 + math.cos(math.pi * share)) / 2


def _limit(request: Request) -> int:
    if request.max_tokens is None:
        raise ConfigError("a part measures length, but the limit of completions (max_tokens) is not known")
    return request.max_tokens


class CallsPart(StylePart):
    """Minus the number of calls, from the first one that is not free; its weight is the price of one.

    A price whose sum may exceed what a right answer earns turns the sign round: the policy then learns to be wrong
    without calls (AdaTIR, arXiv:2601.14696). A recipe with such a price is refused.
    """

    free: int = Field(default=0, ge=0)
    """Calls that cost nothing."""

    def measure(self, request: Request, verdict: Verdict) -> float | None:
        return 0.0 - max(0, request.num_calls - self.free)

    def most(self, max_calls: int) -> float:
        return self.weight * max(0, max_calls - self.free)


def check_price(parts: Parts, correct_reward: float, max_calls: int | None) -> None:
    """Refuse, by ValueError, a price of calls that no right answer with `max_calls` calls (None: no tools) can pay."""
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

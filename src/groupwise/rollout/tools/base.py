"""The interface of tools: a tool sees where a call ends, runs it, and answers with text."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from pydantic import Field

from groupwise.config.kinds import KindSection
from groupwise.sandbox.base import Closing
from groupwise.types import CallOutcome


class ToolConfig(KindSection):
    """Settings of every tool; each kind adds its own."""

    max_calls: int = Field(8, ge=0)
    """Most calls in one completion. One more ends it (`tool_limit`)."""
    max_result_tokens: int = Field(64, ge=1)
    """Most tokens of one result, its closing marks included; they count neither as length nor in the loss."""
    timeout_s: float = Field(60.0, gt=0, allow_inf_nan=False)
    """Seconds that a call may take once it has begun, for tools that run beside the sampler; a tool that takes longer
    has failed."""
    may_answer: bool = False
    r"""Let what the tool prints hold marks of an answer (`\boxed`, `<answer>`, `</think>`, ...). `false` takes
    them apart, and `extraction = "last_number"` then passes over what it prints: only the policy itself can answer."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A tool's answer to one call."""

    text: str
    outcome: CallOutcome
    seconds: float = 0.0
    evidence: str = ""
    repeatable: bool = True
    """True where the completion's later calls are told of this one."""


@dataclass(frozen=True, slots=True)
class Call:
    """A complete call that a text ends with."""

    content: str
    begin: int
    opening: str = ""
    closing: str = ""


class Seen(NamedTuple):
    """A call, and the name of the tool that it calls."""

    tool: str
    call: Call


@dataclass(frozen=True, slots=True)
class Fault:
    """A text that breaks the rules of calls: a result that the policy wrote itself, a call within a call."""

    reason: str


class Tool(Closing, ABC):
    """One tool: `look` finds calls, `run` answers them, perhaps in several threads at one time."""

    Config: ClassVar[type[ToolConfig]] = ToolConfig
    immediate: ClassVar[bool] = False
    """True where a call takes microseconds; other tools run in threads while the others continue."""
    may_be_cut: ClassVar[bool] = True
    """True where a result that is too long is cut in its middle; else the call is answered with `too_long`."""
    too_long: ClassVar[str] = ""
    parallel: int = 4
    opens: ClassVar[str]
    """Characters of which a call has at least one: a text without them is never looked at."""
    closes: ClassVar[str]
    """Characters after which there may be a call or a fault that was none before."""

    def __init__(self, config: ToolConfig | None = None) -> None:
        cls = type(self)
        self.config = config if config is not None else cls.Config(kind=f"{cls.__module__}:{cls.__qualname__}")

    @abstractmethod
    def look(self, text: str) -> Call | Fault | None:
        """Find what the text since the last result ends with; called after tokens with a character of `closes`."""

    def begins(self, text: str) -> int | None:
        """Return where the first call in the text begins, finished or not; None where there is none.

        Of several tools the one whose call began first decides (`first_call`).
        """
        found = self.look(text)
        if isinstance(found, Fault):
            return len(text)
        return None if found is None else found.begin

    def start(self) -> None:
        """Prepare what the first call would otherwise wait for; its time is not counted. May be called often."""
        return  # most tools wait for nothing

    def stops(self, text: str) -> tuple[str, ...]:
        """Return texts of which one comes before `look` can find anything: a hint for engines that pause."""
        return ()

    @abstractmethod
    def run(self, call: str, earlier: Sequence[str] = ()) -> ToolResult:
        """Answer a call; `earlier` are the contents of the completion's `repeatable` calls before it."""


def decides(text: str, tools: Mapping[str, Tool]) -> str | None:
    """The tool whose call began first in a text; of those that began together the first in the recipe."""
    begins = {name: begin for name, tool in tools.items() if (begin := tool.begins(text)) is not None}
    return min(begins, key=begins.__getitem__) if begins else None


def first_call(text: str, tools: Mapping[str, Tool]) -> Seen | Fault | None:
    """Find what a text ends with. A call that is not finished belongs to its tool alone: no other one sees into it."""
    name = next(iter(tools)) if len(tools) == 1 else decides(text, tools)
    if name is None:
        return None
    found = tools[name].look(text)
    if found is None or isinstance(found, Fault):
        return found
    if not isinstance(found, Call):
        raise TypeError(f"look of {name} gave {type(found).__name__}: allowed are Call, Fault and None")
    return Seen(name, found)


def answered(tool: Tool, call: str, earlier: Sequence[str] = ()) -> ToolResult:
    """Run a call; a tool that raises, exits or answers with something else has failed."""
    try:
        result = tool.run(call, earlier)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return failed(error)
    if not isinstance(result, ToolResult):
        return failed(f"run gave {type(result).__name__} and not ToolResult")
    if not isinstance(result.text, str) or not isinstance(result.outcome, CallOutcome):
        kinds = f"{type(result.text).__name__} and {type(result.outcome).__name__}"
        return failed(f"run gave a ToolResult of {kinds}: allowed are str and CallOutcome")
    return result


def failed(why: BaseException | str) -> ToolResult:
    """Return the result of a tool that failed."""
    return ToolResult("", CallOutcome.FAILED, evidence=said_of(why))


def said_of(why: BaseException | str) -> str:
    """A fault in words."""
    return why if isinstance(why, str) else f"{type(why).__name__}: {why}"


_MARKS = (
    (re.compile(r"\\+(?=(?:boxed|fbox)\b)"), "/"),
    (re.compile(r"<+(?=/?(?:think|answer)\b)"), "("),
    (re.compile(r"`{3,}"), "``"),
    (re.compile(r"#{4,}"), "##"),
)
"""The beginnings of boxes, tags, fences and GSM8K's final answers, and what they become."""
_STANDS_FOR = "?!._-"


def without_answers(text: str) -> str:
    r"""The text without marks of an answer or of a fence.

    >>> without_answers(r"\boxed{5}</think>")
    '/boxed{5}(/think>'
    """
    for mark, replacement in _MARKS:
        text = mark.sub(replacement, text)
    return text


def without_controls(text: str, controls: Iterable[str]) -> str:
    """The text in which no control token is spelt: each one's first character becomes another."""
    spelt = sorted((mark for mark in controls if mark), key=len, reverse=True)
    other = next((c for c in _STANDS_FOR if not any(c in mark for mark in spelt)), " ")
    for mark in spelt:
        text = text.replace(mark, other + mark[1:])
    return text


Span = tuple[int, int]


class BrokenCallError(ValueError):
    """A text with a call that breaks its tool's rules."""


class Result(NamedTuple):
    """A result in a text."""

    seen: Seen
    span: Span


def put_in_spans(text: str, tools: Mapping[str, Tool]) -> list[Span]:
    """Return the spans of every result in a text, in order; raises BrokenCallError."""
    return [result.span for result in results_in(text, tools)]


def results_in(text: str, tools: Mapping[str, Tool]) -> Iterator[Result]:
    """Return every result in a text, in order, one that is cut off up to its end; raises BrokenCallError."""
    at = begin = 0
    closes = frozenset("".join(tool.closes for tool in tools.values()))
    while at < len(text):
        at += 1
        if text[at - 1] not in closes:
            continue
        found = first_call(text[begin:at], tools)
        if isinstance(found, Fault):
            raise BrokenCallError(f"{found.reason}, at character {at}: {text[max(0, at - 40) : at]!r}")
        if found is not None:
            call = found.call
            end = text.find(call.closing, at + len(call.opening))
            end = len(text) if end < 0 else end + len(call.closing)
            yield Result(found, (at, end))
            at = begin = end

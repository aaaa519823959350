"""What a tool is: it sees where a call ends, runs it, and answers with text."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from pydantic import Field

from groupwise.closing import Closing
from groupwise.kinds import KindSection
from groupwise.types import CallOutcome


class ToolConfig(KindSection):
    """What every tool reads; each kind adds its own settings."""

    max_calls: int = Field(8, ge=0)
    """Most calls in one completion. One more ends it (`tool_limit`)."""
    max_result_tokens: int = Field(64, ge=1)
    """Most tokens of one result, its closing marks included; they count neither as length nor in the loss."""
    timeout_s: float = Field(60.0, gt=0, allow_inf_nan=False)
    """Seconds that a call may take, for tools that run beside the sampler; a tool that takes longer has failed."""
    may_answer: bool = False
    r"""Whether what the tool prints may hold marks of an answer (`\boxed`, `<answer>`, `</think>`, ...). `false` takes
    them apart, so that only the policy itself can answer."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool says to one call."""

    text: str
    """What is put in, without the marks around it."""
    outcome: CallOutcome
    seconds: float = 0.0
    evidence: str = ""
    """What went wrong, for people; never part of a completion."""


@dataclass(frozen=True, slots=True)
class Call:
    """A complete call that a text ends with."""

    content: str
    """What is to be run."""
    begin: int
    """Where it begins in the text that was looked at, in characters."""
    opening: str = ""
    """Put in before the result."""
    closing: str = ""
    """Put in after the result."""


class Seen(NamedTuple):
    """A call, and the name of the tool that it calls."""

    tool: str
    call: Call


@dataclass(frozen=True, slots=True)
class Fault:
    """A text that breaks the rules of calls: a result that the policy wrote itself, a call within a call."""

    reason: str


class Tool(Closing, ABC):
    """One tool. Subclasses have their settings in `Config` and say how calls look (`look`) and what they give (`run`).

    A tool may be asked from several threads at one time.
    """

    Config: ClassVar[type[ToolConfig]] = ToolConfig
    immediate: ClassVar[bool] = False
    """Whether a call takes microseconds: its result is then put in while the others go on. Other tools run in threads,
    and the completion goes on when it is its turn again."""
    may_be_cut: ClassVar[bool] = True
    """Whether a result that is too long is cut in its middle; else the call is answered with `too_long`."""
    too_long: ClassVar[str] = ""
    """What stands for a result that is too long and may not be cut."""
    parallel: ClassVar[int] = 4
    """Calls that run at one time, where they are not immediate."""
    opens: ClassVar[str]
    """Characters of which a call has at least one: a text without them is never looked at."""
    closes: ClassVar[str]
    """Characters after which there may be a call or a fault that was none before."""

    def __init__(self, config: ToolConfig | None = None) -> None:
        cls = type(self)
        self.config = config if config is not None else cls.Config(kind=f"{cls.__module__}:{cls.__qualname__}")

    @abstractmethod
    def look(self, text: str) -> Call | Fault | None:
        """What the text ends with; called after every token that has one of the characters `closes`.

        Args:
            text: what the policy wrote since the last result, or since the completion's beginning.
        """

    def stops(self, text: str) -> tuple[str, ...]:
        """Texts of which one comes before `look` can find anything, for engines elsewhere that can pause behind a text.

        A hint: where it is missing, such an engine samples on, and what it wrote behind a call is dropped.

        Args:
            text: as in `look`.
        """
        return ()

    @abstractmethod
    def run(self, call: str, earlier: Sequence[str] = ()) -> ToolResult:
        """The result of a call.

        Args:
            call: its content.
            earlier: the contents of the calls before it in the same completion, for tools that remember.
        """


def answered(tool: Tool, call: str, earlier: Sequence[str] = ()) -> ToolResult:
    """The result of a call; a tool that raises has failed, and never takes the run with it."""
    try:
        return tool.run(call, earlier)
    except Exception as error:
        return ToolResult("", CallOutcome.FAILED, evidence=f"{type(error).__name__}: {error}")

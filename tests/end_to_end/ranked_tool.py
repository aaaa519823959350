"""A tool for runs of random models, which call it often."""

from collections.abc import Sequence

from groupwise.rollout.tools import Call, Fault, Tool, ToolResult
from groupwise.types import CallOutcome


class Counter(Tool):
    """Says how many characters stand before a digit; runs in a thread."""

    opens = closes = "0123456789"

    def look(self, text: str) -> Call | Fault | None:
        return Call(text, 0, closing="=") if text[-1:] in tuple(self.closes) else None

    def run(self, call: str, earlier: Sequence[str] = ()) -> ToolResult:
        return ToolResult(str(len("".join([*earlier, call]))), CallOutcome.DONE)

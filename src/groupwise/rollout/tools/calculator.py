"""Tool `calculator`: `<<45×77=` is a call, and `3465>>` is put in after it (the notation of GSM8K's annotations)."""

import re
from collections.abc import Sequence

from groupwise.rollout.tools.base import Call, Fault, Tool, ToolConfig, ToolResult
from groupwise.rollout.tools.expression import MAX_CHARACTERS, ExpressionError, value_of, written
from groupwise.types import CallOutcome

BEGIN, END = "<<", ">>"
_FENCE = re.compile(r"\n[ \t]*```")
ERROR = "error"
"""Stands for a result where there is none."""


class CalculatorConfig(ToolConfig):
    """Settings of the calculator."""

    kind: str = "calculator"
    """`calculator`"""
    max_result_tokens: int = 24
    """Most tokens of one result, `>>` included. A longer one is `error`: half a number would be a wrong one."""


class Calculator(Tool):
    """Exact fractions, in this process, in microseconds."""

    Config = CalculatorConfig
    immediate = True
    may_be_cut = False
    too_long = ERROR
    opens = "<"
    closes = "=<>"

    def look(self, text: str) -> Call | Fault | None:
        """A call ends with its first `=`; nothing else can follow it, or be within it."""
        begin = text.find(BEGIN)
        if begin < 0:
            return None
        content = text[begin + len(BEGIN) :]
        expression, equals, rest = content.partition("=")
        if BEGIN in expression:
            return Fault("a call within a call")
        if END in expression:
            return Fault("a call that was closed before it had a result")
        if rest:
            return Fault("a result that the calculator did not write")
        if len(expression) > MAX_CHARACTERS:
            return Fault(f"a call of more than {MAX_CHARACTERS} characters")
        return Call(expression, begin, closing=END) if equals else None

    def begins(self, text: str) -> int | None:
        """Where `<<` is; one that a fence follows before its `=` is text, beside other tools."""
        begin = text.find(BEGIN)
        return None if begin < 0 or _FENCE.search(text[begin:].partition("=")[0]) else begin

    def stops(self, text: str) -> tuple[str, ...]:
        """What begins a call; within one, what ends it or breaks its rules."""
        return ("=", BEGIN, END) if BEGIN in text else (BEGIN,)

    def run(self, call: str, earlier: Sequence[str] = ()) -> ToolResult:
        """The value as an integer, a decimal that ends, or a fraction; `error` where there is none."""
        try:
            return ToolResult(written(value_of(call)), CallOutcome.DONE)
        except ExpressionError as error:
            return ToolResult(ERROR, CallOutcome.ERROR, evidence=str(error))

"""Tools that a completion may use: text that the policy writes is a call, and text that a tool writes answers it.

    Rose earns <<45×77=3465>> dollars.        `calculator`: what stands after `=` was put in
    ```python ... ``` ```output ... ```       `python`: the second block was put in

A tool knows text and processes, neither tokens nor models; `rollout.tool_watch` puts results into completions. To add
one: a module with a `Tool`, and a line in `TOOLS`. A recipe may name your own: `kind = "my_tools.py:Search"`.
"""

from collections.abc import Mapping
from typing import Annotated

from pydantic import StringConstraints

from groupwise.config.kinds import Kinds
from groupwise.rollout.tools.base import (
    Call,
    Fault,
    Result,
    Seen,
    Tool,
    ToolConfig,
    ToolResult,
    put_in_spans,
    results_in,
)

__all__ = [
    "TOOLS", "AnyTool", "Call", "Fault", "Result", "Seen", "Tool", "ToolConfig", "ToolName", "ToolResult",
    "ToolSections", "make_tools", "put_in_spans", "results_in",
]  # fmt: skip


TOOLS = Kinds(
    "tool",
    {
        "calculator": "groupwise.rollout.tools.calculator:Calculator",
        "python": "groupwise.rollout.tools.python:PythonTool",
    },
)

AnyTool = Annotated[ToolConfig, TOOLS]
ToolName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
"""A name of the user's own."""
ToolSections = dict[ToolName, AnyTool]
"""The `[sampling.tools.NAME]` sections of a recipe."""


def make_tools(sections: Mapping[str, ToolConfig]) -> dict[str, Tool]:
    """Make the tools of a recipe, by their names."""
    return {name: TOOLS.find(section.kind)(section) for name, section in sections.items()}

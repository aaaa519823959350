"""Tools that a completion may use: text that the policy writes is a call, and text that a tool writes answers it.

    Rose earns <<45×77=3465>> dollars.        `calculator`: what stands after `=` was put in
    ```python ... ``` ```output ... ```       `python`: the second block was put in

A tool knows text and processes, neither tokens nor models; `rollout.tool_watch` puts results into completions. To add
one: a module with a `Tool`, and a line in `TOOLS`. A recipe may name your own: `kind = "my_tools.py:Search"`.
"""

from groupwise.rollout.tools.base import Call, Fault, Seen, Tool, ToolConfig, ToolResult
from groupwise.rollout.tools.spans import Result, put_in_spans, results_in
from groupwise.rollout.tools.table import TOOLS, AnyTool, ToolName, ToolSections, make_tools

__all__ = [
    "TOOLS",
    "AnyTool",
    "Call",
    "Fault",
    "Result",
    "Seen",
    "Tool",
    "ToolConfig",
    "ToolName",
    "ToolResult",
    "ToolSections",
    "make_tools",
    "put_in_spans",
    "results_in",
]

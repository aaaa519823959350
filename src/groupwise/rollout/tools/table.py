"""The tools by name."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import StringConstraints

from groupwise.config.kinds import Kinds
from groupwise.rollout.tools.base import Tool, ToolConfig

TOOLS = Kinds(
    "tool",
    {
        "calculator": "groupwise.rollout.tools.calculator:Calculator",
        "python": "groupwise.rollout.tools.python:PythonTool",
    },
)
"""Where each is defined."""

AnyTool = Annotated[ToolConfig, TOOLS]
ToolName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
"""A name of the user's own."""
ToolSections = dict[ToolName, AnyTool]
"""The `[sampling.tools.NAME]` sections of a recipe."""


def make_tools(sections: Mapping[str, ToolConfig]) -> dict[str, Tool]:
    """The tools of a recipe by their names."""
    return {name: TOOLS.find(section.kind)(section) for name, section in sections.items()}

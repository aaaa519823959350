"""Fixtures that make the echo tool, and policies that write given texts."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from echo_tool import CALCULATOR, PROMPT, Echo, EchoConfig, config, ids_of, sample

from groupwise.models.policy import Policy
from groupwise.rollout import in_process
from groupwise.rollout.engine import Request, Sampled
from groupwise.rollout.sampling import Drawn, SamplingConfig
from groupwise.rollout.tools import ToolConfig, make_tools


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sections of the echo make the echo."""
    Echo.ran.clear()
    monkeypatch.setattr(
        "groupwise.rollout.tool_watch.make_tools",
        lambda sections: {
            name: Echo(section) if isinstance(section, EchoConfig) else make_tools({name: section})[name]
            for name, section in sections.items()
        },
    )


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch, tiny_policy: Callable[..., Policy]) -> Callable[..., Sampled]:
    """writes(text, tools) -> the completion of a policy that draws these characters, whatever is put in between."""

    def write(text: str, tools: dict[str, ToolConfig] = CALCULATOR, **changes: Any) -> Sampled:
        policy = tiny_policy()
        wanted = [*ids_of(policy, text), 1]
        drawn = iter(wanted)
        rows = {"sampled": 0}

        def scripted(logits: torch.Tensor, uniforms: torch.Tensor, _config: SamplingConfig) -> Drawn:
            token = next(drawn) if not rows["sampled"] else 5
            zeros = torch.full((1,), -0.5)
            return Drawn(torch.tensor([token]), zeros, -zeros)

        real = in_process.ToolRows.force

        def watching(self: Any, *arguments: Any) -> None:
            real(self, *arguments)
            rows["sampled"] = len(self._coming)

        monkeypatch.setattr(in_process, "draw", scripted)
        monkeypatch.setattr(in_process.ToolRows, "force", watching)
        look = in_process.ToolRows.look

        def looking(self: Any, *arguments: Any) -> None:
            look(self, *arguments)
            rows["sampled"] = len(self._coming)

        monkeypatch.setattr(in_process.ToolRows, "look", looking)
        [[one]] = sample(policy, [Request(PROMPT, (1,))], config(tools, **changes))
        return one

    return write

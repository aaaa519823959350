"""Stage `play`: episodes of an environment in which a script speaks, to fine-tune on before reinforcement learning.

The script says what perfect play says, or, at a share of the turns, anything that may be said: so the model learns the
form of a turn, and what remains is to be learnt from rewards.
"""

from collections import Counter
from dataclasses import replace
from itertools import groupby
from typing import Any

from pydantic import Field

from groupwise.config import Section
from groupwise.errors import ConfigError
from groupwise.pipeline.base import Made, Stage, Workplace
from groupwise.randomness import Draw, key
from groupwise.rollout.calls import as_hermes
from groupwise.runs.progress import counted
from groupwise.tasks import TaskOptions, make_task
from groupwise.tasks.base import split_problems
from groupwise.tasks.episodes import EpisodesConfig, Script, scripted
from groupwise.types import Problem


class PlayConfig(Section):
    """Settings of the stage."""

    task: TaskOptions
    """The task, of the kind `episodes`, whose environment knows what may be said."""
    num_rows: int = Field(1000, ge=1)
    """Episodes, of the training problems from the last on; again from there where there are fewer."""
    random: float = Field(0.5, ge=0, le=1)
    """Share of turns that are drawn from all that may be said; the others are perfect play."""
    aloud: bool = False
    """Write what perfect play works out before a turn, where its game knows that, between `<think>` and `</think>`."""
    seed: int
    """Seed of all draws."""


class Play(Stage[PlayConfig]):
    """Write episodes; nothing is sampled."""

    Config = PlayConfig
    makes = "data"

    def run(self, settings: PlayConfig, work: Workplace) -> Made:
        config = settings.task
        if not isinstance(config, EpisodesConfig):
            raise ConfigError(f"task.kind = {config.kind!r} is not played; allowed is 'episodes'")
        problems = split_problems(make_task(config), "train", None)[::-1]
        rows, outcomes = list[dict[str, Any]](), Counter[str]()
        for index in counted("episodes played", range(settings.num_rows), settings.num_rows):
            problem, draw = problems[index % len(problems)], Draw("play", settings.seed, index)
            played = scripted(config.environment, problem, key("play", settings.seed, index), settings.random, draw)
            if played is None:
                raise ConfigError(f"environment.kind = {config.environment.kind!r} knows neither `best` nor `options`")
            outcome = (played.replies[-1].outcome or "done") if played.is_done else "cut"
            outcomes[outcome] += 1
            played = played if settings.aloud else played._replace(workings=[""] * len(played.turns))
            rows.append({**_row(config, problem, played), "source": "play", "problem": problem.id, "outcome": outcome})
        statistics = {"rows": len(rows), "outcomes": dict(sorted(outcomes.items()))}
        return work.made(rows, statistics)


def _row(config: EpisodesConfig, problem: Problem, played: Script) -> dict[str, Any]:
    """Return an episode as a row of data: messages for a chat template, else its texts and which are learnt.

    They are those of `rollout.dialogue`: what is learnt here is what is sampled later.
    """
    template, pieces = config.template, list[tuple[str, bool]]()
    messages, begins = [dict(message) for message in played.opening.messages], ""
    if template.chat:
        asked = replace(problem, question="\n".join(message["content"] for message in messages))
        if played.opening.tools or [message["role"] for message in messages] != ["user"]:
            asked = replace(asked, messages=tuple(messages))
        messages, begins = template.messages(asked), template.prefill
    for turn, reply, working in zip(played.turns, played.replies, played.workings, strict=True):
        content = begins + (f"<think>{working}</think>{turn.text}" if working else turn.text)
        said: dict[str, Any] = {"role": "assistant", "content": content}
        if calls := [{"name": attempt.name, "arguments": dict(attempt.arguments)} for attempt in turn.calls]:
            said["tool_calls"] = [{"type": "function", "function": call} for call in calls]
        messages += [said, *map(dict, reply.messages)]
    while messages[-1]["role"] != "assistant":
        messages.pop()
    if template.chat:
        tools = {"tools": list(played.opening.tools), "calls": config.environment.calls} if played.opening.tools else {}
        return {"messages": messages, **tools}
    if config.environment.calls != "hermes" and any("tool_calls" in message for message in messages):
        raise ConfigError(
            f"task.environment.calls = {config.environment.calls!r}: without a chat template (task.template.chat = "
            "true) calls are written as 'hermes' alone"
        )
    for is_own, group in groupby(messages, lambda message: message["role"] == "assistant"):
        text = "\n".join(map(as_hermes, group))
        pieces.append((text if is_own else template.render(replace(problem, question=text)) + template.prefill, is_own))
    return {"pieces": pieces}

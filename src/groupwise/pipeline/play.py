"""Stage `play`: episodes of an environment in which a script speaks, to fine-tune on before reinforcement learning.

The script says what perfect play says, or, at a share of the turns, anything that may be said: so the model learns the
form of a turn, and what remains is to be learnt from rewards.
"""

from collections import Counter
from typing import Any

from pydantic import Field

from groupwise.config import Section
from groupwise.errors import ConfigError
from groupwise.pipeline.base import Made, Stage, Workplace
from groupwise.pipeline.directory import write_rows
from groupwise.randomness import Draw, key
from groupwise.tasks import TaskOptions, make_task
from groupwise.tasks.base import split_problems
from groupwise.tasks.environments.base import Turn
from groupwise.tasks.episodes import EpisodesConfig


class PlayConfig(Section):
    """Settings of the stage."""

    task: TaskOptions
    """The task, of the kind `episodes`, whose environment knows what may be said."""
    num_rows: int = Field(1000, ge=1)
    """Episodes, of the training problems from the last on; again from there where there are fewer."""
    random: float = Field(0.5, ge=0, le=1)
    """Share of turns that are drawn from all that may be said; the others are perfect play."""
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
        for index in range(settings.num_rows):
            problem, draw = problems[index % len(problems)], Draw("play", settings.seed, index)
            environment = config.environment_class(config.environment)
            opening = environment.start(problem, key("play", settings.seed, index))
            messages, outcome = [*opening.messages], "cut"
            for _ in range(config.environment.max_turns):
                options, best = environment.options(), environment.best()
                if not options and best is None:
                    raise ConfigError(
                        f"environment.kind = {config.environment.kind!r} knows neither `best` nor `options`"
                    )
                is_random = options and (best is None or draw.uniform() < settings.random)
                said = draw.choice(options) if is_random else str(best)
                reply = environment.step(Turn(said))
                messages.append({"role": "assistant", "content": said})
                if reply.done:
                    outcome = reply.outcome
                    break
                messages += reply.messages
            while messages[-1]["role"] != "assistant":
                messages.pop()
            outcomes[outcome or "done"] += 1
            rows.append({**written(config, messages), "source": "play", "problem": problem.id, "outcome": outcome})
        digest = write_rows(work.directory.data, rows)
        statistics = {"rows": len(rows), "outcomes": dict(sorted(outcomes.items()))}
        return Made(work.directory.data, digest, statistics=statistics)


def written(config: EpisodesConfig, messages: list[Any]) -> dict[str, Any]:
    """Return a conversation as a row of data: messages for a chat template, else its texts and which are learnt."""
    template = config.template
    if template.chat:
        return {"messages": messages}
    pieces = list[tuple[str, bool]]()
    for message in messages:
        is_own = message["role"] == "assistant"
        text = message["content"] if is_own else template.prompt.replace("{question}", message["content"])
        pieces.append((text, is_own) if is_own else (text + template.prefill, is_own))
    return {"pieces": pieces}

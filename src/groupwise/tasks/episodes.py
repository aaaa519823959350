"""Problems that are played turn by turn in an environment.

    [task]
    kind = "episodes"
    environment = { kind = "guess", highest = 63 }

The environment brings its problems, or `problems` is any other task, each of whose problems begins an episode.
"""

import asyncio
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Annotated, Any, ClassVar, NamedTuple, Self

from pydantic import Field, model_validator

from groupwise.errors import ConfigError, VerifierError
from groupwise.randomness import Draw, key
from groupwise.tasks.base import Candidate, GeneratedConfig, GeneratedTask, TaskConfig, Verify, first_of_split, split_of
from groupwise.tasks.environments.base import ENVIRONMENTS, Environment, EnvironmentConfig, Opening, Reply, Turn
from groupwise.tasks.table import TaskOptions, make_task
from groupwise.types import SPLITS, Problem, Split

FEW = 200
"""Problems of an environment, below which a split may be empty by chance."""


class EpisodesConfig(GeneratedConfig):
    """Settings of episodes."""

    environment: Annotated[EnvironmentConfig, ENVIRONMENTS]
    """Plays with the model: `guess`, or `file.py:Class` for your own (docs/do/environments.md)."""
    problems: TaskOptions | None = None
    """Source of the problems, for example `{kind = "jsonl", path = "rows.jsonl"}`; None: the environment's own."""
    num_problems: int = Field(default=1000, ge=1)
    """Most problems in the train split, where the environment brings them."""
    num_eval_problems: int = Field(default=200, ge=1)
    """Most problems in the dev split, and in the test split, where the environment brings them."""

    @model_validator(mode="after")
    def _has_problems(self) -> Self:
        if self.problems is None and self.environment_class.problems(self.environment) is None:
            raise ValueError(
                f"environment.kind = {self.environment.kind!r} brings no problems; problems is needed, for example "
                '{kind = "jsonl", path = "rows.jsonl"}'
            )
        return self

    @property
    def environment_class(self) -> type[Environment]:
        found: type[Environment] = ENVIRONMENTS.find(self.environment.kind)
        return found


class Episodes(GeneratedTask):
    """Problems of several turns."""

    name: ClassVar[str] = "episodes"
    verifier: ClassVar[str] = "episode"
    answers_any_question: ClassVar[bool] = False
    Config = EpisodesConfig  # type: ignore[assignment]
    config: EpisodesConfig

    def candidates(self) -> Iterator[Candidate]:
        for problem in self.config.environment_class.problems(self.config.environment) or ():
            yield problem.id, problem

    def problems(self, split: Split) -> Sequence[Problem]:
        if split not in self._problems:
            config, environment = self.config, self.config.environment
            if config.problems:
                task = make_task(config.problems)
                rows = task.undivided() or ()
                same = len({problem.question for problem in rows}) < len(rows)
                found: Sequence[Problem] = _divided(rows)[split] if same else task.problems(split)
                if getattr(environment, "verifier", "") is None:
                    environment = environment.model_copy(update={"verifier": task.verifier_config})
            else:
                number = config.num_problems if split == "train" else config.num_eval_problems
                found = first_of_split(islice(self.candidates(), 100 * number + 10_000), split, number)
                few = [problem for _, problem in islice(self.candidates(), FEW)]
                if len(few) < FEW and {split_of(problem.id) for problem in few} != {*SPLITS}:
                    found = _divided(few)[split]
            self._problems[split] = tuple(replace(problem, environment=environment) for problem in found)
        return self._problems[split]

    def validate(self, verify: Verify, must_accept: bool = True) -> None:
        """Prove, where the environment knows perfect play, that it ends (VerifierError: names problem and turns)."""
        for problem in self.problems("train")[:4]:
            script = scripted(self.config.environment, problem, 0, 0.0, Draw("script", problem.id, 0))
            if script is not None and not script.is_done:
                raise VerifierError(
                    f"perfect play of {problem.id} is not done after max_turns = {self.config.environment.max_turns} "
                    f"turns; its first were {[turn.text or turn.attempts for turn in script.turns[:3]]}"
                )


def _divided(problems: Sequence[Problem]) -> dict[Split, Sequence[Problem]]:
    """Divide problems by all that tells them apart, which their questions may not: a twentieth for dev and for test."""
    if len(problems) < len(SPLITS):
        raise ConfigError(f"{len(problems)} problems; allowed are at least 3, for train, dev and test")
    ordered = sorted(problems, key=lambda problem: key("split", problem.question, repr(sorted(problem.data.items()))))
    size = max(1, len(ordered) // 20)
    return {"dev": ordered[:size], "test": ordered[size : 2 * size], "train": ordered[2 * size :]}


def environments(config: TaskConfig) -> list[EnvironmentConfig]:
    """Return the environments in which a task's problems are played, those of a mixture's parts included."""
    own = [config.environment] if isinstance(config, EpisodesConfig) else []
    return own + [each for part in getattr(config, "parts", {}).values() for each in environments(part.task)]


class Script(NamedTuple):
    """An episode that nobody sampled."""

    opening: Opening
    turns: list[Turn]
    replies: list[Reply]
    workings: list[str]
    """By turn, what perfect play works out before it; empty behind a random turn."""

    @property
    def is_done(self) -> bool:
        return self.replies[-1].done


def scripted(config: EnvironmentConfig, problem: Problem, seed: int, random: float, draw: Draw) -> Script | None:
    """Play a problem: a turn is perfect play, or at this share anything that may be said.

    None where the environment knows neither.
    """
    found: type[Environment] = ENVIRONMENTS.find(config.kind)
    if found.best is Environment.best and found.options is Environment.options:
        return None
    environment = found(config)
    try:
        script = Script(_now(environment.start(problem, seed)), [], [], [])
        for _ in range(config.max_turns):
            options, best = environment.options(), environment.best()
            if {0.0: best is None, 1.0: not options}.get(random, best is None and not options):
                return None
            is_random = options and (best is None or draw.uniform() < random)
            said = draw.choice(options) if is_random else best
            script.workings.append("" if is_random else environment.working())
            script.turns.append(said if isinstance(said, Turn) else Turn(str(said)))
            script.replies.append(_now(environment.step(script.turns[-1])))
            if script.is_done:
                break
        return script
    finally:
        environment.close()


def _now(answer: Any) -> Any:
    async def waited() -> Any:
        return await answer

    return asyncio.run(waited()) if inspect.isawaitable(answer) else answer

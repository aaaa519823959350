"""The generators of the library `reasoning-gym` as one task, each problem scored as its own generator says.

[task]
kind = "reasoning_gym"
datasets = ["leg_counting", "spell_backward"]
settings = { leg_counting = { max_animals = 4 } }
"""

import json
from collections.abc import Iterator
from itertools import chain, count
from typing import ClassVar

from pydantic import Field, JsonValue

from groupwise.errors import ConfigError
from groupwise.randomness import key
from groupwise.tasks.base import Candidate, GeneratedConfig, GeneratedTask, Template
from groupwise.types import Problem
from groupwise.verifiers.python import MEMORY_BYTES
from groupwise.verifiers.workers import WorkerPool

SEED = 0
BATCH = 8  # problems of a generator that are asked for together
TIMEOUT_S = 600.0  # of a batch; some generators search for seconds
ANSWERS_IN_TAGS = Template(
    prompt=(
        "The user asks a question and the assistant answers it. The assistant first thinks inside <think> </think> and "
        "then gives only the answer inside <answer> </answer>.\nUser: {question}\nAssistant:"
    ),
    gold="<think></think><answer>{reference}</answer>",
)


class ReasoningGymConfig(GeneratedConfig):
    """The generators, and their dials."""

    template: Template = ANSWERS_IN_TAGS
    """Makes the prompt of a problem; answers are read from the one `<answer></answer>`."""
    datasets: tuple[str, ...] = Field(min_length=1)
    """Names of generators of `reasoning-gym`; their problems take turns."""
    settings: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    """Dials of generators by their names, as the library documents them."""


class ReasoningGym(GeneratedTask):
    """Problems of reasoning-gym; a split is a function of the question alone."""

    Config: ClassVar[type[GeneratedConfig]] = ReasoningGymConfig
    name: ClassVar[str] = "reasoning_gym"
    verifier: ClassVar[str] = "reasoning_gym"
    answers_any_question: ClassVar[bool] = False
    config: ReasoningGymConfig

    def __init__(self, config: ReasoningGymConfig) -> None:
        super().__init__(config)
        for name in config.settings:
            if name not in config.datasets:
                raise ConfigError(f"task.settings.{name}: not one of task.datasets = {', '.join(config.datasets)}")

    def candidates(self) -> Iterator[Candidate]:
        # not made here: many generators choose from a set, whose order differs between two runs of Python
        pool = WorkerPool("groupwise.verifiers.python:asked", 1, MEMORY_BYTES, inherit=True)
        parts = [self._of(name, pool) for name in dict.fromkeys(self.config.datasets)]
        return chain.from_iterable(zip(*parts, strict=True))

    def _of(self, name: str, pool: WorkerPool) -> Iterator[Candidate]:
        dials = json.dumps(self.config.settings.get(name, {}), sort_keys=True)
        source = {"dataset": name, "seed": SEED, "settings": dials}
        for begin in count(0, BATCH):
            reply = pool.call({"of": source, "indices": list(range(begin, begin + BATCH))}, TIMEOUT_S)
            if reply.status != "ok":
                raise ConfigError(f"task.datasets: {reply.evidence.removeprefix('ConfigError: ')}")
            for index, (question, reference) in enumerate(reply.value, begin):
                content = f"{name}\n{question}"
                identity = f"{name}/{key('reasoning-gym', content):016x}"
                yield content, Problem(identity, question, reference, name, data={**source, "index": index})

"""The generators of the library `reasoning-gym` as one task, each problem scored as its own generator says.

[task]
kind = "reasoning_gym"
datasets = ["leg_counting", "spell_backward"]
settings = { leg_counting = { max_animals = 4 } }
"""

import json
from collections.abc import Iterator
from itertools import count
from typing import ClassVar

from pydantic import Field, JsonValue

from groupwise.errors import ConfigError
from groupwise.randomness import key
from groupwise.tasks.base import Candidate, GeneratedConfig, GeneratedTask, Template
from groupwise.types import Problem
from groupwise.verifiers.python import generator

SEED = 0
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
        dials = {name: json.dumps(self.config.settings.get(name, {}), sort_keys=True) for name in self.config.datasets}
        generators = {name: generator(name, SEED, dials[name]) for name in self.config.datasets}
        for index in count():
            for name, problems in generators.items():
                entry = problems[index]
                content = f"{name}\n{entry['question']}"
                source = {"dataset": name, "seed": SEED, "settings": dials[name], "index": index}
                reference = "" if entry["answer"] is None else str(entry["answer"])
                identity = f"{name}/{key('reasoning-gym', content):016x}"
                yield content, Problem(identity, entry["question"], reference, name, data=source)

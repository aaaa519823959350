"""Single-turn environments of the library `verifiers`: their rows are the problems, their rubric is the verifier.

[task]
kind = "verifiers"
environment = "my_env.py:load_environment"   # or the name of an installed environment
arguments = { difficulty = "hard" }

The environment is loaded in worker processes only. What asks a model more than once (tools, several turns, judges) is
refused by name before a model loads.
"""

import json
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, JsonValue, ValidationInfo, field_validator, model_validator

from groupwise.config import FOLDER
from groupwise.config.kinds import Kinds, beside
from groupwise.errors import ConfigError, DataError
from groupwise.randomness import key
from groupwise.tasks.base import Task, TaskConfig, Template
from groupwise.types import SPLITS, Problem, Split
from groupwise.verifiers.environment import KEY, TARGET
from groupwise.verifiers.workers.pool import WorkerPool

SPOKEN = {"user": "User: ", "assistant": "Assistant: ", "system": ""}
"""What comes before a message in a prompt without a chat template."""


class MessagesTemplate(Template):
    """The environment's own messages, system prompt and examples included."""

    kind: str = "messages"
    """`messages`: the messages of the problem's row; without `chat` as text with `User:` and `Assistant:`."""
    prompt: str = "{question}\nAssistant:"
    """What the model reads without `chat`; `{question}` is replaced by all messages."""
    gold: str = "{reference}"
    """An ideal answer, prefill included; `{reference}` is replaced by the row's answer."""

    @model_validator(mode="after")
    def _check_system(self) -> Self:
        if self.system:
            raise ValueError("system is the environment's own here; leave it out")
        return self

    def messages(self, problem: Problem) -> list[dict[str, str]]:
        """The messages of the row."""
        messages: list[dict[str, str]] = problem.data[KEY]["messages"]
        return messages


TEMPLATES = Kinds(
    "template",
    {"messages": f"{__name__}:MessagesTemplate", "text": "groupwise.tasks.base:Template"},
    default="messages",
    base=Template,
)
"""The templates by name."""


class EnvironmentConfig(TaskConfig):
    """Which environment, and how its rows are split."""

    template: Annotated[Template, TEMPLATES] = MessagesTemplate()
    """How a problem becomes a prompt."""
    environment: str
    """`file.py:function` or `package.module:function` that returns it, or the name of an installed environment."""
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    """Arguments of that function, by name."""
    dev_fraction: float = Field(default=0.05, ge=0, lt=1)
    """Share of the training rows set aside as the dev split, by a hash of the messages."""
    test_fraction: float = Field(default=0.0, ge=0, lt=1)
    """Share of the training rows set aside as the test split, if the environment has no data to evaluate on."""
    load_timeout_s: float = Field(default=600.0, gt=0, allow_inf_nan=False)
    """Seconds the environment may take to load and to list its rows."""

    @field_validator("environment")
    @classmethod
    def _resolve_place(cls, environment: str, info: ValidationInfo) -> str:
        try:
            return beside(environment, (info.context or {}).get(FOLDER))
        except ConfigError as error:
            raise ValueError(str(error)) from error

    @model_validator(mode="after")
    def _check_fractions(self) -> Self:
        if self.dev_fraction + self.test_fraction >= 1:
            raise ValueError("`dev_fraction` + `test_fraction` must be below 1, or nothing is left to train on")
        return self


class Environment(Task):
    """The rows of an environment; those to evaluate on are the test split, and are left out of training."""

    name: ClassVar[str] = "verifiers"
    Config = EnvironmentConfig
    verifier: ClassVar[str] = "verifiers"
    answers_any_question: ClassVar[bool] = False
    config: EnvironmentConfig

    def problems(self, split: Split) -> Sequence[Problem]:
        """The split's problems in the order of the rows.

        Raises:
            ConfigError: the environment cannot be used; says why.
            DataError: it has no such split.
        """
        splits = self._splits()
        if not splits[split]:
            available = ", ".join(name for name in SPLITS if splits[name]) or "nothing"
            raise DataError(f"the environment {self.config.environment} has no {split} split; it has: {available}")
        return splits[split]

    def _splits(self) -> dict[Split, list[Problem]]:
        arguments = json.dumps(self.config.arguments, sort_keys=True)
        rows = _rows(self.config.environment, arguments, self.config.load_timeout_s)
        problems = {part: [self._problem(part, *row, arguments) for row in enumerate(rows[part])] for part in rows}
        splits: dict[Split, list[Problem]] = {"train": [], "dev": [], "test": list(problems["test"])}
        test_questions = {problem.question for problem in splits["test"]}
        training = [problem for problem in problems["train"] if problem.question not in test_questions]
        if count := len(problems["train"]) - len(training):
            warnings.warn(
                f"{count} training rows of the environment {self.config.environment} are also rows to evaluate on; "
                "they are left out of training", stacklevel=2,
            )  # fmt: skip
        for problem in training:
            splits[self._split_of(problem.question, bool(test_questions))].append(problem)
        return splits

    def _split_of(self, question: str, has_tests: bool) -> Split:
        config, point = self.config, key("split", question) / 2**64
        share = 0.0 if has_tests else config.test_fraction
        return "dev" if point < config.dev_fraction else "test" if point < config.dev_fraction + share else "train"

    def _problem(self, part: str, index: int, row: dict[str, Any], arguments: str) -> Problem:
        origin = {"environment": self.config.environment, "arguments": arguments, "part": part, "row": index,
                 "messages": row["messages"]}  # fmt: skip
        question = "\n".join(SPOKEN[message["role"]] + message["content"] for message in row["messages"])
        kind = row["fields"].get("task")
        difficulty = kind if isinstance(kind, str) and kind != "default" else ""
        label = Path(self.config.environment.rpartition(":")[0] or self.config.environment).stem
        return Problem(
            f"{label}/{part}-{index}", question, row["answer"], difficulty, data={**row["fields"], KEY: origin}
        )


@cache
def _rows(environment: str, arguments: str, timeout_s: float) -> dict[str, list[dict[str, Any]]]:
    """The rows to train and to test on, from a separate process."""
    pool = WorkerPool(TARGET, memory_bytes=16 << 30, inherit=True)
    try:
        reply = pool.call({"environment": environment, "arguments": arguments, "rows": True}, timeout_s)
    finally:
        pool.close()
    if reply.status != "ok":
        raise ConfigError(f"task.environment = {environment!r} cannot be used: "
                          + reply.evidence.removeprefix("ConfigError: "))  # fmt: skip
    rows: dict[str, list[dict[str, Any]]] = reply.value
    return rows

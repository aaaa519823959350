"""The dials of the jsonl task and its default template."""

import re
from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from groupwise.artifacts import DataRef
from groupwise.tasks.base import TEMPLATES, TaskConfig, Template
from groupwise.tasks.jsonl_presets import PRESETS
from groupwise.tasks.jsonl_records import BOXED

REASONING = Template(
    prompt=(
        "The user asks a question and the assistant answers it. The assistant first works the problem out step by step "
        "inside <think> </think>, checking what it finds, and then gives only the final answer inside \\boxed{}.\n"
        "User: {question}\nAssistant:"
    )
)
"""Default template: the form of DeepSeek-R1-Zero's, in words of our own."""


class JsonlConfig(TaskConfig):
    """Dials of the jsonl task: one of `preset`, `path` / `test_path`, or `hub`."""

    template: Annotated[Template, TEMPLATES] = REASONING
    """How a problem becomes a prompt."""
    preset: Literal["gsm8k", "math", "math500", "svamp", "aime"] | None = None
    """A benchmark whose files and fields are known; `aime` needs a `path`, a `test_path` or a `hub` name. Any
    other dial that is set comes before the preset's."""
    data_dir: str = "../shared/data"
    """Directory of the presets' files, from the working directory."""
    path: DataRef | None = None
    """File of problems to train on, `.jsonl`, `.json` (a list) or `.parquet`, or a directory that `datasets` saved."""
    test_path: DataRef | None = None
    """File of problems to test on."""
    hub: str | None = None
    """Name of a data set of the Hugging Face hub."""
    hub_config: str | None = None
    """Configuration of that data set, for example `main`."""
    hub_split: str | None = None
    """Split of that data set to train on."""
    hub_test_split: str | None = None
    """Split of that data set to test on."""
    question_field: str | tuple[str, ...] | None = None
    """Field of the question; several are joined with a space. Without a preset: `question`."""
    answer_field: str | None = None
    """Field of the reference answer. Without a preset: `answer`. Empty: there are none, and the verifier needs none."""
    answer_pattern: str | None = None
    r"""Where the answer stands in its field: a regular expression with one group (the last match counts), or `boxed`
    for the last `\boxed{}`. Without it the whole field is the answer."""
    difficulty_field: str | None = None
    """Field by which evaluation groups its results."""
    language: str = "en"
    """Language of the questions (ISO 639-1)."""
    dev_fraction: float = Field(default=0.05, ge=0, lt=1)
    """Share of the training problems kept apart as dev split, by a hash of the question."""
    test_fraction: float | None = Field(default=None, ge=0, lt=1)
    """Share of the training problems kept apart as test split, where there is no file to test on."""
    empty_answers: int | None = Field(default=None, ge=0)
    """How many records of the training data are known to have no answer. They are left out; any other number is an
    error. Without a preset: 0."""
    repeated_questions: int | None = Field(default=None, ge=0)
    """How many questions of the training data are known to stand in the test data too. They are left out of training;
    any other number is an error. Without a preset: 0."""

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        local = self.path is not None or self.test_path is not None
        if self.hub is not None and local:
            raise ValueError("`hub` and `path` / `test_path` are both set; exactly one source is allowed")
        if self.hub is None and not local and self.preset in (None, "aime"):
            raise ValueError(
                "no problems: set `preset`, `path`, `test_path` or `hub` (for `aime` one of the last three)"
            )
        if self.hub is None and (self.hub_config or self.hub_split or self.hub_test_split):
            raise ValueError("`hub_config`, `hub_split` and `hub_test_split` are allowed only with `hub`")
        if (self.test_path or self.hub_test_split) and self.test_fraction:
            raise ValueError("`test_fraction` is allowed only where there is no `test_path` or `hub_test_split`")
        if self.dev_fraction + (self.test_fraction or 0) >= 1:
            raise ValueError("`dev_fraction` + `test_fraction` must be below 1, or nothing is left to train on")
        if self.answer_pattern not in (None, BOXED):
            _check_pattern(self.answer_pattern)
        return self

    def files_read(self) -> Iterator[str]:
        """The preset's files."""
        if known := PRESETS.get(self.preset or ""):
            yield from (f"{self.data_dir}/{source.path}" for source in (known.train, known.test) if source.path)


def _check_pattern(pattern: str) -> None:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise ValueError(f"answer_pattern {pattern!r} is not a regular expression: {error}") from None
    if groups != 1:
        raise ValueError(f"answer_pattern {pattern!r} has {groups} groups; exactly one is allowed")

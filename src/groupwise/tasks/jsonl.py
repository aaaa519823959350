"""Problems from files or from the Hugging Face hub: benchmarks by name (`preset`), or your own data.

Training files are split into train and dev by a hash of the question; a file for testing is never trained on, and a
question that stands in both is refused.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from groupwise.errors import DataError
from groupwise.randomness import key
from groupwise.tasks.base import Task, TaskConfig, Template
from groupwise.tasks.jsonl_presets import PRESETS, Preset, Source
from groupwise.tasks.jsonl_records import BOXED, Record, answer_of, read_file, read_hub, text_of
from groupwise.types import SPLITS, Problem, Split

REASONING = Template(
    prompt=(
        "The user asks a question and the assistant answers it. The assistant first works the problem out step by step "
        "inside <think> </think>, checking what it finds, and then gives only the final answer inside \\boxed{}.\n"
        "User: {question}\nAssistant:"
    )
)
"""Default template: the form of DeepSeek-R1-Zero's, in words of our own."""


Role = Literal["train", "test"]


class JsonlConfig(TaskConfig):
    """Dials of the jsonl task: one of `preset`, `path` / `test_path`, or `hub`."""

    name: Literal["jsonl"] = "jsonl"
    template: Template = REASONING
    preset: Literal["gsm8k", "math", "math500", "svamp", "aime"] | None = None
    """A benchmark whose files and fields are known; `aime` needs a `path`, a `test_path` or a `hub` name. Any
    other dial that is set comes before the preset's."""
    data_dir: str = "../shared/data"
    """Directory of the presets' files, from the working directory."""
    path: str | None = None
    """File of problems to train on, `.jsonl` or `.json` (a list)."""
    test_path: str | None = None
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
    """Field of the reference answer. Without a preset: `answer`."""
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


def _check_pattern(pattern: str) -> None:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise ValueError(f"answer_pattern {pattern!r} is not a regular expression: {error}") from None
    if groups != 1:
        raise ValueError(f"answer_pattern {pattern!r} has {groups} groups; exactly one is allowed")


class Jsonl(Task):
    """Problems from files or from the hub."""

    name: ClassVar[str] = "jsonl"
    config: JsonlConfig

    def __init__(self, config: JsonlConfig) -> None:
        super().__init__(config)
        self._preset = PRESETS[config.preset] if config.preset else Preset()
        self._problems: dict[Split, Sequence[Problem]] | None = None

    def problems(self, split: Split) -> Sequence[Problem]:
        """The split's problems in the order of the file.

        Raises:
            DataError: the files cannot be used, or this source has no such split.
        """
        if self._problems is None:
            self._problems = self._load()
        if not self._problems[split]:
            available = ", ".join(name for name in SPLITS if self._problems[name]) or "nothing"
            raise DataError(f"{self._label} has no {split} split; it has: {available}")
        return self._problems[split]

    @property
    def _label(self) -> str:
        config = self.config
        return config.preset or config.hub or Path(config.path or config.test_path or "").stem

    def _load(self) -> dict[Split, Sequence[Problem]]:
        splits: dict[Split, list[Problem]] = {split: [] for split in SPLITS}
        for problem in self._read("train"):
            splits[self._split_of(problem.question)].append(problem)
        trained = {problem.question: problem.id for split in SPLITS for problem in splits[split]}
        for problem in self._read("test"):
            if problem.question in trained:
                raise DataError(
                    f"the test problem {problem.id} is also the training problem {trained[problem.question]}: "
                    f"{problem.question[:60]!r}; remove one of them"
                )
            splits["test"].append(problem)
        return dict(splits)

    def _split_of(self, question: str) -> Split:
        """The split of a problem of the training part."""
        config = self.config
        place = key("split", question) / 2**64
        apart = self._preset.test_fraction if config.test_fraction is None else config.test_fraction
        if config.test_path or config.hub_test_split:
            apart = 0.0  # a preset's share gives way to data for testing
        return "dev" if place < config.dev_fraction else "test" if place < config.dev_fraction + apart else "train"

    def _read(self, role: Role) -> Iterator[Problem]:
        """Problems of the part to train or to test on; its known records without an answer are left out."""
        given = self.config.empty_answers if role == "train" else None
        allowed = self._source(role).empty_answers if given is None else given
        empty = []
        for record in self._records(role):
            problem = self._problem(record, role)
            if problem.reference:
                yield problem
            else:
                empty.append(record.where)
        if len(empty) != allowed:
            raise DataError(
                f"{len(empty)} answers of {self._label} are empty, exactly {allowed} are allowed (empty_answers): "
                f"{', '.join(empty[:3]) or 'none found'}"
            )

    def _source(self, role: Role) -> Source:
        return self._preset.train if role == "train" else self._preset.test

    def _records(self, role: Role) -> Iterator[Record]:
        config, preset = self.config, self._source(role).path
        if config.hub is not None:
            split = self._hub_split(role)
            return read_hub(config.hub, config.hub_config, split) if split else iter(())
        given = config.path if role == "train" else config.test_path
        if given is not None:
            return read_file(Path(given))
        return read_file(Path(config.data_dir) / preset) if preset else iter(())

    def _hub_split(self, role: Role) -> str | None:
        config = self.config
        if config.hub_split or config.hub_test_split:
            return config.hub_split if role == "train" else config.hub_test_split
        return self._source(role).hub_split or ("train" if role == "train" and not config.preset else None)

    def _problem(self, record: Record, role: Role) -> Problem:
        config, source = self.config, self._source(role)
        fields = config.question_field or source.question_field
        question = " ".join(
            text_of(record, field) for field in ([fields] if isinstance(fields, str) else fields)
        ).strip()
        if not question:
            raise DataError(f"{record.where}: the question in field {fields!r} is empty")
        pattern = config.answer_pattern or source.answer_pattern
        answer = answer_of(record, config.answer_field or source.answer_field, pattern)
        label = config.difficulty_field or source.difficulty_field
        difficulty = text_of(record, label) if label else ""
        return Problem(f"{self._label}/{role}-{record.number}", question, answer, difficulty, config.language)

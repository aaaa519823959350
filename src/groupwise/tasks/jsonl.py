"""Problems from files or from the Hugging Face hub: benchmarks by name (`preset`), or your own data.

All fields of a record are data of its problem, so that your own reward can ask for them by name.

Training files are split into train and dev by a hash of the question; a file for testing is never trained on, and
questions in both splits are left out of training, if their number is the one stated in advance.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from groupwise.config.schema import DataRef, PlaceRef
from groupwise.errors import ConfigError, DataError
from groupwise.randomness import key
from groupwise.runs.jsonl import Record
from groupwise.tasks.base import TEMPLATES, Task, TaskConfig, Template, without_spaces
from groupwise.tasks.conversations import (
    Message,
    messages_in,
    question_in,
    refuse_arguments,
    tools_of,
    with_system,
)
from groupwise.tasks.data_files import BOXED, answer_of, field_of, read_file, text_of
from groupwise.types import SPLITS, Problem, Split


class Source(NamedTuple):
    """One file (or split of the hub) of a benchmark and its fields."""

    path: str | None = None
    question_field: str | tuple[str, ...] = "question"
    answer_field: str = "answer"
    answer_pattern: str | None = None
    difficulty_field: str | None = None
    empty_answers: int = 0
    """Records known to have no answer; they are left out."""
    repeated_questions: int = 0
    """Training records known to be in the test data too; they are left out of training."""


class Preset(NamedTuple):
    """Files and fields of a benchmark; values in the configuration come first."""

    train: Source = Source()
    test: Source = Source()
    test_fraction: float = 0.0


_GSM8K = r"#### (.+)"

PRESETS: dict[str, Preset] = {
    "gsm8k": Preset(
        train=Source("gsm8k/train.jsonl", answer_pattern=_GSM8K),
        test=Source("gsm8k/test.jsonl", answer_pattern=_GSM8K),
    ),
    "math": Preset(
        train=Source("math_train/math_train.json", "problem", "answer", None, "difficulty", 4, repeated_questions=1),
        test=Source("math_test/test.jsonl", "problem", "solution", BOXED, "level"),
    ),
    "math500": Preset(test=Source("math500/math500.jsonl", "problem", "answer", None, "level")),
    "svamp": Preset(train=Source("svamp/SVAMP.json", ("Body", "Question"), "Answer", None, "Type"), test_fraction=0.3),
    "aime": Preset(train=Source(None, "problem"), test=Source(None, "problem")),
}


REASONING = Template(
    prompt=(
        "The user asks a question and the assistant answers it. The assistant first works the problem out step by step "
        "inside <think> </think>, checking what it finds, and then gives only the final answer inside \\boxed{}.\n"
        "User: {question}\nAssistant:"
    )
)
"""Default template: the form of DeepSeek-R1-Zero's, in our own words."""


class JsonlConfig(TaskConfig):
    """Dials of the jsonl task: `preset`, `path` and `test_path`."""

    template: Annotated[Template, TEMPLATES] = REASONING
    """Makes the prompt of a problem."""
    preset: Literal["gsm8k", "math", "math500", "svamp", "aime"] | None = None
    """A benchmark whose files and fields are known; `aime` needs a `path` or a `test_path`. Any other
    dial that is set comes before the preset's."""
    data_dir: PlaceRef = "../shared/data"
    """Directory of the presets' files, from the working directory."""
    path: DataRef | None = None
    """Problems to train on: `.jsonl`, `.json`, `.csv`, `.tsv`, `.parquet` or `.arrow`, compressed or not, a
    directory or pattern of shards, what `datasets` saved, or `hub:NAME:SPLIT` or `hub:NAME:CONFIGURATION:SPLIT`."""
    test_path: DataRef | None = None
    """Problems to test on."""
    question_field: str | tuple[str, ...] | None = None
    """Field of the question, text or messages (with `template.chat`); several are joined with a space, and `a.b` is the
    field `b` in the field `a`. Without a preset: `question`."""
    answer_field: str | None = None
    """Field of the reference answer. Without a preset: `answer`. Empty: there are none, and the verifier needs none."""
    answer_pattern: str | None = None
    r"""The answer's place in its field: a regular expression with one group (the last match counts), or `boxed`
    for the last `\boxed{}`. Without it the whole field is the answer."""
    difficulty_field: str | None = None
    """Field by which evaluation groups its results; empty: none."""
    language: str = "en"
    """Language of the questions (ISO 639-1)."""
    dev_fraction: float = Field(default=0.05, ge=0, lt=1)
    """Share of the training problems set aside as the dev split, by a hash of the question."""
    test_fraction: float | None = Field(default=None, ge=0, lt=1)
    """Share of the training problems set aside as the test split, if there is no file to test on."""
    repeated_questions: int | None = Field(default=None, ge=0)
    """Number of questions of the training data that are known to be in the test data too. They are left out of
    training; any other number is an error. Without a preset: 0."""

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        has_file = self.path is not None or self.test_path is not None
        if not has_file and self.preset in (None, "aime"):
            raise ValueError("no problems: set `preset`, `path` or `test_path` (for `aime` one of the last two)")
        if self.test_path and self.test_fraction:
            raise ValueError("`test_fraction` is allowed only where there is no `test_path`")
        if self.dev_fraction + (self.test_fraction or 0) >= 1:
            raise ValueError("`dev_fraction` + `test_fraction` must be below 1, or nothing is left to train on")
        if self.answer_pattern is not None and self.answer_pattern != BOXED:
            try:
                groups = re.compile(self.answer_pattern).groups
            except re.error as error:
                raise ValueError(
                    f"answer_pattern {self.answer_pattern!r} is not a regular expression: {error}"
                ) from None
            if groups != 1:
                raise ValueError(f"answer_pattern {self.answer_pattern!r} has {groups} groups; exactly one is allowed")
        return self

    def files_read(self) -> Iterator[str]:
        if preset := PRESETS.get(self.preset or ""):
            yield from (f"{self.data_dir}/{source.path}" for source in (preset.train, preset.test) if source.path)


Role = Literal["train", "test"]


class Jsonl(Task):
    """Problems from files or from the hub."""

    name: ClassVar[str] = "jsonl"
    Config = JsonlConfig
    config: JsonlConfig

    def __init__(self, config: JsonlConfig) -> None:
        super().__init__(config)
        self._preset = PRESETS[config.preset] if config.preset else Preset()

    def problems(self, split: Split) -> Sequence[Problem]:
        if not self._splits[split]:
            available = ", ".join(name for name in SPLITS if self._splits[name])
            if not available:
                raise DataError(f"{self.config.path or self.config.test_path or self._label} holds no problems")
            more = {"train": "path", "dev": "a larger dev_fraction", "test": "test_fraction or test_path"}[split]
            raise DataError(f"{self._label} has no {split} split; it has: {available}; {more} of the task gives one")
        return self._splits[split]

    @property
    def test_file(self) -> str | None:
        return self.config.test_path or self._preset.test.path

    def undivided(self) -> Sequence[Problem] | None:
        """All rows of a plain file, in its order, where it is the only one and no share of it is for tests."""
        config = self.config
        paths = [path for path in (config.path, config.test_path) if path]
        if config.preset or config.test_fraction or len(paths) != 1:
            return None
        return list(self.rows("train" if config.path else "test"))

    @property
    def _label(self) -> str:
        return self.config.preset or Path(self.config.path or self.config.test_path or "").stem

    @cached_property
    def _splits(self) -> dict[Split, list[Problem]]:
        splits: dict[Split, list[Problem]] = {"train": [], "dev": [], "test": list(self.rows("test"))}
        test_ids = {without_spaces(problem.question): problem.id for problem in splits["test"]}
        repetitions, split_by_question = [], dict[str, Split]()
        for problem in self.rows("train"):
            question = without_spaces(problem.question)
            if question in test_ids:
                repetitions.append(f"{problem.id} is {test_ids[question]}")
            else:  # one that differs in spaces alone follows the first of its kind
                splits[split_by_question.setdefault(question, self._split_of(problem.question))].append(problem)
        self._check_count("repeated_questions", "training questions that are also test questions", repetitions)
        return splits

    def _check_count(self, dial: str, description: str, records: Sequence[str]) -> None:
        setting = getattr(self.config, dial, None)
        number = getattr(self._preset.train, dial) if setting is None else setting
        if len(records) != number:
            key_of = f" ({dial})" if hasattr(self.config, dial) else ""
            raise DataError(
                f"{self._label}: {len(records)} {description}, exactly {number} are allowed{key_of}: "
                f"{', '.join(records[:3]) or 'none found'}"
            )

    def _split_of(self, question: str) -> Split:
        config = self.config
        position = key("split", question) / 2**64
        test_fraction = self._preset.test_fraction if config.test_fraction is None else config.test_fraction
        if config.test_path:
            test_fraction = 0.0  # a preset's share gives way to data for testing
        if position < config.dev_fraction:
            return "dev"
        return "test" if position < config.dev_fraction + test_fraction else "train"

    def rows(self, role: Role) -> Iterator[Problem]:
        blanks = []
        for record in self._records(role):
            problem = self._problem(record, role)
            if problem.reference or self.config.answer_field == "":
                yield problem
            else:
                blanks.append(record.place)
        if role == "train":
            self._check_count("empty_answers", "records without an answer", blanks)
        elif blanks:
            raise DataError(f"{self._label}: test records without an answer: {', '.join(blanks[:3])}; remove them")

    def _records(self, role: Role) -> Iterator[Record]:
        config, preset_path = self.config, getattr(self._preset, role).path
        path = config.path if role == "train" else config.test_path
        if path is not None:
            return read_file(path)
        if preset_path and not (Path(config.data_dir) / preset_path).exists():
            missing = Path(config.data_dir, preset_path).absolute()
            raise DataError(
                f"there is no problem file {missing}; give task.data_dir (of a suite --data), where the preset's files "
                "are, or task.path"
            )
        return read_file(Path(config.data_dir) / preset_path) if preset_path else iter(())

    def _problem(self, record: Record, role: Role) -> Problem:
        config, source = self.config, getattr(self._preset, role)
        fields, data = config.question_field or source.question_field, dict(record.fields)
        messages: list[Message] = []
        if isinstance(fields, str):
            asked = _field_of(record, fields, "question_field to that of the question")
            messages = messages_in(asked, f"{record.place}: field '{fields}'") or []
        if messages:
            messages = with_system(record, messages)
            question, last = question_in(messages), messages[-1]["role"]
            if last not in ("user", "tool"):
                raise DataError(f"{record.place}: {last} speaks last in field '{fields}'; user and tool are allowed")
            if config.template.chat is False:
                raise ConfigError(
                    f"{record.place}: field '{fields}' holds messages, which only the tokenizer's chat template can "
                    "write: set task.template.chat = true"
                )
            data["tools"] = tools_of(record)
        else:
            refuse_arguments(record)
            names = [fields] if isinstance(fields, str) else fields
            question = " ".join(text_of(record, name) for name in names).strip()
        if not question.strip():
            raise DataError(f"{record.place}: the question in field {fields!r} is empty")
        answer, field = "", source.answer_field if config.answer_field is None else config.answer_field
        if field:
            hint = "answer_field to that of the reference answer, or to '' where the verifier needs none"
            _field_of(record, field, hint)
            answer = answer_of(record, field, config.answer_pattern or source.answer_pattern)
        difficulty, label = "", source.difficulty_field if config.difficulty_field is None else config.difficulty_field
        if label:
            _field_of(record, label, "difficulty_field to that of the difficulty, or to '' where there is none")
            difficulty = text_of(record, label)
        name = f"{self._label}/{role}-{record.number}"
        return Problem(name, question, answer, difficulty, config.language, data, tuple(messages))


def _field_of(record: Record, name: str, hint: str) -> Any:
    try:
        return field_of(record, name)
    except DataError as error:
        raise DataError(f"{error}: set {hint}") from None

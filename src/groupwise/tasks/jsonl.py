"""Problems from files or from the Hugging Face hub: benchmarks by name (`preset`), or your own data.

All fields of a record are data of its problem, so that a reward of your own can ask for them by name.

Training files are split into train and dev by a hash of the question; a file for testing is never trained on, and
questions that stand in both are left out of training, if they are as many as is known beforehand.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal

from groupwise.errors import DataError
from groupwise.randomness import key
from groupwise.tasks.base import Task
from groupwise.tasks.jsonl_config import JsonlConfig
from groupwise.tasks.jsonl_presets import PRESETS, Preset, Source
from groupwise.tasks.jsonl_records import Record, answer_of, read_file, read_hub, text_of
from groupwise.types import SPLITS, Problem, Split

Role = Literal["train", "test"]


def _same(question: str) -> str:
    """Equal for questions that differ in white space only."""
    return " ".join(question.split())


class Jsonl(Task):
    """Problems from files or from the hub."""

    name: ClassVar[str] = "jsonl"
    Config = JsonlConfig
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

    def undivided(self) -> Sequence[Problem] | None:
        """All rows of a plain file, in its order, where it is the only one and no share of it is for tests.

        Raises:
            DataError: the file cannot be used.
        """
        config = self.config
        given = [path for path in (config.path, config.test_path) if path]
        if config.preset or config.hub or config.test_fraction or len(given) != 1:
            return None
        return list(self._read("train" if config.path else "test"))

    @property
    def _label(self) -> str:
        config = self.config
        return config.preset or config.hub or Path(config.path or config.test_path or "").stem

    def _load(self) -> dict[Split, Sequence[Problem]]:
        splits: dict[Split, list[Problem]] = {"train": [], "dev": [], "test": list(self._read("test"))}
        tested = {_same(problem.question): problem.id for problem in splits["test"]}
        repeated = []
        for problem in self._read("train"):
            if _same(problem.question) in tested:
                repeated.append(f"{problem.id} is {tested[_same(problem.question)]}")
            else:
                splits[self._split_of(problem.question)].append(problem)
        self._check_count("repeated_questions", "training questions that are also test questions", repeated)
        return dict(splits)

    def _check_count(self, dial: str, what: str, found: Sequence[str]) -> None:
        """Refuse a number of records to leave out that is not the one known beforehand."""
        given = getattr(self.config, dial)
        allowed = getattr(self._preset.train, dial) if given is None else given
        if len(found) != allowed:
            raise DataError(
                f"{self._label}: {len(found)} {what}, exactly {allowed} are allowed ({dial}): "
                f"{', '.join(found[:3]) or 'none found'}"
            )

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
        empty = []
        for record in self._records(role):
            problem = self._problem(record, role)
            if problem.reference or self.config.answer_field == "":
                yield problem
            else:
                empty.append(record.where)
        if role == "train":
            self._check_count("empty_answers", "records without an answer", empty)
        elif empty:
            raise DataError(f"{self._label}: test records without an answer: {', '.join(empty[:3])}; remove them")

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
        answer = "" if config.answer_field == "" else self._answer(record, source)
        label = config.difficulty_field or source.difficulty_field
        difficulty = text_of(record, label) if label else ""
        name = f"{self._label}/{role}-{record.number}"
        return Problem(name, question, answer, difficulty, config.language, dict(record.fields))

    def _answer(self, record: Record, source: Source) -> str:
        field = self.config.answer_field or source.answer_field
        if field not in record.fields:
            raise DataError(
                f"{record.where} has no field {field!r}; its fields are {', '.join(record.fields)}: set answer_field "
                "to that of the reference answer, or to '' where the verifier needs none"
            )
        return answer_of(record, field, self.config.answer_pattern or source.answer_pattern)

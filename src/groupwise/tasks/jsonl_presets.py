"""Benchmarks whose files and fields are known. To add one: one line in `PRESETS`."""

from dataclasses import dataclass, field

from groupwise.tasks.jsonl_records import BOXED


@dataclass(frozen=True, slots=True)
class Source:
    """One file (or split of the hub) of a benchmark and its fields."""

    path: str | None = None
    """Below `data_dir`; None: the configuration must say where it is."""
    question_field: str | tuple[str, ...] = "question"
    answer_field: str = "answer"
    answer_pattern: str | None = None
    difficulty_field: str | None = None
    empty_answers: int = 0
    """Records known to have no answer; they are left out."""
    repeated_questions: int = 0
    """Training records known to stand in the test data too; they are left out of training."""
    hub_split: str | None = None
    """Split of the data set on the hub."""


@dataclass(frozen=True, slots=True)
class Preset:
    """What is known about a benchmark; values in the configuration come first."""

    train: Source = field(default_factory=Source)
    test: Source = field(default_factory=Source)
    test_fraction: float = 0.0
    """Share of the training file for the test split, where the benchmark has one file."""


_GSM8K = r"#### (.+)"

PRESETS: dict[str, Preset] = {
    "gsm8k": Preset(
        train=Source("gsm8k/train.jsonl", answer_pattern=_GSM8K, hub_split="train"),
        test=Source("gsm8k/test.jsonl", answer_pattern=_GSM8K, hub_split="test"),
    ),
    "math": Preset(
        train=Source("math_train/math_train.json", "problem", "answer", None, "difficulty", 4, repeated_questions=1),
        test=Source("math_test/test.jsonl", "problem", "solution", BOXED, "level"),
    ),
    "math500": Preset(test=Source("math500/math500.jsonl", "problem", "answer", None, "level", hub_split="test")),
    "svamp": Preset(train=Source("svamp/SVAMP.json", ("Body", "Question"), "Answer", None, "Type"), test_fraction=0.3),
    "aime": Preset(train=Source(None, "problem"), test=Source(None, "problem", hub_split="train")),
}

"""Programming problems from files: HumanEval, MBPP, and programs that read standard input. Judged by hidden tests."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from groupwise.artifacts import DataRef
from groupwise.errors import DataError
from groupwise.tasks.base import TEMPLATES, Task, TaskConfig, Template, split_of
from groupwise.tasks.code_records import read_problems
from groupwise.types import SPLITS, Problem, Split

PROGRAM = Template(
    prompt=(
        "The user describes a task and the assistant solves it with a Python program. The assistant first thinks it "
        "through inside <think> </think> and then gives the whole program, imports included, in one block that begins "
        "with ```python and ends with ```. Only the standard library is there.\nUser: {question}\nAssistant:"
    ),
    gold="<think></think>\n```python\n{reference}\n```",
)
"""Default template."""


class CodeConfig(TaskConfig):
    """Dials of the code task."""

    template: Annotated[Template, TEMPLATES] = PROGRAM
    """How a problem becomes a prompt."""
    path: DataRef
    """File of problems: `.jsonl`, or `.json` with a list; either also compressed, with `.gz`."""
    format: Literal["humaneval", "mbpp", "stdio"]
    """What a record looks like. `stdio`: fields `problem`, `tests` (lists `inputs` and `outputs`) and, where there is
    one, `solution`."""
    tolerance: float = Field(default=0.0, ge=0, lt=1)
    """Difference allowed between numbers of a `stdio` output, relative above 1; 0: tokens must be equal."""
    only_test: bool = False
    """Put every problem into the test split: for benchmarks, which are never trained on."""


class Code(Task):
    """Programming problems from a file."""

    name: ClassVar[str] = "code"
    verifier: ClassVar[str] = "code"
    answers_any_question: ClassVar[bool] = False
    Config = CodeConfig
    config: CodeConfig

    def __init__(self, config: CodeConfig) -> None:
        super().__init__(config)
        self._splits: dict[Split, list[Problem]] | None = None

    def problems(self, split: Split) -> Sequence[Problem]:
        """The problems of a split, in the file's order.

        Raises:
            DataError: the file cannot be read, or has no problem for this split.
        """
        if self._splits is None:
            self._splits = self._load()
        if not self._splits[split]:
            raise DataError(f"{self.config.path} has no problem for the {split} split")
        return self._splits[split]

    def _load(self) -> dict[Split, list[Problem]]:
        splits: dict[Split, list[Problem]] = {split: [] for split in SPLITS}
        for problem in read_problems(Path(self.config.path), self.config.format, self.config.tolerance):
            splits["test" if self.config.only_test else split_of(problem.question)].append(problem)
        return splits

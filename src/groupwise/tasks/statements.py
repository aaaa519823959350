"""Statements from files for proof assistants: miniF2F for Lean, and statements of your own for Coq."""

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar

from groupwise.config.schema import DataRef
from groupwise.errors import DataError, VerifierError
from groupwise.randomness import key
from groupwise.runs.jsonl import Record
from groupwise.tasks.base import TEMPLATES, Task, TaskConfig, Template, Verify
from groupwise.tasks.data_files import read_file, text_of
from groupwise.types import SPLITS, Outcome, Problem, Split

LEAN = Template(
    prompt="""Prove the theorem in Lean 4. Think inside <think> </think>, then give the tactics that follow `by`, and \
nothing else, inside \\boxed{}. Commands, further theorems, axioms and sorry are not allowed.
{question}
""",
    gold="<think></think>\\boxed{{\n{reference}\n}}",
)

COQ = Template(
    prompt="""Prove the theorem in Coq. Think inside <think> </think>, then give the tactics between Proof and Qed, \
and nothing else, inside \\boxed{}. Commands, further theorems, axioms and admit are not allowed.
{question}
""",
    gold="<think></think>\\boxed{{\n{reference}\n}}",
)


DEV_FRACTION = 0.1
"""Share of the training problems set aside as the dev split, by a hash of the statement."""


class Minif2fConfig(TaskConfig):
    """Dials of the miniF2F task."""

    template: Annotated[Template, TEMPLATES] = LEAN
    """Makes the prompt of a problem."""
    path: DataRef = "../shared/data/minif2f_lean4/minif2f_lean4.jsonl"
    """File of statements, `.jsonl`, with the fields `name`, `split` (`valid` or `test`), `header`, `informal_prefix`
    and `formal_statement`; ProofNet comes in the same form."""


class CoqStatementsConfig(TaskConfig):
    """Dials of the Coq statements."""

    template: Annotated[Template, TEMPLATES] = COQ
    """Makes the prompt of a problem."""
    path: DataRef
    """File of statements, `.jsonl` or `.json`, with the fields `name`, `statement`, `header` (imports, may be empty),
    `proof` (a reference proof: tactics) and `split` (`train` or `test`)."""


class StatementTask(Task):
    """Reads all statements of a file; those to train on are split into train and dev."""

    answers_any_question = False
    trained: ClassVar[str]
    """The value of `split` that is not for testing."""
    config: "Minif2fConfig | CoqStatementsConfig"

    @abstractmethod
    def problem(self, record: Record, name: str) -> Problem:
        """The problem of a record, without its id."""

    @cached_property
    def _splits(self) -> dict[Split, list[Problem]]:
        path, splits = Path(self.config.path), {split: list[Problem]() for split in SPLITS}
        for record in read_file(path):
            name, split = text_of(record, "name"), text_of(record, "split")
            if split not in (self.trained, "test"):
                raise DataError(f"{record.place}: field 'split' is {split!r}; '{self.trained}' and 'test' are allowed")
            found = replace(self.problem(record, name), id=f"{path.stem}/{record.number}-{name}")
            is_dev = key("split", found.data["statement"]) / 2**64 < DEV_FRACTION
            if found.question:
                splits["test" if split == "test" else "dev" if is_dev else "train"].append(found)
        return splits

    def problems(self, split: Split) -> Sequence[Problem]:
        return self._splits[split]


class Minif2f(StatementTask):
    """Statements of miniF2F (or ProofNet) for Lean 4; records that state a definition are left out."""

    name: ClassVar[str] = "minif2f"
    verifier: ClassVar[str] = "lean"
    trained = "valid"
    Config = Minif2fConfig
    config: Minif2fConfig

    def problem(self, record: Record, name: str) -> Problem:
        statement, header = text_of(record, "formal_statement"), text_of(record, "header")
        is_theorem = statement.startswith("theorem ")
        question = f"{text_of(record, 'informal_prefix')}\n{statement}" if is_theorem else ""
        data = {"statement": statement, "header": header}
        return Problem("", question, "", name.split("_")[0], data=data)

    def validate(self, verify: Verify, must_accept: bool = True) -> None:
        """Prove only that the verifier judges two theorems of our own rightly under the file's first header."""
        problems = self.problems("train")
        header = problems[0].data["header"] if problems else ""
        for value, truth in ((2, Outcome.CORRECT), (3, Outcome.WRONG)):
            statement = f"theorem groupwise_control : 1 + 1 = {value} := by"
            control = Problem("minif2f/control", statement, "rfl", data={"statement": statement, "header": header})
            verdict = verify(control, self.template.gold_answer(control))
            if verdict.outcome is not truth:
                raise VerifierError(
                    f"the verifier '{self.verifier}' finds `{statement} rfl` {verdict.outcome}, not {truth} "
                    f"({verdict.evidence}); fix the template or Lean before training"
                )
        warnings.warn(
            f"{self.config.path} has no reference proofs: that the verifier accepts a right proof was checked on a "
            f"theorem of our own, not on any of the {len(problems)} statements",
            stacklevel=2,
        )


class CoqStatements(StatementTask):
    """Statements of your own for Coq, each with a reference proof."""

    name: ClassVar[str] = "coq_statements"
    verifier: ClassVar[str] = "coq"
    trained = "train"
    Config = CoqStatementsConfig
    config: CoqStatementsConfig

    def problem(self, record: Record, name: str) -> Problem:
        statement, header = text_of(record, "statement"), text_of(record, "header")
        question = f"{header}\nTheorem {name} : {statement}.".strip()
        return Problem("", question, text_of(record, "proof"), data={"statement": statement, "header": header})

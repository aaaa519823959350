"""Statements from files: what is read, and what `validate` says where there are no reference proofs."""

import json
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import DataError, VerifierError
from groupwise.tasks import make_task
from groupwise.tasks.statements import CoqStatements, CoqStatementsConfig, Minif2f, Minif2fConfig
from groupwise.types import SPLITS, Outcome, Problem, Verdict

DATA = Path(__file__).parents[5] / "shared/data/minif2f_lean4"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="miniF2F is not here")


def write(path: Path, *records: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)


def lean(name: str, split: str, statement: str) -> dict[str, Any]:
    return {"name": name, "split": split, "header": "import Mathlib\n", "informal_prefix": f"/-- {name} -/\n",
            "formal_statement": statement, "goal": "x"}  # fmt: skip


def verdict(outcome: Outcome) -> Verdict:
    return Verdict(outcome, {}, "because")


@needs_data
def test_minif2f() -> None:
    task = make_task(Minif2fConfig(kind="minif2f", path=str(DATA / "minif2f_lean4.jsonl")))
    train, dev, test = (task.problems(split) for split in ("train", "dev", "test"))  # type: ignore[arg-type]
    assert (len(train) + len(dev), len(test)) == (244, 244)
    assert 10 <= len(dev) <= 50
    assert len({problem.id for problem in (*train, *dev, *test)}) == 488
    first = task.find("minif2f_lean4/1-amc12a_2019_p21")
    assert first.data["statement"].startswith("theorem amc12a_2019_p21 (z : ℂ)")
    assert first.data["statement"].endswith(":= by")
    assert first.data["header"].startswith("import Mathlib\nimport Aesop")
    assert first.data["statement"] in first.question
    assert first.difficulty == "amc12a"


@needs_data
def test_proofnet_without_its_definitions() -> None:
    task = Minif2f(Minif2fConfig(kind="minif2f", path=str(DATA / "proofnet_lean4.jsonl")))
    assert sum(len(task.problems(split)) for split in SPLITS) == 371 - 14


def test_validate_without_reference_proofs_says_what_it_did_not_check(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", lean("two", "valid", "theorem two : 2 = 2 := by\n"))
    task, asked = Minif2f(Minif2fConfig(kind="minif2f", path=path)), list[tuple[Problem, str]]()

    def honest(problem: Problem, answer: str) -> Verdict:
        asked.append((problem, answer))
        return verdict(Outcome.WRONG if "= 3" in problem.data["statement"] else Outcome.CORRECT)

    with pytest.warns(UserWarning, match=r"a.jsonl has no reference proofs: .*not on any of the 1 statements"):
        task.validate(honest)
    assert [problem.data["header"] for problem, _ in asked] == ["import Mathlib"] * 2
    assert asked[0][1] == "<think></think>\\boxed{\nrfl\n}"


@pytest.mark.parametrize(
    ("outcome", "seen"), [(Outcome.CORRECT, "= 3"), (Outcome.WRONG, "= 2"), (Outcome.CRASHED, "= 2")]
)
def test_validate_refuses_a_verifier_that_errs(tmp_path: Path, outcome: Outcome, seen: str) -> None:
    path = write(tmp_path / "a.jsonl", lean("one", "valid", "theorem one : 1 = 1 := by"))
    with pytest.raises(
        VerifierError, match=rf"'lean' finds `theorem groupwise_control : 1 \+ 1 {seen}.*{outcome}, not"
    ):
        Minif2f(Minif2fConfig(kind="minif2f", path=path)).validate(lambda *_: verdict(outcome))


def test_another_split_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", lean("one", "train", "theorem one : 1 = 1 := by"))
    with pytest.raises(DataError, match=r"a.jsonl, line 1: field 'split' is 'train'; 'valid' and 'test' are allowed"):
        Minif2f(Minif2fConfig(kind="minif2f", path=path)).problems("train")


def test_coq_statements_have_reference_proofs(tmp_path: Path) -> None:
    record = {
        "name": "sum",
        "statement": "1 + 1 = 2",
        "header": "Require Import Lia.",
        "proof": "lia.",
        "split": "test",
    }
    path = write(tmp_path / "c.jsonl", record, {**record, "name": "other", "split": "train"})
    task = CoqStatements(CoqStatementsConfig(kind="coq_statements", path=path))
    (problem,) = task.problems("test")
    assert problem.id == "c/1-sum"
    assert problem.question == "Require Import Lia.\nTheorem sum : 1 + 1 = 2."
    assert problem.data == {"statement": "1 + 1 = 2", "header": "Require Import Lia."}
    asked: list[str] = []
    task.validate(lambda _, answer: asked.append(answer) or verdict(Outcome.CORRECT))
    assert asked == ["<think></think>\\boxed{\nlia.\n}"]
    with pytest.raises(VerifierError, match=r"rejects the reference answer of c/2-other: .*because"):
        task.validate(lambda *_: verdict(Outcome.WRONG))

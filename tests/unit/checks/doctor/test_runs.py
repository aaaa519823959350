"""The doctor on real runs: beside training, as a command, in the report. `matrix.py` has all faults."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from matrix import document, judge, read_data
from pupil import pupil
from typer.testing import CliRunner
from ward import BATCH, CASES, RECIPE, Case, run_case

import groupwise.cli.main  # noqa: F401  registers the commands
from groupwise import trainers
from groupwise.checks.doctor import Finding, Severity, doctor
from groupwise.checks.doctor.facts import read_dev
from groupwise.cli.app import app
from groupwise.errors import ConfigError
from groupwise.explorer.export import write_report
from groupwise.types import Outcome

SMALL = ("run.num_steps=7", "sampling.max_tokens=24", "grpo.prompts_per_step=4", "evaluation.num_problems=2")
GRPO = {**RECIPE, "algorithm": "grpo", "grpo": BATCH}
HARD = Case("too hard", "", (), ('task.kinds=["product"]', "task.digits=[3, 3]"))  # also for the shipped model


@pytest.fixture(scope="module")
def hopeless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that never solves anything."""
    return run_case(HARD, "base", tmp_path_factory.mktemp("doctor") / "run", changes=SMALL)


def test_a_hopeless_run_is_named(hopeless: Path) -> None:
    findings = {finding.check: finding for finding in doctor(hopeless).findings}
    assert findings["no_signal"].severity is Severity.CRITICAL
    assert findings["no_signal"].places[0].problem
    assert findings["no_signal"].advice


def test_command(hopeless: Path) -> None:
    runner = CliRunner()
    shown = runner.invoke(app, ["doctor", str(hopeless)])
    assert shown.exit_code == 0
    assert "Most groups have equal rewards" in shown.output
    assert "try  task" in shown.output
    assert runner.invoke(app, ["doctor", str(hopeless), "--fail-on", "warning"]).exit_code == 3
    facts = json.loads(runner.invoke(app, ["doctor", str(hopeless), "--json"]).output)
    assert facts["worst"] == "critical"
    assert facts["num_steps"] == 7
    assert "DAPO" in runner.invoke(app, ["doctor", "--explain", "no_signal"]).output
    assert runner.invoke(app, ["doctor", str(hopeless), "--fail-on", "bad"]).exit_code == 1


def test_the_report_has_the_findings(hopeless: Path) -> None:
    assert "Most groups have equal rewards" in write_report(hopeless).read_text()


def test_a_damaged_record_is_named(hopeless: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(hopeless, run, symlinks=True)
    (run / "rollouts" / "step-000002.parquet").unlink()
    (finding,) = [one for one in doctor(run).findings if one.check == "record_damaged"]
    assert "step 2" in finding.evidence


def test_steps_that_the_recipe_does_not_record_are_no_damage(tmp_path: Path) -> None:
    run = run_case(HARD, "base", tmp_path / "run", changes=(*SMALL, "record.every=3", "run.num_steps=5"))
    diagnosis = doctor(run)
    assert [one.check for one in diagnosis.findings if one.check == "record_damaged"] == []
    assert "no_signal" in [one.check for one in diagnosis.findings]


def test_beside_training(tmp_path: Path) -> None:
    """A critical finding is told once, and ends the run where the recipe says so; the same command goes on."""
    changes = (*SMALL, f"run.directory={tmp_path / 'run'}", *HARD.settings, "doctor.stop_at_critical=true")
    recipe = trainers.load_recipe(GRPO, changes)
    told: list[Finding] = []

    def on_report(report: object) -> None:
        if isinstance(report, Finding):
            told.append(report)

    run = trainers.train(recipe, on_report=on_report)
    assert (run.num_steps, run.finished) == (5, False)
    assert "no_signal" in [finding.check for finding in told]
    before = len(told)
    run = trainers.train(recipe, on_report=on_report)
    assert (run.num_steps, run.finished) == (7, True)
    assert "no_signal" not in [finding.check for finding in told[before:]]


def test_rules_that_are_ignored_must_exist() -> None:
    with pytest.raises(ConfigError, match=r"doctor\.ignore names 'entropy'"):
        trainers.load_recipe(GRPO, ('doctor.ignore=["entropy"]',))


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pupil(tmp_path_factory.mktemp("pupil"))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_fault(case: Case, model: Path, tmp_path: Path) -> None:
    """`matrix.py` has more seeds, and the page docs/doctor.md."""
    row = judge(case, run_case(case, model, tmp_path / "run"))
    assert row["found"], row["findings"]


def test_the_page_is_that_of_the_data() -> None:
    page = Path(__file__).parents[4] / "docs" / "doctor.md"
    text = page.read_text(encoding="utf-8")
    assert text == document(read_data(), text), "python lab/benchmarks/doctor/matrix.py write"


def test_a_verifier_that_fails_forgets_nothing() -> None:
    outcomes = {"a": ["correct", "crashed"], "b": ["timeout", "crashed"], "c": ["correct", "wrong"]}
    rows = [
        SimpleNamespace(problem=problem, outcome=Outcome(outcome), discarded=None, answer=None)
        for problem, of_problem in outcomes.items()
        for outcome in of_problem
    ]
    records: Any = SimpleNamespace(evaluations=lambda: ["dev-step-000002"], rows=lambda at: rows)
    assert read_dev(records, {"step": 2, "pass_at_1": [0.75, 0.2, 1.0]}).solved == {"a": 1.0, "c": 0.5}

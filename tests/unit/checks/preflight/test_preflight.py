"""The preflight on broken recipes and sound ones, as a command, and before training."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hangar import CASES, RECIPE, SLOW_CASES, Case, fly, heaviest
from typer.testing import CliRunner

from groupwise.checks.preflight import CHECKS, PreflightOptions, Severity, preflight
from groupwise.checks.preflight.bench import Bench
from groupwise.checks.preflight.data import same
from groupwise.checks.preflight.rehearsal import _times
from groupwise.cli import preflight as command
from groupwise.cli.app import app
from groupwise.config import dump_toml
from groupwise.errors import ConfigError
from groupwise.trainers import load_recipe

ROOT = Path(__file__).parents[4]


def check(case: Case, folder: Path) -> None:
    found = fly(case, folder)
    worst = heaviest(found, case.check)
    if case.severity is None:
        assert worst is None, worst
        assert found.verdict == "GO"
        assert found.figures[case.check]
        return
    fitting = [one for one in found.findings if one.severity is case.severity and case.says in one.evidence]
    assert fitting, found.findings
    assert worst is not None
    assert worst.severity is case.severity, worst
    assert fitting[0].means
    assert fitting[0].advice
    assert found.verdict == ("NO-GO" if case.severity is Severity.CRITICAL else "GO WITH WARNINGS")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_fault(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("case", SLOW_CASES, ids=lambda case: case.name)
def test_every_slow_fault(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["arithmetic", "word_problems", "mixture", "ppo"])
def test_every_shipped_recipe_goes(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(ROOT / f"recipes/{name}.toml", {"run.directory": str(tmp_path / "run")})
    found = preflight(recipe)
    assert found.verdict != "NO-GO", found.findings
    assert found.figures["rehearsal"]["resume"] == "identical"


def test_a_small_rehearsal_trains_two_steps_and_resumes_the_second(tmp_path: Path) -> None:
    small = {"grpo.prompts_per_step": 2, "grpo.group_size": 4, "sampling.max_tokens": 48, "task.num_problems": 16}
    recipe = load_recipe(RECIPE, {**small, "run.directory": str(tmp_path / "run")})
    others = [name for name in CHECKS if name != "rehearsal"]
    found = preflight(recipe, PreflightOptions(price_per_hour=2.0), others)
    figures = found.figures["rehearsal"]
    assert figures["resume"] == "identical"
    assert len(figures["seconds per step"]) == 2
    assert float(figures["sampler against trainer"]) < 1e-3
    assert " to " in figures["cost to the end"]
    assert not (tmp_path / "run").exists()  # on a copy
    assert found.not_done == dict.fromkeys(others, "left out")


def test_one_fault_keeps_what_it_makes_hopeless_from_being_tried(tmp_path: Path) -> None:
    from hangar import little_memory

    with pytest.MonkeyPatch.context() as patch:
        little_memory(patch)
        found = preflight(load_recipe(RECIPE), leave_out=["verifier", "data"])
    assert {"prompts", "sample", "rehearsal"} <= found.not_done.keys()
    assert found.not_done["sample"] == "the machine would not bear it"


def test_a_checkpoint_of_adapters_holds_no_model() -> None:
    small = {"record.every": 0, "evaluation.num_problems": 1, "evaluation.test_problems": 0}
    recipes = [load_recipe(ROOT / f"recipes/{name}.toml", small) for name in ("arithmetic", "lora")]
    planned = [preflight(recipe, costs=("free",)).figures["machine"]["planned disk MiB"] for recipe in recipes]
    assert planned == [77, 5]  # four times 12 bytes for each weight that is trained, as `du` has them


def test_an_error_of_a_part_is_said_once() -> None:
    recipe = load_recipe(RECIPE, {"task.num_problems": 100, "task.digits": [1, 1]})
    found = preflight(recipe, costs=("free",))
    assert [one.severity for one in found.findings] == [Severity.CRITICAL]
    assert "different problems" in found.findings[0].evidence


def test_questions_are_compared_without_case_and_spaces() -> None:
    assert same("What is １＋１?") == same("what  is 1+1?") != same("What is 1 + 2?")


def test_only_what_can_be_checked_is() -> None:
    with pytest.raises(ConfigError, match="there is no check 'wings'"):
        preflight(load_recipe(RECIPE), leave_out=["wings"])
    with pytest.raises(ConfigError, match="not for algorithm = 'sft'"):
        preflight(load_recipe(ROOT / "recipes/base/second-1.toml"))


def test_a_slow_model_has_fewer_completions_and_smaller_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bench, "_speed", lambda self, problems: 5.0)  # tokens a second, before any are measured
    recipe = load_recipe(RECIPE, {"run.directory": str(tmp_path / "run"), "grpo.group_size": 8})
    checks = list[str]()
    options = PreflightOptions(num_problems=6, num_samples=8, budget_s=600)
    found = preflight(recipe, options, ["rehearsal"], on_check=lambda name, result: checks.append(name))
    assert checks == [name for name in CHECKS if name != "rehearsal"]
    assert found.figures["sample"]["completions"] == 6 * 4
    assert found.not_done["sample"] == "no time for 24 of 48 completions"
    assert "pass@4" in found.figures["sample"]


def test_a_model_that_is_far_too_slow_is_not_sampled_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bench, "_speed", lambda self, problems: 0.1)
    recipe = load_recipe(RECIPE, {"run.directory": str(tmp_path / "run")})
    found = preflight(recipe, PreflightOptions(num_problems=6, num_samples=8, budget_s=60))
    assert found.not_done["sample"] == "at 0.1 tokens a second not even 4 completions come in time"
    assert found.not_done["rehearsal"].startswith("two steps take longer than the ")
    assert found.verdict_by("sample") == "GO"


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(dump_toml(load_recipe(RECIPE, {"run.directory": str(tmp_path / "run")})))
    return path


CHEAP = [f"--leave-out={name}" for name, check in CHECKS.items() if check.cost in ("model", "step")]


def test_the_command_says_go_and_writes_what_it_found(recipe_file: Path) -> None:
    written = recipe_file.parent / "preflight.json"
    result = CliRunner().invoke(app, ["preflight", str(recipe_file), *CHEAP, "--write", str(written)])
    assert result.exit_code == 0, result.output
    names = [name for name, check in CHECKS.items() if check.cost not in ("model", "step")]
    assert re.findall(r"^(\w+)  GO  \d+\.\d s$", result.output, re.MULTILINE) == names
    assert re.search(r"\nGO  \S+recipe.toml, \d+ s\nNot done: prompts \(left out\); sample", result.output)
    facts = json.loads(written.read_text())
    assert facts["verdict"] == "GO"
    assert set(facts["verdicts"].values()) == {"GO"}
    assert facts["figures"]["data"]["train problems"] == 64


def test_the_command_ends_with_2_where_a_run_must_not_begin(recipe_file: Path) -> None:
    result = CliRunner().invoke(app, ["preflight", str(recipe_file), *CHEAP, "--set", "optimizer.lr=0", "--json"])
    assert result.exit_code == 2
    facts = json.loads(result.output)
    assert facts["verdict"] == "NO-GO"
    assert facts["findings"][0]["advice"] == [{"key": "optimizer.lr", "change": "above 0"}]


def test_training_is_refused_by_what_costs_nothing_unless_one_insists(
    recipe_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[object] = []
    monkeypatch.setattr("groupwise.cli.train.run_recipe", lambda *args: began.append(args))
    arguments = ["train", str(recipe_file), "--set", "optimizer.lr=0"]
    refused = CliRunner().invoke(app, arguments)
    assert isinstance(refused.exception, ConfigError)
    assert "optimizer.lr = 0" in str(refused.exception)
    assert not began
    insisted = CliRunner().invoke(app, [*arguments, "--anyway"])
    assert insisted.exit_code == 0
    assert "critical" in insisted.output
    assert len(began) == 1


def test_what_a_file_wrote_is_shown_as_text_and_in_one_line() -> None:
    assert command.visible("a\nb\u202e[red]") == "a⏎b\\u202e[red]"


def test_errors_are_left_to_the_run_itself(recipe_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[object] = []
    monkeypatch.setattr("groupwise.cli.train.run_recipe", lambda *args: began.append(args))
    result = CliRunner().invoke(app, ["train", str(recipe_file), "--set", "model.path=/nowhere"])
    assert result.exit_code == 0
    assert len(began) == 1
    assert "nowhere" not in result.output


def test_evaluations_take_as_long_as_the_problems_that_there_are() -> None:
    recipe = load_recipe("arithmetic", ["run.num_steps=20", "evaluation.every=20", "evaluation.test_problems=0"])
    bench: Any = SimpleNamespace(recipe=recipe, options=PreflightOptions(), problems=lambda split: range(10))
    step = {"generate_s": 1.0, "verify_s": 0.0, "train_s": 0.0, "record_s": 0.0, "sampled_tokens": 10, "length": 5.0}
    figures, _ = _times(bench, [step], 1.0)
    assert figures["seconds of all evaluations"] == 2 * 10 * recipe.evaluation.num_samples * 5.0 / 10

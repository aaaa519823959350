"""The examples run, in tiny form; and what Python gives is what the command line gives, to the byte."""

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import processes
import pytest
from commands import succeed

import groupwise as gw

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
Run = Callable[[str], dict[str, Any]]


SMALL = {
    "grpo.prompts_per_step": 4, "grpo.group_size": 4, "sampling.max_tokens": 24, "evaluation.num_problems": 2,
    "evaluation.test_problems": 2,
}  # fmt: skip


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs an example with one step on few problems, in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EXAMPLE_STEPS", "1")
    load_recipe, compare = gw.load_recipe, gw.compare
    monkeypatch.setattr(gw, "load_recipe", lambda source: load_recipe(source, SMALL))
    overrides = [f"{key}={value}" for key, value in SMALL.items()]

    def compare_small(source: dict[str, Any], **options: Any) -> Any:
        return compare({**source, "overrides": [*source["overrides"], *overrides, "sampling.max_tokens=8"]}, **options)

    monkeypatch.setattr(gw, "compare", compare_small)

    def run(name: str) -> dict[str, Any]:
        (path,) = [path for path in EXAMPLES if path.stem == name]
        return runpy.run_path(str(path), run_name="__main__")

    return run


def test_every_example_has_a_test() -> None:
    own = Path(__file__).read_text(encoding="utf-8")
    assert EXAMPLES
    assert [path.stem for path in EXAMPLES if f'example("{path.stem}")' not in own] == []


def test_own_reward(example: Run, capsys: pytest.CaptureFixture[str]) -> None:
    reward = example("own_reward")["reward"]
    assert reward(r"\boxed{42}", "42") == {"right": 1.0, "short": pytest.approx(0.2 * (1 - 10 / 200))}
    assert sum(reward(r"\boxed{42}\boxed{41}", "42").values()) == 0
    (line,) = gw.Run.open("runs/own-reward").steps()
    assert 0 < line["part/short/mean"] < line["part/right/mean"]
    assert f"step 0: {line['part/right/mean']:.2f} for being right" in capsys.readouterr().out


def test_own_task(example: Run) -> None:
    example("own_task")
    run = gw.Run.open("runs/own-task")
    trained, held_out = ({int(id.split("/")[1]) for id in run.groups(at)["problem"]} for at in (0, "dev-step-000000"))
    assert {n % 10 for n in held_out} == {3}
    assert not {n % 10 for n in trained} & {3, 7}
    assert {int(reference) for reference in run.groups(0)["reference"]} == {n * (n + 1) for n in trained}


def test_own_loop_leaves_the_weights_that_training_leaves(example: Run, tmp_path: Path) -> None:
    found = example("own_loop")
    fingerprint = found["main"]()
    recipe = gw.load_recipe(found["RECIPE"]).with_changes({"evaluation.num_samples": 1, "evaluation.test_problems": 0})
    run = gw.train(recipe)
    (weights,) = [line["weights"] for line in run.directory.ledger.lines() if "weights" in line]
    assert weights == fingerprint
    # the same recipe by the command line: the same ledger, byte for byte
    succeed("train", run.path / "config.toml", "--set", f"run.directory={tmp_path / 'again'}")
    assert (tmp_path / "again" / "ledger.jsonl").read_bytes() == (run.path / "ledger.jsonl").read_bytes()


@pytest.mark.parametrize("start", ["forked", pytest.param("started", marks=pytest.mark.slow)])
def test_compare_algorithms(
    example: Run, server: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    if start == "forked":
        monkeypatch.setattr("groupwise.runs.processes.subprocess", processes)
    example("compare_algorithms")
    said = capsys.readouterr().out
    assert "2 of 2 runs are done" in said
    written = json.loads(Path("runs/compare-algorithms/1-steps/comparison.json").read_text())
    assert [(row["variant"], row["seeds"]) for row in written] == [("dr_grpo", 1), ("grpo", 1)]
    assert f"grpo against dr_grpo: {written[1]['verdict']}" in said


def test_notebook(example: Run, capsys: pytest.CaptureFixture[str]) -> None:
    names = example("notebook")
    said = capsys.readouterr().out
    assert "grpo.group_sise: unknown key; did you mean 'group_size'?" in said
    assert "\nidentical [" in said
    assert Path("runs/notebook/report.html").exists()
    measured = names["measured"]
    options = ["--against", "base", "--problems", 16, "--samples", 2, "--json"]
    told = json.loads(succeed("eval", names["run"].best, *options))
    assert told == json.loads(json.dumps(measured.as_dict()))


def test_sample_and_audit_are_those_of_the_command_line() -> None:
    answers = gw.sample("base", "What is 23 × 17?", samples=3)
    said = succeed("sample", "base", "What is 23 × 17?", "-n", 3)
    assert answers.judged
    assert [text in said for text in answers.texts] == [True] * len(answers) == [True] * 3
    audit = gw.audit_verifier("number", task="arithmetic", problems=1)
    told = json.loads(succeed("audit", "number", "--task", "arithmetic", "--problems", 1, "--json"))
    assert audit.passed
    assert audit.as_dict().keys() == told.keys()
    assert audit.summary.num_cases == len(audit.summary.results) > 10

"""Which task, problems and settings an evaluation of a checkpoint has."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from groupwise.config.schema import SHIPPED, resolve
from groupwise.errors import ConfigError, DataError
from groupwise.evaluation.ask import sample
from groupwise.evaluation.checkpoints import context_of
from groupwise.evaluation.measure import evaluate
from groupwise.evaluation.suite import evaluate_suite
from groupwise.evaluation.test_time.budget import measure_budget
from groupwise.runs.inputs import Input, keep
from groupwise.types import Split


def write_rows(path: Path, number: int) -> None:
    lines = (json.dumps({"question": f"{path.stem} {i}?", "answer": f"{i}"}) for i in range(number))
    path.write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint of a run that trained on one file and tests on another; it has no weights."""
    monkeypatch.chdir(tmp_path)
    for name, number in (("train", 40), ("test", 5), ("mine", 7)):
        write_rows(tmp_path / f"{name}.jsonl", number)
    folder = tmp_path / "run" / "checkpoints" / "step-000001"
    folder.mkdir(parents=True)
    for file in Path(resolve(SHIPPED)).glob("*.json"):
        if file.name != "provenance.json":
            shutil.copy(file, folder)
    (tmp_path / "run" / "config.toml").write_text(
        'algorithm = "grpo"\n[run]\nnum_steps = 1\n[verifier]\nkind = "math"\n[task]\nkind = "jsonl"\n'
        'path = "train.jsonl"\ntest_path = "test.jsonl"\n'
    )
    return folder


def asked(checkpoint: Path, *changes: str, split: Split | None = None) -> tuple[str, list[str]]:
    part, problems = context_of(str(checkpoint), None, {}, changes).problems(split, None)
    return part, [problem.question for problem in problems]


def test_a_file_that_is_named_is_never_answered_with_the_runs_own_test_problems(checkpoint: Path) -> None:
    assert asked(checkpoint) == ("test", [f"test {i}?" for i in range(5)])
    with pytest.raises(ConfigError, match=r"task.path is a file to train on, and the test problems .* of .*test.jsonl"):
        asked(checkpoint, "task.path=mine.jsonl")
    part, questions = asked(checkpoint, "task.path=mine.jsonl", "task.dev_fraction=0.5", split="dev")
    assert part == "dev"
    assert questions
    assert all(question.startswith("mine ") for question in questions)
    assert asked(checkpoint, "task.test_path=mine.jsonl") == ("test", [f"mine {i}?" for i in range(7)])


def test_no_run_has_divided_the_rows_of_another_file(checkpoint: Path) -> None:
    config = checkpoint.parents[1] / "config.toml"
    config.write_text(config.read_text().replace('test_path = "test.jsonl"\n', "dev_fraction = 0.5\n"))
    assert asked(checkpoint, "task.path=mine.jsonl") == ("all rows", [f"mine {i}?" for i in range(7)])
    with pytest.raises(
        DataError, match=r"no test split; it has: train, dev; .*; another is measured by its name, --sp"
    ):
        asked(checkpoint)


def test_a_file_that_was_changed_since_the_run_began_is_told(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr("groupwise.evaluation.checkpoints.tell", told.append)
    files = {"task.path": "train.jsonl", "task.test_path": "test.jsonl"}
    data = [Input.named(key, file, "data") for key, file in files.items()]
    keep(checkpoint.parents[1], [item.taken() for item in data])
    asked(checkpoint)
    assert not told
    write_rows(Path("test.jsonl"), 4)
    assert len(asked(checkpoint)[1]) == 4
    (sentence,) = told
    assert "test.jsonl was changed (" in sentence
    assert sentence.endswith("its problems may be others than the run's")
    asked(checkpoint, "task.test_path=mine.jsonl")
    assert told == [sentence]  # of a file in whose place another is named there is nothing to say


def test_a_prompt_that_was_not_trained_on_is_told(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr("groupwise.evaluation.checkpoints.tell", told.append)
    config = checkpoint.parents[1] / "config.toml"
    config.write_text('[verifier]\nkind = "number"\n[task]\nkind = "arithmetic"\ntemplate.prompt = "{question}!"\n')
    context_of(str(checkpoint), "arithmetic", {})
    assert not told
    context_of(str(checkpoint), "jsonl", {}, ["task.path=mine.jsonl"])
    (sentence,) = told
    assert "was trained on the prompt '{question}!' and is asked 'The user asks a question" in sentence


def test_what_is_no_task_is_answered(checkpoint: Path) -> None:
    (checkpoint / "own.py").write_text("def stories(problem): ...")
    with pytest.raises(ConfigError, match=r"own\.py:stories is no task: allowed is a class that builds on TaskConfig"):
        context_of(str(checkpoint), f"{checkpoint}/own.py:stories", {})


@pytest.mark.parametrize("name", ["base", "someone/base"])
def test_a_name_means_the_same_in_the_directory_of_a_run(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(checkpoint.parent if name == "base" else checkpoint.parents[1])
    with pytest.raises(ConfigError, match=f"{name} lies in no run"):
        context_of(name, None, {})


@pytest.mark.parametrize(
    ("read", "change"),
    [
        (lambda changes: sample("base", "1+1", changes=changes), "engine.kind=vllm"),
        (lambda changes: measure_budget("base", task="arithmetic", changes=changes), "engine.kind=vllm"),
        (lambda changes: measure_budget("base", task="arithmetic", changes=changes), "behaviour.patterns.checks.en=[]"),
        (lambda changes: list(evaluate_suite("base", ["gsm8k"], changes=changes)), "behaviour.patterns.checks.en=[]"),
    ],
)
def test_changes_of_sections_that_nothing_reads_are_refused(read: Callable[[list[str]], object], change: str) -> None:
    with pytest.raises(ConfigError, match=rf"{change.partition('=')[0]} has no effect here: allowed are keys of task"):
        read([change])


def test_a_top_p_of_0_is_no_top_p_of_1() -> None:
    with pytest.raises(ConfigError, match=r"sampling\.top_p = 0\.0"):
        evaluate("base", task="arithmetic", top_p=0.0)

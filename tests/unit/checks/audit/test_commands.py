"""`groupwise verify` and `groupwise audit` as a person uses them."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import groupwise as gw
from groupwise.checks.audit import sandbox
from groupwise.cli.main import app
from groupwise.errors import ConfigError, DataError, GroupwiseError
from groupwise.sandbox.base import RunResult, Status

COUNTDOWN = ["--data", "numbers=[3, 5, 2]", "--data", "target=16"]


def run(*arguments: str, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(app, list(arguments), input=stdin)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def cases(path: Path, *rows: tuple[str, bool | None]) -> str:
    lines = [
        {"gold": "16", "response": text, "expected": expected, "data": {"numbers": [3, 5, 2], "target": 16}}
        for text, expected in rows
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def test_verify_explains_a_verdict() -> None:
    result = run("verify", "countdown", *COUNTDOWN, r"<think>3+5</think>So \boxed{(3+5)*2}")
    assert result.exit_code == 0
    steps = [r"1. after the reasoning comes So \boxed{(3+5)*2}", "2. the answer (boxed) is (3+5)*2", "3. it equals 16"]
    assert all(step in result.stdout for step in steps), result.stdout
    assert "correct  reward 1 (accuracy 1, format 0)  answer (3+5)*2" in result.stdout


def test_verify_reads_files_and_standard_input(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(r"\boxed{3+5+2}")
    for result in (
        run("verify", "countdown", *COUNTDOWN, "--json", "--file", str(tmp_path / "a.txt")),
        run("verify", "countdown", *COUNTDOWN, "--json", stdin=r"\boxed{3+5+2}"),
        run("verify", "countdown", *COUNTDOWN, "--json", "-", stdin=r"\boxed{3+5+2}"),
    ):
        found = json.loads(result.stdout)
        assert (result.exit_code, found["outcome"], found["reward"]) == (0, "wrong", 0.0)
        assert found["explanation"][-1] == found["evidence"] == "it equals 10, not 16"


def test_verify_lists_the_reference_answers_of_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "problems.jsonl"
    rows = [{"question": "q", "solution": text} for text in ("5", r"\frac{1}{", "x^2 + 1", "90^")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = run("verify", "math", "--data", str(path), "--set", "task.answer_field=solution")
    assert result.exit_code == 1
    assert [line.split(":")[0] for line in result.stdout.splitlines()[:-1]] == ["row 2", "row 4"]
    assert f"2 of 4 reference answers of {path} cannot be read or do not pass" in result.stdout
    path.write_text("".join(json.dumps(row) + "\n" for row in (rows[0], rows[2])))
    assert run("verify", "math", "--data", str(path), "--set", "task.answer_field=solution").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["verify", "countdown", r"\boxed{3}"], 1, "no reward: the verifier failed"),
        (["verify", "countdown", *COUNTDOWN, "--set", "verifier.extraction=tag", "<answer>(3+5)*2</answer>"], 0, "16"),
        (["audit", "countdown", "--problems", "1", "--set", "task.num_problems=8"], 0, "countdown tricks"),
        # without problems of its own it is attacked on a task that serves
        (["audit", "math", "--problems", "1", "--set", "task.num_problems=8"], 0, "Passed"),
    ],
)  # fmt: skip
def test_what_a_command_finds(arguments: list[str], status: int, words: str) -> None:
    result = run(*arguments)
    assert result.exit_code == status, result.stdout
    assert words in result.stdout


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["verify", "maths", "x"], ConfigError, "there is no verifier 'maths'"),
        (["verify", "countdown", "x", "--data", "target=a"], ConfigError, "--data target is not JSON.*is key=JSON"),
        (["verify", "countdown", "x", "--data", f"target={'1' * 5000}"], ConfigError, "a number has 5000 digits"),
        (["verify", "countdown", "x", "--file", "y"], ConfigError, "not both"),
        (["verify", "countdown", "--file", "none.txt"], DataError, "none.txt cannot be read"),
        (["verify", "math", "x", "--set", "verifier.timeout=1"], ConfigError, "did you mean 'timeout_s'"),
        (["audit", "countdown", "--tier", "core"], ConfigError, "name a file of cases"),
        (["audit", "countdown", "--task", "arithmetics"], ConfigError, "there is no task 'arithmetics'"),
        (["audit", "maths", "--reference", "3"], ConfigError, "there is no verifier 'maths'"),
        (["audit", "countdown", "--cases", "none.jsonl"], DataError, "none.jsonl cannot be read"),
    ],
)
def test_mistakes_are_named(arguments: list[str], error: type[GroupwiseError], message: str) -> None:
    with pytest.raises(error, match=message):
        run(*arguments)


def test_python_gets_what_the_command_prints(tmp_path: Path) -> None:
    problem = gw.Problem("asked", "", "", data={"numbers": [3, 5, 2], "target": 16})
    explained = gw.verify("countdown", r"\boxed{3+5+2}", problem)
    assert json.loads(run("verify", "countdown", *COUNTDOWN, "--json", r"\boxed{3+5+2}").stdout) == explained.as_dict()
    (tmp_path / "problems.jsonl").write_text('{"question": "q", "answer": "90^"}\n')
    references = gw.check_references("math", tmp_path / "problems.jsonl", {"task.answer_field": "answer"})
    assert [problem.id for problem in references.problems] == list(references.faults)


def test_audit_of_cases_passes_only_when_every_decided_case_is_right(tmp_path: Path) -> None:
    right = cases(tmp_path / "right.jsonl", (r"\boxed{(3+5)*2}", True), (r"\boxed{3}", False), (r"\boxed{16}", None))
    result = run("audit", "countdown", "--cases", right)
    assert result.exit_code == 0, result.stdout
    assert "Passed: all 2 decided cases have their expected verdict." in result.stdout
    assert "undecided  1 cases, which never decide: 1 wrong" in result.stdout
    wrong = cases(tmp_path / "wrong.jsonl", (r"\boxed{(3+5)*2}", False), (r"\boxed{3}", True))
    result = run("audit", "countdown", "--cases", right, "--cases", wrong)
    assert result.exit_code == 1
    assert "Not passed: 2 of 4" in result.stdout
    assert "false positive  attack" in result.stdout
    assert "2. the answer (boxed) is (3+5)*2" in result.stdout


def test_audit_prints_json(tmp_path: Path) -> None:
    path = cases(tmp_path / "cases.jsonl", (r"\boxed{(3+5)*2}", True), (r"\boxed{<b>}", True))
    result = run("audit", "countdown", "--cases", path, "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["passed"], found["verifier"]) == (1, False, "countdown")
    assert found["total"]["false_negatives"]["count"] == 1
    assert found["misses"][0]["text"] == r"\boxed{<b>}"


def test_audit_of_a_function_of_ones_own(tmp_path: Path) -> None:
    source = "def reward(prompt, completion, reference):\n    return float(reference in completion)\n"
    (tmp_path / "mine.py").write_text(source)
    result = run("audit", f"{tmp_path}/mine.py:reward", "--reference", "391", "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 1
    assert found["groups"]["right answer"]["right"] == found["groups"]["right answer"]["decided"] == 5
    assert found["groups"]["bare answer"]["false_positives"]["count"] == 4
    assert found["total"]["files_written"] == found["total"]["hangs"] == found["total"]["crashes"] == 0


@pytest.mark.parametrize(("code", "status", "words"), [("good", 0, "1 of 1 programs"), ("evil", 1, "it says WROTE")])
def test_audit_of_the_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_sandbox: Any, code: str, status: int, words: str
) -> None:
    said = {"evil": b"WROTE\n", "good": b"[Errno 30] Read-only file system\n", "print(6)": b"6\n"}
    held = fake_sandbox(lambda program: RunResult(Status.EXITED, 0, said[program.source], b"", 0.0))
    monkeypatch.setattr(sandbox, "open_sandbox", lambda config: held)
    probes = tmp_path / "probes.jsonl"
    row = {"id": "p-1", "name": "<i>write</i>", "code": code, "stdin": "", "expected": "refused"}
    probes.write_text(json.dumps(row) + "\n")
    result = run("audit", "sandbox", "--probes", str(probes))
    assert (result.exit_code, words in result.stdout) == (status, True), result.stdout
    found = json.loads(run("audit", "sandbox", "--probes", str(probes), "--json").stdout)
    assert found == gw.audit_sandbox([probes]).as_dict()
    assert (found["passed"], found["probes"][0]["contained"]) == (status == 0, status == 0)


def test_probes_are_checked(tmp_path: Path) -> None:
    (tmp_path / "probes.jsonl").write_text('{"id": "p-1"}\n')
    with pytest.raises(DataError, match="line 1"):
        run("audit", "sandbox", "--probes", str(tmp_path / "probes.jsonl"))

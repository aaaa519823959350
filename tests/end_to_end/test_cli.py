"""The command line as a person uses it: `main` with its arguments, in this process, and what it prints and leaves."""

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from rich.console import Console
from typer.main import get_command

import groupwise.cli.train as cli_train
from groupwise.algorithms.statistics import Estimate
from groupwise.cli.listing import list_runs
from groupwise.cli.main import app, main
from groupwise.cli.second import show_second
from groupwise.config import recipe_names
from groupwise.evaluation.held_out import HeldOutCheck, Rejected
from groupwise.trainers.report import StepReport

ROOT = Path(__file__).parents[2]
GSM8K = ROOT.parent / "shared" / "data" / "gsm8k"
NUM_STEPS = 3
RECIPE = """
algorithm = "grpo"

[run]
directory = "DIRECTORY"
num_steps = 3
checkpoint_every = 2

[model]
path = "base"
device = "cpu"
num_threads = 1

[task]
kind = "arithmetic"
num_problems = 40
num_eval_problems = 8

[grpo]
prompts_per_step = 4
group_size = 4

[sampling]
max_tokens = 48

[evaluation]
every = 2
num_problems = 4
num_samples = 2
test_problems = 4
test_samples = 2
"""


class Said(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def groupwise(*arguments: object, columns: int = 200) -> Said:
    """Run a command in this process; an exception that is not an exit is a traceback a user would see."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    words = ["groupwise", *map(str, arguments)]
    with (
        patch.object(sys, "argv", words),
        patch.dict(os.environ, COLUMNS=str(columns), TERMINAL_WIDTH=str(columns)),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as exit_:
            code = exit_.code if isinstance(exit_.code, int) else 0
    return Said(code, out.getvalue(), err.getvalue())


def succeed(*arguments: object, columns: int = 200) -> str:
    """Run a command that must succeed; returns what it printed."""
    said = groupwise(*arguments, columns=columns)
    assert said.code == 0, said
    return said.out


def refuse(*arguments: object) -> str:
    """Run a command that must end with a sentence on stderr and exit code 2; returns the sentence."""
    said = groupwise(*arguments)
    assert said.code == 2, said
    assert said.err.startswith("groupwise: "), said.err
    assert "Traceback" not in said.err
    return said.err


def write_recipe(folder: Path, directory: Path, text: str = RECIPE) -> Path:
    path = folder / "recipe.toml"
    path.write_text(text.replace("DIRECTORY", str(directory)))
    return path


def ledger(run: Path) -> bytes:
    return (run / "ledger.jsonl").read_bytes()


class Trained(NamedTuple):
    """A finished run and what its training printed."""

    path: Path
    recipe: Path
    out: str


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("runs")
    recipe = write_recipe(folder, folder / "run")
    return Trained(folder / "run", recipe, succeed("train", recipe))


@pytest.fixture
def copy(trained: Trained, tmp_path: Path) -> Path:
    """A copy of the finished run, to be spoilt; its recipe names its own directory."""
    path = Path(shutil.copytree(trained.path, tmp_path / "copy", symlinks=True))
    config = path / "config.toml"
    config.write_text(config.read_text().replace(str(trained.path), str(path)))
    return path


@pytest.fixture
def without_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """No page of the run: its figures take as long as the rest of such a run, and the test reads none of them."""
    monkeypatch.setattr(cli_train, "write_report", lambda path: path)


@pytest.fixture(scope="module")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `new-model` writes."""
    path = tmp_path_factory.mktemp("models") / "random"
    said = succeed("new-model", path, "--hidden-size", 32, "--layers", 1)
    assert "random parameters and a byte tokenizer" in said
    return path


# ------------------------------------------------------------------------------------------------------------ train


def test_train_leaves_everything_that_looking_at_it_needs(trained: Trained) -> None:
    run = trained.path
    for name in ("config.toml", "environment.json", "ledger.jsonl", "metrics.jsonl", "finished.json"):
        assert (run / name).stat().st_size, name
    assert (run / "report.html").read_text().lstrip().lower().startswith("<!doctype html>")
    assert (run / "rollouts" / "index.jsonl").stat().st_size
    assert {file.stem for file in (run / "rollouts").glob("*.parquet")} == {
        *(f"step-{step:06d}" for step in range(NUM_STEPS)),
        *(f"dev-step-{step:06d}" for step in (0, 2, 3)), "test-before", "test-after",
    }  # fmt: skip
    assert (run / "checkpoints" / "step-000003" / "model.safetensors").exists()
    assert (run / "checkpoints" / "best").resolve().name.startswith("step-")
    kinds = [line.get("evaluation", "step") for line in map(json.loads, ledger(run).splitlines())]
    assert kinds == ["dev", "step", "step", "dev", "step", "dev", "test-before", "test-after"]


def test_train_prints_steps_evaluations_and_where_the_report_is(trained: Trained) -> None:
    lines = trained.out.splitlines()
    assert sum(line.split()[:2] == ["step", "reward"] for line in lines) == 1
    assert [line.split()[0] for line in lines if re.match(r" +\d+  +\d\.\d{3}", line)] == ["0", "1", "2"]
    dev = [line for line in lines if line.startswith("  dev  pass@1 ")]
    assert [re.search(r"after (\d) steps", line)[1] for line in dev] == ["0", "2", "3"]  # type: ignore[index]
    assert dev[0].endswith("(best so far)")
    assert "3 of 3 steps, finished" in trained.out
    assert "Test split, start against best checkpoint: 4 problems × 2 samples" in trained.out
    assert lines[-1] == f"Report: {trained.path / 'report.html'}"
    assert " loss" not in trained.out


@pytest.mark.slow  # every day in test_examples.py, with one step
def test_the_resolved_recipe_reruns_the_run(trained: Trained, without_report: None, tmp_path: Path) -> None:
    succeed("train", trained.path / "config.toml", "--set", f"run.directory={tmp_path / 'other'}")
    assert ledger(tmp_path / "other") == ledger(trained.path)


def test_ctrl_c_stops_after_the_step_and_the_same_command_goes_on(
    trained: Trained, without_report: None, tmp_path: Path
) -> None:
    recipe = write_recipe(tmp_path, tmp_path / "run")
    printed = cli_train.step_line

    def interrupt(report: Any) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        return printed(report)

    with patch.object(cli_train, "step_line", interrupt):
        said = succeed("train", recipe)
    assert "Stopped after step 1 with a checkpoint; the same command resumes there." in said
    assert not (tmp_path / "run" / "finished.json").exists()
    assert "1/3" in succeed("runs", tmp_path)
    again = succeed("train", recipe)
    assert "3 of 3 steps, finished" in again
    assert not re.search("^  dev .* after 0 steps", again, re.MULTILINE)
    assert ledger(tmp_path / "run") == ledger(trained.path)


def test_a_finished_run_is_left_alone_until_restart(copy: Path) -> None:
    before = ledger(copy)
    sentence = refuse("train", copy / "config.toml")
    assert "is finished (3 steps): there is nothing left to do" in sentence
    assert "--restart" in sentence
    assert ledger(copy) == before
    (copy / "report.html").unlink()
    succeed("train", copy / "config.toml", "--restart", "--set", "run.seed=7", "--set", "run.num_steps=1")
    assert (copy / "report.html").exists()
    assert ledger(copy) != before
    assert tomllib.loads((copy / "config.toml").read_text())["run"]["seed"] == 7


# ------------------------------------------------------------------------------------------------------------- eval

EVAL = ("--problems", 6, "--samples", 4, "--max-tokens", 48, "--set", "task.num_eval_problems=8")


def test_eval_against_itself_gives_all_figures_and_a_difference_of_exactly_zero() -> None:
    result = json.loads(succeed("eval", "base", "--task", "arithmetic", "--against", "base", "--json", *EVAL))
    assert {key: result[key] for key in ("task", "split", "samples", "temperature", "seed")} == {
        "task": "arithmetic", "split": "test", "samples": 4, "temperature": 1.0, "seed": 0,
    }  # fmt: skip
    assert result["problems"] == 6
    assert result["difference"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    figures = result["checkpoints"]["base"]
    assert set(figures) == {
        "pass_at_1", "pass_at_2", "pass_at_4", "majority_2", "majority_4", "length", "truncated", "verdict_errors",
        "by_difficulty", "at_once", "works_out", "unfinished", "checks", "backtracks", "another_way", "loops", "mixed",
        "open_tags", "format", "language", "length_correct", "length_wrong", "after_first",
    }  # fmt: skip
    courses = [figures[key]["value"] for key in ("at_once", "works_out", "unfinished")]
    assert sum(courses) == pytest.approx(1)
    for estimate in (
        figures["pass_at_1"],
        figures["pass_at_2"],
        figures["majority_4"],
        *figures["by_difficulty"].values(),
    ):
        assert 0 <= estimate["low"] <= estimate["value"] <= estimate["high"] <= 1
    assert set(figures["by_difficulty"]) == {"product 2x2"}
    assert figures["pass_at_1"]["value"] <= figures["pass_at_2"]["value"] <= figures["pass_at_4"]["value"]
    assert figures["verdict_errors"] == 0


def test_eval_of_a_run_takes_the_task_of_the_run_and_compares_with_another(trained: Trained) -> None:
    newest = trained.path / "checkpoints" / "step-000003"
    out = succeed("eval", newest, "--against", "base", "--problems", 4, "--samples", 2)
    assert "arithmetic, test: 4 problems × 2 samples" in out
    for row in ("pass@1", "pass@2", "maj@2", "length", "pass@1, product 2x2", "backtracks", "leaves tags open"):
        assert row in out
    assert re.search(r"paired difference to base: [+-]\d\.\d{3} \[[+-]\d\.\d{3}, [+-]\d\.\d{3}\]", out)


def test_a_run_is_no_checkpoint_and_its_checkpoints_are_named(trained: Trained) -> None:
    newest = trained.path / "checkpoints" / "step-000003"
    for words in (
        ("eval", trained.path),
        ("eval", newest, "--against", trained.path),
        ("sample", trained.path, "1 + 1"),
    ):
        sentence = refuse(*words)
        assert f"{trained.path} is a run, not a checkpoint: name one of " in sentence
        assert str(newest) in sentence


def test_eval_takes_phrases_and_a_second_verifier() -> None:
    phrase = ("--set", 'behaviour.patterns.checks.en=["="]')
    result = json.loads(succeed("eval", "base", "--task", "arithmetic", "--second", "math", "--json", *phrase, *EVAL))
    figures = result["checkpoints"]["base"]
    assert figures["checks"]["value"] > 0.9
    second = figures["second"]
    assert second["judged"] == round(figures["pass_at_1"]["value"] * 24) > 0
    assert (second["rejected"], second["alarm"], second["example"]) == (0, False, None)
    out = succeed("eval", "base", "--task", "arithmetic", "--second", "math", *EVAL)
    assert f"second verifier: math rejects 0 of {second['judged']} completions that training pays, 0.000 [" in out


def test_eval_refuses_what_it_cannot_look_for() -> None:
    sentence = refuse("eval", "base", "--task", "arithmetic", "--set", 'behaviour.patterns.checks.en=["(wait"]')
    assert "behaviour.patterns.checks.en.0 = '(wait': '(wait' is not a regular expression" in sentence
    assert "'number' is used in training already" in refuse(
        "eval", "base", "--task", "arithmetic", "--second", "number"
    )


def test_the_alarm_is_red_and_names_an_example() -> None:
    example = Rejected("47×86", 3, "<think></think>\x1b[2J [red]4042", "no answer (boxed)")
    check = HeldOutCheck("math", 10, 9, 0, Estimate(0.9, 0.6, 0.98), True, example)
    out = io.StringIO()
    show_second(check, Console(file=out, width=200, force_terminal=True, color_system="standard"))
    assert out.getvalue().startswith(
        "\x1b[1;31m  ALARM, reward hacking: math rejects 9 of 10 completions that training"
    )
    assert "completion 3 of 47×86:" in out.getvalue()
    assert "\\x1b[2J [red]4042" in out.getvalue()
    assert "no answer (boxed)" in out.getvalue()


def test_a_second_verifier_watches_training_and_the_ledger_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = [
        "run.num_steps=1",
        "evaluation.second_verifier=math",
        "evaluation.second_sample=3",
        "evaluation.test_problems=0",
    ]
    recipe = write_recipe(tmp_path, tmp_path / "run")
    changes = [word for each in sets for word in ("--set", each)]
    out = succeed("train", recipe, *changes)
    assert len(re.findall(r"^  second verifier: math rejects 0 of \d completions", out, re.MULTILINE)) == 2
    monkeypatch.setattr(cli_train, "write_report", lambda path: path)  # one page is enough
    succeed("train", recipe, *changes, "--set", f"run.directory={tmp_path / 'again'}")
    assert ledger(tmp_path / "run") == ledger(tmp_path / "again")
    dev = [line for line in map(json.loads, ledger(tmp_path / "run").splitlines()) if line.get("evaluation") == "dev"]
    assert all(line["second"]["verifier"] == "math" and line["second"]["judged"] <= 3 for line in dev)
    assert any(line["second"]["judged"] for line in dev)
    assert "Second verifier" in (tmp_path / "run" / "report.html").read_text()
    assert "'number' is used in training already" in refuse(
        "train", recipe, "--set", "evaluation.second_verifier=number"
    )


# ----------------------------------------------------------------------------------------------------------- sample


def test_sample_shows_verdicts_for_a_problem_of_the_task() -> None:
    out = succeed("sample", "base", "What is 23 × 17?", "-n", 6)
    verdicts = re.findall(r"^  \d+ tokens, (?:stop|length); (\w+): ", out, re.MULTILINE)
    assert len(verdicts) == 6
    assert set(verdicts) <= {"correct", "wrong", "unparsable"}
    assert "'391'" in out
    assert out == succeed("sample", "base", "What is 23 × 17?", "-n", 6)


def test_sample_shows_answers_only_where_no_reference_is_known() -> None:
    out = succeed("sample", "base", "What is 7 × 17?", "-n", 3)
    assert len(re.findall(r"tokens, \w+; answer: ", out)) == 3
    assert "correct" not in out
    assert "wrong" not in out
    assert "--reference" in out
    judged = succeed("sample", "base", "What is 7 × 17?", "-n", 3, "--reference", 119)
    assert len(re.findall(r"tokens, \w+; (?:correct|wrong|unparsable): ", judged)) == 3
    assert "No reference answer" not in judged


def test_sample_refuses_a_character_the_tokenizer_cannot_write() -> None:
    assert "the tokenizer cannot write '€'" in refuse("sample", "base", "What is 2 € 3?")


# ----------------------------------------------------------------------------------------------------------- replay


def recorded(run: Path, step: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(run / "rollouts" / f"step-{step:06d}.parquet").to_pylist()
    return rows


def replay(run: Path, step: int, row: dict[str, Any]) -> Said:
    return groupwise("replay", run, "--step", step, "--problem", row["problem"], "--sample", row["sample"])


@pytest.mark.parametrize(("step", "place"), [(0, 0), (1, 7), (2, 15)])
def test_replay_finds_recorded_completions_identical(trained: Trained, step: int, place: int) -> None:
    row = recorded(trained.path, step)[place]
    code, out, _ = replay(trained.path, step, row)
    assert code == 0
    assert f"identical: {len(row['token_ids'])} tokens, log-probabilities equal to the bit" in out
    assert f"recorded     {row['text']}\n" in out
    assert f"regenerated  {row['text']}\n" in out


def test_replay_repeats_the_steps_since_the_start_where_no_checkpoint_is_left(copy: Path) -> None:
    shutil.rmtree(copy / "checkpoints")
    code, out, _ = replay(copy, 2, recorded(copy, 2)[5])
    assert code == 0
    assert "weights: base, 2 steps repeated" in out
    assert "identical" in out


def tokens_changed(row: dict[str, Any]) -> None:
    row["token_ids"][3] += 1


def logprob_changed(row: dict[str, Any]) -> None:
    row["sampling_logprobs"][3] -= 0.25


@pytest.mark.parametrize(
    ("change", "finding"),
    [(tokens_changed, "different from token 3 on"), (logprob_changed, "log-probabilities differ by up to 0.25")],
)
def test_replay_finds_a_changed_record_and_exits_with_1(
    copy: Path, change: Callable[[dict[str, Any]], None], finding: str
) -> None:
    rows = recorded(copy, 0)
    change(rows[6])
    path = copy / "rollouts" / "step-000000.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=pq.read_schema(path)), path)
    code, out, err = replay(copy, 0, rows[6])
    assert code == 1
    assert finding in out
    assert "identical" not in out
    assert not err
    assert replay(copy, 0, rows[7]).code == 0


def test_replay_names_what_a_run_has(trained: Trained, copy: Path) -> None:
    ids = {row["problem"] for row in recorded(trained.path, 1)}
    assert "no completions of step-000099" in refuse(
        "replay", trained.path, "--step", 99, "--problem", "arithmetic/23x17"
    )
    sentence = refuse("replay", trained.path, "--step", 1, "--problem", "arithmetic/1x1")
    assert "'arithmetic/1x1'" in sentence
    assert all(problem in sentence for problem in ids)
    beyond = refuse("replay", trained.path, "--step", 1, "--problem", min(ids), "--sample", 4)
    assert "there are 0, 1, 2, 3" in beyond
    (copy / "rollouts" / "step-000001.parquet").write_bytes(b"PAR1")
    assert "step-000001.parquet cannot be read" in refuse("replay", copy, "--step", 1, "--problem", min(ids))


def test_eval_takes_all_rows_of_a_plain_file_unless_a_split_is_asked_for(random_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    rows = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(205)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ("--task", "jsonl", "--set", f"task.path={file}", "--samples", 1, "--max-tokens", 2, "--json")
    asked = json.loads(succeed("eval", random_model, *options))
    assert (asked["split"], asked["problems"]) == ("all rows", 205)
    assert json.loads(succeed("eval", random_model, *options, "--problems", 3))["problems"] == 3
    dev = json.loads(succeed("eval", random_model, *options, "--split", "dev"))
    assert dev["split"] == "dev"
    assert 0 < dev["problems"] < 205
    assert "mine has no test split" in refuse("eval", random_model, *options, "--split", "test")


# ------------------------------------------------------------------------------------------- runs, report, export


def test_runs_lists_what_there_is(trained: Trained, tmp_path: Path) -> None:
    out = succeed("runs", trained.path.parent)
    for word in ("grpo", "arithmetic", "3/3", "finished"):
        assert word in out
    assert "There are no runs in" in succeed("runs", tmp_path)


def test_report_is_written_again(copy: Path) -> None:
    (copy / "report.html").unlink()
    out = succeed("report", copy)
    assert "3 of 3 steps, finished" in out
    assert out.rstrip().endswith("report.html")
    assert (copy / "report.html").exists()


def test_export_writes_a_plain_model_with_its_provenance(trained: Trained, tmp_path: Path) -> None:
    assert "provenance.json" in succeed("export", trained.path, tmp_path / "model")
    newest = trained.path / "checkpoints" / "step-000003"
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == (newest / "model.safetensors").read_bytes()
    assert not (tmp_path / "model" / "optimizer.safetensors").exists()
    (entry,) = json.loads((tmp_path / "model" / "provenance.json").read_text())
    assert entry["recipe"]["task"]["kind"] == "arithmetic"
    assert "arithmetic, generated by Groupwise's program" in (tmp_path / "model" / "README.md").read_text()
    assert "tokens" in succeed("sample", tmp_path / "model", "What is 23 × 17?", "-n", 1)
    assert "arithmetic, test" in succeed("eval", tmp_path / "model", "--problems", 2, "--samples", 1)


@pytest.mark.parametrize("command", [("replay", "--step", 0, "--problem", "a"), ("report",), ("export",)])
def test_a_directory_that_is_no_run_is_named(tmp_path: Path, command: tuple[object, ...]) -> None:
    name, *options = command
    more = [tmp_path / "model"] if name == "export" else []
    assert "is not a run directory" in refuse(name, tmp_path, *more, *options)


# -------------------------------------------------------------------------------------------------------- new-model


@pytest.mark.skipif(not GSM8K.exists(), reason="needs ../shared/data/gsm8k")
def test_a_new_model_trains_on_gsm8k(random_model: Path, tmp_path: Path) -> None:
    changes = {
        "model.path": random_model, "model.num_threads": 1, "task.data_dir": GSM8K.parent,
        "run.directory": tmp_path / "run", "run.num_steps": 1, "grpo.prompts_per_step": 2, "grpo.group_size": 2,
        "sampling.max_tokens": 12, "evaluation.num_problems": 2, "evaluation.num_samples": 1,
        "evaluation.test_problems": 2,
    }  # fmt: skip
    out = succeed("train", ROOT / "recipes" / "gsm8k.toml", *settings(changes))
    assert "1 of 1 steps, finished" in out
    assert (tmp_path / "run" / "report.html").exists()
    assert all(row["problem"].startswith("gsm8k/train-") for row in recorded(tmp_path / "run", 0))
    assert "gsm8k/test-" in pq.read_table(tmp_path / "run" / "rollouts" / "test-after.parquet")["problem"][0].as_py()


def settings(changes: dict[str, object]) -> list[str]:
    return [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]


# ------------------------------------------------------------------------------------------------------------- help

COMMANDS = [command.name or command.callback.__name__ for command in app.registered_commands]  # type: ignore[union-attr]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_says_what_a_command_does(command: str) -> None:
    out = succeed(command, "--help")
    assert f"groupwise {command}" in out or f"Usage: groupwise {command}" in out
    if command not in ("report", "runs", "export"):
        assert "Example" in out
        assert out.count(f"groupwise {command} ") >= 2  # the usage line and at least one example


@pytest.mark.parametrize("columns", [40, 80])
def test_help_cuts_nothing_at_the_terminals_width(columns: int) -> None:
    assert "…" not in (top := succeed("--help", columns=columns))
    assert not [line for line in top.splitlines() if line.rstrip(" │").endswith("...") and "[ARGS]" not in line]
    for command in COMMANDS:
        said = succeed(command, "--help", columns=columns)
        assert "…" not in said
        options = [option for parameter in get_command(app).commands[command].params for option in parameter.opts]  # type: ignore[attr-defined]
        assert not [option for option in options if option not in said]


def run_process(*arguments: str) -> tuple[int, bool, str]:
    """Exit code of a real process, whether it loaded torch, and what it said on stderr."""
    code = (
        f"import sys; from groupwise.cli import main; sys.argv = {['groupwise', *arguments]}\n"
        "try: main()\n"
        "finally: print(); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout.splitlines()[-1] == "True", done.stderr


NO_HUB = "http://127.0.0.1:9"
UNANSWERED = (
    ("memory", str(ROOT / "recipes/arithmetic.toml"), "--set", "model.path=no/model"),
    ("eval", "no/model", "--task", "arithmetic"),
)
SILENCE = (
    "groupwise: the model 'no/model' cannot be loaded: there is no such directory, and no hub answers for it "
    "(ConnectError)\n"
)


@pytest.mark.parametrize("command", UNANSWERED, ids=lambda command: command[0])
def test_a_hub_that_does_not_answer_is_one_sentence(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    place = "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE"
    monkeypatch.setattr(place, f"{NO_HUB}/{{repo_id}}/resolve/{{revision}}/{{filename}}")
    assert refuse(*command) == SILENCE


@pytest.mark.slow
def test_a_hub_named_in_the_environment_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", NO_HUB)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    for command in UNANSWERED:
        code, _, said = run_process(*command)
        assert (code, said) == (2, SILENCE)


def test_help_answers_at_once() -> None:
    assert run_process("train", "--help") == (0, False, "")


# -------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("model.pth=x", ["model.pth", "unknown key", "did you mean 'path'?"]),
        ("modle.path=x", ["modle", "unknown key", "did you mean 'model'?"]),
        ("task.digit=[2,2]", ["digit", "unknown key", "did you mean 'digits'?"]),
        ("loss.mini_batches=5", ["loss.mini_batches = 5", "grpo.prompts_per_step = 4", "at least one group"]),
        ("sampling.top_k=20", ["top_k = 20", "whole distribution", "evaluation only"]),
        ("sampling.temperature=0", ["temperature = 0", "teach nothing"]),
        ("run.num_steps=abc", ["run.num_steps = 'abc'", "integer"]),
        ("run.num_steps=0", ["run.num_steps = 0", "greater than or equal to 1"]),
        ("run=3", ["run = 3"]),
        ("run.seed.deep=3", ["run.seed: ", "integer"]),
        ("algorithm.deep=3", ["the change 'algorithm.deep=3': algorithm is a value, not a section"]),
        ("algorithm=ppo", ["grpo: unknown key; did you mean 'ppo'?"]),
        ("task.kind=sums", ["no task 'sums'", "arithmetic, code, coq_statements", "mixture"]),
        ("task.kinds=[\"power\"]", ["kinds", "'power'", "'product', 'sum', 'difference' or 'chain'"]),
        ("advantage.kind=best", ["there is no advantage 'best'", "group_mean, group_normalised"]),
        ("loss.aggregation=mean", ["aggregation = 'mean'", "constant, token, sequence"]),
        ("grpo.prompts_per_step=41", ["grpo.prompts_per_step = 41", "40 training problems"]),
        ("task.num_problems=100000", ["task.num_problems = 100000", "at most"]),
        ("task.template.gold={reference}", ["rejects the reference answer of arithmetic/", "fix the template"]),
        ("run.seed", ["the change 'run.seed' must look like section.key=value"]),
        ("=3", ["the change '=3' must look like section.key=value"]),
    ],
)  # fmt: skip
def test_a_recipe_that_cannot_be_used_is_explained(tmp_path: Path, change: str, words: list[str]) -> None:
    sentence = refuse("train", write_recipe(tmp_path, tmp_path / "run"), "--set", change)
    assert all(word in sentence for word in words), sentence
    assert not (tmp_path / "run").exists()


def test_a_recipe_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert "there is no recipe" in refuse("train", tmp_path / "missing.toml")
    recipe = write_recipe(tmp_path, tmp_path / "run", "algorithm = grpo")
    assert re.search(r"recipe\.toml is not a readable TOML file: .*line 1", refuse("train", recipe))
    recipe = write_recipe(tmp_path, tmp_path / "run", 'algorithm = "pppo"\n')
    assert "algorithm: there is no trainer 'pppo'; did you mean 'ppo'?" in refuse("train", recipe)
    assert "not a readable TOML file" in refuse("train", tmp_path)


def test_an_unknown_task_or_split_lists_the_known_ones() -> None:
    assert "no task 'sums'; known are arithmetic, code, coq_statements, " in refuse("eval", "base", "--task", "sums")
    assert "no task 'sums'; known are arithmetic" in refuse("sample", "base", "What?", "--task", "sums")
    assert "name the task (arithmetic" in refuse("eval", "base")
    sentence = refuse("eval", "base", "--task", "arithmetic", "--split", "validation")
    assert "split 'validation': allowed are train, dev, test" in sentence


@pytest.fixture
def spoilt(random_model: Path, tmp_path: Path) -> Path:
    """A copy of the random model, to be spoilt."""
    return Path(shutil.copytree(random_model, tmp_path / "spoilt"))


def refuse_model(path: Path) -> str:
    return refuse("sample", path, "What is 23 × 17?", "--task", "arithmetic", "--max-tokens", 8)


def test_a_missing_model_is_named(tmp_path: Path) -> None:
    assert f"'{tmp_path / 'missing'}' cannot be loaded: there is no such directory" in refuse_model(
        tmp_path / "missing"
    )


def test_a_directory_without_config_is_no_model(spoilt: Path) -> None:
    (spoilt / "config.json").unlink()
    assert "has no config.json, so it is not a Hugging Face model directory" in refuse_model(spoilt)


def test_a_truncated_weights_file_is_named(spoilt: Path) -> None:
    weights = spoilt / "model.safetensors"
    os.truncate(weights, weights.stat().st_size // 2)
    sentence = refuse_model(spoilt)
    assert str(spoilt) in sentence
    assert "cannot be loaded" in sentence
    assert sentence.count("\n") == 1


def test_missing_weights_are_named(spoilt: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(spoilt / "model.safetensors")
    del tensors["model.layers.0.mlp.up_proj.weight"]
    save_file(tensors, spoilt / "model.safetensors", metadata={"format": "pt"})
    sentence = refuse_model(spoilt)
    assert "is damaged: weights ['model.layers.0.mlp.up_proj.weight'] are missing" in sentence


def test_a_tokenizer_without_an_end_token_is_refused(spoilt: Path) -> None:
    path = spoilt / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token": None}))
    assert "the tokenizer has no end-of-sequence token (eos_token)" in refuse_model(spoilt)


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json"])
def test_a_torn_json_file_is_a_model_that_cannot_be_loaded(spoilt: Path, name: str) -> None:
    os.truncate(spoilt / name, 40)
    sentence = refuse_model(spoilt)
    assert "cannot be loaded" in sentence
    assert sentence.count("\n") == 1


def test_a_prompt_longer_than_the_context_says_both_lengths(tmp_path: Path) -> None:
    succeed("new-model", tmp_path / "short", "--hidden-size", 16, "--layers", 1, "--context-length", 32)
    question = "What is 23 × 17? " * 4
    sentence = refuse("sample", tmp_path / "short", question, "--task", "arithmetic", "--max-tokens", 8)
    tokens = len((question + "\n").encode())
    assert f"a prompt of {tokens} tokens" in sentence
    assert "context of 32 tokens" in sentence


JSONL = {"run.num_steps": 1, "grpo.prompts_per_step": 2, "grpo.group_size": 2, "evaluation.test_problems": 0}


@pytest.fixture
def jsonl_recipe(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """jsonl_recipe(*lines): what `train` says to a file of problems with these lines."""

    def train(*lines: str) -> str:
        (tmp_path / "problems.jsonl").write_text("\n".join(lines))
        text = RECIPE[: RECIPE.index("[task]")] + f'[task]\nkind = "jsonl"\npath = "{tmp_path / "problems.jsonl"}"\n'
        return refuse("train", write_recipe(tmp_path, tmp_path / "run", text), *settings(dict(JSONL)))

    yield train
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"question": "1 + 1?", "answer"', ["is not JSON"]),
        ('["1 + 1?", "2"]', ["is a JSON list", "object"]),
        ('{"question": "1 + 1?"}', ["has no field 'answer'"]),
        ('{"question": "", "answer": "2"}', ["question", "is empty"]),
        ('{"question": "1 + 1?", "answer": [2]}', ["field 'answer' is [2]"]),
    ],
)
def test_a_broken_line_of_a_data_file_is_named_by_its_number(
    jsonl_recipe: Callable[..., str], line: str, words: list[str]
) -> None:
    good = [json.dumps({"question": f"What is {n} + 1?", "answer": str(n + 1)}) for n in range(60)]
    sentence = jsonl_recipe(*good[:2], "", line, *good[2:])
    assert "problems.jsonl, line 4" in sentence
    assert all(word in sentence for word in words), sentence


def test_a_missing_data_file_is_named(tmp_path: Path) -> None:
    text = RECIPE[: RECIPE.index("[task]")] + f'[task]\nkind = "jsonl"\npath = "{tmp_path / "missing.jsonl"}"\n'
    assert "there is no problem file" in refuse("train", write_recipe(tmp_path, tmp_path / "run", text))


def test_a_run_directory_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, tmp_path / "thesis")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("precious")
    for restart in ([], ["--restart"]):
        assert "exists and is not a run directory" in refuse("train", recipe, *restart)
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "precious"


def test_a_changed_recipe_is_refused_and_named(trained: Trained) -> None:
    sentence = refuse("train", trained.recipe, "--set", "optimizer.lr=0.5")
    assert "was begun with another recipe: optimizer.lr was" in sentence


def test_a_damaged_checkpoint_is_named_on_resume(trained: Trained, without_report: None, copy: Path) -> None:
    """The copy is a run that was killed before its end, whose newest checkpoint then lost a bit."""
    (copy / "finished.json").unlink()
    weights = copy / "checkpoints" / "step-000003" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    sentence = refuse("train", copy / "config.toml")
    assert "step-000003 is damaged: model.safetensors" in sentence
    assert "delete" in sentence
    shutil.rmtree(weights.parent)
    succeed("train", copy / "config.toml")
    assert ledger(copy) == ledger(trained.path)


def test_a_mistake_found_while_loading_does_not_block_the_run_directory(without_report: None, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, tmp_path / "run")
    refuse("train", recipe, "--set", f"model.path={tmp_path / 'missing'}")
    short = ["run.num_steps=1", "evaluation.num_problems=1", "evaluation.test_problems=0"]
    assert "1 of 1 steps, finished" in succeed("train", recipe, *(word for each in short for word in ("--set", each)))


def test_a_restart_that_cannot_begin_deletes_nothing(copy: Path) -> None:
    before = ledger(copy)
    refuse("train", copy / "config.toml", "--restart", "--set", f"model.path={copy / 'missing'}")
    assert ledger(copy) == before


@pytest.mark.parametrize("command", ["export", "new-model"])
def test_writing_a_model_replaces_nothing_but_a_model(copy: Path, tmp_path: Path, command: str) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("precious")
    source = [copy] if command == "export" else []
    for target in (tmp_path / "thesis", copy):
        assert str(target) in refuse(command, *source, target)
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "precious"
    assert (copy / "config.toml").exists()


def test_new_model_into_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert groupwise("new-model", ".", "--hidden-size", 16, "--layers", 1).code in (0, 2)


def test_export_from_inside_the_run(copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(copy)
    succeed("export", ".", tmp_path / "model")
    assert len(json.loads((tmp_path / "model" / "provenance.json").read_text())) == 1


def test_a_run_directory_that_is_a_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("precious")
    assert "not a run directory" in refuse("train", write_recipe(tmp_path, tmp_path / "notes"))


@pytest.mark.parametrize("change", ["loss.mini_batches=5", "sampling.top_k=20", "loss.aggregation=mean"])
def test_contradictory_keys_are_one_short_sentence(tmp_path: Path, change: str) -> None:
    assert "{" not in refuse("train", write_recipe(tmp_path, tmp_path / "run"), "--set", change)


def test_a_template_that_asks_nothing_is_refused(tmp_path: Path) -> None:
    sets = ("--set", "task.template.prompt=Answer!", "--set", "run.num_steps=1")
    assert "{question}" in refuse("train", write_recipe(tmp_path, tmp_path / "run"), *sets)


def test_a_mistake_in_a_recipe_answers_at_once() -> None:
    sentence = f"groupwise: there is no recipe missing.toml; Groupwise brings {', '.join(recipe_names())}\n"
    assert run_process("train", "missing.toml") == (2, False, sentence)


def test_eval_says_how_many_problems_it_used() -> None:
    sets = ("--samples", 1, "--max-tokens", 8, "--set", "task.num_eval_problems=3")
    result = json.loads(succeed("eval", "base", "--task", "arithmetic", "--problems", 50, "--json", *sets))
    assert result["problems"] == 3


def test_sample_works_for_data_without_a_train_split(random_model: Path, tmp_path: Path) -> None:
    (tmp_path / "held_out.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}\n')
    sets = ("--task", "jsonl", "--set", f"task.test_path={tmp_path / 'held_out.jsonl'}", "--max-tokens", 4)
    assert "tokens, " in succeed("sample", random_model, "1 + 1?", *sets)


def test_completions_and_step_lines_are_not_broken(trained: Trained, copy: Path) -> None:
    row = max(recorded(trained.path, 0), key=lambda row: len(row["text"]))
    arguments = ("replay", trained.path, "--step", 0, "--problem", row["problem"], "--sample", row["sample"])
    assert f"recorded     {row['text']}\n" in succeed(*arguments, columns=40)


def test_replay_finds_a_changed_text(copy: Path) -> None:
    rows = recorded(copy, 0)
    rows[6]["text"] += " Trust me."
    path = copy / "rollouts" / "step-000000.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=pq.read_schema(path)), path)
    assert replay(copy, 0, rows[6]).code == 1


def test_replay_without_a_ledger_says_so(copy: Path) -> None:
    shutil.rmtree(copy / "checkpoints")
    (copy / "ledger.jsonl").unlink()
    assert "ledger" in refuse("replay", copy, "--step", 2, "--problem", recorded(copy, 2)[0]["problem"])


@pytest.mark.parametrize("change", ["model.num_threads=-1", "sft.sequences_per_step=0", "new_model.hidden_size=30"])
def test_values_that_cannot_be_are_refused(tmp_path: Path, change: str) -> None:
    data = '[new_model]\nhidden_size = 16\n\n[data]\nsource = "generated"\ntext = "worlds/diet.py:Diet"\n'
    text = f'algorithm = "sft"\n\n[run]\ndirectory = "DIRECTORY"\nnum_steps = 1\n\n{data}'
    sentence = refuse("train", write_recipe(tmp_path, tmp_path / "run", text), "--set", change)
    assert change.partition("=")[0].rpartition(".")[2] in sentence


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is at hand")
def test_a_gpu_that_is_not_there_is_said(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, tmp_path / "run")
    assert "cuda" in refuse("train", recipe, "--set", "model.device=cuda")


def test_a_narrow_terminal_folds_tables_and_cuts_nothing(trained: Trained) -> None:
    out = io.StringIO()
    list_runs(trained.path.parent, Console(file=out, width=44))
    first = [line.split("│")[1].strip() for line in out.getvalue().splitlines() if line.count("│") > 2]
    assert str(trained.path) in "".join(first)
    assert "…" not in out.getvalue()


def test_runs_lists_the_others_when_one_is_broken(copy: Path) -> None:
    broken = copy.parent / "broken"
    broken.mkdir()
    (broken / "config.toml").write_text("x =")
    (broken / "ledger.jsonl").touch()
    out = succeed("runs", copy.parent)
    assert "finished" in out
    assert "broken" in out


def test_a_step_says_how_many_scores_lie_beyond_their_clip() -> None:
    numbers = dict.fromkeys(StepReport._fields, 1)
    parts = {"part/accuracy/mean": 0.5, "part/helpful/mean": 0.7, "part/harmless/mean": 0.2}
    cuts = {"measure/cut/helpful/mean": 0.43, "measure/cut/harmless/mean": 0.0}
    line = cli_train.step_line(StepReport(**{**numbers, "parts": parts | cuts}))
    assert "helpful +0.700  43% of helpful beyond its clip" in line
    assert "harmless beyond" not in line

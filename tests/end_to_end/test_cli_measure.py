"""`groupwise eval`, `sample` and `replay`."""

import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import Said, Trained, groupwise, ledger, recorded, refuse, succeed, write_recipe
from rich.console import Console

import groupwise.cli.evaluate as evaluate_command
from groupwise.algorithms.statistics import Estimate
from groupwise.evaluation.evaluate import HeldOutCheck, Rejected
from groupwise.models.policy import load_policy

EVAL = ("--problems", 50, "--samples", 4, "--max-tokens", 48, "--set", "task.num_eval_problems=6")


def test_eval_against_itself_gives_all_figures_and_a_difference_of_exactly_zero() -> None:
    result = json.loads(succeed("eval", "base", "--task", "arithmetic", "--against", "base", "--json", *EVAL))
    assert {key: result[key] for key in ("task", "split", "samples", "temperature", "seed")} == {
        "task": "arithmetic", "split": "test", "samples": 4, "temperature": 1.0, "seed": 0,
    }  # fmt: skip
    assert result["problems"] == 6  # which are all there are
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
    console = Console(file=out, width=200, force_terminal=True, color_system="standard")
    with patch.object(evaluate_command, "console", console):
        evaluate_command.show_second(check)
    assert out.getvalue().startswith(
        "\x1b[1;31m  ALARM, reward hacking: math rejects 9 of 10 completions that training"
    )
    assert "completion 3 of 47×86:" in out.getvalue()
    assert "\\x1b[2J [red]4042" in out.getvalue()
    assert "no answer (boxed)" in out.getvalue()


def test_a_second_verifier_watches_training_and_the_ledger_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupwise.trainers.rl_run.SECOND_SAMPLE", 3)
    sets = ["run.num_steps=1", "evaluation.second_verifier=math", "evaluation.test_problems=0"]
    recipe = write_recipe(tmp_path, tmp_path / "run")
    changes = [word for each in sets for word in ("--set", each)]
    out = succeed("train", recipe, *changes)
    assert len(re.findall(r"^  second verifier: math rejects 0 of \d completions", out, re.MULTILINE)) == 2
    monkeypatch.setattr("groupwise.explorer.export.write_report", lambda path: path)  # one page is enough
    succeed("train", recipe, *changes, "--set", f"run.directory={tmp_path / 'again'}")
    assert ledger(tmp_path / "run") == ledger(tmp_path / "again")
    dev = [line for line in map(json.loads, ledger(tmp_path / "run").splitlines()) if line.get("evaluation") == "dev"]
    assert all(line["second"]["verifier"] == "math" and line["second"]["judged"] <= 3 for line in dev)
    assert any(line["second"]["judged"] for line in dev)
    assert "Second verifier" in (tmp_path / "run" / "report.html").read_text()
    assert "'number' is used in training already" in refuse(
        "train", recipe, "--set", "evaluation.second_verifier=number"
    )


def test_sample_shows_verdicts_for_a_problem_of_the_task() -> None:
    out = succeed("sample", "base", "What is 23 × 17?", "-n", 6)
    verdicts = re.findall(r"^  \d: \d+ tokens, (?:stop|length); (\w+): ", out, re.MULTILINE)
    assert len(verdicts) == 6
    assert set(verdicts) <= {"correct", "wrong", "unparsable"}
    assert "'391'" in out
    assert out == succeed("sample", "base", "What is 23 × 17?", "-n", 6)
    assert "differs from '5'" in succeed("sample", "base", "What is 23 × 17?", "-n", 1, "--reference", 5)


def test_sample_shows_answers_only_where_no_reference_is_known() -> None:
    out = succeed("sample", "base", "What is 7 × 17?", "-n", 3)
    assert len(re.findall(r"tokens, \w+; answer: ", out)) == 3
    assert "correct" not in out
    assert "wrong" not in out
    assert "--reference" in out
    judged = succeed("sample", "base", "What is 7 × 17?", "-n", 3, "--reference", 119)
    assert len(re.findall(r"tokens, \w+; (?:correct|wrong|unparsable): ", judged)) == 3
    assert "No reference answer" not in judged


def test_sample_asks_a_model_of_no_task_the_question_alone(tmp_path: Path) -> None:
    load_policy("base").save(tmp_path / "model")
    out = succeed("sample", tmp_path / "model", "What is 2 + 2?", "--max-tokens", 8)
    assert re.fullmatch(r".+\n  8 tokens, length\n|.+\n  \d tokens, stop\n", out, re.DOTALL)
    sentence = refuse("sample", tmp_path / "model", "2 + 2?", "--reference", 4)
    assert "lies in no run, so its task is not known: name it with --task, or give a question alone" in sentence
    assert refuse("sample", tmp_path / "model").startswith(sentence[:20])


def test_sample_draws_a_problem_and_shows_it_as_the_model_reads_it() -> None:
    out = succeed("sample", "base", "-n", 1, "--max-tokens", 8)
    assert re.match(r"What is \d+ . \d+\?\n", out)
    assert re.search(r"  \d tokens, \w+; (?:correct|wrong|unparsable): ", out)
    assert out == succeed("sample", "base", "-n", 1, "--max-tokens", 8)
    assert out.split("\n")[0] != succeed("sample", "base", "--seed", 3, "--max-tokens", 8).split("\n")[0]


def test_sample_refuses_a_character_the_tokenizer_cannot_write() -> None:
    assert "the tokenizer cannot write '€'" in refuse("sample", "base", "What is 2 € 3?")


def replay(run: Path, step: int, row: dict[str, Any]) -> Said:
    return groupwise("replay", run, "--step", step, "--problem", row["problem"], "--sample", row["sample"], columns=40)


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


@pytest.mark.parametrize(
    ("column", "change", "finding"),
    [
        ("token_ids", lambda ids: [*ids[:3], ids[3] + 1, *ids[4:]], "different from token 3 on"),
        ("sampling_logprobs", lambda p: [*p[:3], p[3] - 0.25, *p[4:]], "log-probabilities differ by up to 0.25"),
        ("text", lambda text: f"{text} Trust me.", "Trust me."),
    ],
)
def test_replay_finds_a_changed_record_and_exits_with_1(
    copy: Path, column: str, change: Callable[[Any], Any], finding: str
) -> None:
    rows = recorded(copy, 0)
    rows[6][column] = change(rows[6][column])
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


def test_sample_works_for_data_without_a_train_split(random_model: Path, tmp_path: Path) -> None:
    (tmp_path / "held_out.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}\n')
    sets = ("--task", "jsonl", "--set", f"task.test_path={tmp_path / 'held_out.jsonl'}", "--max-tokens", 4)
    assert "tokens, " in succeed("sample", random_model, "1 + 1?", *sets)


def test_replay_without_a_ledger_says_so(copy: Path) -> None:
    shutil.rmtree(copy / "checkpoints")
    (copy / "ledger.jsonl").unlink()
    assert "ledger" in refuse("replay", copy, "--step", 2, "--problem", recorded(copy, 2)[0]["problem"])


def test_replay_says_that_a_problem_is_gone(copy: Path) -> None:
    config, row = copy / "config.toml", recorded(copy, 2)[0]
    config.write_text(config.read_text().replace("num_problems = 40", "num_problems = 4"))
    sentence = refuse("replay", copy, "--step", 2, "--problem", row["problem"])
    assert "which its task no longer has: put back the data that it read" in sentence

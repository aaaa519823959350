"""The facts of the pages are what the files say; what is damaged or hostile is named, and nothing of it is followed."""

import base64
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from written_run import CONFIG, HOSTILE, group, write_groups, write_run

from groupwise.errors import DataError
from groupwise.explorer.export import write_export
from groupwise.explorer.opened import NotThereError
from groupwise.explorer.run import columns_of
from groupwise.explorer.views import Views
from groupwise.explorer.wire import encoded, inert, short_hash


def test_a_completion_has_the_numbers_of_the_file(a_run: Path) -> None:
    recorded = pq.read_table(a_run / "rollouts" / "step-000001.parquet").to_pylist()[2]
    shown = Views([a_run]).completion(0, "s1", short_hash(recorded["problem"]), recorded["sample"])
    assert "".join(shown["tokens"]) == recorded["text"]
    assert shown["advantage"] == recorded["advantage"]
    for name in ("entropy", "ratio", "kl", "sampling_logprobs", "ref_logprobs"):
        found = np.frombuffer(base64.b64decode(shown["figures"][name]), "<f4")
        assert found.tolist() == np.array(recorded[name], np.float32).tolist()
    change = np.float32(recorded["after_logprobs"]) - np.float32(recorded["trainer_logprobs"])
    assert np.frombuffer(base64.b64decode(shown["figures"]["change"]), "<f4").tolist() == change.tolist()
    assert shown["bound"] == recorded["bound"]
    assert shown["figures"]["values"] is None  # no critic, so no figure
    problem = shlex.quote(recorded["problem"])
    assert shown["replay"] == f"groupwise replay {a_run} --step 1 --problem {problem} --sample 2"


def test_runs_of_one_recipe_are_known_by_it_whatever_their_seed(tmp_path: Path) -> None:
    configs = (CONFIG, CONFIG.replace("seed = 7", "seed = 8"), CONFIG.replace("epochs = 2", "epochs = 1"))
    runs = Views([write_run(tmp_path / f"{i}", config=config) for i, config in enumerate(configs)]).runs()
    first, seed, other = (run["recipe"] for run in runs)
    assert first == seed != other
    assert [run["seed"] for run in runs] == [7, 8, 7]


def test_runs_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / name) for name in ("long/seed-0/run", "short/seed-0/run", "other")]
    views = Views(paths[:1])
    assert [run["name"] for run in views.runs()] == ["run"]
    views = Views(paths)
    assert [run["name"] for run in views.runs()] == ["long/seed-0/run", "short/seed-0/run", "other"]


def test_the_list_of_a_step_has_a_row_for_every_completion(a_run: Path) -> None:
    place = Views([a_run]).place(0, "s0")
    rows = pq.read_table(a_run / "rollouts" / "step-000000.parquet").to_pylist()
    assert place["columns"]["reward"] == [row["reward"] for row in rows]
    problems = [place["groups"][number]["problem"] for number in place["columns"]["group"]]
    assert problems == [row["problem"] for row in rows]
    assert [group["flat"] for group in place["groups"]] == [None, "wrong"]


def test_an_evaluation_says_which_question_has_the_name_of_a_problem(a_run: Path) -> None:
    views = Views([a_run])
    (problem,) = views.place(0, f"e{short_hash('test-after')}")["groups"]
    assert (problem["problem"], problem["question"]) == ("6×7", short_hash("What is 6×7?"))
    assert "question" not in views.place(0, "s0")["groups"][0]


def test_a_step_has_the_parts_of_its_rewards(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", steps=1)
    texts = ['{"accuracy": 1.0, "judge": -0.25}', '{"accuracy": 0.0, "judge": NaN, "x": "y", "flag": true}', "[1]", "{"]
    four = group(0, "p", [1.0, 0.0, 0.0, None])
    rows = [{**one, "reward_parts": text} for one, text in zip(four, texts, strict=True)]
    write_groups(run / "rollouts" / "step-000000.parquet", [rows])
    found = Views([run]).place(0, "s0")["parts"]
    assert found == {"accuracy": [1.0, 0.0, None, None], "judge": [-0.25, None, None, None]}


def test_a_run_has_its_figures_by_step_and_its_places(a_run: Path) -> None:
    run = Views([a_run]).run(0)
    assert run["metrics"]["steps"] == [0, 1, 2]
    assert run["metrics"]["columns"]["reward"] == [0.0, 0.2, 0.4]
    assert [place["name"] for place in run["places"]] == ["step 0", "step 1", "step 2", "test-after", "test-before"]
    assert run["places"][-1]["pass_at_1"] == 0.5
    assert (run["algorithm"], run["num_steps"], run["seed"], run["done"]) == ("grpo", 3, 7, 3)


def test_what_if_begins_with_the_recipes_settings(a_run: Path) -> None:
    views = Views([a_run])
    group = views.group(0, "s0", views.place(0, "s0")["groups"][0]["id"])
    expected = {"estimator": "group_normalised", "aggregation": "token", "clip_high": 0.28, "epochs": 2}
    assert group["settings"].items() >= expected.items()


def test_columns_keep_gaps() -> None:
    lines = [{"step": 0, "a": 1.0}, {"step": 4, "b": {"c": 2}, "flag": True}]
    assert columns_of(lines) == {"steps": [0, 4], "columns": {"a": [1.0, None], "b.c": [None, 2]}}


@pytest.mark.parametrize("place", ["s9", "e000000000000", "../s0", "s0/../s1", "", "s"])
def test_what_was_not_recorded_is_an_error(a_run: Path, place: str) -> None:
    with pytest.raises(NotThereError, match="has no completions"):
        Views([a_run]).place(0, place)


def test_hostile_texts_arrive_as_texts_and_damage_is_named(hostile: Path) -> None:
    views = Views([hostile])
    run = views.run(0)
    assert run["task"] == HOSTILE[0]
    notices = " ".join(run["notices"])
    for sentence in ("not JSON", "not an object", "being written, or was cut", "its step is None"):
        assert sentence in notices
    problem = views.place(0, "s0")["groups"][0]["id"]
    for sample, text in enumerate(HOSTILE):
        one = views.completion(0, "s0", problem, sample)
        assert (one["tokens"], one["answer"]) == ([text, "x"], text)
        assert "<" not in inert(encoded(one))
    json.loads(encoded(views.place(0, "s0")))  # NaN is null, not a word that no browser reads


def test_a_token_of_many_megabytes_is_cut(hostile: Path) -> None:
    views = Views([hostile])
    problem = views.place(0, "s0")["groups"][0]["id"]
    assert len(encoded(views.completion(0, "s0", problem, len(HOSTILE)))) < 2_100_000
    assert len(encoded(views.group(0, "s0", problem))) < 500_000
    assert max(map(len, views.place(0, "s0")["columns"]["text"])) == 160


@pytest.mark.parametrize("name", ["config.toml", "metrics.jsonl", "rollouts", "ledger.jsonl"])
def test_a_link_out_of_the_run_is_refused(a_run: Path, tmp_path: Path, name: str) -> None:
    other = write_run(tmp_path / "other")
    (other / "ledger.jsonl").write_text("{}")
    (a_run / name).rename(tmp_path / "moved") if (a_run / name).exists() else None
    (a_run / name).symlink_to(other / name)
    views = Views([a_run])
    assert "leads out of the directory" in views.runs()[0]["notices"][0]
    with pytest.raises(NotThereError, match="leads out"):
        views.run(0)


@pytest.mark.parametrize(
    "name", ["config.toml", "metrics.jsonl", "ledger.jsonl", "finished.json", "rollouts/index.jsonl"]
)
def test_a_pipe_in_place_of_a_file_keeps_nobody_waiting(a_run: Path, tmp_path: Path, name: str) -> None:
    """Reading one would wait for a writer that never comes, and with it every other page."""
    other = write_run(tmp_path / "other")
    (a_run / name).unlink(missing_ok=True)
    os.mkfifo(a_run / name)
    views = Views([a_run, other])
    first, second = views.runs()
    assert first["notices"] == [
        f"{name} is neither a file nor a folder: pipes and devices are not read, and it is not shown"
    ]
    assert second["notices"] == []
    with pytest.raises(NotThereError, match="pipes and devices are not read"):
        views.findings(0)
    assert write_export([a_run, other], tmp_path / "page.html").stat().st_size > 0


SPOILT = {
    "reward_parts": ("[" * 100_000, "[1, 2]", "null", '{"a":'), "measures": ('"x"', '{"a" "b"}'), "text": (None,),
    "problem": (None,),
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in SPOILT.items() for value in values])
def test_a_spoilt_field_spoils_its_group_alone(a_run: Path, tmp_path: Path, name: str, value: str | None) -> None:
    rows = group(0, "23×17", [1.0, 0.0])
    write_groups(a_run / "rollouts" / "step-000000.parquet", [[{**row, name: value} for row in rows]])
    views = Views([a_run])
    assert encoded(views.run(0))
    place = views.place(0, "s0")
    if name == "problem":
        assert place["groups"] == []
        assert "a completion has no problem" in views.run(0)["notices"][0]
    elif name == "text":
        assert views.group(0, "s0", place["groups"][0]["id"])["completions"][0]["text"] == ""
    else:
        with pytest.raises(DataError, match=f"{name} of a completion is no"):
            views.group(0, "s0", place["groups"][0]["id"])
    page = write_export([a_run], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "places/s1/groups" in page


def test_many_kinds_of_lines_cost_no_more_than_one(a_run: Path) -> None:
    lines = "".join(f'{{"kind":"k{number}","step":1}}\n' for number in range(20_000))
    with (a_run / "metrics.jsonl").open("a") as file:
        file.write(lines)
    began = time.process_time()
    assert Views([a_run]).run(0)["done"] == 3
    assert time.process_time() - began < 4  # a look at all lines for each kind took minutes


def test_a_key_of_many_parts_does_not_keep_the_parser_busy(a_run: Path) -> None:
    (a_run / "config.toml").write_text(".".join("a" * 20_000) + " = 1")
    assert "a key has more than 100 parts" in Views([a_run]).runs()[0]["notices"][0]


def test_damaged_files_leave_the_rest_readable(a_run: Path) -> None:
    (a_run / "rollouts" / "step-000001.parquet").write_bytes(b"PAR1 cut")
    (a_run / "config.toml").write_text("= no toml")
    views = Views([a_run])
    assert views.runs()[0]["notices"]
    broken = views.place(0, "s1")
    assert (broken["groups"], len(broken["notices"]) > 0) == ([], True)
    assert views.place(0, "s0")["groups"]


def test_neither_torch_nor_training_is_loaded() -> None:
    program = (
        "import sys, groupwise.explorer.views, groupwise.explorer.export, groupwise.cli.explore, groupwise.cli.runs; "
        "print(*sorted(name for name in sys.modules if name.split('.')[0] in ('torch', 'transformers') "
        "or name.startswith(('groupwise.train', 'groupwise.models', 'groupwise.rollout'))))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout.split()) == (0, []), result.stderr

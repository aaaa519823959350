"""Run directories that are damaged, or none: every command that reads one says a sentence, never a traceback."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from groupwise_lab.imports import read_trl, write_imported
from typer.testing import CliRunner

from groupwise.cli.main import app
from groupwise.cli.runs import runs_in
from groupwise.errors import ConfigError, GroupwiseError
from groupwise.explorer.views import Views

NAN = float("nan")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two steps of another system, with completions; the second has a reward that is none."""
    (tmp_path / "out" / "completions").mkdir(parents=True)
    for step in (1, 2):
        right = [1.0, 0.0, 1.0, float("inf") if step == 2 else 0.0]
        table = pa.table({"step": [step] * 4, "prompt": ["1 + 1"] * 4, "completion": list("abcd"), "right": right})
        pq.write_table(table, tmp_path / "out" / "completions" / f"completions_{step:05d}.parquet")
    history = [{"step": 1, "loss": 0.5, "kl": 0.1}, {"step": 2, "loss": NAN, "kl": 0.1}]
    (tmp_path / "out" / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    write_imported(read_trl(tmp_path / "out"), "trl", tmp_path / "out", tmp_path / "run", None)
    (tmp_path / "run" / "ledger.jsonl").touch()
    return tmp_path / "run"


def halved(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def changed(name: str, pattern: str, text: str) -> Callable[[Path], Any]:
    return lambda run: (run / name).write_text(re.sub(pattern, text, (run / name).read_text()))


FAULTS: dict[str, Callable[[Path], Any]] = {
    "nothing": lambda run: None,
    "rollouts cut": lambda run: halved(run / "rollouts" / "step-000002.parquet"),
    "rollouts empty": lambda run: (run / "rollouts" / "step-000001.parquet").write_bytes(b""),
    "index": lambda run: (run / "rollouts" / "index.jsonl").write_text('{"name": "step-000001", "groups": 7}\n[]\n'),
    "metrics cut": lambda run: halved(run / "metrics.jsonl"),
    "metrics of others": lambda run: (run / "metrics.jsonl").write_text("[]\n{oops\n3\n"),
    "metrics gone": lambda run: (run / "metrics.jsonl").unlink(),
    "metrics step": changed("metrics.jsonl", '"step":1', '"step":"1"'),
    "metrics parts": changed("metrics.jsonl", r'"parts":\{[^}]*\}', '"parts":[1]'),
    "ledger": lambda run: (run / "ledger.jsonl").write_bytes(b"\xff\xfe\n"),
    "config cut": lambda run: halved(run / "config.toml"),
    "config of cargo": lambda run: (run / "config.toml").write_text('[package]\nname = "x"\n'),
    "config types": lambda run: (run / "config.toml").write_text("run = 3\nalgorithm = 7\n"),
    "config bytes": lambda run: (run / "config.toml").write_bytes(b"\xff\xfe\x00"),
    "environment": lambda run: (run / "environment.json").write_text("{"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_damaged_run_is_a_sentence(fault: str, run: Path, tmp_path: Path) -> None:
    FAULTS[fault](run)
    page = tmp_path / "page.html"
    for words in (["doctor", run], ["runs", run], ["runs", tmp_path], ["explore", run, "--export", page], ["eval", run],
                  ["export", run, tmp_path / "model"]):  # fmt: skip
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exception is None or isinstance(result.exception, GroupwiseError | SystemExit), words
        if isinstance(result.exception, GroupwiseError):
            assert "\n" not in str(result.exception)


@pytest.mark.parametrize("what", ["a file", "an empty folder", "nothing"])
def test_what_is_no_run_is_named(what: str, tmp_path: Path) -> None:
    path = tmp_path / "it"
    if what == "a file":
        path.write_text("x")
    elif what == "an empty folder":
        path.mkdir()
    for words in (["doctor"], ["explore", "--export", str(tmp_path / "x.html")], ["eval"], ["export"]):
        more = [str(tmp_path / "model")] if words == ["export"] else []
        error = CliRunner().invoke(app, [words[0], str(path), *more, *words[1:]]).exception
        assert isinstance(error, GroupwiseError), words
        assert str(path) in str(error)


def test_pages_and_lists_show_what_is_not_finite(run: Path) -> None:
    views = Views([run])
    assert views.run(0)["metrics"]["columns"]["loss"] == [0.5, "NaN"]
    place = views.place(0, "s2")
    assert place["columns"]["reward"] == [1.0, 0.0, 1.0, "Infinity"]
    group = views.group(0, "s2", place["groups"][0]["id"])
    assert [each["reward"] for each in group["completions"]] == [1.0, 0.0, 1.0, "Infinity"]
    assert group["completions"][3]["parts"] == {"right": "Infinity"}
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "dev", "step": 2, "pass_at_1": ["NaN", "NaN", "NaN"]}\n')
    assert "1 not finite" in CliRunner().invoke(app, ["runs", str(run.parent)], env={"COLUMNS": "200"}).output


def test_a_folder_that_is_not_there_is_no_empty_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no directory .*nope: allowed is a folder of run directories"):
        CliRunner().invoke(app, ["runs", str(tmp_path / "nope")], catch_exceptions=False)


def test_runs_behind_links_are_listed_once(tmp_path: Path) -> None:
    for name in ("disk/far", "runs/a", "runs/deep/b"):
        (tmp_path / name).mkdir(parents=True)
        for file in ("config.toml", "ledger.jsonl"):
            (tmp_path / name / file).touch()
    (tmp_path / "runs" / "c").symlink_to(tmp_path / "disk" / "far")
    (tmp_path / "runs" / "0-latest").symlink_to(tmp_path / "runs" / "a")  # a run has its own name
    (tmp_path / "runs" / "0-deepest").symlink_to(tmp_path / "runs" / "deep")
    (tmp_path / "runs" / "deep" / "back").symlink_to(tmp_path / "runs")
    assert runs_in(tmp_path / "runs") == [tmp_path / "runs" / name for name in ("a", "c", "deep/b")]

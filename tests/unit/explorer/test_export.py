"""An exported page is one file: no request, nothing hostile alive in it, and what was left out is named."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from written_run import HOSTILE, write_run

from groupwise.cli.app import app
from groupwise.errors import ConfigError
from groupwise.explorer.export import bundled, page_of, write_export

INERT = re.compile(r'<script type="application/json" id="([\w-]+)">(.*?)</script>', re.DOTALL)


def facts(page: str) -> dict[str, Any]:
    """What an exported page holds, by address."""
    texts = dict(INERT.findall(page))
    return {path: json.loads(texts[name]) for path, name in json.loads(texts["facts-index"])["parts"].items()}


def test_everything_of_a_small_run_is_inside(a_run: Path) -> None:
    found = facts(page_of([a_run]))
    assert found["runs"][0]["name"] == "first"
    places = [path for path in found if re.fullmatch(r"runs/0/places/\w+", path)]
    samples = [path for path in found if "/samples/" in path]
    assert (len(places), len(samples)) == (5, 3 * 8 + 2 * 2)
    assert found["runs/0"]["notices"] == []


def test_it_does_not_say_where_on_this_machine_it_was_made(a_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = page_of([a_run.resolve()])
    assert str(a_run.parent) not in page
    assert facts(page)["runs/0"]["path"] == f"…/{a_run.parent.name}/{a_run.name}"
    monkeypatch.chdir(a_run.parent.parent)
    found = facts(page_of([a_run.resolve()]))
    assert found["runs/0"]["path"] == f"{a_run.parent.name}/{a_run.name}"
    replays = [value["replay"] for path, value in found.items() if "/samples/" in path and value.get("replay")]
    assert replays
    assert all(one.startswith(f"groupwise replay {a_run.parent.name}/{a_run.name} --step ") for one in replays)


def test_what_does_not_fit_is_named(a_run: Path) -> None:
    cap = 30_000
    page = page_of([a_run], cap)
    found = facts(page)
    assert sum(len(json.dumps(value)) for path, value in found.items() if "places/" in path) < cap
    assert "left out to stay below 0.03 MB" in found["runs/0"]["selection"]
    assert found["runs/0"]["places"], "a list or two fits"


def test_its_policy_allows_its_own_script_and_style_and_nothing_else(a_run: Path) -> None:
    page = page_of([a_run])
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    for tag in ("script", "style"):
        (text,) = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy[1]
    assert re.findall(r'(?:src|href)="([^"]*)"', page.split("<script")[0]) == ["data:,", "#main"]


def test_hostile_texts_cannot_leave_their_tag(hostile: Path) -> None:
    page = page_of([hostile])
    assert "window.hacked" in page  # as text
    for tag in re.findall(r"<script[^>]*>", page):
        assert tag == "<script>" or re.fullmatch(r'<script type="application/json" id="facts-(index|\d+)">', tag)
    assert page.count("<script>") == 1
    assert json.dumps(HOSTILE[1])[1:-1] in json.dumps(facts(page))  # and yet all of it is there


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_bundle_is_a_program(tmp_path: Path) -> None:
    (tmp_path / "bundle.js").write_text(bundled(), encoding="utf-8")
    result = subprocess.run(
        ["node", "--check", str(tmp_path / "bundle.js")], capture_output=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr
    assert not re.search(r"^\s*(import|export) ", bundled(), re.MULTILINE)


def test_the_command_writes_it(a_run: Path, tmp_path: Path) -> None:
    target = tmp_path / "new" / "page.html"
    result = CliRunner().invoke(app, ["explore", str(a_run), "--export", str(target)])
    assert result.exit_code == 0, result.output
    assert "opens without a server" in result.output
    assert target.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_without_a_run_the_page_is_there_to_learn_with(tmp_path: Path) -> None:
    assert facts(page_of([])) == {"start": "/", "runs": [], "results": []}


def test_a_directory_as_target_is_an_error(a_run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a directory"):
        write_export([a_run], tmp_path)


def test_a_missing_run_is_an_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["explore", str(tmp_path / "none"), "--export", str(tmp_path / "page.html")])
    assert isinstance(result.exception, ConfigError)
    assert "is not a run directory" in str(result.exception)


def test_runs_of_the_same_name_are_both_there(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / parent / "run") for parent in ("a", "b")]
    assert [run["index"] for run in facts(page_of(paths))["runs"]] == [0, 1]

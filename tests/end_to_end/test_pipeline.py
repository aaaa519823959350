"""The recipe of DeepSeek-R1, every count cut to the bone: all stages, then skipped, changed, killed, moved."""

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import small_pipeline as small
from commands import refuse, save_random, succeed
from signalled_run import exit_code

from groupwise.models.new_model import byte_tokenizer
from groupwise.pipeline.directory import PipelineDirectory, content_hash, read_rows

DATA = Path(__file__).parents[3] / "shared" / "data"
pytestmark = pytest.mark.usefixtures("imports_are_found_once")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, imports_are_found_once: None) -> Path:
    """A pipeline that ran from its beginning to its end."""
    directory = Path(tmp_path_factory.mktemp("uninterrupted") / "r1")
    assert small.run(small.overrides(directory))
    return directory


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """The same somewhere else."""
    shutil.copytree(finished, tmp_path / "r1", symlinks=True)
    return tmp_path / "r1"


def groupwise(*arguments: Any) -> str:
    return succeed("pipeline", small.RECIPE, *arguments)


def settings(directory: Path, *more: str) -> list[str]:
    return [part for one in (*small.overrides(directory), *more) for part in ("--set", one)]


def test_every_stage_is_finished_and_says_what_it_made(finished: Path) -> None:
    lineage = json.loads((finished / "lineage.json").read_text())
    assert [one["name"] for one in lineage["stages"]] == list(small.STAGES)
    assert {one["status"] for one in lineage["stages"]} == {"finished"}
    for one in lineage["stages"]:
        assert content_hash(finished / one["output"]) == one["output_hash"]
        facts = PipelineDirectory(finished).stage(one["name"]).facts
        assert (facts["evaluation"] is None) == (one["makes"] != "model")
        tokens = facts["tokens"]
        assert (tokens["sampled"] > 0) == (one["algorithm"] in ("grpo", None))
        assert (tokens["trained"] > 0) == (one["algorithm"] is not None)
    base = PipelineDirectory(finished).stage("base").facts
    assert base["output"] == "base"
    assert set(base["evaluation"]) == {"reasoning", "general"}
    assert base["evaluation"]["general"]["num_problems"] == 4


@pytest.mark.slow  # every day a report with holes is written from facts (test_pipeline_page.py)
def test_one_stage_alone_is_reported_beside_a_base_that_nobody_measured(tmp_path: Path) -> None:
    output = groupwise("--only", "zero", *settings(tmp_path / "r1"))
    assert "report.html" in output
    assert PipelineDirectory(tmp_path / "r1").stage("base").facts is None
    assert (tmp_path / "r1" / "report.html").exists()


def test_the_data_says_where_every_row_came_from(finished: Path) -> None:
    place = PipelineDirectory(finished)
    cold, rejection = (read_rows(place.stage(name).data) for name in ("cold_start", "rejection"))
    assert sum(row["source"] == "by hand" for row in cold) == 3
    assert all(row["model"] in ("base", "zero") for row in cold if row["source"] != "by hand")
    general = [row for row in rejection if row["source"] == "general"]
    assert len(general) == round((len(rejection) - len(general)) / 3)
    assert all(row["judged_by"] == ["helpful"] for row in general)
    assert [row for row in cold if row not in rejection] == []  # included as they are


def test_a_second_call_skips_every_stage_and_changes_nothing(copied: Path) -> None:
    before = contents(copied)
    said = groupwise(*settings(copied))
    assert said.count("skipped: finished with the same settings, inputs and code") == len(small.STAGES)
    after = contents(copied)
    assert {name: after.get(name) for name in before} == before
    assert {name for name in after if name not in before} == {"report.html", "report.md"}


def contents(directory: Path) -> dict[str, bytes]:
    files = [file for file in sorted(directory.rglob("*")) if file.is_file() and file.name != "pipeline.toml"]
    return {str(file.relative_to(directory)): file.read_bytes() for file in files if file.name != "environment.json"}


@pytest.mark.slow  # every day the plan is tried with stages that compute nothing (test_plan.py)
def test_a_changed_setting_runs_its_stage_and_what_stands_on_it(copied: Path) -> None:
    change = "stages.sft.optimizer.lr=1e-4"
    plan = groupwise(*settings(copied, change), "--dry-run")
    assert [line.split("│")[1].strip() for line in plan.splitlines() if " runs " in line] == ["sft", "final_rl"]
    assert "optimizer.lr was" in plan
    before = hashes(copied)
    assert small.run([*small.overrides(copied), change])
    after = hashes(copied)
    assert {name for name in before if before[name] != after[name]} == {"sft", "final_rl"}


def hashes(directory: Path) -> dict[str, str]:
    stages = json.loads((directory / "lineage.json").read_text())["stages"]
    return {one["name"]: one["output_hash"] for one in stages}


@pytest.mark.slow  # the same
def test_only_and_from(copied: Path) -> None:
    plan = groupwise(*settings(copied), "--dry-run", "--from", "sft")
    assert "requested again" in plan
    assert "sft is made again" in plan
    before = hashes(copied)
    shutil.rmtree(copied / "stages" / "helpful")
    said = groupwise(*settings(copied), "--only", "helpful")
    assert "helpful (reward_model) runs: not run yet" in said
    assert said.count("left alone: only helpful is requested") == len(small.STAGES) - 1
    assert hashes(copied) == before
    said = refuse("pipeline", small.RECIPE, *settings(copied), "--from", "nobody")
    assert "there is no stage nobody; the stages are zero" in said


KILLED_BEFORE = ("step-000001.parquet", "facts.json")
"""In the second step of the first stage; between the end of that stage's run and its facts (the base's are there)."""


@pytest.mark.slow
def test_killed_at_chosen_places_in_another_directory_it_ends_in_the_same_files(
    finished: Path, server: None, tmp_path: Path
) -> None:
    one = small.overrides(tmp_path / "elsewhere" / "r1")
    for place in KILLED_BEFORE:
        assert exit_code(one, place, small.run) == -signal.SIGKILL, place
        stage = PipelineDirectory(tmp_path / "elsewhere" / "r1").stage("zero")
        assert stage.facts is None
        assert stage.run.finished.exists() == (place == "facts.json")
    assert small.run(one)
    small.assert_same(tmp_path / "elsewhere" / "r1", finished)


@pytest.mark.slow
@pytest.mark.skipif(not (DATA / "gsm8k").exists(), reason="needs ../shared/data/gsm8k")
def test_the_same_recipe_takes_any_model_and_gsm8k(tmp_path: Path) -> None:
    save_random(tmp_path / "model", byte_tokenizer(), context_length=4096)
    # all problems of a stage have one template: that of the general prompts
    data = f"""{{kind = "jsonl", preset = "gsm8k", data_dir = '{DATA}', template = {{prompt = "{{question}}\\n"}}}}"""
    more = [
        f"model.path={json.dumps(str(tmp_path / 'model'))}",
        f"tasks.reasoning={data}",
        'stages.cold_start.sources.reflective.path="{base}"',
        "measure.measures={}",
        # that of GSM8K is `math`, so `math` is no second one
        *(f'stages.{name}.evaluation.second_verifier="number"' for name in ("zero", "reasoning_rl", "final_rl")),
    ]
    assert small.run([*small.overrides(tmp_path / "r1"), *more])
    place = PipelineDirectory(tmp_path / "r1")
    assert set(hashes(tmp_path / "r1").values()) != {None}
    assert place.stage("final_rl").facts["evaluation"]["reasoning"]["num_problems"] == 4
    assert len(read_rows(place.stage("cold_start").data)) >= 3
    assert place.stage("cold_start").begun["inputs"].keys() >= {str(DATA / "gsm8k/train.jsonl")}

"""The preflight of a pipeline: every stage as far as it can be checked before the stages in front of it have run."""

import json
from pathlib import Path
from typing import Any

import pytest
from hangar import RECIPE
from typer.testing import CliRunner

import groupwise.cli.main  # noqa: F401  registers the commands
from groupwise.checks.preflight import CHECKS, StageChecked, preflight_stages
from groupwise.checks.preflight.bench import verdict_of
from groupwise.cli.app import app
from groupwise.config import dump_toml
from groupwise.pipeline import PipelineRecipe, load_pipeline

ROOT = Path(__file__).parents[4]
MODEL_CHECKS = [name for name, check in CHECKS.items() if check.cost in ("model", "step")]
GRPO: dict[str, Any] = {
    "algorithm": "grpo", "task": "products", "run": {"num_steps": 4}, "grpo": {"prompts_per_step": 4, "group_size": 4},
    "optimizer": {"lr": 1e-4, "warmup_steps": 1}, "evaluation": {"num_problems": 4, "test_problems": 0},
}  # fmt: skip


def tables(folder: Path, **stages: dict[str, Any]) -> dict[str, Any]:
    return {
        "pipeline": {"directory": str(folder / "pipeline")}, "model": {"path": "base", "device": "cpu"},
        "tasks": {"products": RECIPE["task"]}, "sampling": {"max_tokens": 64}, "stages": stages,
    }  # fmt: skip


def checked(folder: Path, leave_out: list[str], **stages: dict[str, Any]) -> dict[str, StageChecked]:
    recipe, own = load_pipeline(tables(folder, **stages))
    parts = [(stage.name, stage.kind, stage.config) for stage in own]
    found = preflight_stages(parts, Path(recipe.pipeline.directory), leave_out=leave_out)
    assert [one.name for one in found] == list(stages)
    return {one.name: one for one in found}


SFT = {"algorithm": "sft", "run": {"num_steps": 4}, "data": {"source": "texts", "text": "worlds/diet.py:Diet"}}


def test_a_stage_is_checked_as_far_as_its_model_is_there(tmp_path: Path) -> None:
    after = {**GRPO, "model": {"path": "{first}"}}
    found = checked(tmp_path, ["verifier", "sample", "rehearsal"], first=GRPO, second=after)
    assert {one.found.verdict for one in found.values()} == {"GO"}
    assert "prompts" in found["first"].found.figures  # the shipped model is there
    assert found["second"].found.not_done["prompts"] == "model.path is made by the stage first"
    assert found["second"].found.not_done["verifier"] == "left out"
    for one in found.values():
        assert one.found.figures["data"]["train problems"] == 64
        assert one.found.figures["machine"]["planned memory MiB"] > 0


def test_faults_are_found_in_the_stage_that_has_them(tmp_path: Path) -> None:
    stages = {
        "lazy": {**SFT, "optimizer": {"lr": 0.0}}, "late": {**SFT, "optimizer": {"warmup_steps": 9}},
        "gone": {**SFT, "data": {"source": "jsonl", "path": str(tmp_path / "gone.jsonl")}},
        "still": {**GRPO, "optimizer": {"lr": 0.0}}, "sound": SFT,
    }  # fmt: skip
    found = checked(tmp_path, [*MODEL_CHECKS, "verifier"], **stages)
    said = {
        name: (one.found.verdict, [each.evidence for each in one.found.findings][:1]) for name, one in found.items()
    }
    assert said["lazy"] == ("NO-GO", ["optimizer.lr = 0"])
    assert said["late"] == ("GO WITH WARNINGS", ["optimizer.warmup_steps = 9 of run.num_steps = 4"])
    assert said["gone"] == ("NO-GO", [f"data.path = '{tmp_path / 'gone.jsonl'}' is not there"])
    assert said["still"] == ("NO-GO", ["optimizer.lr = 0"])
    assert said["sound"] == ("GO", [])
    assert verdict_of(each for one in found.values() for each in one.found.findings) == "NO-GO"


def test_the_command_says_what_is_wrong_with_which_stage(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.toml"
    path.write_text(dump_toml(PipelineRecipe(**tables(tmp_path, lazy={**SFT, "optimizer": {"lr": 0.0}}, sound=SFT))))
    result = CliRunner().invoke(app, ["preflight", str(path)])
    assert result.exit_code == 2, result.output
    assert "lazy  (sft)  NO-GO" in result.output
    assert "sound  (sft)  GO" in result.output
    facts = json.loads(CliRunner().invoke(app, ["preflight", str(path), "--json"]).output)
    assert {name: one["verdict"] for name, one in facts["stages"].items()} == {"lazy": "NO-GO", "sound": "GO"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["deepseekmath", "distill", "language", "process", "r1", "rlhf", "tools"])
def test_every_shipped_pipeline_goes(name: str, tmp_path: Path) -> None:
    recipe, stages = load_pipeline(ROOT / f"recipes/{name}.toml", {"pipeline.directory": str(tmp_path / "pipeline")})
    own = [(stage.name, stage.kind, stage.config) for stage in stages]
    found = preflight_stages(own, Path(recipe.pipeline.directory), leave_out=["sample", "rehearsal"])
    assert {one.name: one.found.findings for one in found if one.found.verdict == "NO-GO"} == {}

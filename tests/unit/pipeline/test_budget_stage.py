"""The stage `budget`: the figures of `groupwise budget`, the same bytes after a kill, and paths by their stage."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise.config.schema import located
from groupwise.errors import ConfigError
from groupwise.evaluation.test_time.budget import measure_budget
from groupwise.evaluation.test_time.methods import BudgetConfig
from groupwise.evaluation.test_time.pool import Store
from groupwise.explorer.results import found_in
from groupwise.models.checkpoint import save_checkpoint
from groupwise.models.config import ModelConfig
from groupwise.models.policy import Policy
from groupwise.models.reward_model import start_reward_model
from groupwise.pipeline import load_pipeline
from groupwise.pipeline.base import Workplace
from groupwise.pipeline.budget import BudgetStage
from groupwise.pipeline.directory import StageDirectory

SEARCH: dict[str, Any] = {
    "kind": "budget", "task": "products", "path": "{base}", "num_problems": 3, "split": "dev", "width": 2,
    "methods": ["majority", "best_of_n", "beam"], "budgets": [1, 2], "samples": 2, "difficulty_samples": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def prm(tiny_policy: Callable[..., Policy], tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("prm")
    save_checkpoint(folder / "policy", tiny_policy())
    save_checkpoint(folder / "prm", start_reward_model(ModelConfig(path=str(folder / "policy"), device="cpu")))
    return str(folder / "prm")


def stage_of(prm: str, **changes: Any) -> BudgetStage:
    tables: dict[str, Any] = {
        "pipeline": {"directory": "unused", "seed": 4},
        "model": {"path": "base", "device": "cpu"},
        "sampling": {"max_tokens": 24},
        "tasks": {"products": {"kind": "arithmetic", "kinds": ["product"], "digits": [2, 2]}},
        "stages": {"search": {**SEARCH, "prm": prm, **changes}},
    }
    [stage] = load_pipeline(tables)[1]
    assert isinstance(stage, BudgetStage)
    return stage


def run(stage: BudgetStage, folder: Path) -> dict[str, Any]:
    work = Workplace(StageDirectory(folder), pytest.fail)
    return dict(stage.run(located(stage.config, {}), work).statistics)


def test_it_is_the_command_within_a_pipeline(prm: str, tmp_path: Path) -> None:
    stage = stage_of(prm)
    assert stage.config.seed == 4  # the pipeline's
    found = run(stage, tmp_path / "stages" / "search")
    dials = {name: getattr(stage.config, name) for name in ("methods", "budgets", "samples", "width", "seed")}

    result = measure_budget(
        "base", prm=prm, config=BudgetConfig(**dials, difficulty_samples=0), task="arithmetic", split="dev",
        problems=3, max_tokens=24, directory=tmp_path / "command",
        changes=["task.kinds=[\"product\"]", "task.digits=[2, 2]"],
    )  # fmt: skip
    for point in result.points:
        assert found[point.method][f"of {point.budget}"] == pytest.approx(point.accuracy.value, abs=1e-6)
    rows = [json.loads(line) for line in (tmp_path / "stages/search/data.jsonl").read_text().splitlines()]
    assert rows[0]["checkpoint"] == "base"
    assert {row.get("method") for row in rows[1:]} >= {"beam/best", "majority", "control/perfect", "best_of_n/prm_min"}


def test_the_explorer_finds_its_page(prm: str, tmp_path: Path) -> None:
    run(stage_of(prm, methods=["majority"]), tmp_path / "stages" / "search")
    lineage = {"stages": [{"name": "search", "kind": "budget"}]}
    (tmp_path / "lineage.json").write_text(json.dumps(lineage))
    assert ("budget", tmp_path / "stages/search/budget", "search") in found_in([tmp_path]).results
    (tmp_path / "stages/search/budget").rename(tmp_path / "elsewhere")
    (tmp_path / "stages/search/budget").symlink_to(tmp_path.parent, target_is_directory=True)
    assert [kind for kind, *_ in found_in([tmp_path]).results] == ["pipeline"]


def test_a_kill_changes_nothing(prm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupwise.evaluation.test_time.pool.PROBLEMS_PER_PART", 1)
    stage = stage_of(prm, methods=["best_of_n", "beam"], budgets=[2], num_problems=2)
    run(stage, tmp_path / "whole")
    kept, left = Store.file, 3

    def killed(*arguments: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return kept(*arguments)

    monkeypatch.setattr(Store, "file", killed)
    with pytest.raises(KeyboardInterrupt):
        run(stage, tmp_path / "killed")
    left = 1000
    run(stage, tmp_path / "killed")
    assert (tmp_path / "killed/data.jsonl").read_bytes() == (tmp_path / "whole/data.jsonl").read_bytes()


def test_bad_input_is_named(prm: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="skip_problems = 100000 skips all dev problems"):
        run(stage_of(prm, skip_problems=100_000), tmp_path)
    with pytest.raises(ConfigError, match="budgets 1, 8 from a pool of 2 samples"):
        run(stage_of(prm, budgets=[1, 8]), tmp_path)
    with pytest.raises(ConfigError, match="beam scores steps: prm must name"):
        run(stage_of("", methods=["beam"]), tmp_path)

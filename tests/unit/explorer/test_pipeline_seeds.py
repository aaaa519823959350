"""Pipelines over seeds: means, Student's intervals and paired changes against numbers worked by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import ConfigError
from groupwise.explorer.seeds import Cell, as_dict, as_markdown, minutes, seeds_table

T_TWO = 4.303
"""Student's 95 % quantile for two degrees of freedom, from a printed table."""


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def run(path: Path, base: float, trained: float, *, stage: str = "rl", helpful: float | None = None) -> Path:
    """A finished pipeline of one stage that starts from the base model."""
    mark = "0" * 16
    entry = {"name": stage, "kind": "train", "algorithm": "grpo", "makes": "model", "fingerprint": mark}
    made = {"inputs": ["base"], "output": f"stages/{stage}/model", "output_hash": mark, "status": "finished"}
    path.mkdir(parents=True)
    (path / "pipeline.toml").write_text("[stages.rl]\n")
    write(path / "lineage.json", {"name": "tiny", "base": "base", "stages": [entry | made]})
    for name, level, facts in (("base", base, {"kind": "start", "algorithm": None}), (stage, trained, entry)):
        measured: dict[str, Any] = {
            "pass_at_1": [level, 0.0, 1.0], "num_problems": 9, "num_samples": 2, "kind": "verified",
        }  # fmt: skip
        if helpful is not None and name == stage:
            measured["helpful"] = [helpful, 0.0, 1.0]
        content = {"name": name, "makes": "model", "fingerprint": mark, "inputs": {}, "output": "model"}
        content |= {"output_hash": mark, "tokens": {"sampled": 1, "trained": 0}, "statistics": {}}
        write(path / "stages" / name / "facts.json", content | facts | {"evaluation": {"reasoning": measured}})
        write(path / "stages" / name / "cost.json", {"seconds": 90.0, "evaluation_seconds": 30.0})
    write(path / "stages" / stage / "begun.json", {"fingerprint": mark, "settings": {"model": {"path": "base"}}})
    return path


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    return [
        run(tmp_path / "0", 0.40, 0.80, helpful=0.1),
        run(tmp_path / "1", 0.44, 0.86, helpful=0.2),
        run(tmp_path / "2", 0.42, 0.80, helpful=0.3),
    ]


def test_means_and_intervals_are_those_worked_by_hand(runs: list[Path]) -> None:
    """0.80, 0.86, 0.80: mean 0.82, standard deviation 0.03464, so ± 4.303 × 0.03464 / √3 = 0.0861."""
    cell = seeds_table(runs)["reasoning"]["rl"]["pass_at_1"]
    assert cell.mean.value == pytest.approx(0.82)
    assert cell.mean.high - cell.mean.value == pytest.approx(T_TWO * 0.034641 / 3**0.5, rel=1e-3)


def test_changes_are_paired_by_seed(runs: list[Path]) -> None:
    """0.40, 0.42 and 0.38 better than the base model of the same seed: ± 4.303 × 0.02 / √3 = 0.0497."""
    change = seeds_table(runs)["reasoning"]["rl"]["pass_at_1"].change
    assert change is not None
    assert (change.value, change.low, change.high) == pytest.approx((0.40, 0.3503, 0.4497), abs=1e-3)


def test_the_base_model_changed_nothing_and_a_new_metric_has_no_change(runs: list[Path]) -> None:
    table = seeds_table(runs)["reasoning"]
    assert table["base"]["pass_at_1"].change is None
    assert table["rl"]["helpful"].change is None
    assert "helpful" not in table["base"]


def test_the_markdown_says_what_changed(runs: list[Path]) -> None:
    text = as_markdown(seeds_table(runs), 3, minutes(runs))
    assert "| rl | 0.820 [0.734, 0.906] → (+0.400) |" in text
    assert "| base | 0.420 [0.370, 0.470] |" in text
    assert "Minutes: 4.0, 4.0, 4.0." in text  # 90 + 30 seconds each, of the stage and of the base model


def test_a_change_that_may_be_chance_is_not_claimed(tmp_path: Path) -> None:
    paths = [run(tmp_path / "0", 0.40, 0.50), run(tmp_path / "1", 0.40, 0.30), run(tmp_path / "2", 0.40, 0.45)]
    assert "→" not in as_markdown(seeds_table(paths), 3, []).split("## reasoning")[1]


def test_machines_get_the_same_numbers(runs: list[Path]) -> None:
    table = seeds_table(runs)
    found = as_dict(table)["reasoning"]["rl"]["pass_at_1"]
    cell = table["reasoning"]["rl"]["pass_at_1"]
    assert isinstance(cell, Cell)
    assert cell.change is not None
    assert found == {"mean": list(cell.mean), "change": list(cell.change)}


def test_runs_of_different_pipelines_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"not runs of one pipeline: .*'sft'"):
        seeds_table([run(tmp_path / "0", 0.4, 0.5), run(tmp_path / "1", 0.4, 0.5, stage="sft")])
    with pytest.raises(ConfigError, match="not runs of one pipeline"):
        seeds_table([])

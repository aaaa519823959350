"""Labels by rollouts survive SIGKILL with the same bytes; the recipe of process supervision, made small."""

import json
import signal
from pathlib import Path
from typing import Any

import processes
import pytest
import signalled_run

from groupwise.pipeline.directory import PipelineDirectory

RECIPE = Path(__file__).parents[2] / "recipes" / "process.toml"
PATIENCE_S = 600.0
pytestmark = pytest.mark.usefixtures("imports_are_found_once")


def labelling(directory: Path, method: str) -> dict[str, Any]:
    return {
        "pipeline": {"directory": str(directory), "seed": 3},
        "model": {"path": "base", "device": "cpu", "num_threads": 1},
        "sampling": {"max_tokens": 64},
        "tasks": {"sums": {"kind": "arithmetic", "kinds": ["product"], "digits": [2, 2]}},
        "measure": {"num_problems": 1, "num_samples": 1},
        "stages": {
            "labels": {
                "kind": "step_labels", "task": "sums", "path": "{base}", "method": method, "rollouts": 2,
                "num_problems": 3, "num_samples": 3,
            }
        },
    }  # fmt: skip


def run(tables: dict[str, Any]) -> bool:
    """Run a pipeline without a display; every prefix is a part of its own."""
    from groupwise.pipeline import Display, load_pipeline, run_pipeline, step_rollouts
    from groupwise.trainers import train

    step_rollouts.PROBLEMS_PER_PART = 1
    return run_pipeline(*load_pipeline(tables), Display(train))


def made(directory: Path) -> dict[str, bytes]:
    stage = PipelineDirectory(directory).stage("labels")
    return {name: (stage.path / name).read_bytes() for name in ("data.jsonl", "facts.json")}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["monte_carlo", "binary_search"])
def test_labels_are_the_same_bytes_wherever_the_process_was_killed(server: None, tmp_path: Path, method: str) -> None:
    whole = labelling(tmp_path / "whole" / "process", method)
    process = processes.start(run, whole)
    process.join(PATIENCE_S)
    assert process.exitcode == 0
    parts = sorted((tmp_path / "whole").rglob("rollouts-*.json")) or sorted((tmp_path / "whole").rglob("search-*.json"))
    assert len(parts) > 2
    killed = labelling(tmp_path / "killed" / "process", method)
    for place in (parts[0].name, parts[len(parts) // 2].name, "data.jsonl", "facts.json"):
        process = processes.start(signalled_run.train_and_signal, killed, signal.SIGKILL, place, run)
        process.join(PATIENCE_S)
        assert process.exitcode == -signal.SIGKILL, place
    process = processes.start(run, killed)
    process.join(PATIENCE_S)
    assert process.exitcode == 0
    assert made(tmp_path / "killed" / "process") == made(tmp_path / "whole" / "process")


TRAINED = {"run": {"num_steps": 2, "checkpoint_every": 1}, "process_reward_model": {"rows_per_step": 4}}
LEARNT = {
    "run": {"num_steps": 2, "checkpoint_every": 1},
    "grpo": {"prompts_per_step": 2, "group_size": 4},
    "evaluation": {"every": 2, "num_problems": 2, "num_samples": 2},
}
LABELLED = {"num_problems": 4, "num_samples": 4}
SMALL: dict[str, Any] = {
    "model": {"num_threads": 1, "device": "cpu"},
    "measure": {"num_problems": 4, "num_samples": 2},
    "tasks": {"products": {"num_problems": 50, "num_eval_problems": 16}},
    "stages": {
        "labels": LABELLED,
        "labels_mc": {**LABELLED, "rollouts": 2},
        "threshold": {**LABELLED, "num_problems": 8},
        "measured": {**LABELLED, "skip_problems": 8},
        "prm": TRAINED, "prm_mc": TRAINED, "orm": TRAINED, "implicit": TRAINED,
        "judges": {"choices": [2]},
        "outcome": LEARNT, "process": LEARNT, "process_gae": LEARNT,
        "workings_outcome": LABELLED, "workings_process": LABELLED, "workings_process_gae": LABELLED,
    },
}  # fmt: skip


def flat(values: dict[str, Any], prefix: str = "") -> list[str]:
    return [
        line
        for name, value in values.items()
        for line in (
            flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [f"{prefix}{name}={json.dumps(value)}"]
        )
    ]


@pytest.mark.slow
def test_the_recipe_labels_trains_measures_and_learns(tmp_path: Path) -> None:
    from groupwise.pipeline import Display, load_pipeline, run_pipeline
    from groupwise.trainers import train

    directory = tmp_path / "process"
    changes = flat({**SMALL, "pipeline": {"directory": str(directory)}})
    assert run_pipeline(*load_pipeline(RECIPE, changes), Display(train))
    place = PipelineDirectory(directory)
    facts = {name: place.stage(name).facts for name in SMALL["stages"]}
    assert all(facts.values())
    judges = facts["judges"]["statistics"]
    for name in ("prm", "prm_mc", "orm", "implicit"):
        assert 0 <= judges[name]["auc"] <= 1
        assert judges["controls"]["pass@1"] <= judges["controls"]["pass@2"]
        assert 0 <= judges[name]["best of 2 by product"] <= judges["controls"]["pass@2"] + 1e-9
    assert 0 <= facts["workings_process_gae"]["statistics"]["sound_workings"] <= 1
    assert (directory / "report.html").exists()

"""Labels by rollouts survive SIGKILL with the same bytes; the recipes of process supervision, made small."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from commands import save_random
from signalled_run import exit_code
from small_pipeline import flat

import groupwise as gw
from groupwise.models.new_model import byte_tokenizer
from groupwise.pipeline import Display, load_pipeline, run_pipeline, step_rollouts
from groupwise.pipeline.directory import PipelineDirectory
from groupwise.trainers import load_recipe, train

RECIPE = Path(__file__).parents[2] / "recipes" / "process.toml"
TEXTS = RECIPE.with_name("process_gsm8k.toml")
pytestmark = pytest.mark.usefixtures("imports_are_found_once")


def labelling(directory: Path, method: str) -> dict[str, Any]:
    return {
        "pipeline": {"directory": str(directory), "seed": 3},
        "model": {"path": "base", "device": "cpu", "num_threads": 1},
        "sampling": {"max_tokens": 64},
        "tasks": {"sums": {"kind": "numbers", "kinds": ["signed_chain"]}},
        "measure": {"num_problems": 1, "num_samples": 1},
        "stages": {
            "labels": {
                "kind": "step_labels", "task": "sums", "path": "{base}", "method": method, "rollouts": 2,
                "num_problems": 4, "num_samples": 4,
            }
        },
    }  # fmt: skip


def run(tables: dict[str, Any]) -> bool:
    """Run a pipeline without a display; every prefix is a part of its own."""
    step_rollouts.PROBLEMS_PER_PART = 1
    return run_pipeline(*load_pipeline(tables), Display(train))


def made(directory: Path) -> dict[str, bytes]:
    stage = PipelineDirectory(directory).stage("labels")
    return {name: (stage.path / name).read_bytes() for name in ("data.jsonl", "facts.json")}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["monte_carlo", "binary_search"])
def test_labels_are_the_same_bytes_wherever_the_process_was_killed(server: None, tmp_path: Path, method: str) -> None:
    whole = labelling(tmp_path / "whole" / "process", method)
    assert exit_code(whole, "nowhere", run) == 0
    parts = sorted((tmp_path / "whole").rglob("rollouts-*.json")) or sorted((tmp_path / "whole").rglob("search-*.json"))
    assert len(parts) > 2
    killed = labelling(tmp_path / "killed" / "process", method)
    for place in (parts[0].name, parts[len(parts) // 2].name, "data.jsonl", "facts.json"):
        assert exit_code(killed, place, run) == -signal.SIGKILL, place
    assert exit_code(killed, "nowhere", run) == 0
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
        "prm": TRAINED, "prm_mc": TRAINED, "prm_soft": TRAINED, "prm_agreed": TRAINED, "orm": TRAINED,
        "implicit": TRAINED,
        "judges": {"choices": [2]},
        "search": {"skip_problems": 8, "num_problems": 2, "samples": 4, "budgets": [1, 4], "difficulty_samples": 0},
        **dict.fromkeys(("outcome", "process", "process_gae", "process_gae_95", "process_gae_0"), LEARNT),
        **dict.fromkeys(("workings_outcome", "workings_process", "workings_process_gae"), LABELLED),
        **dict.fromkeys(("workings_process_gae_95", "workings_process_gae_0"), LABELLED),
    },
}  # fmt: skip


@pytest.mark.slow
def test_the_recipe_labels_trains_measures_and_learns(tmp_path: Path) -> None:
    directory = tmp_path / "process"
    changes = flat({**SMALL, "pipeline": {"directory": str(directory)}})
    assert run_pipeline(*load_pipeline(RECIPE, changes), Display(train))
    place = PipelineDirectory(directory)
    facts = {name: place.stage(name).facts for name in SMALL["stages"]}
    assert all(facts.values())
    judges = facts["judges"]["statistics"]
    for name in ("prm", "prm_mc", "prm_soft", "prm_agreed", "orm", "implicit"):
        assert 0 <= judges[name]["auc"] <= 1
        assert judges["controls"]["pass@1"] <= judges["controls"]["pass@2"]
        assert 0 <= judges[name]["best of 2 by product"] <= judges["controls"]["pass@2"] + 1e-9
        assert 0 <= judges[name]["vote of 2 by product"] <= judges["controls"]["pass@2"] + 1e-9
    assert 0 <= facts["workings_process_gae"]["statistics"]["sound_workings"] <= 1
    assert gw.report(directory).exists()


def question(n: int) -> str:
    return f"Ann has {n % 7} pears and {3 + n} plums. She eats {n} plums. What is left of the plums?"


def problems_of_gsm8k(folder: Path) -> None:
    """Files as GSM8K's are: `question`, and `answer` with a working, `#### ` and a number."""
    answers = (f"Of {3 + n} plums {n} are eaten.\nThen <<{3 + n}-{n}=3>>3 are left.\n#### 3" for n in range(90))
    lines = [json.dumps({"question": question(n), "answer": answer}) for n, answer in enumerate(answers)]
    (folder / "gsm8k").mkdir(parents=True)
    (folder / "gsm8k" / "train.jsonl").write_text("\n".join(lines[:80]))
    (folder / "gsm8k" / "test.jsonl").write_text("\n".join(lines[80:]))


def model_that_answers_at_random(folder: Path) -> None:
    """A Hugging Face directory: random weights that have learnt nothing but two lines, a box, and one of two digits."""
    save_random(folder / "random", byte_tokenizer(), intermediate_size=64, context_length=512)
    rows = [
        {"prompt": f"{question(n)}\n", "completion": f"{'ab'[n % 2]};\nso:\n\\boxed{{{3 + n % 2 * (n % 4 // 2)}}}"}
        for n in range(96)
    ]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    recipe = {
        "algorithm": "sft", "run": {"directory": str(folder / "sft"), "num_steps": 160, "checkpoint_every": 160},
        "model": {"path": str(folder / "random"), "device": "cpu", "num_threads": 1},
        "data": {"source": "jsonl", "path": str(folder / "rows.jsonl")}, "sft": {"sequences_per_step": 12},
        "optimizer": {"lr": 1e-2, "warmup_steps": 5, "schedule": "cosine"},
    }  # fmt: skip
    train(load_recipe(recipe))
    (folder / "sft" / "checkpoints" / "step-000160").rename(folder / "model")


IN_TEXTS = {
    "model": {"num_threads": 1, "device": "cpu", "compute_dtype": "float32"},
    "measure": {"num_problems": 4, "num_samples": 2},
    "sampling": {"max_tokens": 32},
    "tasks": {"stories": {"dev_fraction": 0.4, "template": {"prompt": "{question}\n"}}},
    "stages": {
        "labels": {"num_problems": 6, "num_samples": 6, "rollouts": 2},
        "threshold": {"num_problems": 8, "num_samples": 8, "rollouts": 2},
        "measured": {"skip_problems": 8, "num_problems": 6, "num_samples": 8, "rollouts": 2},
        "prm": TRAINED, "orm": TRAINED, "judges": {"choices": [2]},
        "search": {"skip_problems": 8, "num_problems": 3, "samples": 4, "budgets": [1, 4], "difficulty_samples": 0},
        "outcome": {**LEARNT, "loss": {"tokens_per_micro_batch": 512}},
        "process_gae": {**LEARNT, "loss": {"tokens_per_micro_batch": 512}},
    },
}  # fmt: skip


@pytest.mark.slow
def test_the_same_takes_a_hugging_face_directory_and_texts(tmp_path: Path) -> None:
    problems_of_gsm8k(tmp_path / "data")
    model_that_answers_at_random(tmp_path)
    directory = tmp_path / "process"
    changes = flat({**IN_TEXTS, "pipeline": {"directory": str(directory)}})
    changes += [f"model.path={json.dumps(str(tmp_path / 'model'))}"]
    changes += [f"tasks.stories.data_dir={json.dumps(str(tmp_path / 'data'))}"]
    assert run_pipeline(*load_pipeline(TEXTS, changes), Display(train))
    facts = {name: PipelineDirectory(directory).stage(name).facts for name in IN_TEXTS["stages"]}
    assert all(facts.values())
    assert facts["labels"]["statistics"]["first_error_agrees_with_plan"] is None  # nobody knows the truth
    assert facts["labels"]["statistics"]["rollout_tokens"] > 0
    assert 0 < facts["measured"]["statistics"]["answers_right"] < facts["measured"]["statistics"]["rows"]
    search = facts["search"]["statistics"]
    assert search["control/perfect"]["of 1"] <= search["control/perfect"]["of 4"]
    assert search["best_of_n/orm"]["of 4"] <= search["control/perfect"]["of 4"] + 1e-6
    assert {"beam/best", "dvts/majority", "weighted/prm_min"} <= search.keys()
    assert facts["process_gae"]["evaluation"]["stories"]["num_problems"] == 4

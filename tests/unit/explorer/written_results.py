"""Directories of results written by hand: test-time compute, and a pipeline that compares process reward models."""

import json
from pathlib import Path
from typing import Any

METHODS = ("control/perfect", "control/constant", "majority", "best_of_n/orm", "best_of_n/prm_last",
           "best_of_n/prm_min", "beam/weighted", "cut/tokens")  # fmt: skip


def lines(path: Path, records: list[dict[str, Any]]) -> None:
    """A file of JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def around(value: float, half: float = 0.05) -> list[float]:
    """[value, low, high]."""
    return [value, max(0.0, value - half), min(1.0, value + half)]


def write_budget(path: Path) -> Path:
    """As `BudgetResult.write` leaves it: eight methods, three budgets, two difficulties."""
    settings = {"kind": "settings", "checkpoint": "base", "task": "arithmetic", "prm": "runs/prm", "orm": None,
                "budgets": [1, 4, 16], "problems": 40, "left_out": []}  # fmt: skip
    points, times = [], []
    for place, method in enumerate(METHODS):
        for rank, budget in enumerate((1, 4, 16)):
            level = 0.4 + 0.03 * place + 0.1 * rank * (place != 1)
            points.append({
                "kind": "point", "method": method, "budget": budget, "accuracy": around(level), "standard_error": 0.0,
                "over_majority": None if method == "majority" else [level - 0.6, level - 0.7, level - 0.5],
                "way": [None, None, None] if rank == 0 else [-0.2, -0.5, 0.1] if place == 1 else around(0.5),
                "by_difficulty": {"easy": around(min(1.0, level + 0.2)), "hard": around(level - 0.2)},
                "policy_tokens": 50.0 * budget, "reward_tokens": 60.0 * budget, "operations": 2.5e8 * budget,
            })  # fmt: skip
            times.append({"kind": "point", "method": method, "budget": budget, "seconds": 0.0125 * budget})
    optimal = [{"kind": "optimal", "difficulty": "pool", "budget": 16, "accuracy": around(0.7), "gain": around(0.02),
                "methods": {"easy": {"majority": 10, "best_of_n/orm": 2}, "hard": {"beam/weighted": 5}},
                "policy_tokens": 800.0, "difficulty_policy_tokens": 400.0}]  # fmt: skip
    flips = [{"kind": "flips", "method": "revise", "link": 1, "lost": around(0.1), "gained": around(0.2)}]
    equal = [{"kind": "equal_tokens", "method": "beam/best", "budget": 16, "against": "best_of_n/prm_last",
              "samples": 12.5, "difference": [0.04, -0.02, 0.1], "by_difficulty": {}}]  # fmt: skip
    lines(path / "budget.jsonl", [settings, *points, *optimal, *equal, *flips])
    lines(path / "seconds.jsonl", times)
    return path


def write_process(path: Path) -> Path:
    """A pipeline whose one finished stage compares two process reward models."""
    rows = [
        {"judge": "controls", "pass@1": around(0.5), "majority@4": around(0.6), "pass@4": around(0.8)},
        {"judge": "exact", "threshold": 0.42, "f1": 0.81, "first_error_found": around(0.8), "auc": 0.93,
         "calibration_error": 0.021, "best of 4 by min": around(0.75), "best of 4 by last": around(0.7)},
        {"judge": "rollouts", "threshold": 0.5, "f1": None, "first_error_found": None, "auc": 0.84,
         "calibration_error": 0.08, "best of 4 by min": around(0.72), "best of 4 by last": around(0.66)},
    ]  # fmt: skip
    stage = {"name": "judges", "kind": "step_evaluation", "algorithm": None, "makes": "data", "inputs": ["base"],
             "fingerprint": "f" * 16, "output": "stages/judges/data.jsonl", "output_hash": "a" * 16}  # fmt: skip
    facts = {"name": "judges", "fingerprint": "f" * 16, "output": "data.jsonl", "output_hash": "a" * 16,
             "tokens": {"sampled": 0, "trained": 0}, "statistics": {"completions": 64}, "evaluation": None}  # fmt: skip
    lines(path / "stages" / "judges" / "data.jsonl", rows)
    (path / "stages" / "judges" / "facts.json").write_text(json.dumps(facts))
    (path / "stages" / "judges" / "cost.json").write_text(json.dumps({"seconds": 3.0}))
    (path / "lineage.json").write_text(json.dumps({"name": path.name, "base": "base", "stages": [stage]}))
    (path / "pipeline.toml").write_text("")
    return path

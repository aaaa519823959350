"""The recipe of DeepSeek-R1 with every count cut to the bone, and processes that run it and are killed."""

import json
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import processes

RECIPE = Path(__file__).parents[2] / "recipes" / "r1.toml"

_RUN = {"run": {"num_steps": 2, "checkpoint_every": 1}}
_RL = _RUN | {
    "grpo": {"prompts_per_step": 4, "group_size": 4},
    "evaluation": {"every": 2, "num_problems": 2, "num_samples": 2, "test_problems": 0},
}
_PAIRS = _RUN | {"reward_model": {"pairs_per_step": 4}, "data": {"num_pairs": 16}}
_SFT = _RUN | {"sft": {"sequences_per_step": 4}}
SMALL: dict[str, Any] = {
    "model": {"num_threads": 1, "device": "cpu"},
    "sampling": {"max_tokens": 32},
    "measure": {"num_problems": 4, "num_samples": 2, "sampling": {"max_tokens": 32}},
    "tasks": {
        "reasoning": {
            "parts": {
                "arithmetic": {"task": {"num_problems": 100, "num_eval_problems": 8}},
                "word_problems": {"task": {"num_problems": 100, "num_eval_problems": 8}},
            }
        },
        "general": {"num_problems": 100, "num_eval_problems": 8},
    },
    "stages": {
        "zero": _RL,
        "cold_start": {
            "num_rows": 8,
            "sources": {
                "reflective": {"num_problems": 8, "num_samples": 2},
                "zero": {"num_problems": 8, "num_samples": 2},
            },
        },
        "cold_sft": _SFT,
        "reasoning_rl": _RL,
        "helpful": _PAIRS,
        "harmless": _PAIRS,
        "rejection": {
            "num_problems": 8,
            "num_samples": 2,
            "num_rows": 8,
            "general": {"num_problems": 8, "answers_per_problem": 2},
        },
        "sft": _SFT,
        "final_rl": _RL | {"reward_models": {"helpful": {"first_step": 1}, "harmless": {"first_step": 1}}},
    },
}
STAGES = tuple(SMALL["stages"])


def overrides(directory: Path) -> list[str]:
    """Overrides that make the recipe small."""
    return flat({**SMALL, "pipeline": {"directory": str(directory)}})


def flat(values: dict[str, Any], prefix: str = "") -> list[str]:
    """Overrides that say what nested tables say."""
    return [
        line
        for name, value in values.items()
        for line in (
            flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [f"{prefix}{name}={json.dumps(value)}"]
        )
    ]


def run(settings: list[str], **options: Any) -> bool:
    """Run the small pipeline in this process, without a display."""
    from groupwise.pipeline import Display, load_pipeline, run_pipeline
    from groupwise.trainers import train

    return run_pipeline(*load_pipeline(RECIPE, settings), Display(train), **options)


def start(settings: list[str]) -> ForkServerProcess:
    """Run the small pipeline in a process of its own."""
    return processes.start(run, settings)


SAME = ("facts.json", "begun.json", "data.jsonl", "lineage.json", "evaluation.parquet", "ledger.jsonl")
"""Names of the files that say what was made."""


def assert_same(directory: Path, expected: Path) -> None:
    """Two pipelines of the same name hold the same, byte for byte; at the end the same model."""
    from groupwise.pipeline.directory import content_hash

    found, wanted = (
        {file.relative_to(path): file.read_bytes() for name in SAME for file in path.rglob(name)}
        for path in (directory, expected)
    )
    assert found.keys() == wanted.keys()
    assert [str(name) for name in wanted if found[name] != wanted[name]] == []
    last = json.loads((expected / "lineage.json").read_text())["stages"][-1]
    assert content_hash(directory / last["output"]) == content_hash(expected / last["output"]) == last["output_hash"]

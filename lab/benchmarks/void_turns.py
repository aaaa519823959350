"""Leave void turns out of the loss: finished pipelines of recipes/tools.toml, their GRPO trained again.

    groupwise pipeline recipes/tools.toml --seeds 5 --set pipeline.directory=runs/tools-seeds
    python lab/benchmarks/void_turns.py runs/tools-seeds/seed-*  # some 2 minutes of one core a seed; resumes

A void turn has neither an answer nor a whole call. SimpleTIR (arXiv:2509.02479) reports that gradients explode where
such completions are trained, by tokens of low probability behind what a tool said. Here stage `rl` runs with
`loss.void_turns` as `keep` and as `drop`. Of every step: the share of completions that are void, the gradient's norm
before clipping, and the least probability of a token that is trained. Over seeds, with Student's 95 % interval: their
means over the steps, the largest norm, pass@1 of the test problems after GRPO, and `drop` less `keep`, paired by seed.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean

from arms import every_seed, interval

from groupwise.evaluation.metrics import summary
from groupwise.runs.directory import RunDirectory
from groupwise.runs.records import Records
from groupwise.trainers import grpo, load_recipe, train
from groupwise.training.micro_batches import is_void
from groupwise.training.tokens import UpdateTrace
from groupwise.training.update import UpdateMetrics, Updater, update_policy
from groupwise.types import AdvantagedGroup

ARMS = ("keep", "drop")


def looked_at(groups: Sequence[AdvantagedGroup], drops: bool) -> dict[str, float]:
    """Share of void completions, and the least probability of a token that is trained."""
    completions = [
        (one, is_void(one, verdict), advantages)
        for group in groups
        for one, verdict, advantages in zip(
            group.scored.group.completions, group.scored.verdicts, group.advantages, strict=True
        )
    ]
    trained = [one for one, void, advantages in completions if advantages is not None and not (drops and void)]
    return {
        "void": fmean(void for _, void, _ in completions),
        "least probability": math.exp(min((one.sampling_logprobs.min() for one in trained), default=0.0)),
    }


@contextmanager
def written_down(file: Path, drops: bool) -> Iterator[None]:
    """Every update leaves a line in the file."""

    def update(
        updater: Updater, groups: Sequence[AdvantagedGroup], step: int, trace: UpdateTrace | None = None
    ) -> UpdateMetrics:
        done = update_policy(updater, groups, step, trace)
        line = {"step": step, "norm": done.grad_norm, **looked_at(groups, drops)}
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(line) + "\n")
        return done

    grpo.update_policy = update  # type: ignore[attr-defined]
    try:
        yield
    finally:
        grpo.update_policy = update_policy  # type: ignore[attr-defined]


def measured(pipeline: Path, arm: str) -> dict[str, float]:
    """Figures of an arm; a finished run is not trained again, and of a repeated step the last line counts."""
    directory = pipeline / "void_turns" / arm
    series = directory.with_suffix(".jsonl")
    changes = {"run.directory": str(directory), "loss.void_turns": arm}
    recipe = load_recipe(str(pipeline / "stages/rl/run/config.toml"), changes)
    if not RunDirectory(directory).finished.exists():
        directory.parent.mkdir(exist_ok=True)
        with written_down(series, arm == "drop"):
            train(recipe)
    by_step = {line["step"]: line for line in map(json.loads, series.read_text("utf-8").splitlines())}
    after = Records.open(directory).intact().test_after
    assert after is not None
    figures = {name: fmean(line[name] for line in by_step.values()) for name in ("void", "norm", "least probability")}
    largest = max(line["norm"] for line in by_step.values())
    return {**figures, "largest norm": largest, "pass@1": summary(after.rows)["pass_at_1"].value}


def show(results: Mapping[str, Sequence[Mapping[str, float]]]) -> None:
    """Means of both arms, and the difference."""
    for key in results["keep"][0]:
        keep, drop = ([one[key] for one in results[arm]] for arm in ARMS)
        differences = [one - other for one, other in zip(drop, keep, strict=True)]
        sides = f"keep {interval(keep, '.3g')}; drop {interval(drop, '.3g')}"
        print(f"{key}: {sides}; drop less keep {interval(differences, '+.3g')}")


if __name__ == "__main__":
    show(every_seed(__doc__, tuple(ARMS), measured))

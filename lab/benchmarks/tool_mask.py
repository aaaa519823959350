"""Train the results of tool calls, and see: finished pipelines of recipes/tools.toml, trained again.

    groupwise pipeline recipes/tools.toml --seeds 5 --set pipeline.directory=runs/tools-seeds
    python lab/benchmarks/tool_mask.py runs/tools-seeds/seed-*  # some 5 minutes of one core a seed; resumes

Nothing in Groupwise trains a result: supervised fine-tuning masks it where `sft.tools` names the tool, and GRPO always.
Here each mask is taken away. Fine-tuning loses `sft.tools`; in GRPO every token that the calculator put in gets the
advantage of its completion, a place in the denominators, and its log-probability under the policy as the old one. Arms
are named by where results are masked: `both` is the pipeline's own stage `rl`.

By arm and over seeds, with Student's 95 % interval: pass@1 of products of four digits and of the easy ones, and calls
per completion, before GRPO and after it, with the calculator at hand; then differences from `both`, paired by seed.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from arms import every_seed, interval

from groupwise.evaluation.metrics import by_family, summary
from groupwise.runs.directory import RunDirectory
from groupwise.runs.records import Evaluation, Records
from groupwise.trainers import grpo, load_recipe, train
from groupwise.training.tokens import UpdateTrace, per_token
from groupwise.training.update import UpdateMetrics, Updater, update_policy
from groupwise.types import AdvantagedGroup, Group

ARMS: Mapping[str, tuple[bool, bool]] = {
    "both": (True, True),
    "fine-tuning alone": (True, False),
    "GRPO alone": (False, True),
    "neither": (False, False),
}
"""By name: True if results are masked in fine-tuning, and in GRPO."""


def unmasked(group: AdvantagedGroup, updater: Updater) -> AdvantagedGroup:
    """The group as if the policy had drawn every token: results have the completion's advantage."""
    whole = group.scored.group
    drawn = replace(
        whole,
        completions=tuple(
            replace(one, sampled=np.ones(len(one.token_ids), np.bool_), entropy=None) for one in whole.completions
        ),
    )
    policy = updater.policy
    [logprobs] = per_token(
        [drawn], lambda packed: policy.token_logprobs(packed, updater.temperature).logprobs, 0, policy.device
    )
    advantages = tuple(
        None if values is None else np.full(len(values), values[one.sampled][0])
        for values, one in zip(group.advantages, whole.completions, strict=True)
    )
    return replace(group, scored=replace(group.scored, group=_with(drawn, logprobs)), advantages=advantages)


def _with(group: Group, logprobs: Sequence[np.ndarray]) -> Group:
    pairs = zip(group.completions, logprobs, strict=True)
    return replace(group, completions=tuple(replace(one, sampling_logprobs=values) for one, values in pairs))


@contextmanager
def results_trained() -> Iterator[None]:
    """GRPO that makes no difference between what was drawn and what was put in."""

    def update(
        updater: Updater, groups: Sequence[AdvantagedGroup], step: int, trace: UpdateTrace | None = None
    ) -> UpdateMetrics:
        return update_policy(updater, [unmasked(group, updater) for group in groups], step)

    grpo.update_policy = update  # type: ignore[attr-defined]
    try:
        yield
    finally:
        grpo.update_policy = update_policy  # type: ignore[attr-defined]


def fine_tuned(pipeline: Path) -> str:
    """The model of stage `sft` with its results trained; a finished one is not trained again."""
    directory = pipeline / "tool_mask" / "sft"
    recipe = load_recipe(
        str(pipeline / "stages/sft/run/config.toml"), {"run.directory": str(directory), "sft.tools": {}}
    )
    if not RunDirectory(directory).finished.exists():
        train(recipe)
    return str(directory / "checkpoints" / f"step-{recipe.run.num_steps:06d}")


def run_of(pipeline: Path, name: str) -> Path:
    """The run of GRPO of an arm, trained if it is not there."""
    sft_masked, grpo_masked = ARMS[name]
    own = pipeline / "stages/rl/run"
    if sft_masked and grpo_masked:
        return own
    directory = pipeline / "tool_mask" / name.replace(" ", "-")
    changes = {"run.directory": str(directory)} | ({} if sft_masked else {"model.path": fine_tuned(pipeline)})
    if not RunDirectory(directory).finished.exists():
        recipe = load_recipe(str(own / "config.toml"), changes)
        if grpo_masked:
            train(recipe)
        else:
            with results_trained():
                train(recipe)
    return directory


def figures(data: Evaluation) -> dict[str, float]:
    """Return the figures that are compared."""
    families = {f"pass@1, {name}": mean.value for name, mean in by_family(data.rows).items()}
    found = summary(data.rows)
    return {**families, "calls": found["calls"].value if "calls" in found else 0.0}


def measured(pipeline: Path, name: str) -> dict[str, float]:
    """Figures of an arm before GRPO and after it."""
    run = Records.open(run_of(pipeline, name)).intact()
    sides = {"before": run.test_before, "after": run.test_after}
    return {f"{key}, {side}": value for side, data in sides.items() if data for key, value in figures(data).items()}


def show(results: Mapping[str, Sequence[Mapping[str, float]]]) -> None:
    """Means of every arm, and differences."""
    for key in results["both"][0]:
        for name, seeds in results.items():
            values = [one[key] for one in seeds]
            print(f"{key}: masked in {name} {interval(values, '.3f')}", end="")
            differences = [value - one[key] for value, one in zip(values, results["both"], strict=True)]
            print("" if name == "both" else f"; less `both` {interval(differences, '+.3f')}")


if __name__ == "__main__":
    show(every_seed(__doc__, tuple(ARMS), measured))

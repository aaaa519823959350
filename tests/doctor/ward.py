"""Real runs of the shipped model with one fault each, and healthy ones: what the doctor is tried on.

`python tests/doctor/matrix.py --write docs/doctor.md` runs them and writes what was found.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from groupwise import trainers
from groupwise.config import parse
from groupwise.rollout import sample_and_score
from groupwise.trainers.grpo import GrpoRecipe
from groupwise.training.optimizer import Optimizer
from groupwise.types import Completion, Outcome, ScoredGroup, Verdict

RECIPE: dict[str, Any] = {
    "run": {"directory": "", "num_steps": 20, "checkpoint_every": 100},
    "model": {"device": "cpu", "num_threads": 1},
    "task": {"kind": "arithmetic", "kinds": ["product"], "digits": [2, 2], "num_problems": 512},
    "sampling": {"max_tokens": 128},
    "grpo": {"prompts_per_step": 8, "group_size": 8},
    "optimizer": {"lr": 3e-4, "warmup_steps": 2},
    "evaluation": {"every": 5, "num_problems": 24, "num_samples": 2, "test_problems": 0},
}
"""The demo, smaller."""


class Case(NamedTuple):
    """A way to run, and the rules of which one at least must notice."""

    name: str
    what: str
    """The fault in a sentence."""
    rules: tuple[str, ...]
    """Empty for a healthy run."""
    settings: tuple[str, ...] = ()
    plant: Callable[[pytest.MonkeyPatch], None] = lambda patch: None
    """A slip in the code while it runs."""
    damage: Callable[[Path], None] = lambda run: None
    """What happens to the directory afterwards."""
    is_mild: bool = False
    """Whether a note is what it deserves."""


def run_case(case: Case, directory: Path, seed: int = 0, changes: tuple[str, ...] = ()) -> Path:
    """Train with the fault; returns the run directory."""
    settings = (f"run.directory={directory}", f"run.seed={seed}", *case.settings, *changes)
    with pytest.MonkeyPatch.context() as patch:
        case.plant(patch)
        trainers.train(parse(GrpoRecipe, RECIPE, settings))
    case.damage(directory)
    return directory


def _judged_otherwise(patch: pytest.MonkeyPatch, change: Callable[[int, Completion, Verdict], Verdict]) -> None:
    """Verdicts of training and dev are changed after the program has checked them."""
    real = vars(sample_and_score)["spot_check"]

    def spoilt(scored: Sequence[ScoredGroup], *args: Any) -> None:
        real(scored, *args)
        for number, group in enumerate(scored):
            size = len(group.verdicts)
            pairs = zip(group.group.completions, group.verdicts, strict=True)
            verdicts = tuple(change(number * size + i, *pair) for i, pair in enumerate(pairs))
            object.__setattr__(group, "verdicts", verdicts)

    patch.setattr(sample_and_score, "spot_check", spoilt)


def one_in_ten_crashes(patch: pytest.MonkeyPatch) -> None:
    """The verifier crashes on one completion in ten."""
    broken = Verdict(Outcome.CRASHED, {}, "division by zero")
    _judged_otherwise(patch, lambda i, completion, verdict: broken if i % 10 == 0 else verdict)


def pays_length(patch: pytest.MonkeyPatch) -> None:
    """Every token is paid, far more than being right."""
    _judged_otherwise(
        patch,
        lambda i, completion, verdict: replace(verdict, parts={**verdict.parts, "length": completion.num_tokens / 16}),
    )


def one_large_loss(patch: pytest.MonkeyPatch) -> None:
    """The loss of the 13th step is 1,000 times too large."""
    real = Optimizer.update

    def update(self: Optimizer, step: int) -> float:
        if step == 12:
            for group in self.adamw.param_groups:
                for weight in group["params"]:
                    if weight.grad is not None:
                        weight.grad *= 1000
        return real(self, step)

    patch.setattr(Optimizer, "update", update)


def no_rate(patch: pytest.MonkeyPatch) -> None:
    """The optimizer's learning rates are 0."""
    real = Optimizer.update

    def update(self: Optimizer, step: int) -> float:
        for group in self.adamw.param_groups:
            group["peak"] = 0.0
        return real(self, step)

    patch.setattr(Optimizer, "update", update)


def edit_ledger(run: Path) -> None:
    """Somebody mends a reward afterwards."""
    path = run / "ledger.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    facts = json.loads(lines[4])
    lines[4] = json.dumps({**facts, "edited": 1}) + "\n"
    path.write_text("".join(lines))


def lose_step(run: Path) -> None:
    """The completions of a step are lost."""
    (run / "rollouts" / "step-000003.parquet").unlink()


CASES = (
    Case("healthy", "none", ()),
    Case("too easy", "problems that the model has long solved", ("no_signal",),
         ("task.digits=[1, 1]", "task.num_problems=40", "task.num_eval_problems=2", "evaluation.num_problems=2"),
         is_mild=True),
    Case("too hard", "problems that the model never solves", ("no_signal", "never_correct"), ("task.digits=[4, 4]",)),
    Case("cold", "a temperature of 0.1", ("no_signal",), ("sampling.temperature=0.1",)),
    Case("tiny limit", "a token limit that cuts answers short", ("truncation",), ("sampling.max_tokens=16",)),
    Case("large lr", "a learning rate 100 times too large",
         ("entropy_explosion", "entropy_collapse", "forgetting", "truncation"), ("optimizer.lr=3e-2",)),
    Case("large steps", "a learning rate 30 times too large", ("update_too_large",),
         ("optimizer.lr=1e-2", "record.after_every=1", "run.num_steps=10")),
    Case("lr of nothing", "a learning rate that changes no weight", ("weights_stand_still",), (), no_rate),
    Case("entropy paid", "an entropy bonus far too large", ("entropy_explosion",), ("loss.entropy_coef=1.0",)),
    Case("many epochs", "8 passes over each step's completions, at 10 times the learning rate",
         ("forgetting", "no_signal", "entropy_explosion", "clipping"),
         ("loss.epochs=8", "optimizer.lr=3e-3")),
    Case("tight clip", "bounds of the ratio that allow no change", ("clipping",),
         ("loss.epochs=4", "run.num_steps=8", "evaluation.every=8",
          "loss.policy.clip_low=0.0", "loss.policy.clip_high=0.0")),
    Case("length paid", "every token is paid, and more than being right",
         ("reward_without_result", "length_runaway", "part_dominates", "truncation"), ("optimizer.lr=1e-3",),
         pays_length),
    Case("held", "a KL term that holds the policy", ("kl_to_reference",), ("loss.kl_coef=1000.0", "optimizer.lr=1e-6")),
    Case("verifier crashes", "a verifier that crashes on one completion in ten", ("verifier_fails",),
         ("verifier.max_failure_share=0.5",), one_in_ten_crashes),
    Case("loss spike", "a loss 1,000 times too large in one step", ("gradient_spikes",), (), one_large_loss),
    Case("ledger edited", "an edited line of the ledger", ("record_damaged",), (), damage=edit_ledger),
    Case("step lost", "a lost file of completions", ("record_damaged",), (), damage=lose_step),
)  # fmt: skip

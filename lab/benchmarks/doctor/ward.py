"""Real runs with one fault each, and healthy ones: what the doctor is tried on. `matrix.py` runs them.

They are of a model that learns in a second (`pupil.py`), so that twenty seeds of every fault are affordable.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from groupwise import trainers
from groupwise.models.policy import Policy
from groupwise.rollout import sample_and_score
from groupwise.trainers import ppo
from groupwise.training.optimizer import Optimizer
from groupwise.types import AdvantagedGroup, Completion, Outcome, ScoredGroup, Verdict
from groupwise.verifiers import scoring

RECIPE: dict[str, Any] = {
    "run": {"directory": "", "num_steps": 20, "checkpoint_every": 1000}, "model": {"device": "cpu", "num_threads": 1},
    "task": {"kind": "arithmetic", "kinds": ["sum"], "digits": [1, 2], "num_problems": 400, "num_eval_problems": 36},
    "sampling": {"max_tokens": 64}, "optimizer": {"lr": 3e-4, "warmup_steps": 2},
    "evaluation": {"every": 5, "num_problems": 36, "num_samples": 2, "test_problems": 0},
}  # fmt: skip
BATCH = {"prompts_per_step": 6, "group_size": 6}


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
    is_gradual: bool = False
    """Whether it spoils the model little by little, so that a warning can come in time."""
    algorithm: Literal["grpo", "ppo"] = "grpo"


def run_case(case: Case, model: str | Path, directory: Path, seed: int = 0, changes: tuple[str, ...] = ()) -> Path:
    """Train with the fault, from this model; returns the run directory."""
    settings = (f"model.path={model}", f"run.directory={directory}", f"run.seed={seed}", *case.settings, *changes)
    source = {**RECIPE, "algorithm": case.algorithm, case.algorithm: BATCH}
    with pytest.MonkeyPatch.context() as patch:
        case.plant(patch)
        trainers.train(trainers.load_recipe(source, settings))
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


def one_in_thirty_crashes(patch: pytest.MonkeyPatch) -> None:
    """The verifier crashes on one completion in thirty."""
    broken = Verdict(Outcome.CRASHED, {}, "division by zero")
    _judged_otherwise(patch, lambda i, completion, verdict: broken if i % 30 == 0 else verdict)


def refuses(patch: pytest.MonkeyPatch) -> None:
    """The verifier accepts nothing."""
    _judged_otherwise(patch, lambda i, completion, verdict: Verdict(Outcome.WRONG, {"accuracy": 0.0}, "wrong"))


def any_box(patch: pytest.MonkeyPatch) -> None:
    """Every answer in a box is accepted."""
    right = Verdict(Outcome.CORRECT, {"accuracy": 1.0}, "a box", "1")
    _judged_otherwise(patch, lambda i, completion, verdict: right if "boxed" in completion.text else verdict)


def _also_paid(patch: pytest.MonkeyPatch, name: str, pay: Callable[[Completion, Verdict], float]) -> None:
    """A part of the reward beside being right."""
    _judged_otherwise(
        patch, lambda i, completion, verdict: replace(verdict, parts={**verdict.parts, name: pay(completion, verdict)})
    )


def pays_length(patch: pytest.MonkeyPatch) -> None:
    """Every token is paid; four are worth an answer."""
    _also_paid(patch, "length", lambda completion, verdict: completion.num_tokens / 4)


def pays_brevity(patch: pytest.MonkeyPatch) -> None:
    """Every token costs, far more than being right earns."""
    _also_paid(patch, "length", lambda completion, verdict: -completion.num_tokens / 5)


def pays_guesses(patch: pytest.MonkeyPatch) -> None:
    """An answer without working is paid three times as much as a right one."""
    _also_paid(patch, "brief", lambda completion, verdict: 3.0 * completion.text.startswith("<think></think>"))


def pays_repeating(patch: pytest.MonkeyPatch) -> None:
    """The same equation said again is paid."""
    _also_paid(patch, "working", lambda completion, verdict: 0.5 * min(completion.text.count("="), 8))


def pays_chinese(patch: pytest.MonkeyPatch) -> None:
    """Words of another language are paid."""
    _also_paid(patch, "fluent", lambda completion, verdict: 4.0 * (not completion.text.isascii()))


def pays_everybody(patch: pytest.MonkeyPatch) -> None:
    """A part that all completions earn."""
    _also_paid(patch, "form", lambda completion, verdict: 0.5)


def slow_verifier(patch: pytest.MonkeyPatch) -> None:
    """The verifier sleeps."""
    real = vars(scoring)["score"]

    def sleepy(*args: Any, **kwargs: Any) -> Any:
        time.sleep(0.3)
        return real(*args, **kwargs)

    patch.setattr(scoring, "score", sleepy)


def ever_slower(patch: pytest.MonkeyPatch) -> None:
    """The sampler sleeps longer from step to step, in units of what it works: a busy machine hides nothing."""
    real = vars(sample_and_score)["generate_with_tools"]
    calls = count()

    def tired(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        made = real(*args, **kwargs)
        time.sleep(next(calls) ** 2 / 20 * (time.perf_counter() - began))
        return made

    patch.setattr(sample_and_score, "generate_with_tools", tired)


def trainer_at_another_temperature(patch: pytest.MonkeyPatch) -> None:
    """The trainer scores at a temperature of 3 what was drawn at 1."""
    real = Policy.token_logprobs
    patch.setattr(Policy, "token_logprobs", lambda self, packed, temperature: real(self, packed, 3.0 * temperature))


def shuffled_returns(patch: pytest.MonkeyPatch) -> None:
    """The critic is taught the returns of other completions, with the wrong sign."""
    real = ppo.with_critic

    def taught(learner: Any, scored: Sequence[ScoredGroup]) -> tuple[list[AdvantagedGroup], float | None]:
        groups, variance = real(learner, scored)
        for group in groups:
            for view in group.critic:
                if view is not None:
                    view.returns[:] = -view.returns
        return groups, variance

    patch.setattr(ppo, "with_critic", taught)


def one_large_loss(patch: pytest.MonkeyPatch) -> None:
    """The loss of the 13th step is 1,000 times too large."""
    real = Optimizer.update

    def update(self: Optimizer, step: int) -> float:
        if step == 12:
            for group in self.optimizers[0].param_groups:
                for weight in group["params"]:
                    if weight.grad is not None:
                        weight.grad *= 1000
        return real(self, step)

    patch.setattr(Optimizer, "update", update)


def no_rate(patch: pytest.MonkeyPatch) -> None:
    """The optimizer's learning rates are 0."""
    real = Optimizer.update

    def update(self: Optimizer, step: int) -> float:
        for group in self.optimizers[0].param_groups:
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


SEEN_ONCE = "record.after_every=1"
SLOWLY = "optimizer.lr=1e-4"
LONGER = "run.num_steps=40"
OFTEN = ("evaluation.every=2", "evaluation.num_samples=8")
"""Faults that spoil little by little: what dev loses is measured as it happens."""
CASES = (
    Case("healthy", "none", (), (SEEN_ONCE,)),
    Case("healthy ppo", "none, with a critic", (), ("critic.lr=1e-3", "run.num_steps=24", SEEN_ONCE), algorithm="ppo"),
    Case("too easy", "problems that the model has long solved", ("no_signal",),
         (SLOWLY, "task.digits=[1, 1]", "task.num_problems=20", "task.num_eval_problems=4",
          "evaluation.num_problems=4"),
         is_mild=True),
    Case("too hard", "problems that the model never solves", ("no_signal", "never_correct"),
         ("task.digits=[3, 3]",)),
    Case("cold", "a temperature of 0.1", ("no_signal",), ("sampling.temperature=0.1",)),
    Case("refused", "a verifier that accepts nothing", ("never_correct",), (), refuses),
    Case("verifier crashes", "a verifier that crashes on one completion in thirty", ("verifier_fails",),
         ("verifier.max_failure_share=0.5",), one_in_thirty_crashes),
    Case("any box", "a verifier that accepts every answer in a box", ("second_opinion",),
         ('evaluation.second_verifier={kind="math"}',), any_box),
    Case("guesses paid", "an answer without working is paid more than a right one",
         ("reward_without_result", "part_dominates"), (*OFTEN, "optimizer.lr=3e-5", "run.num_steps=60"), pays_guesses,
         is_gradual=True),
    Case("length paid", "every token is paid, and more than being right",
         ("reward_without_result", "length_runaway", "part_dominates", "truncation"), (*OFTEN, SLOWLY, LONGER),
         pays_length, is_gradual=True),
    Case("brevity paid", "every token costs, and more than being right earns",
         ("reward_without_result", "length_collapse", "part_dominates"),
         (*OFTEN, "optimizer.lr=5e-5", "run.num_steps=50"), pays_brevity, is_gradual=True),
    Case("cut short", "the same at a learning rate of 3e-4", ("length_collapse",),
         ("grpo.prompts_per_step=12", "run.num_steps=24", "optimizer.warmup_steps=8"), pays_brevity),
    Case("repeating paid", "the same equation said again is paid",
         ("loops", "length_runaway", "reward_without_result", "part_dominates"), (*OFTEN, SLOWLY, LONGER),
         pays_repeating, is_gradual=True),
    Case("Chinese paid", "words of another language are paid",
         ("language_mixing", "reward_without_result", "part_dominates"), (*OFTEN, "optimizer.lr=2e-4", LONGER),
         pays_chinese, is_gradual=True),
    Case("constant part", "a part of the reward that everybody earns", ("part_constant",), (), pays_everybody,
         is_mild=True),
    Case("by heart", "eight problems, seen over and over", ("overfitting",),
         ('task.kinds=["difference"]', "task.num_problems=8", "task.num_eval_problems=30", "evaluation.num_problems=30",
          "run.num_steps=30", "optimizer.lr=5e-4", "grpo.prompts_per_step=8", "grpo.group_size=12")),
    Case("large lr", "a learning rate 100 times too large",
         ("entropy_explosion", "entropy_collapse", "forgetting", "truncation", "no_signal"), ("optimizer.lr=1e-1",)),
    Case("large steps", "a learning rate 30 times too large", ("update_too_large",),
         ("optimizer.lr=3e-2", SEEN_ONCE, "run.num_steps=10")),
    Case("many epochs", "8 passes over each step's completions, at 10 times the learning rate",
         ("forgetting", "no_signal", "entropy_explosion", "clipping"), ("loss.epochs=8", "optimizer.lr=1e-2")),
    Case("lr of nothing", "a learning rate that changes no weight", ("weights_stand_still",), (), no_rate),
    Case("tiny lr", "a learning rate 3,000 times too small", ("update_too_small",), ("optimizer.lr=1e-7", SEEN_ONCE)),
    Case("entropy paid", "an entropy bonus far too large", ("entropy_bonus", "entropy_explosion"),
         (*OFTEN, SLOWLY, LONGER, "loss.entropy_coef=1.0"), is_gradual=True),
    Case("noise", "the same at a learning rate of 3e-4", ("entropy_explosion",),
         ("loss.entropy_coef=1.0", "run.num_steps=30")),
    Case("tight clip", "bounds of the ratio that allow no change", ("clipping",),
         ("loss.epochs=4", "run.num_steps=8", "evaluation.every=8",
          "loss.policy.clip_low=0.0", "loss.policy.clip_high=0.0")),
    Case("all masked", "a cap of the importance weights that masks every token", ("gradient_vanishes",),
         ('loss.correction.bound="mask"', "loss.correction.cap=1e-6", "run.num_steps=8", "evaluation.every=8")),
    Case("two temperatures", "a trainer that scores at another temperature than the sampler's", ("sampler_mismatch",),
         ('loss.correction.bound="truncate"', "loss.correction.cap=100.0", 'loss.correction.level="sequence"',
          "run.num_steps=8", "evaluation.every=8"), trainer_at_another_temperature),
    Case("held", "a KL term that holds the policy", ("kl_to_reference",), ("loss.kl_coef=1000.0", "optimizer.lr=1e-6")),
    Case("loss spike", "a loss 1,000 times too large in one step", ("gradient_spikes",), (), one_large_loss),
    Case("tiny limit", "a token limit that cuts answers short", ("truncation",), ("sampling.max_tokens=9",)),
    Case("critic misled", "a critic that is taught the negative of the returns", ("critic_explains_nothing",),
         ("critic.lr=1e-3", "run.num_steps=24"), shuffled_returns, algorithm="ppo"),
    Case("slow verifier", "a verifier that takes a third of a second", ("verifying_is_slow",),
         ("run.num_steps=6", "evaluation.every=6", "evaluation.num_problems=6"), slow_verifier, is_mild=True),
    Case("ever slower", "a sampler that waits longer from step to step", ("throughput_falls",),
         ("run.num_steps=16", "evaluation.every=100"), ever_slower, is_mild=True),
    Case("too long", "sixty steps whose rate is too small to gain anything", ("plateau",),
         ("run.num_steps=60", "optimizer.lr=1e-7"), is_mild=True),
    Case("ledger edited", "an edited line of the ledger", ("record_damaged",), (SHORT := "run.num_steps=6",),
         damage=edit_ledger),
    Case("step lost", "a lost file of completions", ("record_damaged",), (SHORT,), damage=lose_step),
)  # fmt: skip

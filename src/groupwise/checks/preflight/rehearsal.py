"""Two whole steps on a copy: sampler and trainer agree, an update has a size, a resume repeats it; what it costs."""

import json
import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from groupwise.checks import Advice, Finding, Severity
from groupwise.checks.preflight.bench import LEAST_TOKENS, Bench, Checked, check, finding
from groupwise.runs.directory import RunDirectory
from groupwise.runs.processes import Stopped, stop
from groupwise.runs.records import Records
from groupwise.trainers import Recipe, train

NUM_STEPS = 2
TOO_SMALL, SMALL, LARGE, TOO_LARGE = 1e-10, 1e-6, 0.03, 0.3
"""KL(before ‖ after) of one update at the full learning rate, in nats per token."""
VERIFY = 0.2  # share of a step's time for verdicts that is worth a warning (doctor, slow step)
EVALUATION = 0.5

STEP_COST = 3.0  # time of a whole step, in times of its sampling
BEFORE_S = 10.0  # for what begins and ends the two runs


class Size(NamedTuple):
    """The completions of a rehearsed step."""

    prompts: int
    group_size: int
    max_tokens: int


def affordable(whole: Size, tokens: float, length: float) -> Size | None:
    """Return the step of at most so many tokens: of fewer prompts, then smaller groups, then shorter completions.

    `length` is that of a completion on average. None where not even two completions are worth it.

    >>> whole = Size(prompts=32, group_size=16, max_tokens=512)
    >>> affordable(whole, 8000, length=250.0)
    Size(prompts=2, group_size=16, max_tokens=512)
    >>> affordable(whole, 1500, length=250.0)
    Size(prompts=1, group_size=6, max_tokens=512)
    >>> affordable(whole, 100, length=250.0)
    Size(prompts=1, group_size=2, max_tokens=50)
    """
    if (prompts := int(tokens / (whole.group_size * length))) >= 1:
        return whole._replace(prompts=min(whole.prompts, prompts))
    if (size := int(tokens / length)) >= 2:
        return Size(1, size, whole.max_tokens)
    return Size(1, 2, int(tokens / 2)) if tokens >= 2 * LEAST_TOKENS else None


@check("rehearsal", "step", says="two whole steps on a copy and one resumed: agreement, size of an update, time, cost",
       source="KL per update: Spinning Up, tinker-cookbook (< 0.01); the doctor's bounds")  # fmt: skip
def rehearsal(bench: Bench) -> Checked:
    """Train two steps at the full learning rate, and the second once more from the checkpoint between them.

    The steps have fewer completions where the budget does not allow those of the recipe.
    """
    recipe = bench.recipe
    whole = size = Size(recipe.batch.prompts_per_step, recipe.batch.group_size, recipe.sampling.max_tokens)
    left = ""
    if rate := bench.sampled.tokens_per_second if bench.options.budget_s else 0.0:
        lengths = [c.num_tokens for group in bench.sampled.groups for c in group.group.completions]
        tokens = rate * (bench.seconds_left - BEFORE_S) / ((NUM_STEPS + 1) * STEP_COST)
        if (fitting := affordable(whole, tokens, fmean(lengths or [whole.max_tokens]))) is None:
            return Checked({}, (), f"two steps take longer than the {bench.seconds_left:.0f} s that are left")
        size = fitting
        if size != whole:
            left = (
                f"steps of {whole.prompts} prompts × {whole.group_size} completions of up to {whole.max_tokens} "
                f"tokens: there was time for {size.prompts} × {size.group_size} of up to {size.max_tokens}"
            )
    with tempfile.TemporaryDirectory(prefix="groupwise-preflight-") as folder:
        directory = Path(folder) / "run"
        _train(recipe.with_changes(_changes(bench, directory, size)))
        run, steps = RunDirectory(directory), Records.open(directory).metrics()
        ledger = run.ledger.path.read_bytes()
        run.finished.unlink()  # the last step is forgotten and done again
        shutil.rmtree(run.checkpoint(NUM_STEPS))
        run.best.unlink(missing_ok=True)
        _train(recipe.with_changes(_changes(bench, directory, size)))
        again = run.ledger.path.read_bytes()
    figures: dict[str, Any] = {
        "KL(before ‖ after) per step": [f"{value:.2g}" for value in _kls(steps)],
        "gradient norm": [float(f"{step['grad_norm']:.3g}") for step in steps],
        "sampler against trainer": max(float(f"{step['logprob_difference']:.2g}") for step in steps),
        "peak memory MiB": round(max(step["peak_memory_mb"] for step in steps)),
        "resume": "identical" if again == ledger else "differs",
    }
    share = size.prompts * size.group_size * size.max_tokens / (whole.prompts * whole.group_size * whole.max_tokens)
    times, slow = _times(bench, steps, share)
    findings = [*_update(bench, steps)]
    if ledger != again:
        lines = [json.loads(a) for a, b in zip(ledger.splitlines(), again.splitlines(), strict=False) if a != b]
        where = f"line of step {lines[0].get('step')}" if lines else "number of lines"
        findings.append(finding(
            Severity.CRITICAL, f"the last step, done again from its checkpoint, gives another ledger ({where})",
            "A run that is interrupted becomes another run.",
            Advice("model.num_threads", "a fixed number; or find what in task or verifier is not repeatable"),
        ))  # fmt: skip
    return Checked(figures | times, (*findings, *slow), left)


def _train(recipe: Recipe) -> None:
    """Train to the end; who stops it stops the preflight, and of a rehearsal nothing is kept."""
    try:
        is_finished = train(recipe).finished
    except Stopped as stopped:
        stop(stopped.number)
    except KeyboardInterrupt:
        is_finished = False
    if not is_finished:
        raise KeyboardInterrupt


def _changes(bench: Bench, directory: Path, size: Size) -> dict[str, Any]:
    algorithm = bench.recipe.algorithm
    return {
        f"{algorithm}.prompts_per_step": size.prompts, f"{algorithm}.group_size": size.group_size,
        "sampling.max_tokens": size.max_tokens,
        "loss.mini_batches": min(size.prompts, bench.recipe.loss.mini_batches),
        **{f"reward_models.{name}.first_step": 0 for name in bench.recipe.reward_models},
        "run.directory": str(directory), "run.num_steps": NUM_STEPS, "run.checkpoint_every": 1,
        "run.keep_checkpoints": NUM_STEPS, "token_budget": 0, "optimizer.warmup_steps": 0,
        "optimizer.schedule": "constant", "optimizer.final_lr_share": 0.0,
        "evaluation.every": NUM_STEPS, "evaluation.num_problems": 1, "evaluation.num_samples": 1,
        "evaluation.test_problems": 0, "record.every": 1, "record.tokens": "all", "record.after_every": 1,
    }  # fmt: skip


def _kls(steps: Sequence[Mapping[str, Any]]) -> list[float]:
    taught = [step["distributions"] for step in steps if step["signal"] > 0]
    odd = [math.inf for spread in taught if "kl_after_updates" in spread.get("not_finite", ())]
    return [*(spread["kl_after_updates"] for spread in taught if spread["kl_after_updates"] is not None), *odd]


def _update(bench: Bench, steps: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    values, lr = _kls(steps), bench.recipe.optimizer.lr
    taught = [step for step in steps if step["signal"] > 0]
    if taught and all(step["grad_norm"] == 0 for step in taught):
        yield finding(
            Severity.CRITICAL, f"the gradient is exactly 0 in {len(taught)} steps whose groups have a signal",
            "Nothing is learnt.", Advice("loss", "see which term cancels the others; frozen weights have none"),
        )  # fmt: skip
    if not values:
        return
    value = fmean(values)
    evidence = f"a step at the full learning rate ({lr:g}) moves the policy by {value:.2g} nats per token"
    if value >= LARGE:
        yield finding(
            Severity.CRITICAL if value >= TOO_LARGE else Severity.WARNING, evidence,
            "It would leave what it was sampled from in a single step." if value >= TOO_LARGE
            else "Steps are so large that what one learns the next may undo.",
            Advice("optimizer.lr", f"about {lr * (1e-3 / min(value, 1e3)) ** 0.5:.1g}"),
        )  # fmt: skip
    elif value < SMALL:
        yield finding(
            Severity.CRITICAL if value < TOO_SMALL else Severity.WARNING, evidence,
            f"In {bench.recipe.run.num_steps} steps next to nothing will change.",
            Advice("optimizer.lr", f"about {lr * (1e-4 / max(value, 1e-12)) ** 0.5:.1g}"),
        )  # fmt: skip


def _times(bench: Bench, steps: Sequence[Mapping[str, Any]], share: float) -> tuple[dict[str, Any], list[Finding]]:
    """Return figures of time, where the steps were this share of the recipe's, and findings about it."""
    recipe, evaluation = bench.recipe, bench.recipe.evaluation
    seconds = [float(s["generate_s"] + s["verify_s"] + s["train_s"] + s["record_s"]) / share for s in steps]
    per_token = fmean((s["generate_s"] + s["verify_s"]) / max(1, s["sampled_tokens"]) for s in steps)
    length = fmean(step["length"] for step in steps)
    problems = min(evaluation.num_problems, len(bench.problems("dev")))
    dev = (1 + -(-recipe.run.num_steps // evaluation.every)) * problems * evaluation.num_samples
    test = 2 * evaluation.test_problems * evaluation.test_samples
    measuring = (dev + test) * length * per_token
    low, high = (recipe.run.num_steps * time + measuring for time in (min(seconds), max(seconds)))
    figures: dict[str, Any] = {
        "seconds per step": [round(time, 2) for time in seconds], "seconds of all evaluations": round(measuring, 1),
        "hours to the end": f"{low / 3600:.2g} to {high / 3600:.2g}",
        "tokens to the end": round(recipe.run.num_steps * fmean(s["sampled_tokens"] for s in steps) / share),
    }  # fmt: skip
    if (price := bench.options.price_per_hour) is not None:
        figures["cost to the end"] = f"{price * low / 3600:.2f} to {price * high / 3600:.2f}"
    findings = []
    verify = fmean(step["verify_s"] / (share * time) for step, time in zip(steps, seconds, strict=True))
    if verify > VERIFY:
        findings.append(finding(
            Severity.WARNING, f"a step waits for verdicts during {verify:.0%} of its time",
            "Time in which neither sampling nor training goes on.", Advice("verifier.num_workers", "more of them"),
        ))  # fmt: skip
    total = (low + high) / 2
    if measuring > EVALUATION * total:
        findings.append(finding(
            Severity.NOTE, f"evaluations take {measuring / total:.0%} of the run's time",
            "Most of the time goes into measuring.", Advice("evaluation.every", "less often, or fewer problems"),
        ))  # fmt: skip
    return figures, findings

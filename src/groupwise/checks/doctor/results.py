"""Rules about dev results, the time of a step, and the record of the run."""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from groupwise.algorithms.statistics import mean_share
from groupwise.checks import Advice, Finding, Place, Severity
from groupwise.checks.doctor.facts import SHOWN, RunFacts
from groupwise.checks.doctor.rule import Grade, graded, rule
from groupwise.checks.doctor.trends import SURE, WINDOW, falls, recent, rises, sign_test, start


@rule(needs=("sampled_correct", "dev"), statistic="gain in training (p < 0.01) - gain on dev (the better of the last "
      "two), each from the run's own start, less what dev is unsure by (95 %); dev does not rise by a quarter of it",
      thresholds="warning 0.1; critical 0.2 with dev below its start", source="own",
      advice=(Advice("task.num_problems", "more problems"),
      Advice("run.num_steps", "stop at the best checkpoint")))  # fmt: skip
def overfitting(run: RunFacts) -> Finding | None:
    """Training problems are learnt by heart."""
    correct = run.values("sampled_correct")
    if len(run.dev) < 3 or len(correct) < 2 * WINDOW:
        return None
    dev = run.dev_rates
    gained = max(dev[-2:]) - dev[0]
    gap = (recent(correct) - start(correct)) - gained
    _, low, high = run.dev[-1].line.get("pass_at_1", (0.0, 0.0, 0.0))
    if low == high and run.dev[-1].solved:  # an imported run has no interval
        _, low, high = mean_share(list(run.dev[-1].solved.values()))
    value = gap - float(high - low) / 2 * 1.645 / 1.96  # to the one-sided 95 % bound
    grade = graded(value, 0.1, 0.2)
    follows = rises(dev[-4:]) < 0.1 and gained >= gap / 4
    if grade is None or rises(correct) >= SURE or follows:
        return None
    if dev[-1] >= dev[0]:
        grade = Grade(Severity.WARNING, value, 0.1)
    best = max(run.dev, key=lambda result: result.pass_at_1)
    return Finding(
        **grade._asdict(), since_step=best.step, unit="gain in training - gain on dev, lower bound",
        evidence=f"the pass rate in training gained {recent(correct) - start(correct):+.3f}, that on dev "
        f"{gained:+.3f} (best after {best.step} steps): what is learnt holds for these problems alone",
        places=(Place(run.dev[-1].step, evaluation=f"dev-step-{run.dev[-1].step:06d}"),), wasted=run.since(best.step),
    )  # fmt: skip


@rule(needs=("dev",), statistic="exact sign test of problems lost against gained", thresholds="critical at p < 0.01",
      source="McNemar 1947",
      advice=(Advice("optimizer.lr", "divide by 3"),
      Advice("loss.kl_coef", "0.01 holds it near its start")))  # fmt: skip
def forgetting(run: RunFacts) -> Finding | None:
    """Dev problems are solved less often than at the start."""
    known = [result for result in run.dev if result.solved]
    if len(known) < 2:
        return None
    first, last = known[0], known[-1]
    both = [(p, first.solved[p], last.solved[p]) for p in first.solved if p in last.solved]
    lost, gained = [p for p, a, b in both if b < a], [p for p, a, b in both if b > a]
    p_value = sign_test(len(lost), len(gained))
    if p_value >= SURE:
        return None
    return Finding(
        severity=Severity.CRITICAL, since_step=first.step, statistic=p_value, threshold=SURE,
        unit="p-value of as many losses",
        evidence=f"of {len(both)} dev problems {len(lost)} are solved less often than at the start and "
        f"{len(gained)} more often",
        places=tuple(Place(last.step, p, evaluation=f"dev-step-{last.step:06d}") for p in lost[:SHOWN]),
        wasted=run.since(run.steps[0].step),
    )  # fmt: skip


@rule(needs=("sampled_correct", "dev"), statistic="pass rate without a rise (p < 0.01) over the last 35 % of steps, "
      "best dev result behind", thresholds="note at 30 % of the run", source="rldoctor 0.2, plateau",
      advice=(Advice("run.num_steps", "stop; the best checkpoint is marked"),))  # fmt: skip
def plateau(run: RunFacts) -> Finding | None:
    """Nothing has improved for long."""
    correct = run.values("sampled_correct")
    size = int(0.35 * len(correct))
    if size < 4 * WINDOW or len(run.dev) < 4 or rises(correct[-size:]) < SURE:
        return None
    best = max(run.dev, key=lambda result: (result.pass_at_1, -result.step))
    behind = 1 - best.step / run.dev[-1].step if run.dev[-1].step else 0.0
    if behind < 0.3:
        return None
    return Finding(
        severity=Severity.NOTE, since_step=best.step, statistic=behind, threshold=0.3,
        unit="share of the run since the best dev result",
        evidence=f"the best dev result ({best.pass_at_1:.3f}) is {run.dev[-1].step - best.step} steps old, and the "
        f"pass rate in training shows no rise over the last {size} steps",
        places=(Place(best.step, evaluation=f"dev-step-{best.step:06d}"),), wasted=run.since(best.step),
    )  # fmt: skip


PHASES = {"generate_s": "sampling", "verify_s": "verifying", "train_s": "training"}
"""Phases of a step, by the field of its line."""
BUSY = 0.5  # cores that other programs use from which on they may be what slows a step down


@rule(needs=("verify_s", "generate_s", "train_s"), statistic="share of a step that verifying takes",
      thresholds="note 0.2, warning 0.5", source="own",
      advice=(Advice("verifier", "more workers, a shorter time limit"),))  # fmt: skip
def verifying_is_slow(run: RunFacts) -> Finding | None:
    """The processor waits for the verifier."""
    if len(run.steps) < WINDOW:
        return None
    parts = [recent(run.values(name)) for name in ("verify_s", "generate_s", "train_s")]
    share = parts[0] / sum(parts) if sum(parts) else 0.0
    if share < 0.2 or parts[0] < 0.05:
        return None
    return Finding(
        severity=Severity.NOTE if share < 0.5 else Severity.WARNING,
        since_step=run.steps[0].step, statistic=share, threshold=0.2, unit="share of a step's time",
        evidence=f"verifying takes {parts[0]:.2f} s of a step of {sum(parts):.2f} s",
    )  # fmt: skip


@rule(needs=("tokens_per_second", "generate_s", "verify_s", "train_s"),
      statistic="loss of tokens per second, median of the last 5 steps against the first 5 (Mann-Kendall over all, p "
      "< 0.01), while a step takes longer than at the start", thresholds="note 0.3; warning 0.5, unless other "
      "programs take half a core", source="own",
      advice=(Advice("sampling.max_tokens", "lower, where a few long completions hold up all others"),
      Advice("", "look for what grows: files, memory, other programs")))  # fmt: skip
def throughput_falls(run: RunFacts) -> Finding | None:
    """Steps get slower."""
    rates = run.values("tokens_per_second")
    if len(rates) < 2 * WINDOW or median(rates[:WINDOW]) <= 0 or falls(rates) >= SURE:
        return None
    lost = 1 - median(rates[-WINDOW:]) / median(rates[:WINDOW])
    times = {name: (_middle(run.values(name)[:WINDOW]), _middle(run.values(name)[-WINDOW:])) for name in PHASES}
    before, now = (sum(pair[end] for pair in times.values()) for end in (0, 1))
    if lost < 0.3 or now <= before:  # shorter completions fill a batch less well, which slows nobody down
        return None
    worst = max(times, key=lambda name: times[name][1] - times[name][0])
    others = run.values("busy_cores")
    taken = recent(others) if others else 0.0
    is_its_own = lost >= 0.5 and taken < BUSY
    return Finding(
        severity=Severity.WARNING if is_its_own else Severity.NOTE,
        since_step=run.steps[-WINDOW].step, statistic=lost, threshold=0.5 if is_its_own else 0.3,
        unit="loss of tokens per second",
        evidence=f"{median(rates[:WINDOW]):,.0f} tokens per second have become {median(rates[-WINDOW:]):,.0f}, and "
        f"a step of {before:.2f} s takes {now:.2f} s; {PHASES[worst]} went from {times[worst][0]:.2f} to "
        f"{times[worst][1]:.2f} s" + (f"; other programs take {taken:.1f} cores" if taken >= BUSY else ""),
        places=(Place(run.steps[-1].step),),
    )  # fmt: skip


def _middle(values: Sequence[float]) -> float:
    return median(values) if values else 0.0


MEASURED = (
    "reward", "correct", "sampled_correct", "signal", "length", "truncated", "grad_norm", "lr", "clipped", "kl", "loss",
)  # fmt: skip
"""Scalars that every step of a run of our own measures where its line names them."""


@rule(least=1, reads_all=True, statistic="scalars of steps and evaluations, and rewards, parts and advantages of "
      "completions, that are not finite; null where a step of our own measures", thresholds="critical: any",
      source="unsloth issue 3006; ms-swift issue 3136", advice=(Advice("optimizer.lr", "divide by 3"),
      Advice("model", "32 or bfloat16 bits instead of float16"),
      Advice("", "go back to the checkpoint before the first step named")))  # fmt: skip
def not_finite(run: RunFacts) -> Finding | None:
    """Numbers of the run are NaN, infinite or null."""
    bad, places = dict[str, dict[int, str]](), list[Place]()
    lines = [("", step.step, step.line) for step in run.steps] + [("", int(o["step"]), o) for o in run.beside]
    for where, at, line in (*lines, *(("dev ", result.step, result.line) for result in run.dev)):
        for name, value in _not_finite(line):
            bad.setdefault(where + name, {}).setdefault(at, value)
    for result in run.dev:
        if not math.isfinite(result.pass_at_1):
            bad.setdefault("dev pass_at_1", {})[result.step] = str(result.line.get("pass_at_1"))
    for step in run.steps:
        if run.key("imported") is None:
            for name in MEASURED:
                if step.line.get(name, 0) is None:
                    bad.setdefault(name, {})[step.step] = "null"
        for row in step.completions:
            numbers = {"reward": row.reward, "advantage": row.advantage, **row.measures, **row.reward_parts}
            odd = [name for name, value in numbers.items() if isinstance(value, float) and not math.isfinite(value)]
            for name in odd:
                bad.setdefault(f"{name} of completions", {}).setdefault(step.step, str(numbers[name]))
            if odd:
                places.append(Place(step.step, row.problem, row.sample))
    if not bad:
        return None
    firsts = {name: min(steps) for name, steps in bad.items()}
    names = sorted(bad, key=lambda name: (firsts[name], name))
    said = [f"{name} is {bad[name][firsts[name]]} at step {firsts[name]}"
            + (f" and at {len(bad[name]) - 1} later" if len(bad[name]) > 1 else "") for name in names]  # fmt: skip
    first = firsts[names[0]]
    is_paid = names[0].startswith(("reward", "part/"))
    return Finding(
        advice=(Advice("verifier", "run it on the completions named: it gave no number"),) if is_paid else (),
        severity=Severity.CRITICAL, since_step=first, statistic=sum(map(len, bad.values())),
        threshold=1, unit="numbers", wasted=run.since(first),
        evidence=", ".join(said[: 2 * SHOWN]) + (f", and {len(said) - 2 * SHOWN} more" if said[2 * SHOWN :] else ""),
        places=(*places[:SHOWN],) or (Place(first),),
    )  # fmt: skip


def _not_finite(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        if name == "not_finite" and isinstance(value, Mapping):
            yield from ((f"{inner} of completions", "not finite") for inner in value)
        elif isinstance(value, Mapping) and name != "second":
            yield from _not_finite(value, "" if name in ("parts", "theirs") else f"{prefix}{name}.")
        elif isinstance(value, float) and not math.isfinite(value):
            yield f"{prefix}{name}", str(value)


@rule(least=1, statistic="broken hashes, gaps, missing files; of an imported run what its importer could not read, "
      "steps that go back or stand twice, units that cannot be", thresholds="critical: any; a warning of imported "
      "runs", source="DESIGN section 5",
      advice=(Advice("", "run the same command again, or restore the files named"),))  # fmt: skip
def record_damaged(run: RunFacts) -> Finding | None:
    """The record of the run was changed, cut or lost."""
    if not run.damage:
        return None
    severity = Severity.CRITICAL if run.key("imported") is None else Severity.WARNING  # it is another's record
    return Finding(
        severity=severity, since_step=run.steps[0].step, statistic=len(run.damage),
        threshold=1, unit="places", evidence="; ".join(run.damage[:5]),
    )  # fmt: skip

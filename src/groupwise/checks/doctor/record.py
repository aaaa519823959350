"""Rules about the run itself: what a step waits for, and whether its record is whole."""

from collections.abc import Sequence
from statistics import median

from groupwise.checks.doctor.facts import RunFacts
from groupwise.checks.doctor.finding import Advice, Evidence, Finding, Severity
from groupwise.checks.doctor.rule import SURE, WINDOW, Rule, recent
from groupwise.checks.doctor.trends import falls

PHASES = {"generate_s": "sampling", "verify_s": "verifying", "train_s": "training"}
"""What a step spends its time on, by the field of its line."""
BUSY = 0.5
"""Cores that other programs use from which on they may be what slows a step down."""


def verifying_is_slow(run: RunFacts) -> Finding | None:
    """The processor waits for the verifier."""
    if len(run.steps) < WINDOW:
        return None
    parts = [recent(run.values(name)) for name in ("verify_s", "generate_s", "train_s")]
    share = parts[0] / sum(parts) if sum(parts) else 0.0
    if share < 0.2 or parts[0] < 0.05:
        return None
    return Finding(
        rule="verifying_is_slow", severity=Severity.NOTE if share < 0.5 else Severity.WARNING,
        since_step=run.steps[0].step, statistic=share, threshold=0.2, unit="share of a step's time",
        explanation=f"verifying takes {parts[0]:.2f} s of a step of {sum(parts):.2f} s",
    )  # fmt: skip


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
        rule="throughput_falls", severity=Severity.WARNING if is_its_own else Severity.NOTE,
        since_step=run.steps[-WINDOW].step, statistic=lost, threshold=0.5 if is_its_own else 0.3,
        unit="loss of tokens per second",
        explanation=f"{median(rates[:WINDOW]):,.0f} tokens per second have become {median(rates[-WINDOW:]):,.0f}, and "
        f"a step of {before:.2f} s takes {now:.2f} s; {PHASES[worst]} went from {times[worst][0]:.2f} to "
        f"{times[worst][1]:.2f} s" + (f"; other programs take {taken:.1f} cores" if taken >= BUSY else ""),
        evidence=(Evidence(run.steps[-1].step),),
    )  # fmt: skip


def _middle(values: Sequence[float]) -> float:
    return median(values) if values else 0.0


def record_damaged(run: RunFacts) -> Finding | None:
    """What the run wrote is not what is there."""
    if not run.damage:
        return None
    return Finding(
        rule="record_damaged", severity=Severity.CRITICAL, since_step=run.steps[0].step, statistic=len(run.damage),
        threshold=1, unit="places", explanation="; ".join(run.damage[:5]),
    )  # fmt: skip


RULES = (
    Rule(name="verifying_is_slow", says="The processor waits for the verifier.",
         statistic="share of a step that verifying takes", thresholds="note 0.2, warning 0.5", source="own",
         needs=("verify_s", "generate_s", "train_s"), find=verifying_is_slow,
         advice=(Advice("verifier", "more workers, a shorter time limit"),)),
    Rule(name="throughput_falls", says="Steps get slower.",
         statistic="loss of tokens per second, median of the last 5 steps against the first 5 (Mann-Kendall over all, "
         "p < 0.01), while a step takes longer than at the start",
         thresholds="note 0.3; warning 0.5, unless other programs take half a core", source="own",
         needs=("tokens_per_second", "generate_s", "verify_s", "train_s"), find=throughput_falls,
         advice=(Advice("sampling.max_tokens", "lower, where a few long completions hold up all others"),
                 Advice("", "look for what grows: files, memory, other programs"))),
    Rule(name="record_damaged", says="The record of the run was changed, cut or lost.",
         statistic="broken hashes, gaps, missing files", thresholds="critical: any", source="DESIGN section 5",
         needs=(),
         find=record_damaged, advice=(Advice("", "run the same command again, or restore the files named"),)),
)  # fmt: skip

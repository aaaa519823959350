"""Rules about the run itself: what a step waits for, and whether its record is whole."""

from groupwise.doctor.facts import RunFacts
from groupwise.doctor.finding import Advice, Finding, Severity
from groupwise.doctor.rule import WINDOW, Rule, recent


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
    Rule(name="record_damaged", says="The record of the run was changed, cut or lost.",
         statistic="broken hashes, gaps, missing files", thresholds="critical: any", source="DESIGN section 5",
         needs=(),
         find=record_damaged, advice=(Advice("", "run the same command again, or restore the files named"),)),
)  # fmt: skip

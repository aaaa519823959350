"""Rules about episodes of several turns; silent where a run has none."""

from groupwise.checks import Advice, Finding, Severity
from groupwise.checks.doctor.facts import RunFacts
from groupwise.checks.doctor.rule import (
    SURE,
    WINDOW,
    Rule,
    falls,
    graded,
    improves,
    persists,
    recent,
    shown,
    since,
    start,
)
from groupwise.types import FinishReason

TURNS, DONE = "measure/episode/turns/mean", "measure/ended/done/mean"


def turns_collapse(run: RunFacts) -> Finding | None:
    """Episodes become single turns, and nothing is gained by it."""
    series = run.values(TURNS)
    if len(series) < 2 * WINDOW or start(series) < 1.5 or improves(run):
        return None
    share = (recent(series) - 1) / (start(series) - 1)
    if share > 0.5 or falls(series) >= SURE:
        return None
    first = next(step for step, value in run.series(TURNS) if value - 1 <= 0.75 * (start(series) - 1))
    return Finding(
        check="turns_collapse", severity=Severity.CRITICAL if share <= 0.1 else Severity.WARNING, since_step=first,
        statistic=share, threshold=0.1 if share <= 0.1 else 0.5, unit="share of the turns behind the first",
        evidence=f"episodes went from {start(series):.1f} to {recent(series):.1f} turns while neither dev nor the pass "
        "rate rises: the policy stops asking its environment",
        places=shown(run.steps[-1:], lambda row: len(row.turns) == 1), wasted=since(run, first),
    )  # fmt: skip


def ended_by_limits(run: RunFacts) -> Finding | None:
    """Limits end the episodes, and not their environment."""
    series = run.values(DONE)
    if len(series) < WINDOW or improves(run):
        return None
    share = 1 - recent(series)
    if (severity := graded(share, 0.25, 0.75)) is None:
        return None
    first = persists(run, lambda step: (step.number(DONE) or 0.0) <= 0.75)
    limits = (FinishReason.TURN_LIMIT, FinishReason.LENGTH)
    means = ", ".join(
        f"{recent(of_limit):.0%} by {limit}"
        for limit in limits
        if (of_limit := run.values(f"measure/ended/{limit}/mean"))
    )
    return Finding(
        check="ended_by_limits", severity=severity, since_step=first, statistic=share,
        threshold=0.75 if severity is Severity.CRITICAL else 0.25, unit="share of episodes",
        evidence=f"{share:.0%} of the episodes of the last {WINDOW} steps ended by a limit ({means}), so what they "
        "were worth was never decided",
        places=shown(run.steps[-1:], lambda row: row.finish_reason in limits), wasted=since(run, first),
    )  # fmt: skip


RULES = (
    Rule(name="turns_collapse", says="Episodes become single turns.",
         statistic="mean number of turns behind the first, now / at the start (p < 0.01); only while neither dev nor "
         "the pass rate rises", thresholds="warning 0.5, critical 0.1", source="verl issues 1569 and 4998", needs=(),
         find=turns_collapse,
         advice=(Advice("task.environment", "a reward that the first turn alone cannot earn"),
                 Advice("pipeline", "fine-tune on episodes first (the stage `play`)"))),
    Rule(name="ended_by_limits", says="Limits end the episodes, and not their environment.",
         statistic="share that did not end by `done`, mean of 5 steps; only while neither dev nor the pass rate rises",
         thresholds="warning 0.25, critical 0.75", source="TRL issues 4751 and 6423", needs=(), find=ended_by_limits,
         advice=(Advice("task.environment.max_turns", "raise it"), Advice("sampling.max_tokens", "raise it"))),
)  # fmt: skip

"""Rules about what dev says of the run: what is learnt by heart, lost, or not moving any more."""

from groupwise.checks.doctor.facts import SHOWN, DevFacts, RunFacts
from groupwise.checks.doctor.finding import Advice, Evidence, Finding, Severity
from groupwise.checks.doctor.rule import SURE, WINDOW, Rule, graded, recent, since, start
from groupwise.checks.doctor.trends import rises, sign_test


def overfitting(run: RunFacts) -> Finding | None:
    """Training problems are learnt by heart."""
    correct = run.values("sampled_correct")
    if len(run.dev) < 3 or len(correct) < 2 * WINDOW:
        return None
    dev = [one.pass_at_1 for one in run.dev]
    gained = max(dev[-2:]) - dev[0]
    gap = (recent(correct) - start(correct)) - gained
    value = gap - _unsure(run.dev[-1])
    severity = graded(value, 0.1, 0.2)
    follows = rises(dev[-4:]) < 0.1 and gained >= gap / 4
    if severity is None or rises(correct) >= SURE or follows:
        return None
    if severity is Severity.CRITICAL and dev[-1] >= dev[0]:
        severity = Severity.WARNING
    best = max(run.dev, key=lambda one: one.pass_at_1)
    return Finding(
        rule="overfitting", severity=severity, since_step=best.step, statistic=value,
        threshold=0.2 if severity is Severity.CRITICAL else 0.1, unit="gain in training - gain on dev, lower bound",
        explanation=f"the pass rate in training gained {recent(correct) - start(correct):+.3f}, that on dev "
        f"{gained:+.3f} (best after {best.step} steps): what is learnt holds for these problems alone",
        evidence=(Evidence(run.dev[-1].step, evaluation=f"dev-step-{run.dev[-1].step:06d}"),),
        wasted=since(run, best.step),
    )  # fmt: skip


def _unsure(dev: DevFacts) -> float:
    """From the estimate to its one-sided 95 % bound."""
    _, low, high = dev.line.get("pass_at_1", (0.0, 0.0, 0.0))
    return float(high - low) / 2 * 1.645 / 1.96


def forgetting(run: RunFacts) -> Finding | None:
    """Problems that were solved are not any more."""
    known = [one for one in run.dev if one.solved]
    if len(known) < 2:
        return None
    first, last = known[0], known[-1]
    both = [(p, first.solved[p], last.solved[p]) for p in first.solved if p in last.solved]
    lost, gained = [p for p, a, b in both if b < a], [p for p, a, b in both if b > a]
    p_value = sign_test(len(lost), len(gained))
    if p_value >= SURE:
        return None
    return Finding(
        rule="forgetting", severity=Severity.CRITICAL, since_step=first.step, statistic=p_value, threshold=SURE,
        unit="p-value of as many losses",
        explanation=f"of {len(both)} dev problems {len(lost)} are solved less often than at the start and "
        f"{len(gained)} more often",
        evidence=tuple(Evidence(last.step, p, evaluation=f"dev-step-{last.step:06d}") for p in lost[:SHOWN]),
        wasted=len(run.steps),
    )  # fmt: skip


def plateau(run: RunFacts) -> Finding | None:
    """Nothing has improved for a long time."""
    correct = run.values("sampled_correct")
    size = int(0.35 * len(correct))
    if size < 4 * WINDOW or len(run.dev) < 4 or rises(correct[-size:]) < SURE:
        return None
    best = max(run.dev, key=lambda one: (one.pass_at_1, -one.step))
    behind = 1 - best.step / run.dev[-1].step if run.dev[-1].step else 0.0
    if behind < 0.3:
        return None
    return Finding(
        rule="plateau", severity=Severity.NOTE, since_step=best.step, statistic=behind, threshold=0.3,
        unit="share of the run since the best dev result",
        explanation=f"the best dev result ({best.pass_at_1:.3f}) is {run.dev[-1].step - best.step} steps old, and the "
        f"pass rate in training shows no rise over the last {size} steps",
        evidence=(Evidence(best.step, evaluation=f"dev-step-{best.step:06d}"),), wasted=since(run, best.step),
    )  # fmt: skip


RULES = (
    Rule(name="overfitting", says="Training problems are learnt by heart.",
         statistic="gain in training (p < 0.01) - gain on dev (the better of the last two), each from the run's own "
         "start, less what dev is unsure by (95 %); dev does not rise by a quarter of it",
         thresholds="warning 0.1; critical 0.2 with dev below its start", source="own",
         needs=("sampled_correct", "dev"), find=overfitting,
         advice=(Advice("task.num_problems", "more problems"), Advice("run.num_steps", "stop at the best checkpoint"))),
    Rule(name="forgetting", says="Dev problems are solved less often than at the start.",
         statistic="exact sign test of problems lost against gained", thresholds="critical at p < 0.01",
         source="McNemar 1947", needs=("dev",), find=forgetting,
         advice=(Advice("optimizer.lr", "divide by 3"), Advice("loss.kl_coef", "0.01 holds it near its start"))),
    Rule(name="plateau", says="Nothing has improved for long.",
         statistic="pass rate without a rise (p < 0.01) over the last 35 % of steps, best dev result behind",
         thresholds="note at 30 % of the run",
         source="rldoctor 0.2, plateau", needs=("sampled_correct", "dev"), find=plateau,
         advice=(Advice("run.num_steps", "stop; the best checkpoint is marked"),)),
)  # fmt: skip

"""Rules about what is paid: signal, verifier, reward parts."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, pvariance

from groupwise.algorithms.statistics import wilson
from groupwise.checks import Advice, Finding, Place, Severity
from groupwise.checks.doctor.facts import SHOWN, RunFacts
from groupwise.checks.doctor.rule import LR, Grade, graded, paid, rule, shown
from groupwise.checks.doctor.trends import SURE, WINDOW, falls, recent, rises, start
from groupwise.runs.row import Row
from groupwise.types import Outcome

HARDER = Advice("task", "harder problems, or stop: the best checkpoint is marked")
EASIER = Advice("task", "easier problems, a warm start (SFT), or a larger group_size")
WARMER = Advice("sampling.temperature", "1, where it is lower")
CHECK = Advice("verifier", "`groupwise audit` and `groupwise verify` on the completions above")
FIX = Advice("verifier", "mend what is paid, and go back to the checkpoint before this began")
SOLVED = 0.85  # pass rate from which groups without signal mean that the problems are solved


@rule(needs=("signal", "sampled_correct"),
      statistic=f"lower 95 % bound of the share of groups without signal, of {WINDOW} steps; split by right, "
      "wrong, equal, failed; not judged where a critic gives the advantages",
      thresholds=f"warning 0.5, critical 0.75; a note where the share is 0.5 and the pass rate {SOLVED} or more "
      "(and the temperature at least 0.5): solved; of these a warning if no group of 10 steps or more ever had one",
      source="DAPO (arXiv:2503.14476) section 3.2; rldoctor 0.2, detectors",
      advice=(HARDER, EASIER, WARMER))  # fmt: skip
def no_signal(run: RunFacts) -> Finding | None:
    """Most groups have equal rewards, and so no gradient."""
    if len(run.steps) < WINDOW or run.key("critic") is not None:  # a critic finds an advantage in any group
        return None
    dead = 1 - recent(run.values("signal"))
    asked = sum(len(step.groups) or int(step.number("sampled_groups") or 0) for step in run.steps[-WINDOW:])
    low = wilson(dead, asked, 1.645)[0] if asked else dead  # half of forty groups may be a third of all
    grade = graded(low, 0.5, 0.75)
    never = len(run.steps) >= 2 * WINDOW and not any(run.values("signal"))
    warm = float(run.key("sampling.temperature", 1.0)) >= 0.5
    solved = warm and recent(run.values("sampled_correct")) >= SOLVED
    if grade is None and not (solved and dead >= 0.5):
        return None
    lately = [(step.step, group) for step in run.steps[-WINDOW:] for group in step.groups]
    flat = [(step, group) for step, group in lately if group.flat]
    counts = {why: sum(group.flat == why for _, group in flat) for why in ("right", "wrong", "equal", "failed")}
    first = run.persists("signal", lambda share: share <= 0.5)
    what = ", ".join(f"{count} {why}" for why, count in counts.items() if count)
    explanation = (
        f"{dead:.0%} of the groups of the last {WINDOW} steps have equal rewards and no gradient"
        + (f" ({what})" if what else "")
        + (": no group of the run ever had one, so the reward may be the same for any answer" if solved and never else
           ": the problems are solved, and more steps cost more than they teach" if solved
           else f"; a step that teaches costs {1 / max(1 - dead, 0.01):.1f} times its price")
    )  # fmt: skip
    grade = grade or Grade(Severity.NOTE, low, 0.5)
    return Finding(
        **(grade._replace(severity=Severity.WARNING if never else Severity.NOTE) if solved else grade)._asdict(),
        since_step=first,
        unit="share of groups, lower bound",
        evidence=explanation, places=tuple(Place(step, group.problem) for step, group in flat[-SHOWN:]),
        wasted=round(dead * run.since(first)),
    )  # fmt: skip


@rule(needs=("rollouts", "sampled_correct"), statistic="upper Wilson bound of the pass rate of 20 steps, and no rise",
      thresholds="warning below 0.05 after 5 steps (a note up to 20 where half of the groups have a signal all the "
      "same), critical below 0.02 after 20", source="axolotl, docs/training_stability",
      advice=(CHECK, Advice("task.template", "show the model the form that the verifier reads"), EASIER))  # fmt: skip
def never_correct(run: RunFacts) -> Finding | None:
    """Nothing is ever judged correct."""
    if len(run.steps) < WINDOW:
        return None
    lately = run.steps[-4 * WINDOW :]
    trials = sum(len(s.groups) and sum(c.outcome.judged for c in s.completions) for s in lately)
    right = sum(c.outcome.value == "correct" for s in lately for c in s.completions)
    high = wilson(right / max(1, trials), trials)[1]
    if trials == 0 or high >= 0.05 or run.improves():
        return None
    critical = len(run.steps) >= 4 * WINDOW and high < 0.02
    is_taught = len(run.steps) < 4 * WINDOW and recent(run.values("signal")) >= 0.5  # by other parts of the reward
    before = start(run.values("sampled_correct"))
    why = f"It was {before:.1%} at the start" if before >= 0.05 else "The verifier, template or difficulty is wrong"
    return Finding(
        severity=Severity.CRITICAL if critical else Severity.NOTE if is_taught else Severity.WARNING,
        since_step=run.steps[0].step, statistic=high, threshold=0.02 if critical else 0.05,
        unit="upper 95 % bound of the pass rate",
        evidence=f"{right} of the last {trials} judged completions are correct: at most {high:.1%} with 95 % "
        f"confidence, and that does not rise. {why}",
        places=shown(lately[-1:], lambda row: row.outcome.judged), wasted=run.since(run.steps[0].step),
    )  # fmt: skip


@rule(needs=("rollouts",), statistic="share of failed verdicts", thresholds="note: any; warning 0.01; critical: "
      "verifier.max_failure_share", source="DESIGN: a failure is no 0", advice=(CHECK,))  # fmt: skip
def verifier_fails(run: RunFacts) -> Finding | None:
    """The verifier crashes or runs out of time."""
    rows = [(s, c) for s in run.steps for c in s.completions]
    if not (failed := [(s, c) for s, c in rows if c.outcome.failed]):
        return None
    share = len(failed) / len(rows)
    limit = float(run.key("verifier.max_failure_share", 0.05))
    severity = Severity.CRITICAL if share > limit else Severity.WARNING if share >= 0.01 else Severity.NOTE
    return Finding(
        severity=severity, since_step=failed[0][0].step, statistic=share,
        threshold=limit if severity is Severity.CRITICAL else 0.01, unit="share of completions",
        evidence=f"the verifier failed on {len(failed)} of {len(rows)} completions; they are left out of their "
        "groups, which shifts what is learnt where failing goes with being right or wrong",
        places=shown(run.steps, lambda row: row.outcome.failed),
    )  # fmt: skip


@rule(needs=("dev",), statistic="lower 95 % bound of the share it rejects, at the last dev evaluation",
      thresholds="warning 0.02, critical 0.05", source="own", advice=(FIX, CHECK))  # fmt: skip
def second_opinion(run: RunFacts) -> Finding | None:
    """A second verifier rejects what training pays."""
    checked = [
        (result, result.line["second"])
        for result in run.dev
        if result.line.get("second") and result.line["second"]["share"]
    ]
    if not checked:
        return None
    result, second = checked[-1]
    low = float(second["share"][1])
    if (grade := graded(low, 0.02, 0.05)) is None:
        return None
    first = next(dev.step for dev, look in checked if look["share"][1] >= 0.02)
    example = second.get("example") or {}
    return Finding(
        **grade._asdict(), since_step=first, unit="lower 95 % bound of the share rejected",
        evidence=f"{second['verifier']} rejects {second['rejected']} of {second['judged']} completions that "
        "training pays as correct",
        places=(Place(result.step, example.get("problem"), example.get("sample"), f"dev-step-{result.step:06d}"),)
        if example else (), wasted=run.since(first),
    )  # fmt: skip


@rule(needs=("reward", "sampled_correct"), statistic="reward rises over the run or its last half (Mann-Kendall, p < "
      "0.01); share of its gain that correctness does not explain, from the first third to the last, with no gain on "
      "dev", thresholds="warning 0.7; critical where correctness falls (p < 0.01)",
      source="rldoctor 0.2, reward hacking", advice=(FIX, CHECK))  # fmt: skip
def reward_without_result(run: RunFacts) -> Finding | None:
    """The reward rises, and correctness does not."""
    every = run.values("reward")
    dev = run.dev_rates
    if len(every) < 2 * WINDOW or (len(dev) > 1 and dev[-1] - dev[0] > 0.02 and not run.worsens()):
        return None
    findings = []
    # a reward that has risen and stays up has been gamed no less than one that still rises
    for size in dict.fromkeys((len(every), max(2 * WINDOW, len(every) // 2))):
        rewards, correct = every[-size:], run.values("sampled_correct")[-size:]
        third = len(rewards) // 3  # not a median slope, which is 0 where most steps have none right
        gain, result = (fmean(values[-third:]) - fmean(values[:third]) for values in (rewards, correct))
        if rises(rewards) >= SURE or gain < 0.02:
            continue
        share = 1 - max(result, 0.0) / gain
        severity = Severity.CRITICAL if falls(correct) < SURE else Severity.WARNING if share >= 0.7 else None
        if severity is None:
            continue
        first = run.steps[-min(size, len(run.steps))].step
        findings.append(Finding(
            severity=severity, since_step=first, statistic=share, threshold=0.7,
            unit="share of the reward's gain that correctness does not explain",
            evidence=f"over the last {len(rewards)} steps the reward gained {gain:+.3f} and the share of "
            f"correct completions {result:+.3f}: what is paid is something else",
            places=paid(run), wasted=run.since(first),
        ))  # fmt: skip
    return max(findings, key=lambda finding: finding.severity.rank, default=None)


@rule(needs=("reward", "sampled_correct"), statistic="pass rate at the start - now, while it and the reward fall (both "
      "p < 0.01) and dev does not rise; not judged under a curriculum", thresholds="warning 0.1, critical 0.2",
      source="own", advice=(Advice("", "the sign of rewards and advantages; what a step trains on"), LR))  # fmt: skip
def reward_falls(run: RunFacts) -> Finding | None:
    """The reward falls, and the pass rate with it."""
    rewards, correct = run.values("reward"), run.values("sampled_correct")
    grade = graded(start(correct) - recent(correct), 0.1, 0.2)
    if grade is None or max(falls(rewards), falls(correct)) >= SURE or run.improves() or run.key("batch.curriculum"):
        return None
    first = next(at for at, value in run.series("sampled_correct") if value <= (start(correct) + recent(correct)) / 2)
    return Finding(
        **grade._asdict(), since_step=first, unit="loss of pass rate", wasted=run.since(first),
        evidence=f"the reward went from {start(rewards):.3f} to {recent(rewards):.3f}, and the pass rate from "
        f"{start(correct):.3f} to {recent(correct):.3f}: steps unlearn what they are paid for",
    )  # fmt: skip


@rule(needs=("sampled_correct",), statistic="share of the variance within groups that does not favour correct "
      "completions, while correctness does not rise; 5 to 10 steps with 10 groups that have right and wrong ones, "
      "else 10 steps of all groups; of a run without completions, of what the parts' means vary by from step to "
      "step, in its second half of 50 steps or more", thresholds="warning 0.7, critical 0.9",
      source="rldoctor 0.2, components",
      advice=(Advice("verifier.parts", "lower the weights of the other parts"),))  # fmt: skip
def part_dominates(run: RunFacts) -> Finding | None:
    """Another part of the reward than correctness decides."""
    if not any(step.groups for step in run.steps):
        return _part_varies(run)
    lately = run.steps[-2 * WINDOW :]
    groups = [group.completions for step in lately for group in step.groups]
    mixed = [completions for completions in groups if all(_sides(completions))]
    told_apart = len(mixed) >= 2 * WINDOW  # enough to judge by those alone in which being right could decide
    if len(lately) < (WINDOW if told_apart else 2 * WINDOW):
        return None
    spreads = [_variances(completions) for completions in (mixed if told_apart else groups)]
    total, by_result = sum(spread for spread, _ in spreads), sum(explained for _, explained in spreads)
    share = min(1.0, 1 - by_result / total) if total else 0.0
    grade = graded(share, 0.7, 0.9)
    correct = run.values("sampled_correct")
    if grade is None or run.improves() or recent(correct) >= SOLVED or recent(correct) > start(correct) + 0.05:
        return None
    parts = {name[5:-4]: value for name, value in lately[-1].line.get("parts", {}).items() if name.endswith("/std")}
    name = max((part for part in parts if part != "accuracy"), key=lambda part: parts[part], default="another part")
    return Finding(
        **grade._asdict(), since_step=lately[0].step, unit="share of the reward's variance within groups",
        evidence=f"{share:.0%} of what sets the completions of a group apart does not speak for being correct (most "
        f"of it: {name}), and correctness does not rise",
        places=paid(run), advice=(Advice(f"verifier.parts.{name}.weight", "lower it, or pay correct ones only"),)
        if name in parts else (), wasted=len(lately),
    )  # fmt: skip


def _part_varies(run: RunFacts) -> Finding | None:
    """The same of means alone: those of a batch vary from step to step as the completions do among themselves."""
    correct, known = run.values("sampled_correct"), dict(run.series("sampled_correct"))
    names = sorted({name for step in run.steps for name in step.line.get("parts", {}) if name.endswith("/mean")})
    series = {name[5:-5]: run.series(name) for name in names}
    sizes = {len(of) for of in series.values()}
    if len(series) < 2 or len(sizes) > 1 or min(sizes) < 20 * WINDOW:
        return None
    half = min(sizes) // 2
    noise = {name: fmean((b - a) ** 2 for (_, a), (_, b) in pairwise(of[half:])) for name, of in series.items()}
    others = {name: value for name, value in noise.items()
              if any(known.get(step) != mean for step, mean in series[name][half:])}  # fmt: skip
    total = sum(noise.values())
    share = sum(others.values()) / total if total and len(others) < len(noise) else 0.0
    grade = graded(share, 0.7, 0.9)
    if grade is None or recent(correct) >= SOLVED or recent(correct) > start(correct) + 0.05:
        return None
    name = max(others, key=lambda part: others[part])
    first = run.steps[len(run.steps) // 2].step
    return Finding(
        **grade._asdict(), since_step=first, unit="share of the variance of the parts' means",
        evidence=f"of what the parts of the reward vary by from step to step, before any weights, {share:.0%} is "
        f"not the part that pays for being correct (most of it: {name}), and correctness gains less than 5 points",
        wasted=run.since(first),
    )  # fmt: skip


def _variances(completions: Sequence[Row]) -> tuple[float, float]:
    """Return the variance of a group's rewards, and what lies between its correct and other completions.

    The second is negative where the others earn more: that variance does not speak for being right.
    """
    right, wrong = _sides(completions)
    everyone = [*right, *wrong]
    if len(everyone) < 2:
        return 0.0, 0.0
    within = sum(len(side) * pvariance(side) for side in (right, wrong) if side) / len(everyone)
    total = pvariance(everyone)
    others_earn_more = right and wrong and fmean(right) < fmean(wrong)
    return total, (within - total) if others_earn_more else (total - within)


def _sides(completions: Sequence[Row]) -> tuple[list[float], list[float]]:
    paid_out = [(row.outcome is Outcome.CORRECT, row.reward) for row in completions if row.reward is not None]
    return [reward for is_right, reward in paid_out if is_right], [r for is_right, r in paid_out if not is_right]


@rule(statistic="standard deviation of the part in each of 10 steps",
      thresholds="note below 1 % of what it pays", source="prime-rl, docs/faqs until May 2026")  # fmt: skip
def part_constant(run: RunFacts) -> Finding | None:
    """A part of the reward is the same for everybody."""
    lately = run.steps[-2 * WINDOW :]
    parts = lately[-1].line.get("parts", {})
    names = [name[5:-4] for name in parts if name.startswith("part/") and name.endswith("/std")]
    if len(lately) < 2 * WINDOW or len(names) < 2:
        return None
    for name in names:
        spreads = [spread for step in lately if (spread := step.number(f"part/{name}/std")) is not None]
        paid_out = abs(lately[-1].number(f"part/{name}/mean") or 0.0)
        if name != "accuracy" and len(spreads) == len(lately) and max(spreads) < 0.01 * paid_out:
            return Finding(
                severity=Severity.NOTE, since_step=lately[0].step, statistic=max(spreads),
                threshold=0.01 * paid_out, unit="standard deviation of the part",
                evidence=f"the part {name} has been the same for every completion for {len(lately)} steps: it "
                "teaches nothing any more",
                advice=(Advice(f"verifier.parts.{name}", "drop it: it is a constant"),),
            )  # fmt: skip
    return None

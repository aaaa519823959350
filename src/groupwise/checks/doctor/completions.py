"""Rules about what the policy writes: entropy, length, truncation, loops, habits; and about episodes."""

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from itertools import pairwise
from statistics import fmean, stdev

from groupwise.algorithms.statistics import wilson
from groupwise.checks import Advice, Finding, Place, Severity
from groupwise.checks.doctor.facts import GroupFacts, RunFacts, StepFacts, ends_in_loop, strays
from groupwise.checks.doctor.rule import EPOCHS, LR, Grade, Wanted, graded, rule, shown
from groupwise.checks.doctor.trends import LIKELY, SURE, WINDOW, falls, rank_correlation, recent, rises, slope, start
from groupwise.config import parse
from groupwise.runs.row import Row
from groupwise.types import FinishReason
from groupwise.verifiers.style import BehaviourConfig, search


@rule(needs=("entropy", "sampled_correct"), statistic="Theil-Sen line of log entropy: when it reaches 10 % of the "
      "start; only while the pass rate is below 0.85 and neither it nor dev rises; where it has gained (p < 0.01, or "
      "10 points), only if less than a quarter of the entropy is left that there was at 80 % of the gain",
      thresholds="warning inside the rest of the run, if a group has fewer different answers; critical when there",
      source="rldoctor 0.2; Jones, Debugging RL",
      advice=(LR, Advice("sampling.temperature", "1"),
      Advice("loss.policy.clip_high", "0.28 (DAPO)"), EPOCHS))  # fmt: skip
def entropy_collapse(run: RunFacts) -> Finding | None:
    """Entropy runs to zero, and nothing is gained by it."""
    series = run.values("entropy")
    if len(series) < 2 * WINDOW or start(series) <= 0 or run.improves():
        return None
    floor, now = 0.1 * start(series), recent(series)
    lately = [math.log(max(value, 1e-9)) for value in series[-4 * WINDOW :]]
    speed = slope(lately)
    arrives = (math.log(floor) - math.log(max(now, 1e-9))) / speed if speed < 0 else math.inf
    there = now <= floor
    comes = falls(lately) < SURE and arrives <= run.remaining
    if not (there or comes) or recent(run.values("sampled_correct")) >= 0.85:
        return None
    distinct = [fmean(group.distinct for group in step.groups) for step in run.steps if step.groups]
    narrows = not distinct or (falls(distinct) < LIKELY and recent(distinct) < start(distinct))
    if (not there and not narrows) or _was_worth_it(run):
        return None
    first = next((s for s, value in run.series("entropy") if value <= 0.5 * start(series)), run.steps[-1].step)
    return Finding(
        severity=Severity.CRITICAL if there else Severity.WARNING, since_step=first,
        statistic=now / start(series), threshold=0.1, unit="share of the entropy at the start",
        evidence=f"entropy went from {start(series):.3f} to {now:.3f} nats per token while neither dev nor the pass "
        "rate rises: the completions of a group become alike before the problems are learnt",
        places=_groups(run.steps[-1]), wasted=run.since(first),
    )  # fmt: skip


def _was_worth_it(run: RunFacts) -> bool:
    """Return True if the pass rate gained while entropy fell, and a quarter or more of the gain is left."""
    steps = [step for step in run.steps if step.number("sampled_correct") is not None]
    entropy, correct = ([step.number(name) or 0.0 for step in steps] for name in ("entropy", "sampled_correct"))
    if len(correct) < WINDOW or (run.gains() >= SURE and recent(correct) - start(correct) < 0.1):
        return False
    ends = range(WINDOW, len(correct) + 1)
    smooth = [fmean(correct[end - WINDOW : end]) for end in ends]
    most = next(i for i, value in enumerate(smooth) if value >= smooth[0] + 0.8 * (max(smooth) - smooth[0]))
    return recent(entropy) > 0.25 * fmean(entropy[most : most + WINDOW])


def _groups(step: StepFacts) -> tuple[Place, ...]:
    return tuple(Place(step.step, group.problem) for group in sorted(step.groups, key=lambda g: g.distinct)[:5])


@rule(needs=("entropy", "reward", "sampled_correct"), statistic="entropy now / at the start, with a reward that "
      "falls; where entropy rises and the pass rate falls (both p < 0.01), less is enough, and when the Theil-Sen "
      "line of log entropy reaches 2", thresholds="warning 2; with both trends 1.25, or 2 inside the rest of the "
      "run; critical 4", source="verl issue 2738; axolotl", advice=(Advice("loss.entropy_coef", "0"), LR))  # fmt: skip
def entropy_explosion(run: RunFacts) -> Finding | None:
    """Completions turn into noise."""
    series = run.values("entropy")
    if len(series) < 2 * WINDOW or start(series) <= 0 or run.improves():
        return None
    growth = recent(series) / start(series)
    grade = graded(growth, 2.0, 4.0)
    falling = falls(run.values("sampled_correct")) < SURE
    if grade is None and falling and growth >= 1.25 and rises(series) < SURE:
        grade = Grade(Severity.WARNING, growth, 1.25)
    lately = [math.log(max(value, 1e-9)) for value in series[-4 * WINDOW :]]
    speed = slope(lately)
    if grade is None and falling and speed > 0 and rises(lately) < SURE:
        steps_to_double = math.log(2.0 * start(series) / recent(series)) / speed
        grade = Grade(Severity.WARNING, growth, 2.0) if steps_to_double <= run.remaining else None
    rewards = run.values("reward")
    if grade is None or (recent(rewards) >= start(rewards) and recent(rewards) > min(rewards)):
        return None
    first = next(s for s, value in run.series("entropy") if value >= (1 + growth) / 2 * start(series))
    return Finding(
        **grade._asdict(), since_step=first, unit="times the entropy at the start",
        evidence=f"entropy went from {start(series):.3f} to {recent(series):.3f} nats per token and the reward from "
        f"{start(rewards):.3f} to {recent(rewards):.3f}: the completions turn into noise",
        places=_groups(run.steps[-1]), wasted=run.since(first),
    )  # fmt: skip


@rule(needs=("entropy", "sampled_correct"), statistic="loss.entropy_coef times the entropy per token, mean of 5 "
      "steps; advantages are about 1; only while neither dev nor the pass rate rises",
      thresholds="warning 0.1, critical 1", source="own",
      advice=(Advice("loss.entropy_coef", "divide by 10, or 0"),))  # fmt: skip
def entropy_bonus(run: RunFacts) -> Finding | None:
    """The bonus for entropy pulls as hard as the reward."""
    coef, series = float(run.key("loss.entropy_coef") or 0.0), run.values("entropy")
    if len(series) < WINDOW or run.improves():
        return None
    weight = coef * recent(series)
    if (grade := graded(weight, 0.1, 1.0)) is None:
        return None
    return Finding(
        **grade._asdict(), since_step=run.steps[0].step, unit="nats per token that the bonus pays",
        evidence=f"the bonus pays {coef:g} for a nat: {weight:.2f} for the {recent(series):.3f} nats of a token, "
        "beside advantages of about 1, and neither dev nor the pass rate rises",
        wasted=run.since(run.steps[0].step),
    )  # fmt: skip


@rule(needs=("length", "reward", "sampled_correct"), statistic="growth of the mean length from the start (p < 0.01), "
      "correctness not rising", thresholds="warning 0.5; critical with a rank correlation with the reward of 0.6 or "
      "falling correctness", source="rldoctor 0.2; Dr. GRPO (arXiv:2503.20783)",
      advice=(Advice("loss.aggregation", "a constant denominator"),
      Advice("verifier.parts", "an overlong penalty")))  # fmt: skip
def length_runaway(run: RunFacts) -> Finding | None:
    """Completions grow, correctness does not."""
    lengths = run.values("length")
    if len(lengths) < 2 * WINDOW or start(lengths) <= 0 or run.improves():
        return None
    growth = recent(lengths) / start(lengths) - 1
    both = [step for step in run.steps if step.number("length") is not None and step.number("reward") is not None]
    follows = rank_correlation(*([step.number(name) or 0.0 for step in both] for name in ("length", "reward")))
    if growth < 0.5 or rises(lengths) >= SURE:
        return None
    severity = Severity.CRITICAL if run.worsens() or follows >= 0.6 else Severity.WARNING
    first = next(s for s, value in run.series("length") if value >= 1.25 * start(lengths))
    longest = sorted(run.steps[-1].completions, key=lambda row: row.num_tokens or 0, reverse=True)[:5]
    return Finding(
        severity=severity, since_step=first, statistic=growth, threshold=0.5,
        unit="growth of the length", evidence=f"completions grew from {start(lengths):.0f} to {recent(lengths):.0f} "
        f"tokens (rank correlation with the reward {follows:+.2f}), and correctness did not",
        places=tuple(Place(run.steps[-1].step, row.problem, row.sample) for row in longest), wasted=run.since(first),
    )  # fmt: skip


@rule(needs=("length", "sampled_correct"), statistic="loss of mean length from the start, with a pass rate or dev "
      "below the start", thresholds="warning 0.5, or 0.25 where length falls and the pass rate of 10 steps is below "
      "the start's (both p < 0.01); critical with 5 points of pass rate lost", source="EasyR1 issue 40",
      advice=(Advice("verifier.parts", "drop the penalty of length"),
      Advice("sampling.max_tokens", "raise it")))  # fmt: skip
def length_collapse(run: RunFacts) -> Finding | None:
    """Completions shrink and lose what they could solve."""
    lengths, correct = run.values("length"), run.values("sampled_correct")
    if len(lengths) < 2 * WINDOW or start(lengths) <= 0:
        return None
    shrunk = 1 - recent(lengths) / start(lengths)
    lost = start(correct) - recent(correct)
    dev = run.dev_rates
    surely = shrunk >= 0.25 and falls(lengths) < SURE and run.loses() < SURE  # also where it regains some of it
    harmed = not run.improves() and (lost > 0.02 or (len(dev) > 1 and dev[-1] < dev[0] - 0.02))
    if not surely and (shrunk < 0.5 or not harmed):
        return None
    bound = 0.5 if shrunk >= 0.5 else 0.25
    first = next(s for s, value in run.series("length") if value <= (1 - bound / 2) * start(lengths))
    return Finding(
        severity=Severity.CRITICAL if lost > 0.05 else Severity.WARNING, since_step=first,
        statistic=shrunk, threshold=bound, unit="loss of length",
        evidence=f"completions shrank from {start(lengths):.0f} to {recent(lengths):.0f} tokens, and the pass rate "
        f"from {start(correct):.3f} to {recent(correct):.3f}",
        places=shown(run.steps[-1:], lambda row: (row.num_tokens or 0) <= recent(lengths)), wasted=run.since(first),
    )  # fmt: skip


@rule(needs=("truncated",), statistic="share truncated, mean of 5 steps; one that does not rise while the pass rate "
      "does is left alone, unless the mean length is 0.7 of the limit or more",
      thresholds="warning 0.05, critical 0.15", source="rldoctor 0.2",
      advice=(Advice("sampling.max_tokens", "raise it"), Advice("verifier.parts", "an overlong penalty")))  # fmt: skip
def truncation(run: RunFacts) -> Finding | None:
    """Completions run into the token limit."""
    series, lengths = run.values("truncated"), run.values("length")
    if len(series) < WINDOW:
        return None
    share = recent(series)
    grade = graded(share, 0.05, 0.15)
    # a run that learns within its limit is left alone, but not where the limit shapes what it learns
    tokens = run.key("sampling.max_tokens")
    limit, cut = float(tokens or math.inf), f"{tokens} tokens" if tokens else "a limit that was not recorded"
    shapes = bool(lengths) and recent(lengths) >= 0.7 * limit
    falling = falls(series[-4 * WINDOW :]) < LIKELY or share <= start(series) + 0.05
    if grade is None or (run.improves() and falling and not shapes):
        return None
    first = run.persists("truncated", lambda share: share >= 0.05)
    never = "; hardly any stops, so the stop token may never have been learnt" if share >= 0.95 else ""
    return Finding(
        **grade._asdict(), since_step=first, unit="share of completions",
        evidence=f"{share:.0%} of the completions of the last {WINDOW} steps were cut at {cut}{never}",
        places=shown(run.steps[-1:], lambda row: row.finish_reason == FinishReason.LENGTH),
        wasted=round(share * run.since(first)),
    )  # fmt: skip


@rule(needs=("rollouts",), statistic="lower 95 % bound of the share that ends in a phrase said 4 times or more, of 5 "
      "steps; at least twice the start's, rising (p < 0.01)", thresholds="warning 0.01, critical 0.05", source="own",
      advice=(LR, Advice("verifier.parts", "a penalty of repetition")))  # fmt: skip
def loops(run: RunFacts) -> Finding | None:
    """Completions repeat one phrase to their end."""
    steps = [step for step in run.steps if step.groups]
    shares = [fmean(ends_in_loop(row.text) for row in step.completions) for step in steps]
    if len(shares) < WINDOW:
        return None
    first = next((s.step for s in run.steps if any(ends_in_loop(row.text) for row in s.completions)), 0)
    return _spreads(run, shares, steps, first, "end in one phrase over and over", lambda row: ends_in_loop(row.text))


def _spreads(
    run: RunFacts, shares: Sequence[float], steps: Sequence[StepFacts], first: int, what: str, has: Wanted
) -> Finding | None:
    """Find that more and more completions have something that few had at the start."""
    share, first_share = recent(shares), start(shares)
    grade = graded(_at_least(share, steps), 0.01, 0.05)
    if grade is None or share < max(2 * first_share, first_share + 0.01) or rises(shares) >= SURE:
        return None
    return Finding(
        **grade._replace(statistic=share)._asdict(), since_step=first, unit="share of completions",
        evidence=f"{share:.1%} of completions {what}; {first_share:.1%} at the start", places=shown(run.steps, has),
    )  # fmt: skip


def _at_least(share: float, steps: Sequence[StepFacts]) -> float:
    """Lower 95 % bound of a share of the last steps' completions: two of a hundred prove no one per cent."""
    return wilson(share, sum(step.num_completions for step in steps[-WINDOW:]))[0]


@rule(needs=("other_scripts",), statistic="lower 95 % bound of the share with a word in another script than the "
      "problem's language, of 5 steps; at least twice the start's, rising (p < 0.01)",
      thresholds="warning 0.01, critical 0.05", source="DeepSeek-R1 (arXiv:2501.12948), section 2.3.2",
      advice=(Advice("verifier.parts", "pay the share of words in the problem's language"),
      Advice("sampling.temperature", "1, where it is higher")))  # fmt: skip
def language_mixing(run: RunFacts) -> Finding | None:
    """Completions take words from other languages."""
    series = run.series("other_scripts")
    shares = [value for _, value in series]
    if len(shares) < 2 * WINDOW:
        return None
    first = next((step for step, value in series if value >= 0.5 * (start(shares) + recent(shares))), 0)
    what = "have words in another script than their problem's language"
    return _spreads(run, shares, run.steps, first, what, lambda row: strays(row.text, row.language))


HABIT = 10  # groups that hold completions with a habit and without, from which on they are compared


@rule(needs=("rollouts",), statistic="share of completions that check themselves, go back or try another way, of 5 "
      "steps now / at the start (95 % bounds apart); and what a part of the reward other than accuracy gives those "
      "that do less the others of their group, in the same steps, over its standard error",
      thresholds="warning: half, and 3 standard errors less", source="own",
      advice=(Advice("verifier.parts", "read what the part says of the completions above; mend it or pay it less"),
      Advice("behaviour", "phrases of your own, where these are none")))  # fmt: skip
def habit_is_lost(run: RunFacts) -> Finding | None:
    """Completions lose a habit that a part of the reward costs them."""
    habits = parse(BehaviourConfig, run.key("behaviour", {}), source="[behaviour]").phrases()
    steps = [step for step in run.steps if step.groups]
    first, last = steps[:WINDOW], steps[-WINDOW:]
    if len(steps) < 2 * WINDOW:
        return None
    for habit, languages in habits.items():
        phrases = [phrase for of_language in languages.values() for phrase in of_language]
        rows = (row for step in (*first, *last) for row in step.completions)
        marked = {id(row) for row in rows if any(search(phrase, row.text) for phrase in phrases)}
        then, now = (fmean(id(row) in marked for step in part for row in step.completions) for part in (first, last))
        if now > then / 2 or wilson(now, sum(len(step.completions) for step in last))[1] >= _at_least(then, first):
            continue
        prices = _prices([group for step in (*first, *last) for group in step.groups], marked)
        dearest = min(prices, key=lambda name: prices[name][0] / prices[name][1], default="accuracy")
        if dearest == "accuracy" or prices[dearest][0] > -3 * prices[dearest][1]:
            continue
        price, error = prices[dearest]
        return Finding(
            severity=Severity.WARNING, since_step=first[0].step, statistic=now / then, threshold=0.5,
            unit="share of the habit at the start", wasted=0,
            evidence=f"completions with a phrase of `{habit}` went from {then:.0%} to {now:.0%}: the part {dearest} "
            f"gives them {-price:.2f} ± {2 * error:.2f} less than others of their group",
            places=shown(first, lambda row: id(row) in marked),  # noqa: B023  # called before the next habit
        )  # fmt: skip
    return None


def _prices(groups: Sequence[GroupFacts], marked: Collection[int]) -> dict[str, tuple[float, float]]:
    """Per part of the reward the mean over groups, and its standard error: marked completions less the others."""
    differences = defaultdict[str, list[float]](list)
    for group in groups:
        sides = [[row for row in group.completions if (id(row) in marked) is side] for side in (True, False)]
        for name in {name for row in group.completions for name in row.reward_parts} if all(sides) else ():
            with_mark, without = (fmean(row.reward_parts.get(name, 0.0) for row in side) for side in sides)
            differences[name].append(with_mark - without)
    return {name: (fmean(of), max(stdev(of) / math.sqrt(len(of)), 1e-9)) for name, of in differences.items()
            if len(of) >= HABIT}  # fmt: skip


TURNS, DONE = "measure/episode/turns/mean", "measure/ended/done/mean"


@rule(statistic="mean number of turns behind the first, now / at the start (p < 0.01); only while neither dev nor "
      "the pass rate rises", thresholds="warning 0.5, critical 0.1", source="verl issues 1569 and 4998",
      advice=(Advice("task.environment", "a reward that the first turn alone cannot earn"),
      Advice("pipeline", "fine-tune on episodes first (the stage `play`)")))  # fmt: skip
def turns_collapse(run: RunFacts) -> Finding | None:
    """Episodes become single turns."""
    series = run.values(TURNS)
    if len(series) < 2 * WINDOW or start(series) < 1.5 or run.improves():
        return None
    share = (recent(series) - 1) / (start(series) - 1)
    if share > 0.5 or falls(series) >= SURE:
        return None
    first = next(step for step, value in run.series(TURNS) if value - 1 <= 0.75 * (start(series) - 1))
    return Finding(
        severity=Severity.CRITICAL if share <= 0.1 else Severity.WARNING, since_step=first,
        statistic=share, threshold=0.1 if share <= 0.1 else 0.5, unit="share of the turns behind the first",
        evidence=f"episodes went from {start(series):.1f} to {recent(series):.1f} turns while neither dev nor the pass "
        "rate rises: the policy stops asking its environment",
        places=shown(run.steps[-1:], lambda row: len(row.turns) == 1), wasted=run.since(first),
    )  # fmt: skip


def _said(row: Row) -> list[str]:
    """Return the text of each turn of an episode, without what its environment answered; empty where it is unknown."""
    if row.tokens is None or row.sampled is None:
        return []
    ends = [0, *(turn.end for turn in row.turns)]
    words = [token if is_own else "" for token, is_own in zip(row.tokens, row.sampled.tolist(), strict=True)]
    return ["".join(words[begin:end]).strip() for begin, end in pairwise(ends)]


@rule(statistic="share that did not end by `done`, mean of 5 steps; only while neither dev nor the pass rate rises",
      thresholds="warning 0.25, critical 0.75", source="TRL issues 4751 and 6423",
      advice=(Advice("task.environment.max_turns", "raise it"), Advice("sampling.max_tokens", "raise it")))  # fmt: skip
def ended_by_limits(run: RunFacts) -> Finding | None:
    """Limits end the episodes, and not their environment."""
    series = run.values(DONE)
    if len(series) < WINDOW or run.improves():
        return None
    share = 1 - recent(series)
    if (grade := graded(share, 0.25, 0.75)) is None:
        return None
    first = run.persists(DONE, lambda share: share <= 0.75)
    limits = (FinishReason.TURN_LIMIT, FinishReason.LENGTH)
    means = ", ".join(
        f"{recent(of_limit):.0%} by {limit}"
        for limit in limits
        if (of_limit := run.values(f"measure/ended/{limit}/mean"))
    )
    cut = [row for step in run.steps[-WINDOW:] for row in step.completions if row.finish_reason in limits and row.turns]
    again = sum(len(set(said := _said(row))) < len(said) for row in cut)
    stuck = f"; {again} of {len(cut)} of them say a turn twice, which more turns alone do not mend" if again else ""
    return Finding(
        **grade._asdict(), since_step=first, unit="share of episodes",
        evidence=f"{share:.0%} of the episodes of the last {WINDOW} steps ended by a limit ({means}), so what they "
        f"were worth was never decided{stuck}",
        places=shown(run.steps[-1:], lambda row: row.finish_reason in limits), wasted=run.since(first),
    )  # fmt: skip

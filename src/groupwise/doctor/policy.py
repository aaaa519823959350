"""Rules about the policy: entropy, length, loops, clipping, KL, gradient, critic, speed and the record itself."""

import math
from itertools import pairwise
from statistics import fmean, median

from groupwise.doctor.facts import RunFacts, StepFacts
from groupwise.doctor.finding import Advice, Evidence, Finding, Severity
from groupwise.doctor.rule import (
    LIKELY,
    SURE,
    WINDOW,
    Rule,
    graded,
    improves,
    persists,
    recent,
    shown,
    since,
    start,
    worsens,
)
from groupwise.doctor.trends import falls, outlying, rank_correlation, rises, slope


def entropy_collapse(run: RunFacts) -> Finding | None:
    """Entropy runs towards zero, and nothing is gained by it."""
    series = run.values("entropy")
    if len(series) < 2 * WINDOW or start(series) <= 0 or improves(run):
        return None
    floor, now = 0.1 * start(series), recent(series)
    lately = [math.log(max(value, 1e-9)) for value in series[-4 * WINDOW :]]
    speed = slope(lately)
    left = run.num_steps - len(series)
    arrives = (math.log(floor) - math.log(max(now, 1e-9))) / speed if speed < 0 else math.inf
    there = now <= floor
    if (not there and (falls(lately) >= SURE or arrives > left)) or recent(run.values("sampled_correct")) >= 0.85:
        return None
    if not there and not _narrows(run):
        return None
    first = next((s for s, value in run.series("entropy") if value <= 0.5 * start(series)), run.steps[-1].step)
    return Finding(
        rule="entropy_collapse", severity=Severity.CRITICAL if there else Severity.WARNING, since_step=first,
        statistic=now / start(series), threshold=0.1, unit="share of the entropy at the start",
        explanation=f"entropy went from {start(series):.3f} to {now:.3f} nats per token while neither dev nor the pass "
        "rate rises: the completions of a group become alike before the problems are learnt",
        evidence=_groups(run.steps[-1]), wasted=since(run, first),
    )  # fmt: skip


def _narrows(run: RunFacts) -> bool:
    """Whether a group gives fewer different answers than it did."""
    distinct = [fmean(group.distinct for group in step.groups) for step in run.steps if step.groups]
    return not distinct or (falls(distinct) < LIKELY and recent(distinct) < start(distinct))


def _groups(step: StepFacts) -> tuple[Evidence, ...]:
    return tuple(Evidence(step.step, group.problem) for group in sorted(step.groups, key=lambda g: g.distinct)[:5])


def entropy_explosion(run: RunFacts) -> Finding | None:
    """Completions become noise."""
    series = run.values("entropy")
    if len(series) < 2 * WINDOW or start(series) <= 0 or improves(run):
        return None
    growth = recent(series) / start(series)
    severity = graded(growth, 2.0, 4.0)
    rewards = run.values("reward")
    if severity is None or (recent(rewards) >= start(rewards) and recent(rewards) > min(rewards)):
        return None
    first = next(s for s, value in run.series("entropy") if value >= 1.5 * start(series))
    return Finding(
        rule="entropy_explosion", severity=severity, since_step=first, statistic=growth,
        threshold=4.0 if severity is Severity.CRITICAL else 2.0, unit="times the entropy at the start",
        explanation=f"entropy went from {start(series):.3f} to {recent(series):.3f} nats per token and the reward from "
        f"{start(rewards):.3f} to {recent(rewards):.3f}: the completions turn into noise",
        evidence=_groups(run.steps[-1]), wasted=since(run, first),
    )  # fmt: skip


def length_runaway(run: RunFacts) -> Finding | None:
    """Completions grow, and the reward with them, but correctness does not."""
    lengths = run.values("length")
    if len(lengths) < 2 * WINDOW or improves(run):
        return None
    growth = recent(lengths) / start(lengths) - 1
    follows = rank_correlation(lengths, run.values("reward"))
    if growth < 0.5 or rises(lengths) >= SURE:
        return None
    severity = Severity.CRITICAL if worsens(run) or follows >= 0.6 else Severity.WARNING
    first = next(s for s, value in run.series("length") if value >= 1.25 * start(lengths))
    longest = sorted(run.steps[-1].completions, key=lambda one: one.num_tokens or 0, reverse=True)[:5]
    return Finding(
        rule="length_runaway", severity=severity, since_step=first, statistic=growth, threshold=0.5,
        unit="growth of the length", explanation=f"completions grew from {start(lengths):.0f} to {recent(lengths):.0f} "
        f"tokens (rank correlation with the reward {follows:+.2f}), and correctness did not",
        evidence=tuple(Evidence(run.steps[-1].step, one.problem, one.sample) for one in longest),
        wasted=since(run, first),
    )  # fmt: skip


def length_collapse(run: RunFacts) -> Finding | None:
    """Completions shrink, and what they could solve is lost."""
    lengths, correct = run.values("length"), run.values("sampled_correct")
    if len(lengths) < 2 * WINDOW or improves(run):
        return None
    shrunk = 1 - recent(lengths) / start(lengths)
    lost = start(correct) - recent(correct)
    dev = [one.pass_at_1 for one in run.dev]
    if shrunk < 0.5 or (lost <= 0.02 and not (len(dev) > 1 and dev[-1] < dev[0] - 0.02)):
        return None
    first = next(s for s, value in run.series("length") if value <= 0.75 * start(lengths))
    return Finding(
        rule="length_collapse", severity=Severity.CRITICAL if lost > 0.05 else Severity.WARNING, since_step=first,
        statistic=shrunk, threshold=0.5, unit="loss of length",
        explanation=f"completions shrank from {start(lengths):.0f} to {recent(lengths):.0f} tokens, and the pass rate "
        f"from {start(correct):.3f} to {recent(correct):.3f}",
        evidence=shown(run.steps[-1:], lambda one: (one.num_tokens or 0) <= recent(lengths)), wasted=since(run, first),
    )  # fmt: skip


def truncation(run: RunFacts) -> Finding | None:
    """Completions run into the token limit."""
    series = run.values("truncated")
    if len(series) < WINDOW or (falls(series[-4 * WINDOW :]) < LIKELY and improves(run)):
        return None
    share = recent(series)
    severity = graded(share, 0.05, 0.15)
    if severity is None or (improves(run) and share <= start(series) + 0.05):
        return None
    first = persists(run, lambda step: (step.number("truncated") or 0.0) >= 0.05)
    never = "; hardly any stops, so the stop token may never have been learnt" if share >= 0.95 else ""
    return Finding(
        rule="truncation", severity=severity, since_step=first, statistic=share,
        threshold=0.15 if severity is Severity.CRITICAL else 0.05, unit="share of completions",
        explanation=f"{share:.0%} of the completions of the last {WINDOW} steps were cut at "
        f"{run.key('sampling.max_tokens')} tokens{never}",
        evidence=shown(run.steps[-1:], lambda one: one.truncated), wasted=round(share * since(run, first)),
    )  # fmt: skip


def loops(run: RunFacts) -> Finding | None:
    """Completions repeat one phrase to their end."""
    shares = [fmean(c.loops for c in step.completions) for step in run.steps if step.groups]
    if len(shares) < WINDOW:
        return None
    share, first_share = recent(shares), start(shares)
    severity = graded(share, 0.01, 0.05)
    if severity is None or share < max(2 * first_share, first_share + 0.01) or rises(shares) >= SURE:
        return None
    first = next(step.step for step in run.steps if any(c.loops for c in step.completions))
    return Finding(
        rule="loops", severity=severity, since_step=first, statistic=share,
        threshold=0.05 if severity is Severity.CRITICAL else 0.01, unit="share of completions",
        explanation=f"{share:.1%} of completions end in one phrase over and over; {first_share:.1%} at the start",
        evidence=shown(run.steps, lambda one: one.loops), wasted=0,
    )  # fmt: skip


def weights_stand_still(run: RunFacts) -> Finding | None:
    """Steps have a signal, and the weights stay what they were."""
    known = [step for step in run.steps if step.weights is not None]
    still = [b for a, b in pairwise(known) if a.weights == b.weights and (b.number("signal") or 0) > 0]
    lately = known[-WINDOW:]
    if len(lately) < WINDOW or len({step.weights for step in lately}) > 1 or not still:
        return None
    return Finding(
        rule="weights_stand_still", severity=Severity.CRITICAL, since_step=still[0].step, statistic=len(still),
        threshold=WINDOW, unit="steps", explanation=f"the weights are the same, bit by bit, after each of the last "
        f"{len(lately)} steps, although groups had a signal: the learning rate is too small, or the weights are frozen",
        wasted=len(still),
    )  # fmt: skip


def update_too_large(run: RunFacts) -> Finding | None:
    """A single step moves the policy far."""
    taught = {step.step for step in run.steps if (step.number("signal") or 0.0) > 0}
    series = [(step, value) for step, value in run.series("kl_after_updates") if step in taught]
    value = median([one for _, one in series[-WINDOW:]]) if series else 0.0
    severity = graded(value, 0.01, 0.03)
    if severity is None or (len(series) < WINDOW and value < 0.3) or improves(run):
        return None
    first = next(step for step, one in series if one >= 0.01)
    return Finding(
        rule="update_too_large", severity=severity, since_step=first, statistic=value,
        threshold=0.03 if severity is Severity.CRITICAL else 0.01, unit="nats per token, KL(before ‖ after)",
        explanation=f"a step moves the policy by {value:.3f} nats per token, and nothing is gained by it",
        evidence=tuple(Evidence(step) for step, _ in series[-3:]), wasted=since(run, first),
    )  # fmt: skip


def clipping(run: RunFacts) -> Finding | None:
    """Many tokens are beyond a bound of the loss, and teach nothing."""
    series = run.values("clipped")
    if len(series) < WINDOW:
        return None
    share = median(series[-WINDOW:])
    severity = graded(share, 0.2, 0.4)
    if severity is None:
        return None
    first = persists(run, lambda step: (step.number("clipped") or 0.0) >= 0.2)
    return Finding(
        rule="clipping", severity=severity, since_step=first, statistic=share,
        threshold=0.4 if severity is Severity.CRITICAL else 0.2, unit="share of tokens",
        explanation=f"a bound of the loss holds at {share:.0%} of the tokens: the updates of one step go too far",
        evidence=(Evidence(run.steps[-1].step),), wasted=round(share * since(run, first)),
    )  # fmt: skip


def kl_to_reference(run: RunFacts) -> Finding | None:
    """The policy is far from its reference without having gained, or cannot leave it."""
    if not run.key("loss.kl_coef"):
        return None
    series = run.values("kl")
    if len(series) < 2 * WINDOW or improves(run):
        return None
    value = recent(series)
    severity = graded(value, 0.5, 2.0)
    held = max(series) < 1e-4
    if severity is None and not held:
        return None
    said = "the KL term holds it at its start" if held else "it is far from its start"
    return Finding(
        rule="kl_to_reference", severity=severity or Severity.WARNING, since_step=run.steps[0].step, statistic=value,
        threshold=1e-4 if held else 2.0 if severity is Severity.CRITICAL else 0.5, unit="nats per token",
        explanation=f"KL to the reference is {value:.2g} nats per token and nothing is gained: {said}",
        advice=(Advice("loss.kl_coef", "divide by 10" if held else "multiply by 3"),), wasted=len(run.steps),
    )  # fmt: skip


def gradient_spikes(run: RunFacts) -> Finding | None:
    """Some steps have a gradient far beyond all others."""
    series = [(step, value) for step, value in run.series("grad_norm") if value > 0]
    if len(series) < 2 * WINDOW:
        return None
    values = [value for _, value in series]
    found = [series[i][0] for i in outlying(values, deviations=8, times=10)]
    if not found:
        return None
    size = max(values) / median(values)
    lost = worsens(run)
    return Finding(
        rule="gradient_spikes", severity=Severity.CRITICAL if size >= 100 and lost else Severity.WARNING,
        since_step=found[0], statistic=size, threshold=10, unit="times the median norm",
        explanation=f"the gradient of {len(found)} step{'s' if len(found) > 1 else ''} is up to {size:.0f} times the "
        "median and more than 8 deviations beyond it",
        evidence=tuple(Evidence(step) for step in found[:5]),
    )  # fmt: skip


def gradient_vanishes(run: RunFacts) -> Finding | None:
    """Groups differ, and still the gradient is nothing."""
    taught = [step for step in run.steps if (step.number("signal") or 0.0) > 0 and step.number("grad_norm") is not None]
    if len(taught) < WINDOW:
        return None
    lately = taught[-2 * WINDOW :]
    zeros = [step for step in lately if step.number("grad_norm") == 0]
    share = len(zeros) / len(lately)
    severity = graded(share, 0.4, 0.7)
    if severity is None:
        return None
    return Finding(
        rule="gradient_vanishes", severity=severity, since_step=zeros[0].step, statistic=share,
        threshold=0.7 if severity is Severity.CRITICAL else 0.4, unit="share of steps with a signal",
        explanation=f"the gradient of {len(zeros)} of the last {len(lately)} steps with a signal is exactly zero",
        evidence=tuple(Evidence(step.step) for step in zeros[-3:]), wasted=len(zeros),
    )  # fmt: skip


def sampler_mismatch(run: RunFacts) -> Finding | None:
    """The sampler is another policy than the one that is trained."""
    series = run.values("effective_samples")
    if len(series) < WINDOW:
        return None
    share = recent(series)
    severity = graded(1 - share, 0.5, 0.7)
    if severity is None:
        return None
    first = persists(run, lambda step: (step.number("effective_samples") or 0.0) <= 0.5)
    return Finding(
        rule="sampler_mismatch", severity=severity, since_step=first, statistic=share,
        threshold=0.3 if severity is Severity.CRITICAL else 0.5, unit="effective samples, share",
        explanation=f"importance weights leave {share:.0%} of the sample: sampler and trainer are different policies",
        wasted=round((1 - share) * since(run, first)),
    )  # fmt: skip


def critic_explains_nothing(run: RunFacts) -> Finding | None:
    """The critic is worse than a constant."""
    series = run.values("explained_variance")
    if len(series) < 4 * WINDOW:
        return None
    value = median(series[-2 * WINDOW :])
    severity = graded(-value, 0.0, 1.0)
    if severity is None or rises(series[-4 * WINDOW :]) < LIKELY:
        return None
    return Finding(
        rule="critic_explains_nothing", severity=severity, since_step=run.steps[-2 * WINDOW].step, statistic=value,
        threshold=-1.0 if severity is Severity.CRITICAL else 0.0, unit="explained variance",
        explanation=f"the critic explains {value:.2f} of the returns' variance after {len(series)} steps, and that "
        "does not rise: a constant would do as well",
    )  # fmt: skip


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


LR = Advice("optimizer.lr", "divide by 3")
EPOCHS = Advice("loss.epochs", "fewer passes over the same completions")

RULES = (
    Rule(name="entropy_collapse", says="Entropy runs to zero, and nothing is gained by it.",
         statistic="Theil-Sen line of log entropy: when it reaches 10 % of the start; only while neither dev nor the "
         "pass rate rises and a group's different answers become fewer",
         thresholds="warning inside the rest of the run, critical when there",
         source="rldoctor 0.2; Jones, Debugging RL",
         needs=("entropy", "sampled_correct"), find=entropy_collapse,
         advice=(LR, Advice("sampling.temperature", "1"), Advice("loss.policy.clip_high", "0.28 (DAPO)"), EPOCHS)),
    Rule(name="entropy_explosion", says="Completions turn into noise.",
         statistic="entropy now / at the start, with a reward that falls", thresholds="warning 2, critical 4",
         source="verl issue 2738; axolotl", needs=("entropy", "reward"), find=entropy_explosion,
         advice=(Advice("loss.entropy_coef", "0"), LR)),
    Rule(name="length_runaway", says="Completions grow, correctness does not.",
         statistic="growth of the mean length from the start (p < 0.01), correctness not rising",
         thresholds="warning 0.5; critical with a rank correlation with the reward of 0.6 or falling correctness",
         source="rldoctor 0.2; Dr. GRPO (arXiv:2503.20783)", needs=("length", "reward", "sampled_correct"),
         find=length_runaway, advice=(Advice("loss.aggregation", "a constant denominator"),
                                      Advice("verifier.parts", "an overlong penalty"))),
    Rule(name="length_collapse", says="Completions shrink and lose what they could solve.",
         statistic="loss of mean length from the start, with a pass rate or dev below the start",
         thresholds="warning 0.5; critical with 5 points of pass rate lost", source="EasyR1 issue 40",
         needs=("length", "sampled_correct"), find=length_collapse,
         advice=(Advice("verifier.parts", "drop the penalty of length"), Advice("sampling.max_tokens", "raise it"))),
    Rule(name="truncation", says="Completions run into the token limit.",
         statistic="share truncated, mean of 5 steps; one that "
         "falls while the pass rate rises is left alone", thresholds="warning 0.05, critical 0.15",
         source="rldoctor 0.2", needs=("truncated",), find=truncation,
         advice=(Advice("sampling.max_tokens", "raise it"), Advice("verifier.parts", "an overlong penalty"))),
    Rule(name="loops", says="Completions repeat one phrase to their end.",
         statistic="share that ends in a phrase said 4 times or more; at least twice the start's, rising (p < 0.01)",
         thresholds="warning 0.01, critical 0.05", source="own", needs=("rollouts",), find=loops,
         advice=(LR, Advice("verifier.parts", "a penalty of repetition"))),
    Rule(name="weights_stand_still", says="Steps have a signal, and the weights do not change.",
         statistic="equal fingerprints of the weights after 5 steps in a row", thresholds="critical at 5 steps",
         source="own", needs=("signal",), find=weights_stand_still,
         advice=(Advice("optimizer.lr", "multiply by 10, and again"), Advice("model", "is anything trainable?"))),
    Rule(name="update_too_large", says="A single step moves the policy far.",
         statistic="KL(before ‖ after the updates), median of 5 steps with a signal, while nothing improves",
         thresholds="warning 0.01, critical 0.03 nats per token; of fewer steps 0.3",
         source="Spinning Up; tinker-cookbook",
         needs=("kl_after_updates", "sampled_correct"), find=update_too_large, advice=(LR, EPOCHS)),
    Rule(name="clipping", says="Many tokens are beyond a bound of the loss.",
         statistic="share of tokens at a bound, median of 5 steps", thresholds="warning 0.2, critical 0.4",
         source="rldoctor 0.2; axolotl", needs=("clipped",), find=clipping, advice=(LR, EPOCHS)),
    Rule(name="kl_to_reference", says="The policy is far from its reference for nothing, or cannot leave it.",
         statistic="KL to the reference, mean of 5 steps, while nothing improves",
         thresholds="warning 0.5, critical 2.0; warning where it never reached 1e-4", source="axolotl; rldoctor 0.2",
         needs=("kl", "sampled_correct"), find=kl_to_reference, advice=(LR,)),
    Rule(name="gradient_spikes", says="Some steps have a gradient far beyond all others.",
         statistic="norm above the median by 8 absolute deviations and 10 times it",
         thresholds="warning; critical at 100 times with a pass rate that falls",
         source="rldoctor 0.2 (3 times, thrice)",
         needs=("grad_norm",), find=gradient_spikes, advice=(Advice("optimizer.max_grad_norm", "1"),)),
    Rule(name="gradient_vanishes", says="Groups differ, and the gradient is exactly zero.",
         statistic="share of 10 steps with a signal whose gradient is 0", thresholds="warning 0.4, critical 0.7",
         source="rldoctor 0.2", needs=("grad_norm", "signal"), find=gradient_vanishes, advice=(EPOCHS,)),
    Rule(name="sampler_mismatch", says="Sampler and trainer are different policies.",
         statistic="effective sample size of the importance weights, mean of 5 steps",
         thresholds="warning 0.5, critical 0.3", source="verl, rollout_corr", needs=("effective_samples",),
         find=sampler_mismatch, advice=(Advice("sampling.temperature", "the same on both sides"),)),
    Rule(name="critic_explains_nothing", says="The critic is no better than a constant.",
         statistic="explained variance, median of 10 steps after 20, not rising",
         thresholds="warning 0, critical -1", source="Schulman, Nuts and Bolts", needs=("explained_variance",),
         find=critic_explains_nothing,
         advice=(Advice("critic.lr", "another rate, with a longer warm-up of the optimizer"),)),
    Rule(name="verifying_is_slow", says="The processor waits for the verifier.",
         statistic="share of a step that verifying takes", thresholds="note 0.2, warning 0.5", source="own",
         needs=("verify_s", "generate_s", "train_s"), find=verifying_is_slow,
         advice=(Advice("verifier", "more workers, a shorter time limit"),)),
    Rule(name="record_damaged", says="The record of the run was changed, cut or lost.",
         statistic="broken hashes, gaps, missing files", thresholds="critical: any", source="DESIGN section 5",
         needs=(),
         find=record_damaged, advice=(Advice("", "run the same command again, or restore the files named"),)),
)  # fmt: skip

"""Rules about the updates: their size, bounds, gradient and KL, the sampler behind them, the critic beside them."""

from itertools import pairwise
from statistics import median

from groupwise.checks import Advice, Finding, Place, Severity
from groupwise.checks.doctor.facts import RunFacts
from groupwise.checks.doctor.rule import EPOCHS, LR, Grade, graded, rule
from groupwise.checks.doctor.trends import LIKELY, SURE, WINDOW, outlying, recent, rises, start


@rule(needs=("signal",), statistic="equal fingerprints of the weights after 5 steps in a row; without fingerprints, a "
      "learning rate of 0", thresholds="critical at 5 steps", source="own",
      advice=(Advice("optimizer.lr", "multiply by 10, and again"),
      Advice("model", "is anything trainable?")))  # fmt: skip
def weights_stand_still(run: RunFacts) -> Finding | None:
    """Steps have a signal, and the weights do not change."""
    known = [step for step in run.steps if step.weights is not None]
    rates = run.values("lr")[-WINDOW:]
    if not known and len(rates) == WINDOW and not any(rates):
        first = run.persists("lr", lambda rate: rate == 0)
        return Finding(
            severity=Severity.CRITICAL, since_step=first, statistic=0.0, threshold=0.0, unit="learning rate",
            evidence=f"the learning rate is 0 from step {first} on", wasted=run.since(first),
        )  # fmt: skip
    still = [b for a, b in pairwise(known) if a.weights == b.weights and (b.number("signal") or 0) > 0]
    lately = known[-WINDOW:]
    if len(lately) < WINDOW or len({step.weights for step in lately}) > 1 or not still:
        return None
    return Finding(
        severity=Severity.CRITICAL, since_step=still[0].step, statistic=len(still),
        threshold=WINDOW, unit="steps", evidence=f"the weights are the same, bit by bit, after each of the last "
        f"{len(lately)} steps, although groups had a signal: the learning rate is too small, or the weights are frozen",
        wasted=len(still),
    )  # fmt: skip


@rule(needs=("kl_after_updates", "sampled_correct"), statistic="KL(before ‖ after the updates), median of 5 steps "
      "with a signal, while nothing improves", thresholds="warning 0.015, unless the pass rate (p < 0.01) or dev (5 "
      "points) is above the start's; critical 0.03 nats per token; of fewer steps 0.3",
      source="Spinning Up, PPO (a step ends at 1.5 times 0.01)", advice=(LR, EPOCHS))  # fmt: skip
def update_too_large(run: RunFacts) -> Finding | None:
    """A single step moves the policy far."""
    taught = {step.step for step in run.steps if (step.number("signal") or 0.0) > 0}
    series = [(step, value) for step, value in run.series("kl_after_updates") if step in taught]
    value = median([value for _, value in series[-WINDOW:]]) if series else 0.0
    grade = graded(value, 0.015, 0.03)
    if grade is None or (len(series) < WINDOW and value < 0.3) or run.improves():
        return None
    dev = run.dev_rates
    led_somewhere = run.gains() < SURE or (len(dev) > 1 and dev[-1] - dev[0] > 0.05)
    if grade.severity is Severity.WARNING and led_somewhere:
        return None
    first = next(step for step, value in series if value >= 0.015)
    return Finding(
        **grade._asdict(), since_step=first, unit="nats per token, KL(before ‖ after)",
        evidence=f"a step moves the policy by {value:.3f} nats per token, and nothing is gained by it",
        places=tuple(Place(step) for step, _ in series[-3:]), wasted=run.since(first),
    )  # fmt: skip


@rule(needs=("kl_after_updates", "lr", "sampled_correct"), statistic="KL(before ‖ after the updates), median of 5 "
      "steps with a signal and at least half the largest learning rate, after 10 such steps, while neither dev nor "
      "the pass rate has risen", thresholds="warning below 1e-6 nats per token", source="own",
      advice=(Advice("optimizer.lr", "multiply by 10 (adapters need 10 times the rate of full weights)"),
      Advice("model", "are most weights frozen?")))  # fmt: skip
def update_too_small(run: RunFacts) -> Finding | None:
    """Steps hardly move the policy."""
    peak = max(run.values("lr"), default=0.0)
    taught = {step.step for step in run.steps
              if (step.number("signal") or 0.0) > 0 and (step.number("lr") or 0.0) >= 0.5 * peak}  # fmt: skip
    series = [(step, value) for step, value in run.series("kl_after_updates") if step in taught]
    if len(series) < 2 * WINDOW or run.has_gained():  # many small steps may lead far
        return None
    value = median([value for _, value in series[-WINDOW:]])
    if value >= 1e-6:
        return None
    return Finding(
        severity=Severity.WARNING, since_step=series[0][0], statistic=value, threshold=1e-6,
        unit="nats per token, KL(before ‖ after)",
        evidence=f"a step moves the policy by {value:.1e} nats per token, and neither dev nor the pass rate rises: "
        "the learning rate is too small, or most weights are frozen",
        places=tuple(Place(step) for step, _ in series[-3:]), wasted=len(series),
    )  # fmt: skip


@rule(needs=("clipped",), statistic="share of tokens at a bound, median of 5 steps",
      thresholds="warning 0.2, critical 0.4", source="rldoctor 0.2; axolotl", advice=(LR, EPOCHS))  # fmt: skip
def clipping(run: RunFacts) -> Finding | None:
    """Many tokens are beyond a bound of the loss."""
    series = run.values("clipped")
    if len(series) < WINDOW:
        return None
    share = median(series[-WINDOW:])
    if (grade := graded(share, 0.2, 0.4)) is None:
        return None
    first = run.persists("clipped", lambda share: share >= 0.2)
    return Finding(
        **grade._asdict(), since_step=first, unit="share of tokens",
        evidence=f"a bound of the loss holds at {share:.0%} of the tokens: the updates of one step go too far",
        places=(Place(run.steps[-1].step),), wasted=round(share * run.since(first)),
    )  # fmt: skip


@rule(needs=("kl", "sampled_correct"), statistic="KL to the reference, mean of 5 steps, while nothing improves",
      thresholds="critical 2.0; if nothing has improved since the start: warning 0.5, or where it never reached 1e-4",
      source="axolotl; rldoctor 0.2", advice=(LR,))  # fmt: skip
def kl_to_reference(run: RunFacts) -> Finding | None:
    """The policy is far from its reference for nothing, or cannot leave it."""
    series = run.values("kl")
    term = run.key("loss.kl_coef") or (run.key("imported") is not None and any(series))
    if not term or len(series) < 2 * WINDOW:
        return None
    value = recent(series)
    held = max(map(abs, series)) < 1e-4  # an estimator of another system may be negative
    grade = Grade(Severity.WARNING, value, 1e-4) if held else graded(value, 0.5, 2.0)
    led_somewhere = grade is not None and grade.severity is not Severity.CRITICAL and run.has_gained()
    if grade is None or led_somewhere or (run.improves() and not held):
        return None
    said = "the KL term holds it at its start" if held else "it is far from its start"
    first = run.steps[0].step if held else run.persists("kl", lambda kl: kl >= 0.5)
    return Finding(
        **grade._asdict(), since_step=first, unit="nats per token", wasted=run.since(first),
        evidence=f"KL to the reference is {value:.2g} nats per token and nothing is gained by it: {said}",
        advice=(Advice("loss.kl_coef", "divide by 10" if held else "multiply by 3"),),
    )  # fmt: skip


@rule(needs=("grad_norm",), statistic="norm above the median by 8 absolute deviations and 10 times it",
      thresholds="warning; critical at 100 times with a pass rate that falls",
      source="rldoctor 0.2 (3 times, thrice)", advice=(Advice("optimizer.max_grad_norm", "1"),))  # fmt: skip
def gradient_spikes(run: RunFacts) -> Finding | None:
    """Some steps have a gradient far beyond all others."""
    series = [(step, value) for step, value in run.series("grad_norm") if value > 0]
    if len(series) < 2 * WINDOW:
        return None
    values = [value for _, value in series]
    if not (spikes := [series[i][0] for i in outlying(values, deviations=8, times=10)]):
        return None
    size = max(values) / median(values)
    lost = run.worsens()
    return Finding(
        severity=Severity.CRITICAL if size >= 100 and lost else Severity.WARNING,
        since_step=spikes[0], statistic=size, threshold=10, unit="times the median norm",
        evidence=f"the gradient of {len(spikes)} step{'s' if len(spikes) > 1 else ''} is up to {size:.0f} times the "
        "median and more than 8 deviations beyond it",
        places=tuple(Place(step) for step in spikes[:5]),
    )  # fmt: skip


@rule(needs=("grad_norm", "signal"), statistic="share of 10 steps with a signal whose gradient is 0",
      thresholds="warning 0.4, critical 0.7", source="rldoctor 0.2", advice=(EPOCHS,))  # fmt: skip
def gradient_vanishes(run: RunFacts) -> Finding | None:
    """Groups differ, and the gradient is exactly zero."""
    is_mean = any(b.step - a.step > 1 for a, b in pairwise(run.steps))  # of several steps; the norm is of the last
    taught = [step for step in run.steps if step.number("grad_norm") is not None and (step.number("signal") or 0.0) > 0
              and (not is_mean or any(group.flat is None for group in step.groups))]  # fmt: skip
    if len(taught) < WINDOW:
        return None
    lately = taught[-2 * WINDOW :]
    zeros = [step for step in lately if step.number("grad_norm") == 0]
    share = len(zeros) / len(lately)
    if (grade := graded(share, 0.4, 0.7)) is None:
        return None
    return Finding(
        **grade._asdict(), since_step=zeros[0].step, unit="share of steps with a signal",
        evidence=f"the gradient of {len(zeros)} of the last {len(lately)} steps with a signal is exactly zero",
        places=tuple(Place(step.step) for step in zeros[-3:]), wasted=len(zeros),
    )  # fmt: skip


@rule(needs=("effective_samples",), statistic="effective sample size of the importance weights, mean of 5 steps",
      thresholds="warning 0.5, critical 0.3", source="verl, rollout_corr",
      advice=(Advice("sampling.temperature", "the same on both sides"),))  # fmt: skip
def sampler_mismatch(run: RunFacts) -> Finding | None:
    """Sampler and trainer are different policies."""
    series = run.values("effective_samples")
    if len(series) < WINDOW:
        return None
    share = recent(series)
    if (grade := graded(1 - share, 0.5, 0.7)) is None:
        return None
    first = run.persists("effective_samples", lambda share: share <= 0.5)
    return Finding(
        severity=grade.severity, since_step=first, statistic=share,
        threshold=0.3 if grade.severity is Severity.CRITICAL else 0.5, unit="effective samples, share",
        evidence=f"importance weights leave {share:.0%} of the sample: sampler and trainer are different policies",
        wasted=round((1 - share) * run.since(first)),
    )  # fmt: skip


@rule(needs=("explained_variance",), statistic="explained variance, median of 20 steps; not judged while it rises "
      "and is above its start", thresholds="note 0 (no better than a constant), warning -0.1, critical -1",
      source="Schulman, Nuts and Bolts",
      advice=(Advice("critic.lr", "another rate, with a longer warm-up of the optimizer"),))  # fmt: skip
def critic_explains_nothing(run: RunFacts) -> Finding | None:
    """The critic is no better than a constant."""
    series = run.values("explained_variance")
    if len(series) < 4 * WINDOW:
        return None
    lately = series[-4 * WINDOW :]
    value = median(lately)
    # one that has learnt the mean alone has about -1/n on n new completions, and less while the mean moves
    grade = graded(-value, 0.1, 1.0) or Grade(Severity.NOTE, -value, 0.0)
    learns = rises(lately) < LIKELY and recent(series) > start(series)  # a critic that was spoilt is below its start
    if value > 0 or learns:
        return None
    return Finding(
        severity=grade.severity, since_step=run.steps[-4 * WINDOW].step, statistic=value,
        threshold=0.0 - grade.threshold, unit="explained variance",
        evidence=f"the critic explains {value:.2f} of the returns' variance after {len(series)} steps, and that "
        "does not rise: a constant would do as well",
    )  # fmt: skip

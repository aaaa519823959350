"""Rules on series worked by hand: what they find, and what they leave alone because it did no harm."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from groupwise.checks.doctor import RULES, Severity, diagnose, rule_named
from groupwise.checks.doctor.facts import DevFacts, GroupFacts, RunFacts, StepFacts, ends_in_loop
from groupwise.checks.doctor.rewards import never_correct, reward_without_result
from groupwise.checks.doctor.trends import SURE
from groupwise.errors import ConfigError
from groupwise.runs.row import Row
from groupwise.types import FinishReason, Outcome

N = 20
CALM = {
    "reward": 0.5, "sampled_correct": 0.5, "signal": 0.9, "entropy": 0.2, "length": 30.0, "truncated": 0.0,
    "grad_norm": 0.3, "clipped": 0.0, "kl": 0.01, "effective_samples": 1.0, "generate_s": 1.0, "verify_s": 0.01,
    "train_s": 1.0,
}  # fmt: skip


def line(start: float, end: float, n: int = N) -> list[float]:
    """Evenly from one value to another."""
    return [start + (end - start) * i / (n - 1) for i in range(n)]


def run(
    series: Mapping[str, Sequence[Any]],
    *,
    groups: Sequence[GroupFacts] = (),
    dev: Sequence[DevFacts] = (),
    config: Mapping[str, Any] | None = None,
    damage: tuple[str, ...] = (),
    weights: str | None = None,
) -> RunFacts:
    """A run that is calm but for these series."""
    steps = [
        StepFacts(i, CALM | {name: values[i] for name, values in series.items()}, tuple(groups), weights or f"w{i}")
        for i in range(N)
    ]
    return RunFacts(
        config={"run": {"num_steps": N}, **(config or {})}, steps=tuple(steps), dev=tuple(dev), damage=damage
    )


def group(outcomes: Sequence[Outcome], rewards: Sequence[float | None], loops: bool = False) -> GroupFacts:
    """A group of short completions."""
    return GroupFacts(
        "p",
        tuple(
            Row(
                problem="p", difficulty="", language=None, question="", reference="", open_ended=False, prefill="",
                sample=i, text="wait, " * 8 if loops else "", finish_reason=FinishReason.STOP, outcome=o, reward=r,
                answer=str(r), evidence="", num_tokens=9,
            )
            for i, (o, r) in enumerate(zip(outcomes, rewards, strict=True))
        ),
    )  # fmt: skip


def dev(step: int, value: float, solved: Mapping[str, float] | None = None, second: Any = None) -> DevFacts:
    return DevFacts(step, value, {"second": second}, solved or {})


C, W = Outcome.CORRECT, Outcome.WRONG
LESS = line(0.5, 0.2)
SICK = {
    "no_signal": run({"signal": [0.1] * N}),
    "never_correct": run({"sampled_correct": [0.0] * N}, groups=[group([W] * 16, [0.0] * 16)]),
    "verifier_fails": run({}, groups=[group([C, W, Outcome.CRASHED], [1.0, 0.0, None])]),
    "second_opinion": run({}, dev=[dev(5, 0.5, second={
        "share": [0.3, 0.2, 0.4], "verifier": "math", "rejected": 3, "judged": 10, "example": None})]),
    "reward_without_result": run({"reward": line(0.2, 0.9), "sampled_correct": LESS}),
    "reward_falls": run({"reward": LESS, "sampled_correct": LESS}),
    "part_dominates": run({"sampled_correct": [0.5] * N}, groups=[group([C, C, W, W], [1.0, 0.0, 1.0, 0.0])]),
    "part_constant": run({"parts": [{"part/accuracy/std": 0.5, "part/form/std": 0.0, "part/form/mean": 0.2}] * N}),
    "overfitting": run({"sampled_correct": line(0.4, 0.9)}, dev=[dev(0, 0.5), dev(10, 0.45), dev(20, 0.4)]),
    "forgetting": run({}, dev=[dev(9 * i, 1.0 - i, {str(n): 1.0 - i for n in range(9)}) for i in (0, 1)]),
    "entropy_collapse": run({"entropy": [0.2 * 0.7**i for i in range(N)]}),
    "entropy_explosion": run({"entropy": line(0.2, 2.0), "reward": LESS, "sampled_correct": LESS}),
    "entropy_bonus": run({}, config={"loss": {"entropy_coef": 1.0}}),
    "length_runaway": run({"length": line(20, 60), "reward": line(0.1, 0.4)}),
    "length_collapse": run({"length": line(60, 10), "sampled_correct": LESS}),
    "truncation": run({"truncated": line(0.1, 0.6)}),
    "language_mixing": run({"distributions": [
        {"other_scripts": share, "length": {"num": 36}} for share in line(0.0, 0.4)]}),
    "weights_stand_still": run({}, weights="same"),
    "update_too_large": run({"distributions": [{"kl_after_updates": 0.05}] * N}),
    "update_too_small": run({"lr": [1e-9] * N, "distributions": [{"kl_after_updates": 1e-9}] * N}),
    "clipping": run({"clipped": [0.5] * N}),
    "kl_to_reference": run({"kl": line(0.1, 3.0)}, config={"loss": {"kl_coef": 0.01}}),
    "gradient_spikes": run({"grad_norm": [0.3] * 12 + [300.0] + [0.3] * 7}),
    "gradient_vanishes": run({"grad_norm": [0.0] * N}), "sampler_mismatch": run({"effective_samples": [0.2] * N}),
    "critic_explains_nothing": run({"explained_variance": [-2.0] * N}),
    "verifying_is_slow": run({"verify_s": [3.0] * N}),
    "throughput_falls": run({"tokens_per_second": line(900, 200), "generate_s": line(1, 5)}),
    "not_finite": run({"grad_norm": [0.3] * 12 + [math.nan] * 8}),
    "record_damaged": run({}, damage=("ledger.jsonl, line 3: the line before it was changed",)),
}  # fmt: skip
"""A run for every rule that twenty short steps can show."""


@pytest.mark.parametrize("rule", sorted(SICK))
def test_a_rule_finds_what_it_is_for(rule: str) -> None:
    found = {finding.check: finding for finding in diagnose(SICK[rule]).findings}
    assert rule in found
    assert 0 <= found[rule].since_step < N
    assert found[rule].wasted <= N - found[rule].since_step
    assert found[rule].evidence


def test_every_rule_has_a_run_that_needs_it() -> None:
    of_episodes = {"ended_by_limits", "turns_collapse"}  # test_episode_rules.py
    of_texts = {"loops", "plateau", "habit_is_lost"}  # below; the matrix has the others, which need 60 steps
    assert {*RULES} - {*SICK} == of_episodes | of_texts


def test_a_calm_run_is_left_alone() -> None:
    assert diagnose(run({}, groups=[group([C, W], [1.0, 0.0])])).findings == ()
    assert diagnose(run({"length": line(0, 0)})).findings == ()  # as some imported runs have it


UP = {"sampled_correct": line(0.3, 0.8), "reward": line(0.3, 0.8)}
HEALTHY = {
    "entropy falls while the pass rate rises": {"entropy": [0.2 * 0.8**i for i in range(N)], **UP},
    "length grows with the pass rate": {"length": line(20, 80), **UP},
    "truncation falls while the pass rate rises": {"truncated": line(0.6, 0.1), **UP},
    "entropy fell while much was learnt, and stays": {
        "entropy": [0.13, 0.09, 0.05, 0.03, *[0.006] * 16],
        "sampled_correct": [0.3, 0.4, 0.6, 0.7, *[0.8, 0.76, 0.82, 0.78] * 4]},
    "entropy grows with the reward": {"entropy": line(0.1, 0.5), **UP},
    "small steps that lead far": {"lr": [1e-6] * N, "distributions": [{"kl_after_updates": 1e-8}] * N, **UP},
    "small steps at the end of a schedule": {
        "lr": line(1e-3, 0.0), "distributions": [{"kl_after_updates": 4e-3 * (1 - i / N) ** 4} for i in range(N)]},
    "shorter completions fill a batch less well": {"tokens_per_second": line(900, 200), "generate_s": line(5, 1)},
    "another language that was there from the start": {"distributions": [{"other_scripts": 0.2}] * N},
    "three odd completions of 180": {
        "distributions": [{"other_scripts": (i > 16) / 36, "length": {"num": 36}} for i in range(N)]},
    "a small bonus for entropy": {"entropy": [0.3] * N},
    "entropy that rises a little": {"entropy": line(0.2, 0.26), "reward": LESS, "sampled_correct": [0.5, 0.4] * 10},
    "brevity that costs nothing": {"length": line(60, 40)},
    "a critic that begins far off and learns": {"explained_variance": line(-3.0, -0.4)},
    "large steps that lead somewhere": {
        "distributions": [{"kl_after_updates": 0.02, "length": {"num": 36}}] * N,
        "sampled_correct": [*line(0.3, 0.6, 10), *[0.6, 0.58] * 5]},
    "a reward that falls while as many are right": {"reward": LESS},
    "a critic that knows the mean": {"explained_variance": [-0.03] * N},
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(HEALTHY))
def test_what_does_no_harm_is_left_alone(name: str) -> None:
    assert [f.check for f in diagnose(run(HEALTHY[name])).findings if f.severity is not Severity.NOTE] == []


def test_dead_groups_by_hand() -> None:
    """4 of the 5 last steps have 60 % of dead groups, one has 80 %: 64 %, a warning; solved problems are a note."""
    signal = [0.9] * 15 + [0.4, 0.4, 0.4, 0.4, 0.2]
    (finding,) = diagnose(run({"signal": signal})).findings
    assert finding.statistic == pytest.approx(0.64)
    assert (finding.severity, finding.since_step) == (Severity.WARNING, 15)
    (finding,) = diagnose(run({"signal": signal, "sampled_correct": [0.95] * N})).findings
    assert finding.severity is Severity.NOTE


def test_a_share_of_few_groups_proves_little() -> None:
    """52 % of 25 groups may be a third of all (lower bound 0.36); of 1,000 it is a half."""
    few, many = ({"signal": [0.46] * N, "sampled_groups": [number] * N} for number in (5, 200))
    assert diagnose(run(few)).findings == ()
    (finding,) = diagnose(run(many)).findings
    assert finding.statistic == pytest.approx(0.514, abs=1e-3)
    (solved,) = diagnose(run({**few, "sampled_correct": [0.95] * N})).findings
    assert solved.severity is Severity.NOTE


def test_entropy_that_rises_while_the_pass_rate_falls_need_not_double() -> None:
    facts = run({"entropy": line(0.2, 0.3), "reward": LESS, "sampled_correct": LESS})
    (finding,) = [one for one in diagnose(facts).findings if one.check == "entropy_explosion"]
    assert (finding.threshold, finding.severity) == (1.25, Severity.WARNING)


def test_what_brevity_cost_is_not_regained_by_a_little() -> None:
    """The pass rate falls from 0.5 to 0.2 and rises to 0.3 again, while completions go from 60 to 40 tokens."""
    counted = [{"length": {"num": 36}}] * N
    facts = run({"length": line(60, 36), "sampled_correct": [*[0.5] * 5, *[0.2] * 5, *line(0.2, 0.3, 10)],
                 "distributions": counted})  # fmt: skip
    assert facts.loses() < SURE < facts.gains()
    assert "length_collapse" in [one.check for one in diagnose(facts).findings]


def test_gains_by_hand() -> None:
    """100 of 250 at the start, 300 of 500 now: pooled 8/15, z = 0.2 / sqrt(8/15 * 7/15 * (1/250 + 1/500)) = 5.175."""
    counted = [{"length": {"num": 50}}] * N
    facts = run({"sampled_correct": [0.4] * 10 + [0.6] * 10, "distributions": counted})
    assert facts.gains() == pytest.approx(0.5 * math.erfc(5.1755 / math.sqrt(2)), rel=1e-3)
    assert facts.gains() + facts.loses() == pytest.approx(1.0)
    assert facts.until(10).gains() == 0.5  # eleven steps are too few


def test_a_spoilt_critic_is_told_though_it_rises() -> None:
    """From 0 to -0.5 within four steps, then slowly up again: below where it began."""
    spoilt = run({"explained_variance": [0.0, -0.1, -0.3, -0.5, *line(-0.6, -0.4, N - 4)]})
    assert [one.check for one in diagnose(spoilt).findings] == ["critic_explains_nothing"]


def test_dev_that_is_unsure_proves_no_overfitting() -> None:
    """A gain of 0.3 in training, none on dev: known to 0.02 it is a warning, known to 0.3 it is not."""
    series = {"sampled_correct": line(0.4, 0.8)}
    for half, found in ((0.02, ["overfitting"]), (0.3, [])):
        known = [DevFacts(i, 0.5, {"pass_at_1": [0.5, 0.5 - half, 0.5 + half]}, {}) for i in (0, 10, 20)]
        assert [one.check for one in diagnose(run(series, dev=known)).findings] == found
    few = [DevFacts(i, 0.5, {"pass_at_1": [0.5] * 3}, {"a": 1.0, "b": 0.0}) for i in (0, 10, 20)]
    assert diagnose(run(series, dev=few)).findings == ()  # an imported run has no interval, but problems


def test_the_best_of_many_evaluations_is_no_rise() -> None:
    flat = [dev(i, 0.5 + 0.01 * (i % 2)) for i in range(9)]
    assert not run({}, dev=[*flat, dev(9, 0.53)]).improves()
    assert run({}, dev=[dev(0, 0.5), dev(9, 0.53)]).improves()


def test_parts_by_their_means_alone() -> None:
    """Without completions, what a part's mean varies by stands for what sets completions apart."""
    n = 120
    steps = [
        StepFacts(i, {"sampled_correct": 0.5 + 0.01 * (i % 2), "parts": {
            "part/right/mean": 0.5 + 0.01 * (i % 2), "part/form/mean": 0.5 + form * (i % 2)}}, ())
        for form in (0.1, 0.005) for i in range(n)
    ]  # fmt: skip
    loud, calm = (RunFacts(config={}, steps=tuple(some), dev=()) for some in (steps[:n], steps[n:]))
    (finding,) = diagnose(loud).findings
    assert (finding.check, finding.statistic) == ("part_dominates", pytest.approx(100 / 101))
    assert "form" in finding.evidence
    assert diagnose(calm).findings == ()


def test_a_slow_machine_is_no_fault_of_the_run() -> None:
    slow = {"tokens_per_second": line(900, 200), "generate_s": line(1, 5)}
    (own,) = diagnose(run(slow)).findings
    (shared,) = diagnose(run({**slow, "busy_cores": [2.0] * N})).findings
    assert (own.severity, shared.severity) == (Severity.WARNING, Severity.NOTE)
    assert "sampling went from 1.4" in own.evidence
    assert "other programs take 2.0 cores" in shared.evidence


def test_a_part_that_speaks_against_correctness() -> None:
    """Correct ones are paid 1, half of the wrong ones 3: all of the variance speaks against being right."""
    against = group([C, C, W, W], [1.0, 1.0, 3.0, 3.0])
    along = group([C, C, W, W], [3.0, 3.0, 1.0, 1.0])
    (finding,) = diagnose(run({}, groups=[against] * 3).until(4)).findings  # ten mixed groups are enough
    assert (finding.check, finding.statistic, finding.severity) == ("part_dominates", 1.0, Severity.CRITICAL)
    assert diagnose(run({}, groups=[along] * 3)).findings == ()
    assert diagnose(run({}, groups=[against]).until(4)).findings == ()  # five are not
    half = group([C, C, W, W], [2.0, 1.0, 1.0, 0.0])  # variances: 0.5 in all, 0.25 within the sides
    assert diagnose(run({}, groups=[half] * 3)).findings == ()


def test_a_reward_that_rose_and_stays_up_is_told_to_the_end() -> None:
    rewards = [*line(0.2, 0.9, 10), *[0.9] * 10]
    (finding,) = diagnose(run({"reward": rewards, "sampled_correct": [0.5, 0.4] * 10})).findings
    assert (finding.check, finding.since_step) == ("reward_without_result", 0)


def test_entropy_that_goes_on_falling_when_nothing_is_gained_any_more() -> None:
    learnt = [0.3, 0.4, 0.6, 0.7, *[0.8, 0.76, 0.82, 0.78] * 4]
    series = {"entropy": [0.13, 0.09, 0.05, 0.03, *(0.03 * 0.8**i for i in range(16))], "sampled_correct": learnt}
    assert "entropy_collapse" in [one.check for one in diagnose(run(series)).findings]


def test_entropy_that_heads_for_noise() -> None:
    """It doubles in 60 steps, of which there have been 20; the pass rate falls."""
    series = {"entropy": [0.2 * 2 ** (i / 60) for i in range(N)], "reward": LESS, "sampled_correct": LESS}
    assert "entropy_explosion" not in [f.check for f in diagnose(run(series)).findings]  # it is over before
    longer = run(series, config={"run": {"num_steps": 80}})
    assert "entropy_explosion" in [f.check for f in diagnose(longer).findings]


def test_scalars_that_not_every_step_has() -> None:
    """TRL logs rewards and lengths at the steps that sample, entropy and gradients at all of them."""

    def some(values: Sequence[float]) -> list[float | None]:
        return [None if i % 2 else value for i, value in enumerate(values)]

    series = {"length": line(20, 60), "reward": some(line(0.1, 0.4)), "truncated": some([0.5] * N)}
    found = {one.check: one for one in diagnose(run(series)).findings}
    assert "the reward +1.00" in found["length_runaway"].evidence
    assert (found["truncation"].since_step, found["truncation"].wasted) == (0, 10)
    parts = [{"part/right/mean": 0.5, "part/form/mean": 0.5 + 0.1 * (i % 4)} if i % 2 else {} for i in range(210)]
    steps = tuple(StepFacts(i, {"sampled_correct": 0.5, "parts": of}, ()) for i, of in enumerate(parts))
    assert [one.check for one in diagnose(RunFacts(config={}, steps=steps, dev=())).findings] == ["part_dominates"]


def test_lines_of_ten_steps_each() -> None:
    """A finished run of 200 steps is not judged by what would come, nor its means by the gradient of a last step."""
    facts = run({"entropy": [0.2 * 0.94**i for i in range(N)], "signal": [0.6] * N, "grad_norm": [0.0, 0.3] * 10,
                 "truncated": [0.5] * N, "lr": [0.0] * N}, config={"run": {"num_steps": 191}})  # fmt: skip
    steps = tuple(replace(step, step=10 * step.step, weights=None) for step in facts.steps)
    diagnosis = diagnose(replace(facts, steps=steps))
    said = {one.check: (one.since_step, one.wasted) for one in diagnosis.findings}
    assert said == {"truncation": (0, 96), "weights_stand_still": (0, 191)}  # the second: the learning rate is 0
    assert (diagnosis.num_steps, diagnosis.rhythm) == (20, 10)


def test_problems_that_no_group_ever_disagreed_on() -> None:
    (finding,) = diagnose(run({"signal": [0.0] * N, "sampled_correct": [1.0] * N})).findings
    assert (finding.check, finding.severity) == ("no_signal", Severity.WARNING)
    assert "the same for any answer" in finding.evidence


def test_what_a_distance_from_the_reference_was_worth() -> None:
    gained = {"kl": line(0.0, 0.8), "sampled_correct": [*line(0.3, 0.8, 14), *[0.8, 0.78] * 3]}
    lost = {**gained, "sampled_correct": [0.5, 0.49] * 10}
    assert diagnose(SICK["kl_to_reference"]).findings[0].since_step == 3  # where it is beyond 0.5
    for series, found in ((gained, []), (lost, ["kl_to_reference"]), ({"kl": [-0.01] * N}, [])):
        assert [one.check for one in diagnose(run(series, config={"loss": {"kl_coef": 0.1}})).findings] == found


def test_dead_groups_under_a_critic_are_no_matter() -> None:
    assert diagnose(run({"signal": [0.1] * N}, config={"critic": {"lr": 1e-3}})).findings == ()


def test_a_limit_that_shapes_what_is_learnt() -> None:
    series = {"truncated": line(0.6, 0.1), **UP}
    (finding,) = diagnose(run(series, config={"sampling": {"max_tokens": 40}})).findings  # the mean length is 30
    assert finding.check == "truncation"


def test_evidence_names_the_completions() -> None:
    (finding,) = diagnose(run({}, groups=[group([C, W, Outcome.CRASHED], [1.0, 0.0, None])])).findings
    assert finding.places[0] == (N - 1, "p", 2, None)


def test_what_was_not_recorded_is_named_and_not_guessed() -> None:
    diagnosis = diagnose(run({"entropy": [None] * N}))
    assert diagnosis.not_judged["entropy_collapse"] == ["entropy"]
    assert diagnosis.not_judged["update_too_large"] == ["kl_after_updates"]


def test_the_run_as_it_was() -> None:
    facts = SICK["gradient_spikes"]
    assert not diagnose(facts.until(11)).findings
    assert [f.check for f in diagnose(facts.until(12)).findings] == ["gradient_spikes"]


def test_loops() -> None:
    assert ends_in_loop("So, 12 12 12 12 12 12 12 12 12 12")
    assert not ends_in_loop("12 * 34 = 408, as 12 * 30 = 360 and 12 * 4 = 48")
    assert not ends_in_loop("")


@pytest.mark.parametrize(("price", "remaining", "found"), [(0.12, 1, True), (0.0, 1, False), (0.12, 4, False)])
def test_a_habit_is_lost_where_a_part_costs_it(price: float, remaining: int, found: bool) -> None:
    """A language reward that took "Wait, let me check" for French, while completions that say it are right as often."""

    def step(number: int, checking: int) -> StepFacts:
        texts = ["Wait, let me check." if i < checking else "It is 4." for i in range(8)]
        one = group([C, W] * 4, [1.0, 0.0] * 4)
        rows = [
            replace(
                row, text=text, reward_parts={"accuracy": float(i % 2 == 0), "language": 1.0 - price * (text[0] == "W")}
            )
            for i, (row, text) in enumerate(zip(one.completions, texts, strict=True))
        ]
        return StepFacts(number, CALM, tuple(GroupFacts(f"p{i}", tuple(rows)) for i in range(3)))

    facts = RunFacts(config={}, steps=tuple(step(i, 6 if i < N // 2 else remaining) for i in range(N)), dev=())
    findings = {finding.check: finding for finding in diagnose(facts).findings}
    assert ("habit_is_lost" in findings) is found
    if found:
        said = "a phrase of `checks` went from 75% to 12%: the part language gives them 0.12 ± 0.00 less"
        assert said in findings["habit_is_lost"].evidence


def test_unknown_rule() -> None:
    with pytest.raises(ConfigError, match="there is no rule 'entropy'"):
        rule_named("entropy")


def test_every_rule_says_all() -> None:
    for name, rule in RULES.items():
        assert name == rule.name
        assert all((rule.says, rule.statistic, rule.thresholds, rule.source))


def test_a_rise_of_correctness_counts_where_most_steps_have_none_right() -> None:
    """Strict JSON with a real model, steps 0 to 10: the median slope of correctness is 0."""
    reward = [0.16, 0.2, 0.5, 0.32, 0.49, 0.37, 0.43, 1.0, 0.45, 1.27, 1.11]
    correct = [0.0, 0.0, 0.09, 0.0, 0.0, 0.0, 0.0, 0.38, 0.0, 0.41, 0.41]
    rest = [0.0] * (N - 11)
    facts = run({"reward": reward + rest, "sampled_correct": correct + rest}).until(10)
    assert reward_without_result(facts) is None
    facts = run({"reward": reward + rest, "sampled_correct": [0.0] * N}).until(10)
    assert reward_without_result(facts) is not None


@pytest.mark.parametrize(("signal", "severity"), [(1.0, Severity.NOTE), (0.2, Severity.WARNING)])
def test_nothing_correct_is_a_note_while_other_parts_teach(signal: float, severity: Severity) -> None:
    none_right = {"sampled_correct": [0.0] * N, "signal": [signal] * N}
    finding = never_correct(run(none_right, groups=[group([W] * 16, [0.0] * 16)]).until(9))
    assert finding is not None
    assert finding.severity is severity

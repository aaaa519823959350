"""Policy losses: by hand, against loops written from the papers and their finite differences, and what each claims."""

import math
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor

from groupwise.algorithms.policy_losses import POLICY_LOSSES, PolicyLoss, TokenLosses, policy_loss
from groupwise.errors import ConfigError


class Bounds(NamedTuple):
    """The dials of all losses; each reads its own."""

    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float = 0.0
    tau_pos: float = 1.0
    tau_neg: float = 1.05


def loss(name: str, bounds: Bounds) -> PolicyLoss:
    """Unchecked, so that a dual clip of 1 can be asked what it does."""
    settings = POLICY_LOSSES.settings(name)
    dials = {dial: value for dial, value in bounds._asdict().items() if dial in settings.model_fields}
    made = settings.model_construct(kind=name, **dials)
    assert isinstance(made, PolicyLoss)
    return made


LOW, HIGH = 0.2, 0.3
BOUNDS = Bounds(clip_low=LOW, clip_high=HIGH, tau_pos=1.5, tau_neg=2.5)
DUAL = BOUNDS._replace(dual_clip=3.0)
FEW = settings(max_examples=30)  # each of these tests runs for several losses
LOSSES = pytest.mark.parametrize("name", POLICY_LOSSES.table)
BOTH_BOUNDS = pytest.mark.parametrize("bounds", [BOUNDS, DUAL], ids=["one clip", "dual clip"])


# --- the papers' equations as loops over numbers. `still` are the log-probabilities inside a stop-gradient: the same
# numbers as `new`, except that finite differences do not move them.

Numbers = list[float]
SlowLoss = Callable[[Numbers, Numbers, Numbers, Numbers, list[int], Bounds], Numbers]


def by_token(formula: Callable[[float, float, float, float, Bounds], float]) -> SlowLoss:
    return lambda new, still, old, advantages, lengths, b: [
        formula(*token, b) for token in zip(new, still, old, advantages, strict=True)
    ]


def slow_clip(rho: float, a: float, b: Bounds) -> float:
    bounded = min(max(rho, 1 - b.clip_low), 1 + b.clip_high)
    objective = min(rho * a, bounded * a)
    return -max(objective, b.dual_clip * a) if a < 0 and b.dual_clip else -objective


def slow_sequence_ratio(
    new: Numbers, still: Numbers, old: Numbers, advantages: Numbers, lengths: list[int], b: Bounds
) -> Numbers:
    losses, start = [], 0
    for length in lengths:
        tokens = range(start, start + length)
        new_joint, old_joint = (math.exp(math.fsum(numbers[t] for t in tokens)) for numbers in (new, old))
        losses += [slow_clip((new_joint / old_joint) ** (1 / length), advantages[t], b) for t in tokens]
        start += length
    return losses


def slow_weight(new: float, still: float, old: float, a: float, b: Bounds) -> float:
    return -min(max(math.exp(still - old), 1 - b.clip_low), 1 + b.clip_high) * a * new


def slow_gate(new: float, still: float, old: float, a: float, b: Bounds) -> float:
    tau = b.tau_pos if a > 0 else b.tau_neg
    return -4 / tau * a / (1 + math.exp(-tau * (math.exp(new - old) - 1)))


SLOW: dict[str, SlowLoss] = {
    "reinforce": by_token(lambda new, still, old, a, b: -a * new),
    "clipped_ratio": by_token(lambda new, still, old, a, b: slow_clip(math.exp(new - old), a, b)),
    "sequence_ratio": slow_sequence_ratio,
    "clipped_weight": by_token(slow_weight),
    "soft_gate": by_token(slow_gate),
}


# --- one token by hand: log π_old = -1, so that log π = log ρ - 1; clip 0.2 and 0.3, dual clip 3, τ = 1 and 1.05


class Case(NamedTuple):
    ratio: float
    advantage: float
    loss: float
    slope: float
    """Derivative of the loss by log π."""
    clipped: bool


CLIP_CASES = (
    Case(1.5, 2.0, -2.6, 0.0, True),  # good and already likelier: -1.3 · 2, no further push
    Case(1.5, -2.0, 3.0, 3.0, False),  # bad and likelier: pushed back in full
    Case(0.5, 2.0, -1.0, -1.0, False),  # good and less likely: pulled up in full
    Case(0.5, -2.0, 1.6, 0.0, True),  # bad and already less likely: 0.8 · 2, no further push
    Case(1.1, 2.0, -2.2, -2.2, False),  # inside the bounds the clip does nothing
    Case(0.9, -2.0, 1.8, 1.8, False),
    Case(1.25, 2.0, -2.5, -2.5, False),  # between 1 + clip_low and 1 + clip_high
    Case(1.0, 2.0, -2.0, -2.0, False),  # on-policy the gradient is that of REINFORCE
    Case(1.0, -2.0, 2.0, 2.0, False),
    Case(1.5, 0.0, 0.0, 0.0, False),
    Case(2.5, -2.0, 5.0, 5.0, False),  # bad and much likelier, below the dual clip
    Case(5.0, -2.0, 6.0, 0.0, True),  # above it: 3 · 2 instead of 5 · 2
    Case(5.0, 2.0, -2.6, 0.0, True),  # the dual clip is for negative advantages
)
BY_HAND: dict[str, tuple[Case, ...]] = {
    "reinforce": (
        Case(1.5, 2.0, 1.189070, -2.0, False),  # -2 (0.405465 - 1)
        Case(0.5, -2.0, -3.386294, 2.0, False),  # 2 (-0.693147 - 1)
        Case(1.0, 2.0, 2.0, -2.0, False),
    ),
    "clipped_ratio": CLIP_CASES,
    "sequence_ratio": CLIP_CASES,  # of one token it is the same
    "clipped_weight": (
        Case(1.5, 2.0, 1.545791, -2.6, True),  # -1.3 · 2 (0.405465 - 1)
        Case(1.5, -2.0, -1.545791, 2.6, True),
        Case(0.5, 2.0, 2.709035, -1.6, True),  # -0.8 · 2 (-0.693147 - 1)
        Case(0.5, -2.0, -2.709035, 1.6, True),
        Case(1.25, 2.0, 1.942141, -2.5, False),  # -1.25 · 2 (0.223144 - 1)
        Case(1.0, 2.0, 2.0, -2.0, False),
        Case(1.0, -2.0, -2.0, 2.0, False),
    ),
    "soft_gate": (
        Case(1.0, 2.0, -4.0, -2.0, False),  # σ(0) = 1/2
        Case(1.0, -2.0, 3.809524, 2.0, False),  # 4 / 1.05
        Case(1.5, 2.0, -4.979675, -2.820045, False),  # σ(0.5) = 0.622459; slope -4 · 0.622459 · 0.377541 · 1.5 · 2
        Case(0.5, -2.0, 2.831877, 0.934140, False),  # σ(-0.525) = 0.371684; slope 4 · 0.371684 · 0.628316 · 0.5 · 2
        Case(1.5, 0.0, 0.0, 0.0, False),
    ),
}
HAND_BOUNDS = Bounds(LOW, HIGH, dual_clip=3.0)
HAND_CASES = [pytest.param(name, case, id=f"{name} {case}") for name, cases in BY_HAND.items() for case in cases]


@pytest.mark.parametrize("proofs", [SLOW, BY_HAND])
def test_every_loss_has_its_proofs(proofs: dict[str, object]) -> None:
    assert list(proofs) == list(POLICY_LOSSES.table)


def one(name: str, ratio: float, advantage: float, bounds: Bounds) -> tuple[float, float, bool]:
    """Loss of one token, its derivative by the log-probability, and whether a bound holds."""
    logprobs = torch.tensor([math.log(ratio) - 1], dtype=torch.float64, requires_grad=True)
    old, advantages = torch.tensor([[-1.0], [advantage]], dtype=torch.float64)
    out = loss(name, bounds)(logprobs, old, advantages, torch.tensor([1]))
    (slope,) = torch.autograd.grad(out.loss.sum(), logprobs)
    assert out.ratio.item() == pytest.approx(ratio)
    return out.loss.item(), slope.item(), bool(out.clipped)


@pytest.mark.parametrize(("name", "case"), HAND_CASES)
def test_one_token_by_hand(name: str, case: Case) -> None:
    found = one(name, case.ratio, case.advantage, HAND_BOUNDS)
    assert found == (pytest.approx(case.loss, abs=3e-6), pytest.approx(case.slope, abs=3e-6), case.clipped)


def test_a_sequence_by_hand() -> None:
    # ratios 2 and 0.72 make 1.44, whose root is 1.2; the second sequence has 0.5, below the bound
    ratios, old = torch.tensor([2.0, 0.72, 0.5]), torch.tensor([-1.0, -2.0, -0.5])
    new = (old + ratios.log()).requires_grad_()
    out = loss("sequence_ratio", BOUNDS)(new, old, torch.tensor([1.0, 1.0, -1.0]), torch.tensor([2, 1]))
    assert out.loss.tolist() == pytest.approx([-1.2, -1.2, 0.8])
    assert out.ratio.tolist() == pytest.approx([1.2, 1.2, 0.5])
    assert out.clipped.tolist() == [False, False, True]
    out.loss.sum().backward()
    assert new.grad.tolist() == pytest.approx([-1.2, -1.2, 0.0])  # two tokens of loss, half the slope each


class Batch(NamedTuple):
    new: Tensor
    old: Tensor
    advantages: Tensor
    lengths: Tensor


def batch(seed: int, spread: float = 0.4, sequences: int = 40, each: bool = True) -> Batch:
    """Sequences of 1 to 5 tokens; `each` token has its own advantage, else each sequence has one."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 6, (sequences,), generator=generator)
    count = int(lengths.sum())
    old = -torch.rand(count, generator=generator, dtype=torch.float64) * 3
    new = old + torch.randn(count, generator=generator, dtype=torch.float64) * spread
    advantages = torch.randn(count if each else sequences, generator=generator, dtype=torch.float64)
    return Batch(new, old, advantages if each else advantages.repeat_interleave(lengths), lengths)


def fast(name: str, given_batch: Batch, bounds: Bounds) -> tuple[TokenLosses, Tensor]:
    """The loss and its gradient by the log-probabilities."""
    new = given_batch.new.clone().requires_grad_()
    out = loss(name, bounds)(new, *given_batch[1:])
    return out, torch.autograd.grad(out.loss.sum(), new)[0]


def slow_slopes(name: str, tokens: Batch, bounds: Bounds, step: float = 1e-5) -> Numbers:
    """Central differences of the summed loop; what stands in a stop-gradient does not move."""
    still, old, advantages, lengths = (part.tolist() for part in tokens)
    slopes = []
    for t in range(len(still)):
        above, below = (
            math.fsum(SLOW[name]([*still[:t], still[t] + h, *still[t + 1 :]], still, old, advantages, lengths, bounds))
            for h in (step, -step)
        )
        slopes.append((above - below) / (2 * step))
    return slopes


@LOSSES
@BOTH_BOUNDS
@pytest.mark.parametrize("spread", [0.1, 0.4, 1.0])
def test_equals_the_equation_as_a_loop_in_value_and_slope(name: str, bounds: Bounds, spread: float) -> None:
    tokens = batch(0, spread, sequences=20)
    out, slopes = fast(name, tokens, bounds)
    new, old, advantages, lengths = (part.tolist() for part in tokens)
    assert out.loss.tolist() == pytest.approx(SLOW[name](new, new, old, advantages, lengths, bounds), abs=1e-12)
    assert slopes.tolist() == pytest.approx(slow_slopes(name, tokens, bounds), abs=1e-7)


@pytest.mark.parametrize("name", ["clipped_ratio", "sequence_ratio", "soft_gate", "reinforce"])  # no stop-gradient
@BOTH_BOUNDS
def test_gradient_equals_finite_differences(name: str, bounds: Bounds) -> None:
    tokens = batch(1, sequences=10)
    assert torch.autograd.gradcheck(lambda new: loss(name, bounds)(new, *tokens[1:]).loss, tokens.new.requires_grad_())


@LOSSES
def test_reports_the_ratio_of_its_own_level(name: str) -> None:
    tokens = batch(2)
    ratios = (tokens.new - tokens.old).exp().tolist()
    if name == "sequence_ratio":
        rows = (tokens.new - tokens.old).split(tokens.lengths.tolist())
        ratios = [math.exp(math.fsum(row.tolist()) / len(row)) for row in rows for _ in row]
    assert fast(name, tokens, BOUNDS)[0].ratio.tolist() == pytest.approx(ratios)


@LOSSES
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_diagnostics_carry_no_gradient_and_dtypes_stay(name: str, dtype: torch.dtype) -> None:
    tokens = batch(3)
    new = tokens.new.to(dtype).requires_grad_()
    out = loss(name, DUAL)(new, tokens.old.to(dtype), tokens.advantages.to(dtype), tokens.lengths)
    assert out.loss.requires_grad
    assert not out.ratio.requires_grad
    assert not out.clipped.requires_grad
    assert out.loss.dtype is out.ratio.dtype is dtype
    assert out.clipped.dtype is torch.bool
    assert out.loss.shape == out.ratio.shape == out.clipped.shape == new.shape


@LOSSES
@BOTH_BOUNDS
def test_on_policy_the_gradient_is_that_of_reinforce(name: str, bounds: Bounds) -> None:
    tokens = batch(4, spread=0.0, each=False)
    out, slopes = fast(name, tokens, bounds)
    torch.testing.assert_close(slopes, -tokens.advantages)
    assert (out.ratio == 1).all()
    assert not out.clipped.any()


@LOSSES
@FEW
@given(shift=st.floats(-3, 3), bounds=st.sampled_from([BOUNDS, DUAL]))
def test_no_advantage_is_no_loss_and_no_gradient(name: str, shift: float, bounds: Bounds) -> None:
    assert one(name, math.exp(shift), 0.0, bounds)[:2] == (0.0, 0.0)


@LOSSES
@FEW
@given(ratio=st.floats(0.05, 8), advantage=st.floats(-3, 3), factor=st.floats(0.1, 20))
def test_a_positive_factor_of_the_advantage_is_one_of_loss_and_slope(
    name: str, ratio: float, advantage: float, factor: float
) -> None:
    loss, slope, clipped = one(name, ratio, advantage, DUAL)
    larger = one(name, ratio, factor * advantage, DUAL)
    assert larger[:2] == pytest.approx((factor * loss, factor * slope), rel=1e-9, abs=1e-9)
    assert larger[2] == clipped


@pytest.mark.parametrize("name", ["clipped_ratio", "sequence_ratio"])
@BOTH_BOUNDS
def test_gradient_is_zero_exactly_where_clipped(name: str, bounds: Bounds) -> None:
    tokens = batch(6, spread=0.8, sequences=200, each=False)
    out, slopes = fast(name, tokens, bounds)
    assert 0.1 < out.clipped.double().mean() < 0.9
    assert ((slopes == 0) == out.clipped).all()
    seen = set(zip(out.clipped.tolist(), (tokens.advantages > 0).tolist(), (out.ratio > 1).tolist(), strict=True))
    assert len(seen) == 6 + (bounds.dual_clip > 0)  # clipped: good above 1, bad below it, with dual clip bad above it


@pytest.mark.parametrize("name", ["clipped_ratio", "sequence_ratio", "clipped_weight"])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_at_a_bound_itself_nothing_is_stopped(name: str, advantage: float) -> None:
    assert one(name, 1.0, advantage, Bounds(0.0, 0.0))[1:] == (-advantage, False)
    assert not one(name, 1.0, advantage, Bounds(0.0, 0.0, dual_clip=1.0))[2]


@given(ratio=st.floats(0.01, 20), advantage=st.floats(-3, 3))
def test_the_dual_clip_bounds_the_loss_of_negative_advantages_and_nothing_else(ratio: float, advantage: float) -> None:
    single, dual = (one("clipped_ratio", ratio, advantage, bounds)[0] for bounds in (BOUNDS, DUAL))
    assert dual == pytest.approx(min(single, -3 * advantage) if advantage < 0 else single)


def test_on_policy_tokens_of_a_sequence_share_their_advantages() -> None:
    # with advantages of tokens it is not clipped_ratio's gradient: each token gets the sequence's mean
    tokens = batch(9, spread=0.0)
    _, slopes = fast("sequence_ratio", tokens, BOUNDS)
    means = torch.cat([row.mean().expand(len(row)) for row in tokens.advantages.split(tokens.lengths.tolist())])
    torch.testing.assert_close(slopes, -means)


def test_an_empty_sequence_changes_nothing() -> None:
    tokens = batch(10, sequences=3)
    lengths = torch.cat([tokens.lengths[:1], torch.tensor([0]), tokens.lengths[1:]])
    torch.testing.assert_close(
        fast("sequence_ratio", tokens._replace(lengths=lengths), BOUNDS), fast("sequence_ratio", tokens, BOUNDS)
    )


@given(ratio=st.floats(0.01, 20), advantage=st.floats(0.1, 3), sign=st.sampled_from([1, -1]))
def test_a_clipped_weight_never_stops_a_gradient(ratio: float, advantage: float, sign: int) -> None:
    _, slope, clipped = one("clipped_weight", ratio, sign * advantage, BOUNDS)
    weight = min(max(ratio, 1 - LOW), 1 + HIGH)
    assert slope == pytest.approx(-sign * weight * advantage)
    if abs(weight - ratio) > 1e-9 or 1 - LOW + 1e-9 < ratio < 1 + HIGH - 1e-9:
        assert clipped == (weight != ratio)


def test_a_lower_clip_of_one_is_none() -> None:
    assert one("clipped_weight", 0.001, 1.0, Bounds(clip_low=1.0))[1:] == (pytest.approx(-0.001), False)


@given(st.floats(0.02, 10), st.floats(0.2, 5))
def test_the_gate_is_fully_open_at_ratio_one_only(ratio: float, tau: float) -> None:
    _, slope, clipped = one("soft_gate", ratio, 1.0, Bounds(tau_pos=tau))
    openness = -slope / ratio
    assert not clipped
    assert 0 <= openness <= 1  # 0 when the sigmoid rounds to 1
    if abs(ratio - 1) > 1e-3:
        assert openness < 1
    if abs(ratio - 1) * tau < 1:
        assert openness > 0.75


@given(st.floats(0.01, 0.9), st.floats(0.2, 5))
def test_the_gate_closes_alike_on_both_sides(distance: float, tau: float) -> None:
    above, below = (-one("soft_gate", 1 + d, 1.0, Bounds(tau_pos=tau))[1] / (1 + d) for d in (distance, -distance))
    assert above == pytest.approx(below)


@given(st.floats(1.1, 4), st.floats(0.2, 3))
def test_a_sharper_gate_closes_more(ratio: float, tau: float) -> None:
    soft, sharp = (one("soft_gate", ratio, -1.0, Bounds(tau_neg=t))[1] for t in (tau, 1.5 * tau))
    assert 0 < sharp < soft


def test_default_dials_are_those_of_ppo_and_sapo() -> None:
    dials = {name: POLICY_LOSSES.settings(name)(kind=name).model_dump(exclude={"kind"}) for name in POLICY_LOSSES.table}
    clip = {"clip_low": 0.2, "clip_high": 0.2}
    assert dials == {
        "reinforce": {},
        "clipped_ratio": clip | {"dual_clip": 0.0},
        "sequence_ratio": clip | {"dual_clip": 0.0},
        "clipped_weight": clip,
        "soft_gate": {"tau_pos": 1.0, "tau_neg": 1.05},
    }


@pytest.mark.parametrize("name", POLICY_LOSSES.table)
@pytest.mark.parametrize(
    ("dial", "allowed", "refused"),
    [
        ("clip_low", (0, 1), (-1e-6, 1 + 1e-6)),
        ("clip_high", (0, 5, math.inf), (-1e-6, math.nan)),
        ("dual_clip", (0, 1 + 1e-6, 5), (-1e-6, 1e-6, 1)),
        ("tau_pos", (1e-6, 5), (0,)),
        ("tau_neg", (1e-6, 5), (0,)),
    ],
)
def test_dials_have_bounds(name: str, dial: str, allowed: Numbers, refused: Numbers) -> None:
    if dial not in POLICY_LOSSES.settings(name).model_fields:
        allowed, refused = [], [*allowed, *refused]
    for value in allowed:
        assert getattr(policy_loss(name, **{dial: value}), dial) == value
    for value in refused:
        with pytest.raises(ValidationError, match=dial):
            policy_loss(name, **{dial: value})


def test_only_what_has_no_ratio_is_bound_to_one_update() -> None:
    assert [name for name in POLICY_LOSSES.table if POLICY_LOSSES.find(name).on_policy_only] == ["reinforce"]


def test_without_a_kind_it_is_the_clipped_ratio_and_other_classes_are_none() -> None:
    assert POLICY_LOSSES.read({"clip_high": 0.3}) == policy_loss("clipped_ratio", clip_high=0.3)
    with pytest.raises(ConfigError, match="allowed is a class that builds on PolicyLoss"):
        policy_loss("groupwise.algorithms.advantages:GroupMean")

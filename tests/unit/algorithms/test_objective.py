"""One token's whole loss, and the weights of tokens: by hand, as loops from the papers, and the gradient."""

import math
from collections.abc import Callable
from itertools import chain, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from groupwise.algorithms.kl import KL_ESTIMATORS
from groupwise.algorithms.objective import (
    AGGREGATIONS,
    BatchSize,
    Objective,
    Tokens,
    clipped_value_loss,
    explained_variance,
    token_loss,
    token_weights,
)
from groupwise.algorithms.policy_losses import POLICY_LOSSES, ClippedRatio, policy_loss

LENGTHS = torch.tensor([2, 1, 3])


def tokens(**changes: Tensor | None) -> Tokens:
    """Six random tokens of three completions, with a reference and importance weights."""
    draws = torch.randn(6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    old = -draws[0].abs() - 0.1
    known = Tokens(
        logprobs=old + 0.4 * draws[1], entropy=draws[2].abs(), old_logprobs=old, advantages=draws[3], lengths=LENGTHS,
        ref_logprobs=old + 0.5 * draws[4], importance=draws[5].abs(),
    )  # fmt: skip
    return known._replace(**changes)


def slow_kl(name: str, new: float, ref: float) -> float:
    log_ratio = ref - new
    return {"k1": -log_ratio, "k2": log_ratio**2 / 2, "k3": math.exp(log_ratio) - log_ratio - 1}[name]


def slow(known: Tokens, objective: Objective) -> list[float]:
    """Every token on its own; the policy loss is PPO's or REINFORCE's."""
    losses = []
    for t in range(len(known.logprobs)):
        new, old, advantage = (float(part[t]) for part in (known.logprobs, known.old_logprobs, known.advantages))
        rho = math.exp(new - old)
        if objective.policy_loss.kind == "reinforce":
            policy = -advantage * new
        else:
            assert isinstance(objective.policy_loss, ClippedRatio)
            low, high = objective.policy_loss.clip_low, objective.policy_loss.clip_high
            policy = -min(rho * advantage, min(max(rho, 1 - low), 1 + high) * advantage)
        weight = 1.0 if known.importance is None else float(known.importance[t])
        divergence = 0.0
        if objective.kl_coef:
            divergence = slow_kl(objective.kl_estimator, new, float(known.ref_logprobs[t]))
        divergence *= rho if objective.kl_corrected else 1.0
        losses.append(
            weight * policy + objective.kl_coef * divergence - objective.entropy_coef * float(known.entropy[t])
        )
    return losses


COMBINATIONS = [
    Objective(loss, kl_coef, estimator, corrected, entropy)
    for loss, kl_coef, estimator, corrected, entropy in product(
        (policy_loss("reinforce"), policy_loss("clipped_ratio", clip_low=0.1, clip_high=0.3)),
        (0.0, 0.3),
        KL_ESTIMATORS,
        (False, True),
        (0.0, 0.7),
    )
]


@pytest.mark.parametrize("objective", COMBINATIONS, ids=str)
@pytest.mark.parametrize("weighted", [True, False])
def test_equals_the_sum_of_its_terms_as_a_loop(objective: Objective, weighted: bool) -> None:
    known = tokens() if weighted else tokens(importance=None)
    assert token_loss(known, objective).loss.tolist() == pytest.approx(slow(known, objective), abs=1e-12)


def test_by_hand() -> None:
    known = Tokens(
        logprobs=torch.tensor([-1.0]), entropy=torch.tensor([0.5]), old_logprobs=torch.tensor([-1.0]),
        advantages=torch.tensor([2.0]), lengths=torch.tensor([1]), ref_logprobs=torch.tensor([-2.0]),
        importance=torch.tensor([1.5]),
    )  # fmt: skip
    found = token_loss(known, Objective(kl_coef=0.1, kl_estimator="k1", entropy_coef=0.2))
    assert found.loss.tolist() == pytest.approx([-3.0 + 0.1 - 0.1])  # 1.5 · -2 + 0.1 · 1 - 0.2 · 0.5
    assert found.kl.tolist() == [1.0]
    assert found.ratio.tolist() == [1.0]
    assert found.clipped.tolist() == [False]


@pytest.mark.parametrize("name", POLICY_LOSSES.table)
def test_the_policy_loss_is_the_one_that_was_chosen(name: str) -> None:
    known, chosen = tokens(importance=None, ref_logprobs=None), policy_loss(name)
    found = token_loss(known, Objective(chosen))
    loss, ratio, clipped = chosen(*known[:1], *known[2:5])
    torch.testing.assert_close(found[:3], (loss, ratio, clipped), rtol=0, atol=0)
    assert found.kl.tolist() == [0.0] * 6


@pytest.mark.parametrize("corrected", [True, False])
def test_gradient_equals_finite_differences(corrected: bool) -> None:
    known, objective = tokens(), Objective(policy_loss("soft_gate"), 0.3, "k3", corrected, 0.7)

    def loss(logprobs: Tensor, entropy: Tensor) -> Tensor:
        return token_loss(known._replace(logprobs=logprobs, entropy=entropy), objective).loss

    assert torch.autograd.gradcheck(loss, (known.logprobs.requires_grad_(), known.entropy.requires_grad_()))


def test_the_entropy_bonus_pushes_entropy_up() -> None:
    entropy = torch.ones(6, dtype=torch.float64, requires_grad=True)
    token_loss(tokens(entropy=entropy), Objective(entropy_coef=0.2)).loss.sum().backward()
    assert entropy.grad.tolist() == pytest.approx([-0.2] * 6)


def test_the_divergence_is_reported_without_a_term_too() -> None:
    known = tokens()
    found = token_loss(known, Objective(kl_estimator="k2"))
    pairs = zip(known.logprobs.tolist(), known.ref_logprobs.tolist(), strict=True)
    assert found.kl.tolist() == pytest.approx([slow_kl("k2", *pair) for pair in pairs])
    torch.testing.assert_close(found.loss, token_loss(known._replace(ref_logprobs=None), Objective()).loss)


def test_the_reported_divergence_is_not_corrected() -> None:
    plain, corrected = (
        token_loss(tokens(), Objective(kl_coef=0.1, kl_corrected=corrected)) for corrected in (False, True)
    )
    torch.testing.assert_close(plain.kl, corrected.kl, rtol=0, atol=0)


def test_the_report_carries_no_gradient() -> None:
    found = token_loss(tokens(logprobs=tokens().logprobs.requires_grad_()), Objective(kl_coef=0.1))
    assert found.loss.requires_grad
    assert not any(part.requires_grad for part in found[1:])


def test_a_term_with_coefficient_zero_is_left_out_whatever_it_is() -> None:
    known = tokens(entropy=torch.full((6,), math.inf), ref_logprobs=torch.full((6,), 1e4).double())
    found = token_loss(known, Objective())
    assert found.kl.isinf().all()
    assert found.loss.isfinite().all()
    with pytest.raises(ValueError, match=r"coefficient 0\.25 needs the reference"):
        token_loss(tokens(ref_logprobs=None), Objective(kl_coef=0.25))


def test_the_default_is_the_clipped_ratio_alone() -> None:
    known = tokens(importance=None, ref_logprobs=None)
    assert Objective() == (policy_loss("clipped_ratio"), 0.0, "k3", False, 0.0)
    assert Tokens(*known[:5]) == known
    assert token_loss(known, Objective()).loss.tolist() == pytest.approx(slow(known, Objective()))


COUNTS = [1, 3, 4]
BATCH = BatchSize(num_completions=3, num_tokens=8, max_tokens=10)


def weights(aggregation: str, lengths: list[int] = COUNTS, batch: BatchSize = BATCH) -> list[float]:
    return token_weights(torch.tensor(lengths), batch, aggregation).tolist()


BY_HAND = {"constant": [1 / 30] * 8, "token": [1 / 8] * 8, "sequence": [1 / 3, *[1 / 9] * 3, *[1 / 12] * 4]}

# --- the papers' losses as nested loops over completions and tokens
SLOW: dict[str, Callable[[list[list[float]]], float]] = {
    "constant": lambda rows: sum(sum(row) / BATCH.max_tokens for row in rows) / len(rows),  # arXiv:2503.20783, §3.2
    "token": lambda rows: sum(sum(row) for row in rows) / sum(len(row) for row in rows),  # arXiv:2503.14476, eq. 8
    "sequence": lambda rows: sum(sum(row) / len(row) for row in rows) / len(rows),  # arXiv:2402.03300, eq. 3
}


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_weights_by_hand(aggregation: str) -> None:
    assert weights(aggregation) == pytest.approx(BY_HAND[aggregation])


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@given(rows=st.lists(st.lists(st.floats(-3, 3), min_size=1, max_size=10), min_size=1, max_size=5))
def test_the_loss_equals_the_papers_loops(aggregation: str, rows: list[list[float]]) -> None:
    lengths = [len(row) for row in rows]
    found = weights(aggregation, lengths, BatchSize(len(rows), sum(lengths), BATCH.max_tokens))
    total = sum(weight * loss for weight, loss in zip(found, chain(*rows), strict=True))
    assert total == pytest.approx(SLOW[aggregation](rows), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("aggregation", sorted(AGGREGATIONS))
def test_a_micro_batch_gets_the_weights_of_the_whole_batch(aggregation: str) -> None:
    parts = weights(aggregation, COUNTS[:1]) + weights(aggregation, COUNTS[1:])
    assert parts == pytest.approx(weights(aggregation))
    assert token_weights(torch.tensor(COUNTS), BATCH, aggregation).dtype is torch.float32


@pytest.mark.parametrize("aggregation", sorted(AGGREGATIONS))
def test_skipped_completions_stay_in_the_denominator(aggregation: str) -> None:
    # the same eight tokens in a batch of twice the size weigh half
    doubled = BatchSize(num_completions=6, num_tokens=16, max_tokens=10)
    assert weights(aggregation, batch=doubled) == pytest.approx([w / 2 for w in weights(aggregation)])


NUMBERS = st.floats(-3, 3)
ROWS = st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=8)
"""(value, old value, return) of every token."""


def columns(rows: list[tuple[float, ...]]) -> list[torch.Tensor]:
    return list(torch.tensor(rows, dtype=torch.float64).unbind(1))


@pytest.mark.parametrize(
    ("value", "old", "target", "loss", "slope"),
    [
        (1.0, 0.0, 1.0, 0.32, 0.0),  # right by a leap: the loss of 0.2 stays, and pulls nowhere
        (0.1, 0.0, 1.0, 0.405, -0.9),  # inside the bounds: ½ · 0.9²
        (1.0, 0.0, -1.0, 2.0, 2.0),  # a leap to the wrong side is punished in full
        (-1.0, 0.0, 1.0, 2.0, -2.0),
        (-1.0, 0.0, -1.0, 0.32, 0.0),
        (0.5, 0.5, 0.5, 0.0, 0.0),
    ],
)
def test_clipped_value_loss_by_hand(value: float, old: float, target: float, loss: float, slope: float) -> None:
    values = torch.tensor([value], dtype=torch.float64, requires_grad=True)
    found = clipped_value_loss(values, torch.tensor([old]).double(), torch.tensor([target]).double(), clip=0.2)
    found.sum().backward()
    assert found.item() == pytest.approx(loss)
    assert values.grad.item() == pytest.approx(slope)


@given(ROWS, st.just(0.0) | st.floats(0.01, 2))
def test_clipped_value_loss_equals_the_equation_as_a_loop(rows: list[tuple[float, ...]], clip: float) -> None:
    expected = []
    for value, old, target in rows:
        near = old + min(max(value - old, -clip), clip) if clip else value  # 0: no clip
        expected.append(max((value - target) ** 2, (near - target) ** 2) / 2)
    assert clipped_value_loss(*columns(rows), clip).tolist() == pytest.approx(expected, abs=1e-12)


@given(ROWS, st.floats(0.01, 2))
def test_clipping_never_lowers_the_loss(rows: list[tuple[float, ...]], clip: float) -> None:
    assert (clipped_value_loss(*columns(rows), clip) >= clipped_value_loss(*columns(rows), 0.0)).all()


@pytest.mark.parametrize("clip", [0.0, 0.3])
def test_the_gradient_of_the_value_loss_equals_finite_differences(clip: float) -> None:
    values, old, returns = torch.randn(3, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda v: clipped_value_loss(v, old, returns, clip), values.requires_grad_())


@pytest.mark.parametrize(
    ("values", "share"),
    [
        ([0.0, 1.0, 2.0, 5.0], 1.0),  # perfect
        ([3.0, 4.0, 5.0, 8.0], 1.0),  # an offset is no spread
        ([2.0, 2.0, 2.0, 2.0], 0.0),  # knows the mean only
        ([0.0, 2.0, 4.0, 10.0], 0.0),  # twice too large: the error spreads as the returns do
        ([0.0, -1.0, -2.0, -5.0], -3.0),  # the wrong way round
        ([0.0, 0.5, 1.0, 2.5], 0.75),
    ],
)
def test_explained_variance_by_hand(values: list[float], share: float) -> None:
    found = explained_variance(torch.tensor(values), torch.tensor([0.0, 1.0, 2.0, 5.0]))
    assert found == pytest.approx(share)
    assert isinstance(found, float)


@given(st.lists(st.tuples(NUMBERS, st.integers(-8, 8).map(float)), min_size=2, max_size=8))
def test_explained_variance_equals_its_loop(rows: list[tuple[float, float]]) -> None:
    def variance(numbers: list[float]) -> float:
        mean = math.fsum(numbers) / len(numbers)
        return math.fsum((x - mean) ** 2 for x in numbers) / len(numbers)

    values, returns = columns(rows)
    of_returns = variance([target for _, target in rows])
    of_errors = variance([target - value for value, target in rows])
    expected = pytest.approx(1 - of_errors / of_returns, abs=1e-9) if of_returns else None
    assert explained_variance(values, returns) == expected


@pytest.mark.parametrize("count", [0, 1, 2, 7, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_returns_have_no_variance_to_explain(count: int, dtype: torch.dtype) -> None:
    returns = torch.full((count,), 0.1, dtype=dtype)  # whose computed variance is often not 0
    assert explained_variance(torch.arange(count, dtype=dtype), returns) is None

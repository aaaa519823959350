"""Results of tools in the very update of GRPO: nothing that stands at them as a target has a gradient."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from groupwise.models.packed import Sequences, pack
from groupwise.models.policy import Policy
from groupwise.training.config import LossConfig
from groupwise.training.update import Updater, update_policy
from groupwise.types import (
    AdvantagedGroup,
    Completion,
    FinishReason,
    Group,
    Outcome,
    Problem,
    Prompt,
    ScoredGroup,
    Verdict,
)

PROMPT = (40, 41, 42)
WRITTEN = [([50, 60, 61, 51, 52], "100 11"), ([53, 54, 62, 55], "110 1"), ([56, 57], "11"), ([58, 63, 64], "100")]
"""Tokens, and which of them were sampled; the last completion ends within a result."""
ROWS = [(ids, [mark == "1" for mark in marks.replace(" ", "")]) for ids, marks in WRITTEN]
Rows = Sequence[tuple[list[int], list[bool]]]


class Recorder:
    """Stands in for the optimizer: keeps the gradient."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.gradient = policy, dict[str, Tensor]()

    def update(self, step: int) -> float:
        self.gradient = {n: p.grad.clone() for n, p in self.policy.model.named_parameters() if p.grad is not None}
        self.policy.model.zero_grad(set_to_none=True)
        return 1.0


def groups(policy: Policy, rows: Rows = ROWS, foreign: float = 0.0) -> list[AdvantagedGroup]:
    """One group for each two completions; `foreign` is every number that stands at a result."""
    made = []
    for at in range(0, len(rows), 2):
        own = [(np.array(ids), np.array(mask)) for ids, mask in rows[at : at + 2]]
        packed = pack([Sequences(PROMPT, [ids for ids, _ in own], [mask for _, mask in own])])
        with torch.no_grad():
            known = iter(policy.token_logprobs(packed, 1.0).logprobs.tolist())
        completions, advantages = [], []
        for i, (ids, mask) in enumerate(own):
            values = np.array([next(known) if drawn else foreign for drawn in mask], np.float32)
            completions.append(Completion(i, ids, values, -values, FinishReason.LENGTH, "x", mask))
            advantages.append(np.where(mask, 1.0 - 2 * i, foreign))
        group = Group(Prompt(Problem(f"p{at}", "?", "5"), "?", PROMPT), tuple(completions), 0, 0)
        verdicts = tuple(Verdict(Outcome.WRONG, {"r": float(i)}, "") for i in range(len(own)))
        made.append(AdvantagedGroup(ScoredGroup(group, verdicts), tuple(advantages)))
    return made


def gradient(policy: Policy, batch: Sequence[AdvantagedGroup], **config: Any) -> dict[str, Tensor]:
    recorder = Recorder(policy)
    update_policy(Updater(policy, recorder, LossConfig(**config), 1.0, 12), batch, 0)  # type: ignore[arg-type]
    return recorder.gradient


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("config", [{}, {"kl_coef": 0.1}, {"aggregation": "token", "epochs": 2}])
def test_what_stands_at_results_changes_no_bit(tiny_policy: Callable[..., Policy], config: dict[str, Any]) -> None:
    policy = tiny_policy()
    reference = policy.copy().freeze() if "kl_coef" in config else None

    def found(rows: Rows = ROWS, foreign: float = 0.0) -> dict[str, Tensor]:
        recorder, loss = Recorder(policy), LossConfig.model_validate(config)
        updater = Updater(policy, recorder, loss, 1.0, 12, reference)  # type: ignore[arg-type]
        update_policy(updater, groups(policy, rows, foreign), 0)
        return recorder.gradient

    expected = found()
    assert any(value.any() for value in expected.values())
    assert equal(found(foreign=7.0), expected)
    other_target = [*ROWS[:3], ([58, 63, 99], ROWS[3][1])]  # the last token of all is a target and never an input
    assert equal(found(other_target), expected)
    other_sample = [*ROWS[:2], ([56, 99], ROWS[2][1]), ROWS[3]]
    assert not equal(found(other_sample), expected)


def test_the_state_before_a_result_has_no_gradient_of_its_own(tiny_policy: Callable[..., Policy]) -> None:
    """The real update's gradient of the final states: a row of logits is a linear map of such a state."""
    policy, seen = tiny_policy(), list[Tensor]()

    def keep(_module: Any, _inputs: Any, output: Tensor) -> None:
        output.retain_grad()
        seen.append(output)

    batch = groups(policy, ROWS[:2])
    hook = policy.model.base_model.norm.register_forward_hook(keep)  # type: ignore[union-attr]
    try:
        gradient(policy, batch)
    finally:
        hook.remove()
    [states] = [output for output in seen if output.grad is not None]
    prompt, first, second = "001", "0011", "101"  # 50 60 61 51 and 53 54 62: each predicts the token behind it
    expected = [int(has) for has in prompt + first + second]
    assert states.grad is not None
    assert [int(bool(row.any())) for row in states.grad[0]] == expected


def test_packed_equals_alone_with_results(tiny_policy: Callable[..., Policy]) -> None:
    policy = tiny_policy()
    batch = groups(policy)
    together = gradient(policy, batch, aggregation="token")
    alone = gradient(policy, batch, aggregation="token", tokens_per_micro_batch=1)
    share = [sum(c.num_tokens for c in group.scored.group.completions) for group in batch]
    each = [gradient(policy, [group], aggregation="token") for group in batch]
    for name, value in together.items():
        torch.testing.assert_close(alone[name], value, atol=2e-6, rtol=1e-4)
        weighted = sum(n * found[name] for n, found in zip(share, each, strict=True)) / sum(share)
        torch.testing.assert_close(weighted, value, atol=2e-6, rtol=1e-4)

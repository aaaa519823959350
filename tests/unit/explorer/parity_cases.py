"""Random groups and tokens, with what `groupwise.algorithms` makes of them: the page's arithmetic must say the same."""

import json
import random
from pathlib import Path
from typing import Any

import torch

from groupwise.algorithms.advantages import ADVANTAGES, advantage, step_advantages
from groupwise.algorithms.kl import KL_ESTIMATORS, importance_corrected
from groupwise.algorithms.objective import AGGREGATIONS, BatchSize, token_weights
from groupwise.algorithms.policy_losses import POLICY_LOSSES, policy_loss

STATIC = Path(__file__).parents[3] / "src" / "groupwise" / "explorer" / "static"
ESTIMATORS = [kind for kind in ADVANTAGES.table if advantage(kind).reads in ("reward", "parts")]
"""Those that need no steps and no tokens."""
DIALS: dict[str, dict[str, float]] = {
    "clipped_ratio": {"clip_low": 0.2, "clip_high": 0.28, "dual_clip": 3.0},
    "sequence_ratio": {"clip_low": 0.05, "clip_high": 0.04, "dual_clip": 0.0},
    "clipped_weight": {"clip_low": 1.0, "clip_high": 0.3},
    "soft_gate": {"tau_pos": 1.0, "tau_neg": 1.05},
    "reinforce": {},
}


def rewards_of(draw: random.Random) -> list[float | None]:
    """A group of one of the forms that occur: binary, graded, equal, nearly equal; some verdicts missing."""
    size = draw.randint(1, 16)
    form = draw.choice(("binary", "graded", "equal", "near"))
    values: list[float | None] = {
        "binary": lambda: [float(draw.randint(0, 1)) for _ in range(size)],
        "graded": lambda: [draw.uniform(0, 2) for _ in range(size)],
        "equal": lambda: [draw.choice((0.0, 0.1, 1.0))] * size,
        "near": lambda: [0.7 + 0.001 * draw.randint(0, 3) for _ in range(size)],
    }[form]()
    return [None if draw.random() < 0.08 else value for value in values]


def advantage_cases(count: int = 1000) -> list[dict[str, Any]]:
    """Steps of one to three groups, every estimator in turn."""
    draw, cases = random.Random(17), []
    for number in range(count):
        kind = ESTIMATORS[number % len(ESTIMATORS)]
        groups = [rewards_of(draw) for _ in range(draw.randint(1, 3))]
        parts = [[[draw.random(), float(draw.randint(0, 1))] for _ in group] for group in groups]
        expected = [list(values) for values in step_advantages(groups, parts, advantage(kind))]
        cases.append({"kind": kind, "rewards": groups, "parts": parts, "expected": expected})
    return cases


def loss_cases(count: int = 100) -> list[dict[str, Any]]:
    """Tokens of a few completions under every loss, with the loss's derivative by a shift of the whole completion."""
    draw, cases = random.Random(23), []
    for number in range(count):
        kind = list(DIALS)[number % len(DIALS)]
        lengths = [draw.randint(1, 5) for _ in range(3)]
        size = sum(lengths)
        old = torch.tensor([draw.uniform(-3, 0) for _ in range(size)], dtype=torch.float64)
        shift = torch.zeros(3, dtype=torch.float64, requires_grad=True)
        owner = torch.repeat_interleave(torch.arange(3), torch.tensor(lengths))
        logprobs = old + torch.tensor([draw.gauss(0, 0.3) for _ in range(size)], dtype=torch.float64)
        advantages = torch.tensor([draw.gauss(0, 1) for _ in range(size)], dtype=torch.float64)
        found = policy_loss(kind, **DIALS[kind])(logprobs + shift[owner], old, advantages, torch.tensor(lengths))
        found.loss.sum().backward()
        assert shift.grad is not None
        cases.append({
            "kind": kind, "dials": DIALS[kind], "logprobs": logprobs.tolist(), "old": old.tolist(), "lengths": lengths,
            "advantages": advantages.tolist(), "loss": found.loss.tolist(), "ratio": found.ratio.tolist(),
            "clipped": found.clipped.tolist(), "slopes": shift.grad.tolist(),
        })  # fmt: skip
    return cases


def kl_cases(count: int = 60) -> list[dict[str, Any]]:
    """KL of a token: value and derivative, with and without the ratio."""
    draw, cases = random.Random(5), []
    for number in range(count):
        kind, corrected = list(KL_ESTIMATORS)[number % 3], number % 2 == 1
        logprob = torch.tensor([draw.uniform(-4, 0)], dtype=torch.float64, requires_grad=True)
        ref, old = (torch.tensor([draw.uniform(-4, 0)], dtype=torch.float64) for _ in range(2))
        value = KL_ESTIMATORS[kind](logprob, ref)
        if corrected:
            value = importance_corrected(value, logprob, old)
        value.sum().backward()
        assert logprob.grad is not None
        cases.append({
            "kind": kind, "corrected": corrected, "logprob": logprob.item(), "ref": ref.item(), "old": old.item(),
            "value": value.item(), "slope": logprob.grad.item(),
        })  # fmt: skip
    return cases


def weight_cases(count: int = 60) -> list[dict[str, Any]]:
    """Weights of a token of every completion."""
    draw, cases = random.Random(3), []
    for number in range(count):
        kind, lengths = list(AGGREGATIONS)[number % 3], [draw.randint(1, 900) for _ in range(4)]
        batch = BatchSize(4, sum(lengths), 1024)
        weights = token_weights(torch.tensor(lengths), batch, kind)
        firsts = [sum(lengths[:i]) for i in range(4)]
        expected = [weights[first].item() for first in firsts]
        cases.append({"kind": kind, "lengths": lengths, "batch": batch._asdict(), "expected": expected})
    return cases


def all_cases() -> dict[str, Any]:
    """Everything, as JSON that node and a browser read."""
    names = {"advantages": ESTIMATORS, "losses": list(POLICY_LOSSES.table), "kl": list(KL_ESTIMATORS)}
    names["aggregations"] = list(AGGREGATIONS)
    cases = {"advantages": advantage_cases(), "losses": loss_cases(), "kl": kl_cases(), "weights": weight_cases()}
    return json.loads(json.dumps({"names": names, **cases}))

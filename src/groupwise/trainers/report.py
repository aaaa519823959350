"""The records of a step of reinforcement learning: a line for a person, facts for the ledger."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from groupwise.algorithms.statistics import Estimate
from groupwise.evaluation.evaluate import HeldOutCheck
from groupwise.rollout.sample_and_score import Seconds
from groupwise.training.tokens import UpdateTrace
from groupwise.training.update import UpdateMetrics
from groupwise.types import AdvantagedGroup, FinishReason, Outcome, ScoredGroup
from groupwise.verifiers.scoring import part_statistics


class StepResult(NamedTuple):
    """The result of one step."""

    groups: list[AdvantagedGroup]
    update: UpdateMetrics
    seconds: Seconds
    problems: list[list[str]]
    sampled: list[ScoredGroup]
    trace: UpdateTrace
    explained_variance: float | None = None


class StepReport(NamedTuple):
    """The figures of a step for people. Shares are in [0, 1], lengths in tokens, times in seconds."""

    step: int
    num_steps: int
    reward: float
    correct: float
    signal: float
    """Share of groups whose rewards differ; only they teach."""
    entropy: float | None
    """Mean entropy of the sampled tokens in nats; None where the engine does not measure it."""
    length_correct: float | None
    length_wrong: float | None
    length: float
    truncated: float
    verdict_errors: int
    no_verdict: int
    grad_norm: float
    lr: float
    clipped: float
    kl: float
    logprob_difference: float
    """Largest difference between sampler and trainer on the same weights; 0 is perfect."""
    logprob_bias: float
    """Mean of trainer - sampler, with its sign."""
    parts: dict[str, float]
    """Mean and standard deviation of each reward part, means of what they measured, disagreements of verifiers."""
    sampled_tokens: int
    kept_tokens: int
    sampled_groups: int
    refilled_groups: int
    sampled_correct: float
    """Share correct among all that was sampled, the unbiased pass rate; dynamic sampling makes `correct` differ."""
    value_loss: float
    explained_variance: float | None
    """1 is a perfect critic; None without one, and where all returns are equal."""
    weights_bounded: float
    """Share of tokens whose importance weight was truncated or masked; 0 without correction."""
    effective_samples: float
    """Effective sample size of the importance weights, as a share of the sample; 1 without correction."""
    expert_load: float
    """Load of a layer's busiest expert, in units of an even load, mean over layers; 0 in a model without experts."""
    router_entropy: float
    """Entropy of the routers' distributions over the experts in nats, mean over layers and tokens, each as often as
    it is computed; 0 without."""
    age: float
    """Updates between the weights that sampled and those that the step began with; mean over groups."""
    tokens_per_second: float
    generate_s: float
    verify_s: float
    train_s: float
    processor_s: float
    busy_cores: float
    """Cores that other programs used during the step; 0 where the system does not tell."""


@dataclass(frozen=True, slots=True)
class DevReport:
    """A dev evaluation."""

    step: int
    pass_at_1: Estimate
    best: bool
    second: HeldOutCheck | None = None


def step_report(step: int, num_steps: int, result: StepResult, lr: float, ages: Sequence[int] = ()) -> StepReport:
    """Summarise a step; `ages` of its groups, in updates."""
    rows = [
        (completion, verdict)
        for group in result.groups
        for completion, verdict in zip(group.scored.group.completions, group.scored.verdicts, strict=True)
    ]
    judged = [(completion, verdict) for completion, verdict in rows if verdict.outcome.judged]
    right = [completion.num_tokens for completion, verdict in judged if verdict.outcome is Outcome.CORRECT]
    wrong = [completion.num_tokens for completion, verdict in judged if verdict.outcome is not Outcome.CORRECT]
    lengths = [completion.num_tokens for completion, _ in rows]
    entropies = [completion.entropy[completion.sampled] for completion, _ in rows if completion.entropy is not None]
    seconds = result.seconds
    sampled_tokens = sum(completion.num_tokens for group in result.sampled for completion in group.group.completions)
    all_judged = [verdict for group in result.sampled for verdict in group.verdicts if verdict.outcome.judged]
    num_correct = sum(verdict.outcome is Outcome.CORRECT for verdict in all_judged)
    return StepReport(
        step=step, num_steps=num_steps,
        reward=float(np.mean([verdict.reward for _, verdict in judged])) if judged else 0.0,
        correct=len(right) / len(judged) if judged else 0.0,
        signal=float(np.mean([group.scored.has_signal for group in result.groups])),
        entropy=float(np.concatenate(entropies).mean()) if entropies else None,
        length_correct=float(np.mean(right)) if right else None,
        length_wrong=float(np.mean(wrong)) if wrong else None,
        length=float(np.mean(lengths)),
        truncated=float(np.mean([completion.finish_reason is FinishReason.LENGTH for completion, _ in rows])),
        verdict_errors=sum(verdict.outcome.failed for _, verdict in rows),
        no_verdict=sum(verdict.outcome is Outcome.NONE for _, verdict in rows),
        grad_norm=result.update.grad_norm, lr=lr, clipped=result.update.clipped, kl=result.update.kl,
        logprob_difference=result.update.logprob_difference, logprob_bias=result.update.logprob_bias,
        parts=part_statistics([group.scored for group in result.groups]),
        sampled_tokens=sampled_tokens, kept_tokens=sum(lengths),
        sampled_groups=len(result.sampled), refilled_groups=len(result.sampled) - len(result.groups),
        sampled_correct=num_correct / len(all_judged) if all_judged else 0.0,
        value_loss=result.update.value_loss, explained_variance=result.explained_variance,
        weights_bounded=result.update.weights_bounded, effective_samples=result.update.effective_samples,
        expert_load=result.update.expert_load, router_entropy=result.update.router_entropy,
        age=float(np.mean(ages)) if ages else 0.0,
        tokens_per_second=sampled_tokens / (seconds.generate + seconds.verify + seconds.train),
        generate_s=seconds.generate, verify_s=seconds.verify, train_s=seconds.train,
        processor_s=seconds.processor, busy_cores=seconds.busy_cores,
    )  # fmt: skip


def ledger_group(group: AdvantagedGroup) -> dict[str, Any]:
    """Return a group's facts for the ledger: outcomes as letters (`!`: the verifier failed), columns as hashes."""
    verdicts = group.scored.verdicts
    advantages: list[float | str | None] = []
    for values, completion in zip(group.advantages, group.scored.group.completions, strict=True):
        if values is None:
            advantages.append(None)
            continue
        drawn = values[completion.sampled]
        is_constant = (drawn == drawn[0]).all()
        advantages.append(float(drawn[0]) if is_constant else _hash(drawn.astype("<f4").tobytes()))
    facts = {
        "problem": group.scored.group.prompt.problem.id, "tokens": hash_tokens([group.scored]),
        "outcomes": "".join("!" if verdict.outcome.failed else verdict.outcome.value[0] for verdict in verdicts),
        "rewards": list(group.scored.rewards), "advantages": advantages,
    }  # fmt: skip
    if any(verdict.steps for verdict in verdicts):
        facts["steps"] = [_hash(json.dumps(verdict.steps).encode()) if verdict.steps else None for verdict in verdicts]
    return facts


def hash_tokens(scored: Sequence[ScoredGroup]) -> str:
    """Return 16 hex digits of the hash of all tokens of the groups, in order."""
    tokens = [completion.token_ids.tolist() for group in scored for completion in group.group.completions]
    return _hash(json.dumps(tokens).encode())


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]

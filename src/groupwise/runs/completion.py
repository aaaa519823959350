"""One recorded completion, and one recorded group, as values."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from groupwise.errors import DataError
from groupwise.runs.index import GroupEntry

Values = NDArray[np.float32]
"""(T,) one number per token; NaN where it was not measured, as at tokens that were put in."""

Discarded = Literal["right", "wrong", "equal", "failed", "surplus"]
"""Why a group was not kept: it had no signal (`index.Flat` says why), or enough others were there."""

BOUNDS = ("none", "low", "high", "masked")
"""What `CompletionRecord.bound` means, by number: no bound held; the lower or the upper one of the policy loss did; the
importance weight was cut down to 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRecord:
    """A completion with all that was recorded of it. What was not recorded, or does not exist, is None, never 0.

    T counts all its tokens, the stop token and those that were put in included. Log-probabilities are in nats, under
    the distribution the tokens were drawn from (temperature included). Positions in texts count Unicode code points
    (JavaScript counts UTF-16 units).
    """

    step: int
    problem: str
    sample: int
    """Position within the group, 0 to G - 1."""
    text: str
    finish_reason: str
    """`stop` or `length`; `unknown` in imported runs."""
    outcome: str
    """One of `types.Outcome`."""
    answer: str | None
    evidence: str
    """Why the verifier said so."""
    reward: float | None
    """None where the completion was not judged."""
    reward_parts: Mapping[str, float]
    """By name, already weighted; their sum is the reward."""
    measures: Mapping[str, float]
    """What parts measured before weights and gates, and disagreements between verifiers."""
    steps: tuple[tuple[int, float], ...] | None
    """Of each step where it ends in prefill and text, in code points, and its reward; the last one's is the outcome."""
    advantage: float | None
    """Mean over the sampled tokens; None in evaluations and where the completion was not judged."""
    policy_version: int
    """Optimizer updates behind the weights that sampled."""
    num_tokens: int | None
    """Tokens that the policy sampled; None where nobody counted them, as in imported runs."""
    trained: bool | None
    """Whether the step's updates read it; a group without any gradient is skipped. None: not recorded, or nothing is
    trained on it (evaluations)."""
    loss_weight: float | None
    """Weight of each of its tokens in the loss of its last update: the loss is Σ weight · token loss."""
    old: str | None
    """Whose log-probabilities are the denominator of `ratio`: `trainer` or `sampler`."""
    token_ids: NDArray[np.int64] | None
    """(T,); None where tokens were not recorded."""
    token_ends: NDArray[np.int64] | None
    """(T,) where in `text` each token ends, in code points; a token begins where the one before ends. A token that ends
    within a character is empty, and the one that completes the character has it. The stop token is empty."""
    sampled: NDArray[np.bool_] | None
    """(T,) False at tokens that were put in."""
    sampling_logprobs: Values | None
    """Of the sampler."""
    entropy: Values | None
    """Of the distribution that the token was drawn from, nats; None where the engine does not measure it."""
    token_advantages: Values | None
    """Advantage of each token."""
    trainer_logprobs: Values | None
    """Of the trainer on the weights that sampled, as the step's first update (or the pass before it) computed them."""
    ref_logprobs: Values | None
    """Of the frozen reference, as the last update computed them."""
    after_logprobs: Values | None
    """Of the trainer after the step's last update: one forward more, made only where `record.after_every` asks for it.
    """
    ratio: Values | None
    """π / π_old as the last update of this completion computed it (of the sequence, where the policy loss works with
    that); exactly 1 where the step makes one update."""
    bound: NDArray[np.int8] | None
    """(T,) which bound held in that update, a place in `BOUNDS`; 0 at tokens that were put in."""
    importance: Values | None
    """Weight of the token's policy loss for samples of another engine; None without `loss.correction`."""
    kl: Values | None
    """Estimate of KL(π ‖ reference) at the token, as the last update computed it; None without a reference."""
    values: Values | None
    """The critic's, when sampled; None without one."""
    returns: Values | None
    """What the values should have been."""

    @property
    def tokens(self) -> list[str] | None:
        """(T,) the text of each token; None where offsets were not recorded."""
        if self.token_ends is None:
            return None
        ends = self.token_ends.tolist()
        return [self.text[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    @property
    def old_logprobs(self) -> Values | None:
        """The denominator of `ratio`."""
        return {"trainer": self.trainer_logprobs, "sampler": self.sampling_logprobs}.get(self.old or "")

    @property
    def mismatch(self) -> Values | None:
        """Trainer - sampler on the same weights; 0 is perfect. None where the trainer did not compute it."""
        return _difference(self.trainer_logprobs, self.sampling_logprobs)

    @property
    def change(self) -> Values | None:
        """How the step's updates moved each token's log-probability; None where that was not measured.

        After - before, both of the trainer; the sampler's where the trainer did not compute those from before.
        """
        before = self.sampling_logprobs if self.trainer_logprobs is None else self.trainer_logprobs
        return _difference(self.after_logprobs, before)

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """From a row of a file of rollouts in today's columns (`records.today`); columns not read are None."""
        scalars = {field.name: row.get(field.name) for field in fields(cls) if field.name not in _ARRAYS}
        parts: dict[str, Any] = {name: _numbers(name, row.get(name)) for name in ("reward_parts", "measures")}
        parts["steps"] = tuple((end, reward) for end, reward in json.loads(row["steps"])) if row.get("steps") else None
        arrays = {name: _array(row.get(name), kind) for name, kind in _ARRAYS.items()}
        return cls(**{**scalars, **parts, **arrays, **_of_tokens(row, arrays)})

    def as_json(self) -> dict[str, Any]:
        """Every field by name, arrays as lists; NaN is None."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}


_ARRAYS: dict[str, type] = {
    "token_ids": np.int64, "token_ends": np.int64, "sampled": np.bool_, "sampling_logprobs": np.float32,
    "entropy": np.float32, "token_advantages": np.float32, "trainer_logprobs": np.float32, "ref_logprobs": np.float32,
    "after_logprobs": np.float32, "ratio": np.float32, "bound": np.int8, "importance": np.float32, "kl": np.float32,
    "values": np.float32, "returns": np.float32,
}  # fmt: skip
"""Columns with one value per token, and their types."""
OF_TOKENS = tuple(_ARRAYS)
"""Names of the columns with one value per token."""


def _of_tokens(row: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    """What a file leaves out because it is the same at all tokens, and NaN at tokens that were put in."""
    ids, sampled = arrays["token_ids"], arrays["sampled"]
    if ids is None:
        return {}
    if sampled is None and "sampled" in row:
        sampled = np.ones(len(ids), np.bool_)
    advantages = arrays["token_advantages"]
    if advantages is None and row.get("advantage") is not None:
        advantages = np.full(len(ids), row["advantage"], np.float32)
    found: dict[str, Any] = {"sampled": sampled, "token_advantages": advantages}
    if sampled is None or sampled.all():
        return found
    floats = {**arrays, "token_advantages": advantages}
    kept = {n: v for n, v in floats.items() if v is not None and _ARRAYS[n] is np.float32}
    return found | {n: np.where(sampled, v, np.float32(np.nan)) for n, v in kept.items()}


def _array(value: Any, kind: type) -> NDArray[Any] | None:
    if value is None:
        return None
    if kind is np.float32:
        return np.array(value, np.float32)  # None becomes NaN
    return np.array([entry or 0 for entry in value], kind)


def _numbers(name: str, text: Any) -> dict[str, float]:
    try:
        table = json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        raise DataError(f"{name} of a completion is no JSON: {error}") from None
    if not isinstance(table, dict):
        raise DataError(f"{name} of a completion is no table of numbers: {text[:60]}")
    return table


def _difference(minuend: Values | None, subtrahend: Values | None) -> Values | None:
    return None if minuend is None or subtrahend is None else minuend - subtrahend


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [_plain(entry) for entry in value.tolist()]
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    return None if isinstance(value, float) and not np.isfinite(value) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """A recorded group: its prompt and its completions."""

    entry: GroupEntry
    """What the index says of it."""
    step: int
    question: str
    reference: str
    """The reference answer."""
    language: str | None
    open_ended: bool | None
    prompt: str
    """Exactly what the model read."""
    prefill: str | None
    """The end of `prompt` that belongs to the answer."""
    prompt_token_ids: list[int] | None
    prompt_token_ends: list[int] | None
    """Where in `prompt` each token ends, in code points."""
    completions: tuple[CompletionRecord, ...]
    """In the order of their samples."""

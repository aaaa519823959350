"""A completion as it was recorded, a group of them, and the index of groups: what everything reads that looks at a run.

The lines of `rollouts/index.jsonl` are the index: the files of completions, group by group.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import groupby, pairwise
from math import isfinite
from statistics import fmean, pstdev
from typing import Any, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from groupwise.errors import DataError
from groupwise.runs.atomic import write_file
from groupwise.runs.directory import RunDirectory
from groupwise.types import FinishReason, Outcome, ScoredGroup, TurnRecord

T = TypeVar("T")
K = TypeVar("K")
SCHEMA_NUMBER = 1  # schema of the files of completions and of their index
Flat = Literal["right", "wrong", "equal", "failed"]
"""Reason why a group has no signal: all judged completions are correct, none is, their rewards are equal otherwise,
or none was judged."""


def flat_because(outcomes: Sequence[Outcome], rewards: Sequence[float | None]) -> Flat | None:
    """Return the reason why no two judged completions earned different rewards; None where two did.

    >>> flat_because([Outcome.CORRECT, Outcome.CRASHED], [1.0, None])
    'right'
    """
    judged = [(o, r) for o, r in zip(outcomes, rewards, strict=True) if o.judged and r is not None]
    if len({reward for _, reward in judged}) > 1:
        return None
    correct = [outcome is Outcome.CORRECT for outcome, _ in judged]
    if not judged:
        return "failed"
    return "right" if all(correct) else "equal" if any(correct) else "wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEntry:
    """One recorded group, without texts and tokens. Means are over judged completions and None where there is none."""

    problem: str
    difficulty: str
    row_group: int  # row group of the file that holds it, or its first row where another program merged groups
    first_row: int  # its first row in the file
    num_completions: int
    num_judged: int
    num_correct: int
    num_failed: int
    num_truncated: int
    num_trained: int | None  # completions that the step's updates read; None where that was not recorded
    reward: float | None  # mean
    reward_std: float | None  # population standard deviation
    length: float | None  # mean of sampled tokens over all completions; None where they were not counted
    longest: int | None
    advantage: float | None  # largest absolute advantage of a completion; None where there is none (evaluations)
    flat: Flat | None  # reason why it has no signal; None where it has one
    discarded: str | None  # reason why it was sampled and not trained on, as in `Discarded`; None where it was kept

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], row_group: int, first_row: int) -> Self:
        """Return the entry of a group's rows, which have `LIGHT` columns."""
        outcomes = [Outcome(row["outcome"]) for row in rows]
        rewards = [reward if (reward := row["reward"]) is not None and isfinite(reward) else None for row in rows]
        judged = [reward for reward in rewards if reward is not None]
        trained = [row["trained"] for row in rows if row.get("trained") is not None]
        advantages = [abs(row["advantage"]) for row in rows if row["advantage"] is not None]
        lengths = [row["num_tokens"] for row in rows if row.get("num_tokens") is not None]
        return cls(
            problem=rows[0]["problem"], difficulty=rows[0]["difficulty"] or "", row_group=row_group,
            first_row=first_row, num_completions=len(rows), num_judged=sum(outcome.judged for outcome in outcomes),
            num_correct=outcomes.count(Outcome.CORRECT), num_failed=sum(outcome.failed for outcome in outcomes),
            num_truncated=sum(row["finish_reason"] == FinishReason.LENGTH for row in rows),
            num_trained=sum(trained) if len(trained) == len(rows) else None, reward=fmean(judged) if judged else None,
            reward_std=pstdev(judged) if judged else None, length=fmean(lengths) if lengths else None,
            longest=max(lengths, default=None), advantage=max(advantages, default=None),
            flat=flat_because(outcomes, rewards), discarded=rows[0].get("discarded"),
        )  # fmt: skip

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> Self:
        """Read a line of the index. Raises ValueError: it has other keys, or a value of another type."""
        names = {field.name for field in fields(cls)}
        if facts.keys() != names:
            raise ValueError(f"an entry has the keys {', '.join(sorted(facts))}")
        entry = cls(**facts)
        counts = (entry.row_group, entry.first_row, entry.num_completions)
        if not isinstance(entry.problem, str) or not all(type(n) is int and n >= 0 for n in counts):
            raise ValueError("an entry has no problem, or no place in its file")
        return entry

    def facts(self) -> dict[str, Any]:
        return asdict(self)


LIGHT = (
    "problem", "difficulty", "outcome", "finish_reason", "reward", "advantage", "num_tokens", "trained", "discarded",
)  # fmt: skip
"""Columns that an entry is made of; none holds a text of a model or a token."""


def entries(rows: Iterable[Mapping[str, Any]], row_groups: Sequence[int]) -> list[GroupEntry]:
    """Return the entries of a whole file: its rows with `LIGHT` columns, and the sizes of its row groups."""
    ends = [sum(row_groups[: i + 1]) for i in range(len(row_groups))]
    collected: list[GroupEntry] = []
    first = 0
    for _, group in groupby(rows, lambda row: row["problem"]):
        members = list(group)
        if not isinstance(members[0]["problem"], str):
            raise ValueError("a completion has no problem")
        place = next(i for i, end in enumerate(ends) if first < end)
        collected.append(GroupEntry.of(members, place, first))
        first += len(members)
    return collected


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return items by a key, each list in the order of the items."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


_NUMBERED = re.compile(r"(?:dev-)?step-(\d+)")


class Index:
    """The index of a working run: lines of steps after its checkpoint are forgotten, for they are done again."""

    def __init__(self, run: RunDirectory, done: int, keep_files: bool = False) -> None:
        """Open it after `done` steps: files that an interrupted run wrote of later ones are deleted."""
        self._run = run
        kept = [line for _, line in run.index.read()[0] if self._is_of(str(line.get("name")), done)]
        self._names = {str(line["name"]) for line in kept}
        if run.index.size:
            self._write(kept)
        for path in run.path.glob("rollouts/step-*.parquet"):
            if not keep_files and not self._is_of(path.stem, done):
                path.unlink()

    @staticmethod
    def _is_of(name: str, done: int) -> bool:
        number = _NUMBERED.fullmatch(name)
        return number is not None and int(number[1]) < done + name.startswith("dev-")

    def add(self, name: str, groups: Sequence[GroupEntry]) -> None:
        if name in self._names:
            others = [line for _, line in self._run.index.read()[0] if line.get("name") != name]
            self._write(others)
        self._names.add(name)
        size = self._run.rollouts(name).stat().st_size
        self._run.index.append(
            {"schema": SCHEMA_NUMBER, "name": name, "bytes": size, "groups": [group.facts() for group in groups]}
        )

    def _write(self, lines: Sequence[object]) -> None:
        text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
        write_file(self._run.index.path, text.encode())


Values = NDArray[np.float32]
"""(T,) a number for each token; NaN where it was not measured, as at tokens of a tool's result."""

Discarded = Literal["right", "wrong", "equal", "failed", "surplus"]
"""Reason why a group was not kept: it had no signal (`Flat` says why), or enough others were there."""

BOUNDS = ("none", "low", "high", "masked")
"""Meaning of the numbers in `Row.bound`: no bound held; the lower or the upper one of the policy loss did; the
importance weight was cut down to 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A completion with its problem, its verdict and all that was recorded of it.

    A value that was not recorded, or does not exist, is None, never 0. T counts all tokens: the stop token and those of
    tools' results included. Log-probabilities are in nats, under the distribution the tokens were drawn from
    (temperature included). Positions in texts count Unicode code points (JavaScript counts UTF-16 units).
    """

    problem: str
    difficulty: str
    language: str | None
    question: str
    reference: str
    open_ended: bool  # True where no rule can judge an answer to the problem
    prefill: str  # the end of the prompt that belongs to the answer
    sample: int  # position within the group, 0 to G - 1
    text: str
    finish_reason: str  # one of `types.FinishReason`; `unknown` in imported runs
    outcome: Outcome
    answer: str | None
    evidence: str
    num_tokens: int | None  # tokens that the policy sampled; None where they were not counted, as in imported runs
    num_put_in: int = 0  # tokens of tools' results
    num_insertions: int = 0  # places at which results of tools stand
    step: int = 0
    policy_version: int | None = 0  # optimizer updates behind the weights that sampled
    reward: float | None = None  # None where the completion was not judged
    reward_parts: Mapping[str, float] = field(default_factory=dict)
    """By name, already weighted; their sum is the reward."""
    measures: Mapping[str, float] = field(default_factory=dict)
    """Measurements of parts before weights and gates, and disagreements between verifiers."""
    steps: tuple[tuple[int, float], ...] | None = None
    """End of each step in prefill and text, in code points, and its reward; the last one's is the outcome."""
    turns: tuple[TurnRecord, ...] = ()
    """The turns of an episode; empty for any other completion."""
    advantage: float | None = None
    """Mean over the sampled tokens; None in evaluations and where the completion was not judged."""
    discarded: str | None = None
    """Reason why its group was sampled and not trained on, as in `Discarded`; None where it was kept."""
    trained: bool | None = None
    """True if the step's updates read it; a group without any gradient is skipped. None: not recorded, or an
    evaluation, on which nothing is trained."""
    loss_weight: float | None = None
    """Weight of each of its tokens in the loss of its last update: the loss is Σ weight · token loss."""
    old: str | None = None  # source of the log-probabilities in the denominator of `ratio`: `trainer` or `sampler`
    token_ids: NDArray[np.int64] | None = None  # (T,); None where tokens were not recorded
    token_ends: NDArray[np.int64] | None = None
    """(T,) end of each token in `text`, in code points; a token begins where the one before ends. A token that ends
    within a character is empty, and the one that completes the character has it. The stop token is empty."""
    sampled: NDArray[np.bool_] | None = None  # (T,) False at tokens of tools' results
    sampling_logprobs: Values | None = None
    entropy: Values | None = None
    """Entropy of the distribution that the token was drawn from, nats; None where the engine does not measure it."""
    token_advantages: Values | None = None
    trainer_logprobs: Values | None = None
    """The trainer's, on the weights that sampled, from the step's first update or the pass before it."""
    ref_logprobs: Values | None = None  # the frozen reference's, from the last update
    after_logprobs: Values | None = None
    """The trainer's after the step's last update: one forward more, made only where `record.after_every` asks for it.
    """
    ratio: Values | None = None
    """π / π_old as the last update of this completion computed it (of the sequence, where the policy loss works with
    that); exactly 1 where the step makes one update."""
    bound: NDArray[np.int8] | None = None
    """(T,) which bound held in that update, a place in `BOUNDS`; 0 at tokens of tools' results."""
    importance: Values | None = None
    """Weight of the token's policy loss for samples of another engine; None without `loss.correction`."""
    kl: Values | None = None
    """Estimate of KL(π ‖ reference) at the token, as the last update computed it; None without a reference."""
    values: Values | None = None  # the critic's, when sampled; None without one
    returns: Values | None = None  # targets of the values

    @property
    def length(self) -> int:
        if self.num_tokens is None:
            raise DataError(f"the tokens of completion {self.sample} of {self.problem!r} were not recorded")
        return self.num_tokens

    @property
    def num_read(self) -> int:
        """Return the number of all tokens, T; raises DataError where they were not counted."""
        return self.length + self.num_put_in

    @property
    def tokens(self) -> list[str] | None:
        if self.token_ends is None:
            return None
        ends = self.token_ends.tolist()
        return [self.text[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    @property
    def mismatch(self) -> Values | None:
        """Return trainer - sampler on the same weights; 0 is perfect. None where the trainer did not compute it."""
        return _difference(self.trainer_logprobs, self.sampling_logprobs)

    @property
    def change(self) -> Values | None:
        """Return by how much the step's updates moved each token's log-probability; None where it was not measured."""
        before = self.sampling_logprobs if self.trainer_logprobs is None else self.trainer_logprobs
        return _difference(self.after_logprobs, before)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Return the row of a record of a file of completions; columns that were not read are None."""
        mask = record.get("sampled")
        row: dict[str, Any] = {name: record.get(name) for name in _SCALARS if name in record}
        row |= {name: record.get(name) or "" for name in _TEXTS}
        for name in ("reward_parts", "measures"):
            text = record.get(name)
            try:
                row[name] = json.loads(text) if text else {}
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{name} of a completion is no JSON: {error}") from None
            if not isinstance(row[name], dict):
                raise ValueError(f"{name} of a completion is no table of numbers: {str(text)[:60]}")
        row["steps"] = tuple((end, reward) for end, reward in json.loads(record["steps"])) if record["steps"] else None
        row["turns"] = tuple(TurnRecord(*turn) for turn in json.loads(record.get("turns") or "[]"))
        row["finish_reason"] = _FINISH_REASONS.get(record["finish_reason"], record["finish_reason"])
        row["outcome"] = Outcome(record["outcome"])
        row["open_ended"] = bool(record["open_ended"])
        row["num_put_in"] = 0 if mask is None else mask.count(False)
        row["num_insertions"] = 0 if mask is None else sum(a > b for a, b in pairwise([True, *mask]))
        return cls(**row, **(_arrays(record) if "token_ids" in record else {}))


_ARRAYS: dict[str, type] = {
    "token_ids": np.int64, "token_ends": np.int64, "sampled": np.bool_, "sampling_logprobs": np.float32,
    "entropy": np.float32, "token_advantages": np.float32, "trainer_logprobs": np.float32, "ref_logprobs": np.float32,
    "after_logprobs": np.float32, "ratio": np.float32, "bound": np.int8, "importance": np.float32, "kl": np.float32,
    "values": np.float32, "returns": np.float32,
}  # fmt: skip
"""Columns with one value per token, and their types."""
OF_TOKENS = tuple(_ARRAYS)  # names of the columns with one value per token
_TEXTS = ("difficulty", "question", "reference", "prefill", "text", "evidence")
_SCALARS = (
    "problem", "language", "sample", "answer", "num_tokens", "step", "policy_version", "reward", "advantage",
    "discarded", "trained", "loss_weight", "old",
)  # fmt: skip
_FINISH_REASONS = {str(reason): reason for reason in FinishReason}


def rows_of(groups: Iterable[ScoredGroup]) -> tuple[Row, ...]:
    """Return the rows of scored groups, without their tokens."""
    return tuple(
        Row(
            problem=problem.id, difficulty=problem.difficulty, language=problem.language, question=problem.question,
            reference=problem.reference, open_ended=problem.open_ended, prefill=group.group.prompt.prefill,
            sample=completion.sample_index, text=completion.text, finish_reason=completion.finish_reason,
            outcome=verdict.outcome, answer=verdict.answer, evidence=verdict.evidence, num_tokens=completion.num_tokens,
            num_put_in=completion.num_read - completion.num_tokens, num_insertions=len(completion.insertions),
            step=group.group.step, policy_version=group.group.policy_version, reward=verdict.reward,
            reward_parts=verdict.parts, measures=verdict.measures,
            steps=tuple((step.end, step.reward) for step in verdict.steps) or None, turns=completion.turns,
        )
        for group in groups
        for problem in [group.group.prompt.problem]
        for completion, verdict in zip(group.group.completions, group.verdicts, strict=True)
    )  # fmt: skip


def _arrays(record: Mapping[str, Any]) -> dict[str, Any]:
    arrays: dict[str, Any] = dict.fromkeys(OF_TOKENS)
    for name, kind in _ARRAYS.items():
        if (values := record[name]) is not None:  # in a list of numbers, None becomes NaN
            arrays[name] = np.array(values if kind is np.float32 else [value or 0 for value in values], kind)
    if (ids := arrays["token_ids"]) is None:
        return arrays
    if arrays["sampled"] is None:
        arrays["sampled"] = np.ones(len(ids), np.bool_)
    if arrays["token_advantages"] is None and record["advantage"] is not None:
        arrays["token_advantages"] = np.full(len(ids), record["advantage"], np.float32)
    sampled = arrays["sampled"]
    for name, kind in _ARRAYS.items():
        if kind is np.float32 and arrays[name] is not None and not sampled.all():
            arrays[name] = np.where(sampled, arrays[name], np.float32(np.nan))
    return arrays


def _difference(minuend: Values | None, subtrahend: Values | None) -> Values | None:
    return None if minuend is None or subtrahend is None else minuend - subtrahend


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """A recorded group: its prompt and its completions."""

    entry: GroupEntry
    prompt: str  # exactly the text that the model read
    prompt_token_ids: list[int] | None
    prompt_token_ends: list[int] | None  # end of each token in `prompt`, in code points
    completions: tuple[Row, ...]  # in the order of their samples

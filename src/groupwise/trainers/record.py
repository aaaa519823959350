"""The record of a step of reinforcement learning: its completions, and the spread of its quantities.

What was not measured is None, never 0.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from groupwise.config import ReadIf, Section
from groupwise.models.policy import Policy
from groupwise.ranks.group import RANKS
from groupwise.rollout.steps import TokenEnds
from groupwise.runs.directory import RunDirectory
from groupwise.runs.rollouts import Detailed, TokenColumns, measured, write_rollouts
from groupwise.runs.row import Flat, Index, flat_because
from groupwise.trainers.report import StepResult
from groupwise.training.tokens import Arrays, logprobs_of
from groupwise.types import AdvantagedGroup, Completion, FinishReason, ScoredGroup
from groupwise.verifiers.style import loop_period
from groupwise.verifiers.style.language import scripts_of, written_words

_WITH_STEPS = ReadIf(lambda record: record.every > 0, "record.every above 0")
_WITH_TOKENS = ReadIf(
    lambda record: record.every > 0 and record.tokens == "all", "record.every above 0 and record.tokens = 'all'"
)


class RecordConfig(Section):
    """The record of the completions that are trained on; evaluations are always recorded whole."""

    every: int = Field(1, ge=0)
    """Steps from one whose completions are recorded to the next, from the first; 0: none. Facts and statistics of every
    step are recorded all the same."""
    groups: Annotated[int, _WITH_STEPS] = Field(0, ge=0)
    """Most groups of a step: the one with the largest advantage, then by a hash of the problem; 0: all."""
    tokens: Annotated[TokenColumns, _WITH_STEPS] = "all"
    """Values recorded of every token: `all`, `sampled` (what the sampler knew), `none`
    (the text alone: such completions cannot be replayed)."""
    after_every: Annotated[int, _WITH_TOKENS] = Field(0, ge=0)
    """Steps from one after whose update the log-probabilities of the recorded tokens are measured again to the next; 0:
    never. It costs one forward of those tokens."""

    @model_validator(mode="after")
    def _meets(self) -> Self:
        if self.after_every and self.after_every % self.every:
            raise ValueError(
                f"after_every = {self.after_every} measures tokens of steps that every = {self.every} does not record; "
                "allowed are its multiples"
            )
        return self


class Recorder:
    """Writes the completions of steps and evaluations, and the index of them."""

    def __init__(
        self, config: RecordConfig, run: RunDirectory, policy: Policy, temperature: float, done: int, keep: bool
    ) -> None:
        """Begin; `keep` leaves the completions of steps that an interrupted run has recorded and not finished."""
        self._config, self._run, self._policy, self._temperature = config, run, policy, temperature
        self._ends = TokenEnds(policy.tokenizer)
        self._index = Index(run, done, keep_files=keep) if RANKS.is_first else None  # the other ranks write nothing

    def evaluation(self, name: str, groups: Sequence[ScoredGroup]) -> None:
        if self._index is None:
            return
        detailed = [self._detailed(group, None, [{} for _ in group.verdicts]) for group in groups]
        self._index.add(name, write_rollouts(self._run.rollouts(name), detailed))

    def step(self, step: int, result: StepResult, budget: int) -> dict[int, Arrays]:
        if not self._config.every or step % self._config.every:
            return {}
        chosen, after = self._chosen(step, result.groups), dict[int, Arrays]()
        if self._config.after_every and step % self._config.after_every == 0:
            groups = [result.groups[i].scored.group for i in chosen]
            values = logprobs_of(self._policy, groups, self._temperature, budget)
            after = dict(zip(chosen, values, strict=True))
        if self._index is None:
            return after
        detailed = []
        for i in chosen:
            completions, measured_after = result.groups[i].scored.group.completions, after.get(i)
            columns = [
                _columns(result, i, place, completion, None if measured_after is None else measured_after[place])
                for place, completion in enumerate(completions)
            ]
            detailed.append(self._detailed(result.groups[i], None, columns))
        left_out = () if self._config.groups else discarded(result)
        detailed += [self._detailed(group, why, [{} for _ in group.verdicts]) for group, why in left_out]
        path = self._run.rollouts(step)
        self._index.add(path.stem, write_rollouts(path, detailed, self._config.tokens))
        return after

    def _chosen(self, step: int, groups: Sequence[AdvantagedGroup]) -> list[int]:
        if not self._config.groups or len(groups) <= self._config.groups:
            return list(range(len(groups)))

        def key(index: int) -> bytes:
            return hashlib.sha256(f"{step}/{groups[index].scored.group.prompt.problem.id}".encode()).digest()

        def largest(index: int) -> float:
            arrays = groups[index].advantages
            return max((float(np.abs(values).max()) for values in arrays if values is not None), default=0.0)

        first = max(range(len(groups)), key=lambda i: (largest(i), key(i)))
        others = sorted((i for i in range(len(groups)) if i != first), key=key)
        return sorted([first, *others[: self._config.groups - 1]])

    def _detailed(
        self, group: ScoredGroup | AdvantagedGroup, why: str | None, columns: list[dict[str, Any]]
    ) -> Detailed:
        sampled = (group.scored if isinstance(group, AdvantagedGroup) else group).group
        if self._config.tokens != "all":
            return Detailed(group, why, None, columns)
        for row, completion in zip(columns, sampled.completions, strict=True):
            row["token_ends"] = self._ends(completion.token_ids.tolist(), completion.text)
        return Detailed(group, why, self._ends(sampled.prompt.token_ids, sampled.prompt.text), columns)


def discarded(result: StepResult) -> list[tuple[ScoredGroup, str]]:
    """Return the groups that were sampled and not kept, and why: without signal as `Flat` says, or `surplus`."""
    kept = {group.scored.group.prompt.problem.id for group in result.groups}
    return [
        (group, flat_because([verdict.outcome for verdict in group.verdicts], group.rewards) or "surplus")
        for group in result.sampled
        if group.group.prompt.problem.id not in kept
    ]


def _columns(
    result: StepResult, group: int, index: int, completion: Completion, after: np.ndarray[Any, Any] | None
) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    if after is not None:
        columns["after_logprobs"] = measured(completion, after)
    if (critic := result.groups[group].critic) and (view := critic[index]) is not None:
        columns |= {"values": measured(completion, view.values), "returns": measured(completion, view.returns)}
    trace = result.trace.completions.get((group, index))
    columns["trained"] = trace is not None
    if trace is None:
        return columns
    names = ("trainer_logprobs", "ref_logprobs", "ratio", "importance", "kl")
    values = {name: value for name in names if (value := getattr(trace, name)) is not None}
    columns |= {name: measured(completion, value) for name, value in values.items()}
    return columns | {"bound": completion.spread(trace.bound), "old": trace.old, "loss_weight": trace.loss_weight}


def distributions(result: StepResult, after: Mapping[int, Arrays]) -> dict[str, Any]:
    """Return quantiles and shares of a step; `after` holds the log-probabilities after its updates, by group.

    A number that is not finite is None, and its name stands in `not_finite`: JSON has no word for it.
    """
    figures: dict[str, Any] = {
        **_of_tokens(result),
        **_of_updates(result, after),
        "grad_norms": {str(i): norm for i, norm in enumerate(result.trace.grad_norms)},
        **_of_groups(result),
        **_of_texts([group.scored for group in result.groups]),
    }
    if calls := [call for group in result.sampled for c in group.group.completions for call in c.calls]:
        figures["calls"] = dict(sorted(Counter(str(call.outcome) for call in calls).items()))
        figures["call_s"] = sum(call.seconds for call in calls)
    not_finite: list[str] = []
    finite = _finite(figures, "", not_finite)
    return {**finite, "not_finite": not_finite} if not_finite else finite


def _finite(table: Mapping[str, Any], prefix: str, odd: list[str]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            result[name] = _finite(value, f"{prefix}{name}.", odd)
        elif isinstance(value, float) and not math.isfinite(value):
            odd.append(f"{prefix}{name}")
            result[name] = None
        else:
            result[name] = value
    return result


def spread(values: Sequence[NDArray[Any]]) -> dict[str, float] | None:
    """Return median, 99th percentile, maximum and number of all values; None of nothing.

    >>> spread([np.array([1.0, 3.0]), np.array([2.0])])["p50"]
    2.0
    """
    if not values or not (joined := np.concatenate(values)).size:
        return None
    middle, high = np.quantile(joined, (0.5, 0.99)).tolist()
    return {"p50": middle, "p99": high, "max": float(joined.max()), "num": int(joined.size)}


def _of_tokens(result: StepResult) -> dict[str, Any]:
    completions = [c for group in result.groups for c in group.scored.group.completions]
    traces = result.trace.completions
    mismatch = []
    for (group, index), trace in traces.items():
        completion = result.groups[group].scored.group.completions[index]
        if trace.trainer_logprobs is not None:
            mismatch.append(np.abs(trace.trainer_logprobs - completion.sampling_logprobs[completion.sampled]))
    count = result.trace.num_tokens
    return {
        "entropy": spread([c.entropy[c.sampled] for c in completions if c.entropy is not None]),
        "length": spread([np.array([c.num_tokens for c in completions])]),
        "ratio": spread([trace.ratio for trace in traces.values()]),
        "mismatch": spread(mismatch),
        "kl": spread([trace.kl for trace in traces.values() if trace.kl is not None]),
        "clip_low": result.trace.num_low / count if count else None,
        "clip_high": result.trace.num_high / count if count else None,
    }


def _of_updates(result: StepResult, after: Mapping[int, Arrays]) -> dict[str, float | None]:
    """KL in nats per token, from the old weights to those of the last of several updates, and after all of them."""
    last, changes = None, []
    if len(result.trace.grad_norms) >= 2:
        ratios = np.concatenate([trace.ratio for trace in result.trace.completions.values()]).astype(np.float64)
        with np.errstate(divide="ignore"):  # a ratio that fell to 0 gives infinity, which is named
            last = float((ratios - 1 - np.log(ratios)).mean())
    for group, arrays in after.items():
        completions = result.groups[group].scored.group.completions
        for index, (completion, values) in enumerate(zip(completions, arrays, strict=True)):
            before = completion.sampling_logprobs[completion.sampled]
            trace = result.trace.completions.get((group, index))
            if trace is not None and trace.trainer_logprobs is not None:
                before = trace.trainer_logprobs
            changes.append(values[completion.sampled].astype(np.float64) - before)
    change = np.concatenate(changes) if changes else None
    end = None if change is None else float((np.expm1(change) - change).mean())
    return {"kl_before_last_update": last, "kl_after_updates": end}


def _of_groups(result: StepResult) -> dict[str, Any]:
    scored = [group.scored for group in result.groups]
    kept = Counter(flat_because([v.outcome for v in group.verdicts], group.rewards) for group in scored)
    left_out = Counter(why for _, why in discarded(result))
    names: tuple[Flat, ...] = get_args(Flat)
    counts = {"signal": kept[None]} | {name: kept[name] for name in names}
    counts |= {f"discarded_{name}": left_out[name] for name in (*names, "surplus") if result.sampled}
    answers = [len({v.answer for v in group.verdicts if v.answer is not None}) for group in scored]
    variances: dict[str, list[float]] = {}
    for group in scored:  # within a group: what of a part can teach
        judged = [verdict.parts for verdict in group.verdicts if verdict.outcome.judged]
        for name in sorted({name for parts in judged for name in parts}):
            variances.setdefault(name, []).append(float(np.var([parts.get(name, 0.0) for parts in judged])))
    return {
        "groups": counts,
        "distinct_answers": float(np.mean([count for count in answers if count])) if any(answers) else None,
        "part_variance": {name: float(np.mean(values)) for name, values in variances.items()},
    }


def _of_texts(scored: Sequence[ScoredGroup]) -> dict[str, float | None]:
    completions = [c for group in scored for c in group.group.completions]
    cut = [c.token_ids.tolist() for c in completions if c.finish_reason is FinishReason.LENGTH]
    known = foreign = 0
    for group in scored:
        scripts = scripts_of(group.group.prompt.problem.language)
        if scripts is None:
            continue
        is_latin = "LATIN" in scripts
        known += len(group.group.completions)
        for completion in group.group.completions:
            if not (is_latin and completion.text.isascii()):
                foreign += bool(written_words(completion.text, scripts)[1])
    return {
        "loops": sum(loop_period(tokens) is not None for tokens in cut) / len(completions),
        "other_scripts": foreign / known if known else None,
    }

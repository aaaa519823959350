"""The record of completions in a run of reinforcement learning."""

import hashlib
from collections.abc import Sequence
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, model_validator

from groupwise.config import ReadIf, Section
from groupwise.models.policy import Policy
from groupwise.ranks.group import RANKS
from groupwise.rollout.steps import TokenEnds
from groupwise.runs.directory import RunDirectory
from groupwise.runs.index import Index, flat_because
from groupwise.runs.rollouts import Detailed, TokenColumns, measured, write_rollouts
from groupwise.trainers.report import StepResult
from groupwise.training.forward import Arrays, per_token
from groupwise.types import AdvantagedGroup, Completion, ScoredGroup

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
        self._index.add(name, write_rollouts(self._run.evaluations(name), detailed))

    def step(self, step: int, result: StepResult, budget: int) -> dict[int, Arrays]:
        if not self._config.every or step % self._config.every:
            return {}
        chosen, after = self._chosen(step, result.groups), dict[int, Arrays]()
        if self._config.after_every and step % self._config.after_every == 0:
            values = per_token(
                [result.groups[i].scored.group for i in chosen],
                lambda packed: self._policy.token_logprobs(packed, self._temperature).logprobs,
                budget,
                self._policy.device,
            )
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
    if result.trace is None:
        return columns
    trace = result.trace.completions.get((group, index))
    columns["trained"] = trace is not None
    if trace is None:
        return columns
    names = ("trainer_logprobs", "ref_logprobs", "ratio", "importance", "kl")
    values = {name: value for name in names if (value := getattr(trace, name)) is not None}
    columns |= {name: measured(completion, value) for name, value in values.items()}
    return columns | {"bound": completion.spread(trace.bound), "old": trace.old, "loss_weight": trace.loss_weight}

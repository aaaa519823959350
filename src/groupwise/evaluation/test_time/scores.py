"""Scores of samples by reward models: one for every step, and the tokens that were read for it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from groupwise.algorithms.step_metrics import aggregated
from groupwise.errors import DataError, ModelError
from groupwise.evaluation.test_time.pool import Pool, Sample, Store
from groupwise.models.config import ModelConfig
from groupwise.models.reward_model import RewardModel
from groupwise.models.steps import EncodedSteps, ScoresSteps, encode_steps, load_scorer, score_rows
from groupwise.tasks.step_rows import StepRow
from groupwise.verifiers.steps import steps_after

Role = Literal["prm", "orm"]
NAMES: Mapping[Role, str] = {"prm": "process reward model", "orm": "outcome reward model"}


class Scored(NamedTuple):
    """The scores of a completion."""

    steps: tuple[float, ...]
    """Probability of each step that it is right; of an outcome model one number. Empty for an unfinished completion."""
    tokens: int


class ScoredPool(NamedTuple):
    """The scores of a pool's samples, in their order."""

    samples: tuple[Scored, ...]
    seconds: float

    def joined(self, how: str) -> list[float]:
        return [aggregated(sample.steps, how) for sample in self.samples]

    @property
    def mean_tokens(self) -> float:
        return sum(sample.tokens for sample in self.samples) / len(self.samples)


class Told(NamedTuple):
    """A text for a reward model to read."""

    prompt: str
    steps: tuple[str, ...]
    name: str

    @classmethod
    def of(cls, pool: Pool, sample: Sample, step: str, name: str) -> "Told":
        steps = steps_after(sample.prefill, sample.text, step) if sample.finished else []
        return cls(pool.prompt, tuple(steps), name)


@dataclass(frozen=True, slots=True)
class Scorer:
    """A reward model that reads steps."""

    model: ScoresSteps
    path: str
    role: Role
    step: str
    fingerprint: str
    num_parameters: int

    @classmethod
    def load(cls, config: ModelConfig, role: Role, step: str, reference: str = "", beta: float = 0.05) -> "Scorer":
        model = load_scorer(config, reference, beta)
        if isinstance(model, RewardModel):
            return cls(model, config.path, role, step, model.fingerprint(), model.num_parameters)
        both = model.policy, model.reference
        fingerprint = " ".join([*(part.fingerprint() for part in both), str(beta)])
        return cls(model, config.path, role, step, fingerprint, sum(part.num_parameters for part in both))

    @property
    def identity(self) -> dict[str, Any]:
        return {"role": self.role, "model": self.fingerprint, "step": self.step}

    def texts(self, texts: Sequence[Told]) -> list[Scored]:
        encoded = [self._encoded(told) if told.steps else None for told in texts]
        rows = [row for row in encoded if row is not None]
        scores = iter(score_rows(self.model, rows) if rows else ())
        scored = [Scored((), 0) if row is None else Scored(tuple(next(scores)), row.num_tokens) for row in encoded]
        for told, of_text in zip(texts, scored, strict=True):
            if bad := [score for score in of_text.steps if not math.isfinite(score)]:
                raise ModelError(
                    f"the {NAMES[self.role]} {self.path!r} gives {bad[0]} to a step of {told.name}: only numbers can "
                    "be compared; its weights are damaged, or its compute_dtype is too small for them"
                )
        return scored

    def _encoded(self, told: Told) -> EncodedSteps:
        try:
            row = encode_steps(self.model, StepRow(told.prompt, told.steps, (None,) * len(told.steps)))
        except DataError as error:
            raise DataError(f"the {NAMES[self.role]} {self.path!r} cannot read {told.name}: {error}") from None
        return row._replace(ends=row.ends[-1:]) if self.role == "orm" else row

    def pools(self, pools: Sequence[Pool], directory: Path, sampled: Mapping[str, Any]) -> list[ScoredPool]:
        def score(part: Sequence[Pool]) -> list[list[Scored]]:
            told = [
                Told.of(pool, sample, self.step, f"sample {index} of {pool.problem.id}")
                for pool in part
                for index, sample in enumerate(pool.samples)
            ]
            scores = iter(self.texts(told))
            return [[next(scores) for _ in pool.samples] for pool in part]

        identity, title = {**sampled, **self.identity}, f"{self.role} scores"
        store = Store.of(directory, self.role, identity, title)
        return [
            ScoredPool(tuple(Scored(tuple(steps), tokens) for steps, tokens in value), seconds / max(1, len(value)))
            for _, value, seconds in store.values(pools, score)
        ]

"""What reward models say of samples: a score of every step, and the tokens that were read for it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from groupwise.algorithms.step_metrics import aggregated
from groupwise.errors import DataError, ModelError
from groupwise.evaluation.test_time.pool import Pool, Progress, Sample
from groupwise.evaluation.test_time.store import Store, parts
from groupwise.models.config import ModelConfig
from groupwise.models.reward_model import RewardModel
from groupwise.models.steps import EncodedSteps, ScoresSteps, encode_steps, load_scorer, score_rows
from groupwise.tasks.step_rows import StepRow
from groupwise.verifiers.steps import steps_after

Role = Literal["prm", "orm"]
NAMES: Mapping[Role, str] = {"prm": "process reward model", "orm": "outcome reward model"}


class Scored(NamedTuple):
    """A completion, scored."""

    steps: tuple[float, ...]
    """Of each step the chance that it is right; of an outcome model one number. Empty: it was not finished."""
    tokens: int
    """That the model read, the prompt included; 0 where it was not asked."""


class ScoredPool(NamedTuple):
    """The scores of a pool's samples, in their order."""

    samples: tuple[Scored, ...]
    seconds: float
    """Of scoring one sample."""

    def joined(self, how: str) -> list[float]:
        """One number for each sample; 0 for one that was not finished."""
        return [aggregated(sample.steps, how) for sample in self.samples]

    @property
    def mean_tokens(self) -> float:
        """That the model reads of a sample."""
        return sum(sample.tokens for sample in self.samples) / len(self.samples)


@dataclass(frozen=True, slots=True)
class Scorer:
    """A reward model that reads steps."""

    model: ScoresSteps
    path: str
    role: Role
    step: str
    """What ends a step."""
    fingerprint: str
    """Of its weights."""
    num_parameters: int
    """Weights that a token meets; those of an implicit model's reference too."""

    @classmethod
    def load(cls, config: ModelConfig, role: Role, step: str, reference: str = "", beta: float = 0.05) -> "Scorer":
        """Load it: a model with a head, or where a reference is named an implicit one.

        Raises:
            ModelError: it cannot be loaded, or is no reward model.
        """
        model = load_scorer(config, reference, beta)
        if isinstance(model, RewardModel):
            return cls(model, config.path, role, step, model.fingerprint(), model.num_parameters)
        both = model.policy, model.reference
        name = " ".join([*(one.fingerprint() for one in both), str(beta)])
        return cls(model, config.path, role, step, name, sum(one.num_parameters for one in both))

    @property
    def identity(self) -> dict[str, Any]:
        """What scores follow from, beside the samples."""
        return {"role": self.role, "model": self.fingerprint, "step": self.step}

    def texts(self, texts: Sequence["Told"]) -> list[Scored]:
        """Scores of texts, complete or not; one without a step has none.

        Raises:
            DataError: the model's tokenizer cannot write one, or it is too long for the model.
            ModelError: a score is not a number.
        """
        encoded = [self._encoded(told) for told in texts]
        rows = [row for row in encoded if row is not None]
        given = iter(score_rows(self.model, rows) if rows else ())
        scored = [Scored((), 0) if row is None else Scored(tuple(next(given)), row.num_tokens) for row in encoded]
        for told, one in zip(texts, scored, strict=True):
            if bad := [score for score in one.steps if not math.isfinite(score)]:
                raise ModelError(
                    f"the {NAMES[self.role]} {self.path!r} gives {bad[0]} to a step of {told.name}: only numbers can "
                    "be compared; its weights are damaged, or its compute_dtype is too small for them"
                )
        return scored

    def _encoded(self, told: "Told") -> EncodedSteps | None:
        if not told.steps:
            return None
        try:
            row = encode_steps(self.model, StepRow(told.prompt, told.steps, (None,) * len(told.steps)))
        except DataError as error:
            raise DataError(f"the {NAMES[self.role]} {self.path!r} cannot read {told.name}: {error}") from None
        return row._replace(ends=row.ends[-1:]) if self.role == "orm" else row

    def pools(
        self, pools: Sequence[Pool], directory: Path, sampled: Mapping[str, Any], progress: Progress
    ) -> list[ScoredPool]:
        """Scores of every sample of the pools; `sampled` is what the samples follow from."""
        store = Store.of(directory, self.role, {**sampled, **self.identity})
        found: list[ScoredPool] = []
        for number, part in parts(pools):
            progress(f"{self.role} scores", len(found), len(pools))
            values, seconds = store.values(number, lambda part=part: self._of(part))  # type: ignore[misc]
            rows = iter(Scored(tuple(steps), tokens) for steps, tokens in values)
            each = seconds / max(1, len(values))
            found += [ScoredPool(tuple(next(rows) for _ in pool.samples), each) for pool in part]
        return found

    def _of(self, pools: Sequence[Pool]) -> list[Scored]:
        told = [
            Told.of(pool, sample, self.step, f"sample {index} of {pool.problem.id}")
            for pool in pools
            for index, sample in enumerate(pool.samples)
        ]
        return self.texts(told)


class Told(NamedTuple):
    """What a reward model is asked to read."""

    prompt: str
    steps: tuple[str, ...]
    name: str
    """What it is, for messages."""

    @classmethod
    def of(cls, pool: Pool, sample: Sample, step: str, name: str) -> "Told":
        """A finished sample in steps; one that was cut off, maybe within a step, is not read."""
        steps = steps_after(sample.prefill, sample.text, step) if sample.finished else []
        return cls(pool.prompt, tuple(steps), name)

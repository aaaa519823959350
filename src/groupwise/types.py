"""What flows through one training step. Every type is frozen and complete: nothing is filled in later.

    Problem -> Prompt -> Completion -> Group -> ScoredGroup -> AdvantagedGroup

Arrays are one-dimensional numpy arrays over the tokens of one completion; shapes use T for that length and G for
the number of completions of one prompt.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")


@dataclass(frozen=True, slots=True)
class Problem:
    """One question with its reference answer."""

    id: str
    """Unique within the task and stable for ever: a repeat, a resume and a replay find the problem by it."""
    question: str
    """What is asked, as plain text; the task's template makes a prompt of it."""
    reference: str
    """The reference answer as text, for example `391`."""
    difficulty: str = ""
    """Label by which evaluation groups results, for example `2x2 digits`."""
    language: str = "en"
    """Language of the question (ISO 639-1)."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """What the verifier needs beside the reference answer, for example the numbers of a countdown.

    Any problem may have here: `open_ended` (True where no rule can judge an answer, so that only reward models and
    style say what it is worth) and, in a mixture, `verifier` (the name of the one that judges).
    """


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered problem: exactly what the model reads."""

    problem: Problem
    text: str
    token_ids: tuple[int, ...]
    prefill: str = ""
    """The end of `text` that already belongs to the answer (for example `<think>`); verifiers see it too."""


class FinishReason(StrEnum):
    """Why sampling ended; said by the sampler, never inferred from token ids."""

    STOP = "stop"
    """A stop token was sampled. It is the last token of the completion and is trained like any other."""
    LENGTH = "length"
    """The token limit was reached."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled continuation of a prompt."""

    sample_index: int
    """Position within the group, 0 .. G-1; with (seed, step, problem id) it is the key of every random draw."""
    token_ids: NDArray[np.int64]
    """(T,) sampled tokens, the stop token included."""
    sampling_logprobs: NDArray[np.float32]
    """(T,) log-probability of each token under the distribution it was drawn from (temperature included)."""
    entropy: NDArray[np.float32]
    """(T,) entropy in nats of that distribution."""
    finish_reason: FinishReason
    text: str
    """Decoded view for people and verifiers; never encoded again."""

    def __post_init__(self) -> None:
        if not len(self.token_ids) == len(self.sampling_logprobs) == len(self.entropy):
            raise ValueError(
                f"{len(self.token_ids)} tokens with {len(self.sampling_logprobs)} log-probabilities and "
                f"{len(self.entropy)} entropies: exactly one of each per token is allowed"
            )

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class Group:
    """The G completions of one prompt."""

    prompt: Prompt
    completions: tuple[Completion, ...]
    step: int
    policy_version: int
    """Number of optimizer updates behind the weights that sampled."""


class Outcome(StrEnum):
    """What a verifier found. Only the first three become reward; the last two say that the verifier failed."""

    CORRECT = "correct"
    WRONG = "wrong"
    UNPARSABLE = "unparsable"
    """No answer could be read from the completion; counted as wrong."""
    NONE = "none"
    """The verifier has no verdict on this completion, by choice: it is counted, and no part of the loss."""
    TIMEOUT = "timeout"
    """The verifier (not the program under test) ran into its deadline."""
    CRASHED = "crashed"
    """The verifier (not the program under test) failed."""

    @property
    def judged(self) -> bool:
        """Whether the outcome says something about the completion; only then is there a reward."""
        return self in (Outcome.CORRECT, Outcome.WRONG, Outcome.UNPARSABLE)

    @property
    def failed(self) -> bool:
        """Whether the verifier failed."""
        return self in (Outcome.TIMEOUT, Outcome.CRASHED)


class StepReward(NamedTuple):
    """The reward of one step of a completion."""

    end: int
    """Where the step ends in the judged text (prefill and completion), in characters."""
    reward: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verifier's finding on one completion."""

    outcome: Outcome
    parts: Mapping[str, float]
    """Reward parts by name, already weighted; their sum is the reward."""
    evidence: str
    """Why, in words a person can check."""
    answer: str | None = None
    """The answer in canonical form (majority votes count equal strings); None when there is none."""
    measures: Mapping[str, float] = field(default_factory=dict)
    """What parts measured before weights and gates, and disagreements between verifiers (0 or 1); for statistics."""
    steps: tuple[StepReward, ...] = ()
    """Process supervision: the rewards of the steps, in order; empty where only the outcome is judged."""

    @property
    def reward(self) -> float | None:
        """Sum of the parts; None where the completion was not judged, which is not a zero."""
        return sum(self.parts.values()) if self.outcome.judged else None


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """A group and one verdict per completion, in the same order."""

    group: Group
    verdicts: tuple[Verdict, ...]

    def __post_init__(self) -> None:
        if len(self.verdicts) != len(self.group.completions):
            raise ValueError(
                f"{len(self.verdicts)} verdicts for {len(self.group.completions)} completions of "
                f"problem {self.group.prompt.problem.id}: exactly one verdict per completion is allowed"
            )

    @property
    def rewards(self) -> tuple[float | None, ...]:
        return tuple(verdict.reward for verdict in self.verdicts)

    @property
    def has_signal(self) -> bool:
        """True when at least two judged completions earned different rewards; otherwise every advantage is zero."""
        return len({reward for reward in self.rewards if reward is not None}) > 1


Advantage = float | NDArray[np.float32]
"""Of a whole completion, or (T,) of its tokens."""


@dataclass(frozen=True, slots=True)
class CriticView:
    """What a critic said about one completion when it was sampled; both (T,)."""

    values: NDArray[np.float32]
    """Value of the state before each token."""
    returns: NDArray[np.float32]
    """What the value should have been: advantage plus value."""


@dataclass(frozen=True, slots=True)
class AdvantagedGroup:
    """A scored group and one advantage per completion; None where it was not judged: no part of the loss."""

    scored: ScoredGroup
    advantages: tuple[Advantage | None, ...]
    critic: tuple[CriticView | None, ...] = ()
    """What the critic said, one entry per completion; empty where there is no critic."""

    @property
    def has_gradient(self) -> bool:
        """Whether any advantage differs from zero."""
        return any(advantage is not None and np.any(advantage) for advantage in self.advantages)

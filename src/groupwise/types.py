"""The data of one training step. Every type is frozen and complete: nothing is filled in later.

    Problem -> Prompt -> Completion -> Group -> ScoredGroup -> AdvantagedGroup

Arrays are one-dimensional numpy arrays over the tokens of one completion; shapes use T for that length and G for
the number of completions of one prompt.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from groupwise.config.kinds import KindSection

Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")


FAMILY_END = ": "
"""Ends the family in a difficulty label, where it names one: `sums: sum 2x2`."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One question with its reference answer."""

    id: str
    """Unique within the task and stable for ever: a repeat, a resume and a replay find the problem by it."""
    question: str
    """The question as plain text; the task's template makes a prompt of it."""
    reference: str
    """The reference answer as text, for example `391`."""
    difficulty: str = ""
    """Label by which evaluation groups results, for example `2x2 digits`, or `sums: 2x2 digits` with its family."""
    language: str = "en"
    """Language of the question (ISO 639-1)."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Data for the verifier beside the reference answer, for example the numbers of a countdown."""
    messages: tuple[Mapping[str, Any], ...] = ()
    """The conversation that asks the question, where the data holds one; `data["tools"]` are the tools it may call."""
    open_ended: bool = False
    """True where no rule can judge an answer, so that only reward models and style say what it is worth."""
    verifier: str = ""
    """The kind of the verifier that judges it, in a mixture, whose problems have different ones; else empty."""
    environment: "KindSection | None" = None
    """The environment in which it is played turn by turn; None: one completion answers it."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered problem: exactly what the model reads."""

    problem: Problem
    text: str
    token_ids: tuple[int, ...]
    prefill: str = ""
    """The end of `text` that already belongs to the answer (for example `<think>`); verifiers see it too."""


class FinishReason(StrEnum):
    """The reason that sampling ended; said by the sampler, never inferred from token ids."""

    STOP = "stop"
    """A stop token was sampled. It is the last token of the completion and is trained like any other."""
    LENGTH = "length"
    """The token limit was reached."""
    STOP_TEXT = "stop_text"
    """A text of `sampling.stop` was written; it is among the tokens, not in the text."""
    TOOL_LIMIT = "tool_limit"
    """A call was made beyond the most that are allowed."""
    MALFORMED_CALL = "malformed_call"
    """A call broke the rules: the policy wrote a result itself, or called within a call. Judged as wrong."""
    TOOL_FAILED = "tool_failed"
    """A tool (not the call) failed; the completion is not judged."""
    DONE = "done"
    """The environment ended the episode behind a turn."""
    TURN_LIMIT = "turn_limit"
    """The episode had as many turns as are allowed."""
    FAULT_LIMIT = "fault_limit"
    """More turns in a row had a call that could not be run than are allowed."""
    ENVIRONMENT_FAILED = "environment_failed"
    """The environment failed; the episode is not judged."""
    TOOL_CALL = "tool_call"
    """The completion waits for a tool; never the end of one that is whole."""


class CallOutcome(StrEnum):
    """The outcome of a call of a tool."""

    DONE = "done"
    ERROR = "error"
    """The call was at fault; the result says so, and the policy may read it."""
    TIMEOUT = "timeout"
    """The call took longer than it may; the result says so."""
    FAILED = "failed"
    """The tool itself failed: nothing is known about the call."""
    MALFORMED = "malformed"
    """It broke the rules of calls, and was not run."""
    LIMIT = "limit"
    """It was one too many, and was not run."""
    RECORDED = "recorded"
    """Its result was recorded when the completion was sampled first; no tool was asked."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool in a completion."""

    tool: str
    """Its name in the recipe."""
    content: str
    """The text of the call."""
    outcome: CallOutcome
    seconds: float = 0.0
    evidence: str = ""
    """The fault, for people."""
    repeatable: bool = True
    """True where later calls are told of it; False where it was ended from outside."""


class TurnRecord(NamedTuple):
    """One turn of an episode, and what its environment made of it."""

    end: int
    """Tokens of the completion up to and with the turn's last one."""
    reward: float | None = None
    """Reward of the turn; None: the environment gave none."""
    state: str = ""
    """Key of the state in which the turn was taken; empty: unknown."""
    outcome: str = ""
    """`correct` or `wrong` where the environment decided the episode."""
    evidence: str = ""
    seconds: float = 0.0
    """Seconds that the environment took."""
    calls: int | None = None
    """Calls of tools that were run; None: the environment has none."""
    faults: int | None = None
    """Calls that could not be run."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled continuation of a prompt."""

    sample_index: int
    """Position within the group, 0 .. G-1; with (seed, step, problem id) it is the key of every random draw."""
    token_ids: NDArray[np.int64]
    """(T,) sampled tokens, the stop token included."""
    sampling_logprobs: NDArray[np.float32]
    """(T,) log-probability of each token under the distribution it was drawn from (temperature included); 0 where
    `sampled` is False."""
    entropy: NDArray[np.float32] | None
    """(T,) entropy in nats of that distribution; None where the sampler does not measure it."""
    finish_reason: FinishReason
    text: str
    """Decoded view for people and verifiers; never encoded again."""
    sampled: NDArray[np.bool_] = None  # type: ignore[assignment]
    """(T,) which tokens the policy drew; all of them unless said otherwise. The others (a tool's result, a phrase) were
    inserted: they are read, and never trained or counted."""
    calls: tuple[ToolCall, ...] = ()
    """The calls of tools, in order, those included that were not run."""
    own: str | None = None
    """`text` without what tools and environments said that may not answer; None where that is all of it."""
    turns: tuple[TurnRecord, ...] = ()
    """The turns of an episode, in order; empty where the problem has no environment."""

    def __post_init__(self) -> None:
        if self.sampled is None:
            object.__setattr__(self, "sampled", np.ones(len(self.token_ids), np.bool_))
        entropies = self.token_ids if self.entropy is None else self.entropy
        if not len(self.token_ids) == len(self.sampling_logprobs) == len(entropies) == len(self.sampled):
            raise ValueError(
                f"{len(self.token_ids)} tokens with {len(self.sampling_logprobs)} log-probabilities, {len(entropies)} "
                f"entropies and a mask of {len(self.sampled)}: exactly one of each per token is allowed"
            )
        if len(self.sampled) and not self.sampled.any():
            raise ValueError("a completion needs at least one token that was sampled")

    @property
    def num_tokens(self) -> int:
        """Tokens that the policy sampled: the length that everything counts."""
        return int(np.count_nonzero(self.sampled))

    @property
    def num_read(self) -> int:
        """All tokens T, inserted ones included: the cost of a forward."""
        return len(self.token_ids)

    @property
    def num_calls(self) -> int:
        return sum(call.outcome not in (CallOutcome.MALFORMED, CallOutcome.LIMIT) for call in self.calls)

    @property
    def insertions(self) -> list[NDArray[np.int64]]:
        """The inserted tokens, one array for each place."""
        return put_in(self.token_ids, self.sampled)

    def spread(self, values: NDArray[Any]) -> NDArray[Any]:
        """(T,) from one value per sampled token; 0 at inserted tokens."""
        if len(values) == len(self.sampled):
            return values
        result = np.zeros(len(self.sampled), values.dtype)
        result[self.sampled] = values
        return result


def put_in(token_ids: NDArray[np.int64], sampled: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """Return the inserted pieces of a completion, in order; both arguments (T,).

    >>> [piece.tolist() for piece in put_in(np.array([5, 6, 7, 8]), np.array([True, False, False, True]))]
    [[6, 7]]
    """
    edges = np.flatnonzero(np.diff(np.concatenate(([True], sampled, [True])).astype(np.int8)))
    return [token_ids[begin:end] for begin, end in zip(edges[::2], edges[1::2], strict=True)]


@dataclass(frozen=True, slots=True)
class Group:
    """The G completions of one prompt."""

    prompt: Prompt
    completions: tuple[Completion, ...]
    step: int
    policy_version: int
    """Number of optimizer updates behind the weights that sampled."""


class Outcome(StrEnum):
    """A verifier's finding. Only the first three become reward."""

    CORRECT = "correct"
    WRONG = "wrong"
    UNPARSABLE = "unparsable"
    """No answer could be read from the completion; counted as wrong."""
    TIMEOUT = "timeout"
    """The verifier (not the program under test) ran into its deadline."""
    CRASHED = "crashed"
    """The verifier (not the program under test) failed."""
    NONE = "none"
    """No verdict: no verifier was asked, or the reward function abstained. Counted apart, never a failure or a zero."""

    @property
    def judged(self) -> bool:
        """True where the outcome says something about the completion."""
        return self in (Outcome.CORRECT, Outcome.WRONG, Outcome.UNPARSABLE)

    @property
    def failed(self) -> bool:
        return self in (Outcome.TIMEOUT, Outcome.CRASHED)


class StepReward(NamedTuple):
    """The reward of one step of a completion."""

    end: int
    """End of the step in the judged text (prefill and completion), in characters."""
    reward: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verifier's finding on one completion."""

    outcome: Outcome
    parts: Mapping[str, float]
    """Reward parts by name, already weighted; their sum is the reward."""
    evidence: str
    """The reason, in words a person can check."""
    answer: str | None = None
    """The answer in canonical form (majority votes count equal strings); None when there is none."""
    measures: Mapping[str, float] = field(default_factory=dict)
    """Statistics: what parts measured before weights and gates, and disagreements between verifiers (0 or 1)."""
    steps: tuple[StepReward, ...] = ()
    """Process supervision: the rewards of the steps, in order; empty where only the outcome is judged."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "outcome", Outcome(self.outcome))  # a verifier of the user's may write its text

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


TokenValues = NDArray[np.floating[Any]]
"""(T,) one number per token of a completion, 0 at inserted tokens."""


@dataclass(frozen=True, slots=True)
class CriticView:
    """A critic's view of one completion when it was sampled; both (T,)."""

    values: TokenValues
    """Value of the state before each token."""
    returns: TokenValues
    """Target of the value: advantage plus value."""


@dataclass(frozen=True, slots=True)
class AdvantagedGroup:
    """A scored group with the advantages of every token."""

    scored: ScoredGroup
    advantages: tuple[TokenValues | None, ...]
    """(T,) per completion; None where the verifier failed: no part of the loss."""
    critic: tuple[CriticView | None, ...] = ()
    """The critic's views, one entry per completion; empty where there is no critic."""

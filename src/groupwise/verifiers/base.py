"""What a verifier is, what can be set about it, and how a finding becomes a verdict with reward parts."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import ClassVar, Literal, NamedTuple, Protocol, Self

from pydantic import Field, model_validator

from groupwise.config import Section
from groupwise.sandbox.base import SandboxConfig
from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers.judge.config import JudgeConfig
from groupwise.verifiers.parts import PartConfig, PartName, contradiction
from groupwise.verifiers.proofs.config import ProofConfig

Extraction = Literal["boxed", "tag", "last_number"]


class Request(NamedTuple):
    """A completion to judge."""

    problem: Problem
    text: str
    """The prompt's prefill followed by the completion."""
    num_tokens: int | None = None
    """Length of the completion; None where nobody counted (a text from a file)."""
    max_tokens: int | None = None
    """Most tokens it could have had."""
    truncated: bool = False
    """True when it ran into that limit."""
    prefill: str = ""
    """The beginning of `text` that the prompt had already written."""


class Asks(Protocol):
    """What makes a prompt of a problem: a task's template."""

    @property
    def chat(self) -> bool:
        """Whether prompts are messages."""

    @property
    def system(self) -> str:
        """The system message."""

    def render(self, problem: Problem) -> str:
        """The prompt, or the user's message."""


class VerifierConfig(Section):
    """How answers are read, what they earn and how long the verifier may take."""

    extraction: Extraction = "boxed"
    r"""Where the answer stands: `boxed` (the one `\boxed{}`), `tag` (the one `<answer></answer>`), `last_number` (only
    to evaluate foreign models: in training it pays for numbers that merely occur)."""
    correct_reward: float = Field(default=1.0, allow_inf_nan=False)
    """Reward part `accuracy` of a correct answer; any other answer earns 0. DeepSeek-R1-Zero: 1."""
    format_reward: float = Field(default=0.0, allow_inf_nan=False)
    """Reward part `format`, paid only when the tags are right: one `<think>`, one `</think>`, in order, then an
    answer. A part of kind `format` is stricter; only one of the two can be set."""
    steps: Literal["none", "equations"] = "none"
    """Process supervision (`grpo.advantage = "process"`): `equations` rewards every true equation of the working."""
    timeout_s: float = Field(default=5.0, gt=0, allow_inf_nan=False)
    """Seconds one comparison may take before its worker process is killed and the outcome is `timeout`."""
    num_workers: int = Field(default=1, ge=1)
    """Worker processes for comparisons that the exact fast path cannot decide; started when first needed."""
    max_failure_share: float = Field(default=0.05, ge=0, le=1)
    """Training stops when timeouts and crashes of the verifier exceed this share of a step's verdicts."""
    partial_credit: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Reward part `partial` of the verifiers `code` and `instructions`: this times the share of hidden tests passed, or
    of constraints met. 0: no such part, and tests after the first failure may be left out."""
    sandbox: SandboxConfig = SandboxConfig()
    """Where programs of completions run."""
    proof: ProofConfig = ProofConfig()
    """The proof assistants that the verifiers `coq` and `lean` ask."""
    judge: JudgeConfig = JudgeConfig()
    """The model that the verifier `judge` asks."""
    parts: dict[PartName, PartConfig] = Field(default_factory=dict)
    """More parts of the reward, by a name of your own: style, and the opinions of other verifiers."""
    cap_wrong: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """The most a completion without a correct answer may earn in all parts together; None: no cap."""

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        fault = contradiction(self.parts, self.format_reward, self.correct_reward, self.cap_wrong)
        if fault:
            raise ValueError(fault)
        return self


@dataclass(frozen=True, slots=True)
class Finding:
    """What a verifier found out about one answer, before rewards."""

    outcome: Outcome
    evidence: str
    answer: str | None = None
    """The answer in canonical form; None when there is none."""


def verdict(finding: Finding, config: VerifierConfig, *, tags_right: bool) -> Verdict:
    """The finding with its reward parts `accuracy` and `format`; a failure of the verifier has none."""
    parts: dict[str, float] = {}
    if finding.outcome.judged:
        parts["accuracy"] = config.correct_reward if finding.outcome is Outcome.CORRECT else 0.0
        parts["format"] = config.format_reward if tags_right else 0.0
    return Verdict(finding.outcome, parts, finding.evidence, finding.answer)


class Verifier(ABC):
    """Judges completions against reference answers.

    A verifier never raises because of a completion, however odd: what it cannot read is UNPARSABLE, and where it fails
    itself the outcome is TIMEOUT or CRASHED. Use it as a context manager, or call `close`.
    """

    def __init__(self, config: VerifierConfig | None = None) -> None:
        self.config = config if config is not None else VerifierConfig()

    accepts_references: ClassVar[bool] = True
    """Whether a reference answer in the template's ideal form must be judged correct."""

    @property
    def name(self) -> str:
        """What messages call it."""
        return "the verifier"

    @property
    def repeatable(self) -> bool:
        """Whether the same completion always gets the same verdict; not where a model judges or a program is timed."""
        return True

    @abstractmethod
    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        """One verdict per request, in the same order."""

    def verify(self, problem: Problem, completion: str) -> Verdict:
        """The verdict on one completion (prefill included)."""
        return self.verify_many([Request(problem, completion)])[0]

    def check(self, problems: Sequence[Problem], template: Asks) -> None:
        """Refuse, before any model is loaded, problems that it could not judge.

        Raises:
            ConfigError: says what is missing.
        """
        return  # most verifiers need nothing but what their tasks give them

    def start(self) -> None:
        """Have ready what the first verdict would wait for."""
        return  # most verifiers wait for nothing

    def close(self) -> None:
        """End what the verifier started. It may be used again afterwards."""
        return  # most verifiers start nothing

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

"""What a verifier is, what can be set about it, and how a finding becomes a verdict with reward parts."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Protocol, Self

from pydantic import Field, ValidationInfo, model_validator

from groupwise.config import FOLDER
from groupwise.config.kinds import KindSection
from groupwise.config.places import beside
from groupwise.errors import ConfigError
from groupwise.sandbox.base import Closing
from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers.parts import PARTS, Part, PartName, contradiction
from groupwise.verifiers.table import with_shared

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
    num_calls: int = 0
    """Calls of tools that were run."""
    own: str | None = None
    """`text` without what tools said that may not answer; None where that is all of it."""

    def readable(self, mode: Extraction) -> str:
        """Where the answer is looked for. A number has no mark that could be taken apart in what a tool says."""
        return self.text if self.own is None or mode != "last_number" else self.own


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


class VerifierConfig(KindSection):
    """What every verifier reads; each kind adds its own settings."""

    correct_reward: float = Field(default=1.0, allow_inf_nan=False)
    """Reward part `accuracy` of a correct answer; any other answer earns 0. DeepSeek-R1-Zero: 1."""
    format_reward: float = Field(default=0.0, allow_inf_nan=False)
    """Reward part `format`, paid only when the tags are right: one `<think>`, one `</think>`, in order, then an
    answer. A part of kind `format` is stricter; only one of the two can be set."""
    steps: Literal["none", "equations"] = "none"
    """Process supervision (`advantage.kind = "process"`): `equations` rewards every true equation of the working."""
    max_failure_share: float = Field(default=0.05, ge=0, le=1)
    """Training stops when timeouts and crashes of the verifier exceed this share of a step's verdicts."""
    parts: dict[PartName, Annotated[Part, PARTS]] = Field(default_factory=dict)
    """More parts of the reward, by a name of your own: style, and the opinions of other verifiers."""
    cap_wrong: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Most that a completion without a correct answer may earn in all parts together; None: no cap."""

    @model_validator(mode="before")
    @classmethod
    def _pass_settings_on(cls, values: Any, info: ValidationInfo) -> Any:
        """A second verifier takes the first's settings where it reads them and does not set its own."""
        if not isinstance(values, Mapping) or not isinstance(values.get("parts"), Mapping):
            return values
        dials = {key: value for key, value in values.items() if key not in VerifierConfig.model_fields | _NOT_SHARED}
        parts = {name: _set_up(part, dials, (info.context or {}).get(FOLDER)) for name, part in values["parts"].items()}
        return {**values, "parts": parts}

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        fault = contradiction(self.parts, self.format_reward, self.correct_reward, self.cap_wrong)
        if fault:
            raise ValueError(fault)
        return self


_NOT_SHARED = {"partial_credit": None}
"""Only the opinion of a second verifier counts, and its part says what that earns."""


def _set_up(part: Any, dials: Mapping[str, Any], folder: Path | None) -> Any:
    kind = PARTS.kind_of(part)
    if kind is None or not isinstance(part, Mapping | str):
        return part
    try:
        if "verifier" not in PARTS.settings(beside(kind, folder)).model_fields:
            return part
    except ConfigError:
        return part  # its fault is reported where it is read
    table = {"verifier": kind} if kind not in PARTS.table else {}  # a function is its own verifier
    table |= part if isinstance(part, Mapping) else {"kind": kind}
    return {**table, "verifier": with_shared(table["verifier"], dials, folder)} if "verifier" in table else table


class ExtractingConfig(VerifierConfig):
    """Settings of verifiers that read one answer."""

    extraction: Extraction = "boxed"
    r"""Where the answer is: `boxed` (the one `\boxed{}`), `tag` (the one `<answer></answer>`), `last_number` (only
    to evaluate foreign models: in training it pays for numbers that merely occur)."""


class WorkersConfig(VerifierConfig):
    """Settings of verifiers that judge in processes which can be killed."""

    timeout_s: float = Field(default=5.0, gt=0, allow_inf_nan=False)
    """Seconds one comparison may take before its worker process is killed and the outcome is `timeout`."""
    num_workers: int = Field(default=1, ge=1)
    """Worker processes; started when first needed."""


def extraction_of(config: VerifierConfig) -> Extraction:
    """Where a verifier with these settings reads the answer; `boxed` for one that reads it in its own way."""
    return config.extraction if isinstance(config, ExtractingConfig) else "boxed"


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


class Verifier(Closing, ABC):
    """Judges completions against reference answers.

    A verifier never raises because of a completion, however odd: what it cannot read is UNPARSABLE, and where it fails
    itself the outcome is TIMEOUT or CRASHED. Use it as a context manager, or call `close`. A subclass with its own
    settings has them in a class `Config`, which builds on `VerifierConfig`.
    """

    Config: ClassVar[type[VerifierConfig]] = VerifierConfig
    mathematical: ClassVar[bool] = False
    """Whether it compares answers as numbers or expressions, so that another such verifier can be asked as well."""
    one_right: ClassVar[bool] = False
    """Whether only the reference answer is right, however it is written."""
    by_text_alone: ClassVar[bool] = False
    """Whether it judges without asking a model or running a program, so that a few attacks cost nothing."""

    def __init__(self, config: VerifierConfig | None = None) -> None:
        cls = type(self)
        self.config = config if config is not None else self.Config(kind=f"{cls.__module__}:{cls.__qualname__}")

    @property
    def verdict_s(self) -> float:
        """Seconds within which it owes a verdict."""
        return self.config.timeout_s if isinstance(self.config, WorkersConfig) else 5.0

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
        return  # most verifiers need only what their tasks give them

    def explain(self, problem: Problem, text: str, verdict: Verdict) -> list[str]:
        """How its verdict on a text came about, one sentence per step."""
        return [verdict.evidence]

    def start(self) -> None:
        """Prepare what the first verdict would otherwise wait for."""
        return  # most verifiers wait for nothing

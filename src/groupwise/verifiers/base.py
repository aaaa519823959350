"""The interface of verifiers: requests, settings, findings and verdicts, and the parts of a reward."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Protocol, Self

from pydantic import Field, StringConstraints, ValidationInfo, model_validator

from groupwise.config import FOLDER
from groupwise.config.kinds import KindSection
from groupwise.errors import ConfigError
from groupwise.sandbox.base import Closing
from groupwise.types import Completion, Group, Outcome, Problem, Verdict
from groupwise.verifiers.table import PARTS, part_with_shared

Extraction = Literal["boxed", "tag", "last_number"]
PartName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
RESERVED = ("accuracy", "cap", "environment", "kl", "partial", "rubric")
"""Parts that a verdict may have anyway; no part of a recipe has these names."""


class Request(NamedTuple):
    """A completion to judge."""

    problem: Problem
    text: str  # the prompt's prefill followed by the completion
    num_tokens: int | None = None
    """Length of the completion; None where its tokens were not counted (a text from a file)."""
    max_tokens: int | None = None  # most tokens it could have had
    truncated: bool = False  # true when it ran into that limit
    prefill: str = ""  # the beginning of `text` that the prompt had already written
    num_calls: int = 0  # calls of tools that were run
    own: str | None = None  # `text` without what tools said that may not answer; None where that is all of it
    completion: Completion | None = None  # None where no model sampled the text
    group: Group | None = None  # the completions among which it is one

    def readable(self, mode: Extraction) -> str:
        # a number has no mark that could be taken apart in what a tool says
        return self.text if self.own is None or mode != "last_number" else self.own


class Asks(Protocol):
    """The template of a task, which makes a prompt of a problem."""

    @property
    def chat(self) -> bool | None: ...

    def messages(self, problem: Problem) -> list[dict[str, str]]: ...

    def render(self, problem: Problem) -> str: ...


class Part(KindSection):
    """Settings common to all parts of the reward that stand beside the answer."""

    weight: float = Field(ge=0, allow_inf_nan=False)
    """Reward of a measure of 1. 0: measured, not paid."""
    gate: Literal["always", "correct", "format"] = "always"
    """Condition under which it counts: `always`, only where the answer is `correct`, or only where the part of kind
    `format` is right. Penalties have gates too."""

    def length_fault(self, max_tokens: int | None) -> str:
        """Return why it cannot measure completions of at most `max_tokens` tokens; empty if it can."""
        return ""


class StylePart(Part):
    """A measure of the text: a pure function of the request, its verdict and its settings.

    To add one: a class in `style/`, and a line in `PARTS` (`table.py`).
    """

    @abstractmethod
    def measure(self, request: Request, verdict: Verdict) -> float | None:
        """Return a bounded number; None if the request does not hold what is measured (its tokens, for example)."""


Parts = Mapping[str, Part]


def check_lengths(parts: Parts, max_tokens: int | None) -> None:
    """Check that parts can measure completions of at most `max_tokens` tokens (ConfigError: names the fault)."""
    for name, part in parts.items():
        if fault := part.length_fault(max_tokens):
            raise ConfigError(f"verifier.parts.{name}{fault}")


class VerifierConfig(KindSection):
    """Settings of every verifier; each kind adds more."""

    correct_reward: float = Field(default=1.0, allow_inf_nan=False)
    """Reward part `accuracy` of a correct answer; any other answer earns 0. DeepSeek-R1-Zero: 1."""
    format_reward: float = Field(default=0.0, allow_inf_nan=False)
    """Reward part `format`, paid only when the tags are right: one `<think>`, one `</think>`, in order, then an
    answer. A part of kind `format` is stricter; only one of the two can be set."""
    steps: Literal["none", "equations"] = "none"
    """Process supervision (`advantage.kind = "process"`): `equations` rewards every true equation that computes."""
    max_failure_share: float = Field(default=0.05, ge=0, le=1)
    """Training stops when timeouts and crashes of the verifier exceed this share of a step's verdicts."""
    parts: dict[PartName, Annotated[Part, PARTS]] = Field(default_factory=dict)
    """More parts of the reward, by names that you choose: style, and the opinions of other verifiers."""
    cap_wrong: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Most that a completion without a correct answer may earn in all parts together; None: no cap."""

    @property
    def format_part(self) -> str | None:
        """Return the name of the part that judges the format."""
        return next((name for name, part in self.parts.items() if part.kind == "format"), None)

    @model_validator(mode="before")
    @classmethod
    def _pass_settings_on(cls, values: Any, info: ValidationInfo) -> Any:
        if not isinstance(values, Mapping) or not isinstance(values.get("parts"), Mapping):
            return values
        # not `partial_credit`: only the opinion of a second verifier counts, and its part says what that earns
        kept = {*VerifierConfig.model_fields, "partial_credit"}
        dials = {key: value for key, value in values.items() if key not in kept}
        folder = (info.context or {}).get(FOLDER)
        return {**values, "parts": {n: part_with_shared(part, dials, folder) for n, part in values["parts"].items()}}

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        form = self.format_part
        for name, part in self.parts.items():
            if name in RESERVED:
                raise ValueError(f"parts.{name}: the names {', '.join(RESERVED)} are taken; any other is allowed")
            if part.gate == "format" and form is None:
                raise ValueError(
                    f'parts.{name}: gate = "format" needs a part with kind = "format" (its weight may be 0)'
                )
        if self.format_reward and ("format" in self.parts or form):
            raise ValueError(
                f"format_reward = {self.format_reward:g} and a part for the format are both set; only one of them is "
                "allowed"
            )
        if self.cap_wrong is not None and self.cap_wrong >= self.correct_reward:
            raise ValueError(
                f"cap_wrong = {self.cap_wrong:g} must be below correct_reward = {self.correct_reward:g}, or it caps "
                "nothing"
            )
        return self


def refuse_settings(config: VerifierConfig, names: Iterable[str], section: str, reason: str) -> None:
    """Refuse settings that are read from another section than this one (ValueError: names the setting)."""
    for name, setting in type(config).model_fields.items():
        if name in names and getattr(config, name) != setting.get_default(call_default_factory=True):
            raise ValueError(f"{section}.{name} = {getattr(config, name)!r} has no effect here: {reason}")


class ExtractingConfig(VerifierConfig):
    """Settings of verifiers that read one answer."""

    extraction: Extraction = "boxed"
    r"""Place of the answer: `boxed` (the one `\boxed{}`), `tag` (the one `<answer></answer>`), `last_number` (only
    to evaluate foreign models: in training it pays for numbers that merely occur)."""


class WorkersConfig(VerifierConfig):
    """Settings of verifiers that judge in processes which can be killed."""

    timeout_s: float = Field(default=5.0, gt=0, allow_inf_nan=False)
    """Seconds one comparison may take before its worker process is killed and the outcome is `timeout`. A function that
    judges lists has them for each completion."""
    num_workers: int = Field(default=1, ge=1)
    """Worker processes, each with one call at a time; started when first needed."""


def extraction_of(config: VerifierConfig) -> Extraction:
    """Return the place at which a verifier with these settings reads the answer; `boxed` where none can be set."""
    return config.extraction if isinstance(config, ExtractingConfig) else "boxed"


@dataclass(frozen=True, slots=True)
class Finding:
    """A verifier's finding about one answer, before rewards."""

    outcome: Outcome
    evidence: str
    answer: str | None = None  # the answer in canonical form; None when there is none
    measures: Mapping[str, float] = field(default_factory=dict)  # for statistics; they earn nothing


def data_list(problem: Problem, name: str, kind: type) -> list[Any]:
    """Return a list of a problem's data (ValueError: text, for example, whose characters would be taken for items)."""
    value = problem.data.get(name)
    if not isinstance(value, list | tuple) or not all(
        isinstance(item, kind) and not isinstance(item, bool) for item in value
    ):
        raise ValueError(f"its {name} are {value!r:.60}; a list is needed, each item of type {kind.__name__}")
    return list(value)


def verdict(finding: Finding, config: VerifierConfig, *, tags_right: bool) -> Verdict:
    """Return the finding with its reward parts `accuracy` and `format`; a failure of the verifier has none."""
    parts: dict[str, float] = {}
    if finding.outcome.judged:
        parts["accuracy"] = config.correct_reward if finding.outcome is Outcome.CORRECT else 0.0
        parts["format"] = config.format_reward if tags_right else 0.0
    return Verdict(finding.outcome, parts, finding.evidence, finding.answer, finding.measures)


class Verifier(Closing, ABC):
    """Judges completions against reference answers.

    A verifier never raises because of a completion, however odd: what it cannot read is UNPARSABLE, and where the
    verifier fails the outcome is TIMEOUT or CRASHED. Use it as a context manager, or call `close`. A subclass with more
    settings has them in a class `Config`, which builds on `VerifierConfig`.
    """

    Config: ClassVar[type[VerifierConfig]] = VerifierConfig
    mathematical: ClassVar[bool] = False
    """True when it compares answers as numbers or expressions, so that another such verifier can be asked as well."""
    one_right: ClassVar[bool] = False  # true when only the reference answer is right, however it is written
    by_text_alone: ClassVar[bool] = False
    """True when it judges without asking a model or running a program, so that a few attacks cost nothing."""
    accepts_references: ClassVar[bool] = True
    """True when a reference answer in the template's ideal form must be judged correct."""

    def __init__(self, config: VerifierConfig | None = None) -> None:
        cls = type(self)
        self.config = config if config is not None else self.Config(kind=f"{cls.__module__}:{cls.__qualname__}")

    @property
    def verdict_s(self) -> float:
        return self.config.timeout_s if isinstance(self.config, WorkersConfig) else 5.0

    @property
    def name(self) -> str:
        return "the verifier"

    @property
    def repeatable(self) -> bool:
        """True when equal completions always get equal verdicts; not where a model judges or a program is timed."""
        return True

    @property
    def in_groups(self) -> bool:
        """True when the completions of a group are handed over together, and may be compared."""
        return False

    @abstractmethod
    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        """Return one verdict per request, in the same order."""

    def begin(self, num_steps: int) -> None:
        """Hear how many steps the run has."""

    def verify(self, problem: Problem, completion: str) -> Verdict:
        return self.verify_many([Request(problem, completion)])[0]

    def check(self, problems: Sequence[Problem], template: Asks) -> None:
        """Refuse, before any model is loaded, problems that it could not judge (ConfigError: says what is missing)."""
        return  # most verifiers need only what their tasks give them

    def explain(self, problem: Problem, text: str, verdict: Verdict) -> list[str]:
        return [verdict.evidence]

    def start(self) -> None:
        """Prepare what the first verdict would otherwise wait for."""
        return  # most verifiers wait for nothing

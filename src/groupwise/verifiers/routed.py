"""The verifier of mixtures: every request goes to the verifier that its problem names."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Annotated, Any, Self

from pydantic import Field, ValidationInfo, model_validator

from groupwise.config import FOLDER
from groupwise.errors import ConfigError
from groupwise.types import Problem, Verdict
from groupwise.verifiers.base import Asks, Request, Verifier, VerifierConfig
from groupwise.verifiers.composition import refuse_settings
from groupwise.verifiers.table import VERIFIERS, with_shared

PASSED_ON = ("correct_reward", "format_reward")
"""Settings that the members have from this section where they set none themselves."""


class RoutedConfig(VerifierConfig):
    """Settings of the verifier of mixtures."""

    each: dict[str, Annotated[VerifierConfig, VERIFIERS]] = Field(default_factory=dict)
    """Settings of the verifiers of the mixture's tasks, by their kind; those that are not named have their defaults.
    What a right answer and the right form earn they have from this section, where they say nothing else."""

    @model_validator(mode="before")
    @classmethod
    def _pass_on(cls, values: Any, info: ValidationInfo) -> Any:
        if not isinstance(values, Mapping) or not isinstance(values.get("each"), Mapping):
            return values
        shared = {name: values[name] for name in PASSED_ON if name in values}
        folder = (info.context or {}).get(FOLDER)
        tables = {
            kind: {"kind": kind, **one} if isinstance(one, Mapping) else one for kind, one in values["each"].items()
        }
        return {**values, "each": {kind: with_shared(table, shared, folder) for kind, table in tables.items()}}

    @model_validator(mode="after")
    def _read_here(self) -> Self:
        names = ("steps", "max_failure_share", "parts", "cap_wrong")
        for kind, one in self.each.items():
            refuse_settings(one, names, f"each.{kind}", "it is set for all of them together")
        return self

    def member(self, kind: str) -> VerifierConfig:
        """The section of one of the verifiers."""
        shared = {name: getattr(self, name) for name in PASSED_ON}
        found = self.each.get(kind) or VERIFIERS.read({**shared, "kind": kind})
        assert isinstance(found, VerifierConfig)
        return found


class RoutedVerifier(Verifier):
    """Sends requests on by `problem.verifier`; each verifier is made when it is first needed."""

    Config = RoutedConfig
    config: RoutedConfig

    def __init__(self, config: RoutedConfig | None = None) -> None:
        super().__init__(config)
        self._verifiers: dict[str, Verifier] = {}

    @property
    def accepts_references(self) -> bool:  # type: ignore[override]
        """Whether all verifiers that were needed so far do."""
        return all(verifier.accepts_references for verifier in self._verifiers.values())

    @property
    def repeatable(self) -> bool:
        """Whether all verifiers that were needed so far are repeatable."""
        return all(verifier.repeatable for verifier in self._verifiers.values())

    @property
    def verdict_s(self) -> float:
        """That of the slowest verifier that was needed so far."""
        return max((verifier.verdict_s for verifier in self._verifiers.values()), default=super().verdict_s)

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        """One verdict per request, in the same order; every verifier gets its requests at once.

        Raises:
            ConfigError: a problem names no verifier, or one that there is not.
        """
        places: dict[str, list[int]] = {}
        for place, request in enumerate(requests):
            places.setdefault(request.problem.verifier, []).append(place)
        found: dict[int, Verdict] = {}
        for those in places.values():
            verdicts = self._verifier(requests[those[0]].problem).verify_many([requests[place] for place in those])
            found.update(zip(those, verdicts, strict=True))
        return [found[place] for place in range(len(requests))]

    def check(self, problems: Sequence[Problem], template: Asks) -> None:
        """Check the problems of every verifier with it."""
        for kind in dict.fromkeys(problem.verifier for problem in problems):
            those = [problem for problem in problems if problem.verifier == kind]
            self._verifier(those[0]).check(those, template)

    def explain(self, problem: Problem, text: str, verdict: Verdict) -> list[str]:
        """What the problem's verifier says."""
        return self._verifier(problem).explain(problem, text, verdict)

    def close(self) -> None:
        """Close every verifier."""
        with ExitStack() as stack:
            for verifier in self._verifiers.values():
                stack.callback(verifier.close)

    def _verifier(self, problem: Problem) -> Verifier:
        kind = problem.verifier
        if not kind or kind == "routed":
            raise ConfigError(
                f"problem {problem.id} names the verifier {kind!r}; problems of a mixture name that of their own task"
            )
        if kind not in self._verifiers:
            try:
                self._verifiers[kind] = VERIFIERS.find(kind)(self.config.member(kind))
            except ConfigError as error:
                raise ConfigError(f"problem {problem.id}: {error}") from None
        return self._verifiers[kind]

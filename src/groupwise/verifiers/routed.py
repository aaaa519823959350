"""The verifier of mixtures: every request goes to the verifier that its problem names."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import Field, ValidationInfo, model_validator

from groupwise.config import FOLDER
from groupwise.errors import ConfigError
from groupwise.types import Problem, Verdict
from groupwise.verifiers.base import Asks, ManyVerifiers, Request, Verifier, VerifierConfig, refuse_settings
from groupwise.verifiers.table import VERIFIERS, with_shared

PASSED_ON = ("correct_reward", "format_reward")
"""Settings that the members take from this section unless they set their own."""


class RoutedConfig(VerifierConfig):
    """Settings of the verifier of mixtures."""

    each: dict[str, Annotated[VerifierConfig, VERIFIERS]] = Field(default_factory=dict)
    """Settings of the verifiers of the mixture's tasks, by their kind; those that are not named have their defaults.
    They take what a right answer and the right form earn from this section unless they set it themselves."""

    @model_validator(mode="before")
    @classmethod
    def _pass_on(cls, values: Any, info: ValidationInfo) -> Any:
        if not isinstance(values, Mapping) or not isinstance(values.get("each"), Mapping):
            return values
        defaults = {name: values[name] for name in PASSED_ON if name in values}
        folder = (info.context or {}).get(FOLDER)
        each = {}
        for kind, section in values["each"].items():
            table = {"kind": kind, **section} if isinstance(section, Mapping) else section
            each[kind] = with_shared(table, defaults, folder)
        return {**values, "each": each}

    @model_validator(mode="after")
    def _check_members(self) -> Self:
        names = ("steps", "max_failure_share", "parts", "cap_wrong")
        for kind, section in self.each.items():
            refuse_settings(section, names, f"each.{kind}", "it is set for all of them together")
        return self

    def member(self, kind: str) -> VerifierConfig:
        defaults = {name: getattr(self, name) for name in PASSED_ON}
        section = self.each.get(kind) or VERIFIERS.read({**defaults, "kind": kind})
        assert isinstance(section, VerifierConfig)
        return section


class RoutedVerifier(ManyVerifiers):
    """Passes requests on by `problem.verifier`; each verifier is made when it is first needed."""

    Config = RoutedConfig
    config: RoutedConfig

    def __init__(self, config: RoutedConfig | None = None) -> None:
        super().__init__(config)
        self._verifiers: dict[str, Verifier] = {}
        self._all = self._verifiers.values()
        self._num_steps: int | None = None

    @property
    def accepts_references(self) -> bool:  # type: ignore[override]
        return all(verifier.accepts_references for verifier in self._all)

    def begin(self, num_steps: int) -> None:
        self._num_steps = num_steps

    @property
    def verdict_s(self) -> float:
        return max((verifier.verdict_s for verifier in self._all), default=super().verdict_s)

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        groups: dict[str, list[int]] = {}
        for index, request in enumerate(requests):
            groups.setdefault(request.problem.verifier, []).append(index)
        verdict_by_index: dict[int, Verdict] = {}
        for indices in groups.values():
            verdicts = self._verifier(requests[indices[0]].problem).verify_many([requests[index] for index in indices])
            verdict_by_index.update(zip(indices, verdicts, strict=True))
        return [verdict_by_index[index] for index in range(len(requests))]

    def check(self, problems: Sequence[Problem], template: Asks) -> None:
        for kind in dict.fromkeys(problem.verifier for problem in problems):
            group = [problem for problem in problems if problem.verifier == kind]
            self._verifier(group[0]).check(group, template)

    def explain(self, problem: Problem, text: str, verdict: Verdict) -> list[str]:
        return self._verifier(problem).explain(problem, text, verdict)

    def _verifier(self, problem: Problem) -> Verifier:
        kind = problem.verifier
        if not kind or kind == "routed":
            raise ConfigError(
                f"problem {problem.id} names the verifier {kind!r}; a problem of a mixture names that of its task"
            )
        if kind not in self._verifiers:
            try:
                self._verifiers[kind] = VERIFIERS.find(kind)(self.config.member(kind))
            except ConfigError as error:
                raise ConfigError(f"problem {problem.id}: {error}") from None
            if self._num_steps is not None:
                self._verifiers[kind].begin(self._num_steps)
        return self._verifiers[kind]

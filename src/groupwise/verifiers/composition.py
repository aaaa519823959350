"""One verdict from several judges: the task's verifier, second opinions, and style parts with weights and gates.

    the task's verifier -> verifiers that decide with it (all, any) -> style parts -> verifiers that add a part -> cap

If a second verifier fails, that failure is the verdict; it never counts as zero.
"""

import ast
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, model_validator

from groupwise.config import FOLDER
from groupwise.config.places import Place
from groupwise.errors import ConfigError
from groupwise.types import Outcome, Problem, StepReward, Verdict
from groupwise.verifiers.base import Asks, Part, Parts, Request, StylePart, Verifier, VerifierConfig, refuse_settings
from groupwise.verifiers.steps import equation_steps
from groupwise.verifiers.table import VERIFIERS, with_shared

ONLY_FIRST = ("correct_reward", "format_reward", "partial_credit", "steps", "max_failure_share", "parts", "cap_wrong")
"""Settings that a verifier's section may have only where it judges alone."""


class VerifierPart(Part):
    """The opinion of a second verifier: 1 if it says correct, 0 if not, or in between where it grades (the judge).

    A reward function of yours is one: `kind = "rewards.py:reward"`.
    """

    verifier: Annotated[VerifierConfig, VERIFIERS]
    """Its kind, for example `judge`, or its section. What it leaves out comes from the first verifier's section."""
    weight: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Reward of its opinion, with `combine = "add"`. 0: it only measures how often the two disagree."""
    combine: Literal["add", "all", "any"] = "add"
    """`add`: it earns a part. `all`: an answer is correct only if it says so too. `any`: if either does.
    Several decide in the order of the recipe."""

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        if self.combine != "add" and (self.weight or self.gate != "always"):
            raise ValueError(
                f"combine = {self.combine!r} decides what is correct and earns nothing itself: "
                'only weight = 0 and gate = "always" are allowed (or combine = "add")'
            )
        refuse_settings(self.verifier, ONLY_FIRST, "verifier", "of a second verifier only its opinion counts")
        return self


def adopt_part(place: Place) -> type[Part]:
    """Return a user's part; a user's function or verifier becomes a second verifier."""
    if isinstance(place.definition(), ast.ClassDef):
        target = place.load()
        if isinstance(target, type) and issubclass(target, Part):
            return target
    return VerifierPart


def second_verifiers(parts: Parts) -> dict[str, VerifierConfig]:
    """Return the sections of the second verifiers by part name."""
    return {name: part.verifier for name, part in parts.items() if isinstance(part, VerifierPart)}


class ManyVerifiers(Verifier):
    """A verifier around others."""

    _all: Collection[Verifier]

    @property
    def repeatable(self) -> bool:
        return all(verifier.repeatable for verifier in self._all)

    @property
    def in_groups(self) -> bool:
        return any(verifier.in_groups for verifier in self._all)

    def close(self) -> None:
        with ExitStack() as stack:
            for verifier in self._all:
                stack.callback(verifier.close)


class ComposedVerifier(ManyVerifiers):
    """Wraps a verifier; adds the parts of the configuration to its verdicts, and `Verdict.steps` where it is asked to.

    `others` holds the second verifiers by part name; their reward, 0 to 1, is their opinion. All that is earned is in
    `Verdict.parts`. What was measured is in `Verdict.measures` under the part's name, a second verifier's measures
    under `NAME/...`, and its disagreement with the first (0 or 1) under `disagreement/NAME`.
    """

    def __init__(self, main: Verifier, config: VerifierConfig, others: Mapping[str, Verifier]) -> None:
        super().__init__(config)
        self._main, self._others, self._all = main, others, (main, *others.values())

    @property
    def accepts_references(self) -> bool:  # type: ignore[override]
        return self._main.accepts_references

    @property
    def name(self) -> str:
        return self._main.name

    def begin(self, num_steps: int) -> None:
        for verifier in self._all:
            verifier.begin(num_steps)

    def check(self, problems: Sequence[Problem], template: Asks) -> None:
        for verifier in self._all:
            verifier.check(problems, template)

    def explain(self, problem: Problem, text: str, verdict: Verdict) -> list[str]:
        return self._main.explain(problem, text, verdict)

    def start(self) -> None:
        for verifier in self._all:
            verifier.start()

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        main_verdicts = [self._refuse_collision(verdict) for verdict in self._main.verify_many(requests)]
        outcomes = [verdict.outcome for verdict in main_verdicts]
        verdicts = self._ask(requests, main_verdicts, outcomes, decide=True)
        verdicts = [self._add_styles(request, verdict) for request, verdict in zip(requests, verdicts, strict=True)]
        verdicts = self._ask(requests, verdicts, outcomes, decide=False)
        verdicts = [self._cap(verdict) for verdict in verdicts]
        if self.config.steps == "none":
            return verdicts
        return [
            verdict
            if verdict.reward is None
            else replace(verdict, steps=(*equation_steps(request.text), StepReward(len(request.text), verdict.reward)))
            for request, verdict in zip(requests, verdicts, strict=True)
        ]

    def _ask(
        self, requests: Sequence[Request], verdicts: Sequence[Verdict], outcomes: Sequence[Outcome], *, decide: bool
    ) -> list[Verdict]:
        results = list(verdicts)
        for name, part in self.config.parts.items():
            if not isinstance(part, VerifierPart) or (part.combine != "add") != decide:
                continue
            indices = [i for i, v in enumerate(results) if v.outcome.judged and self._is_open(part, v)]
            opinions = self._others[name].verify_many([requests[i] for i in indices]) if indices else []
            by_index = dict(zip(indices, opinions, strict=True))
            results = [self._hear(name, part, v, outcomes[i], by_index.get(i)) for i, v in enumerate(results)]
        return results

    def _refuse_collision(self, verdict: Verdict) -> Verdict:
        names = [name for name, value in verdict.parts.items() if value and name in self.config.parts]
        if not names:
            return verdict
        return Verdict(Outcome.CRASHED, {}, f"{self.name} pays a part {names[0]!r}, which is one of verifier.parts too")

    def _hear(
        self, name: str, part: VerifierPart, verdict: Verdict, outcome: Outcome, opinion: Verdict | None
    ) -> Verdict:
        if not verdict.outcome.judged:
            return verdict
        if opinion is None:
            return _extend(verdict, parts={name: 0.0})
        if opinion.outcome is Outcome.NONE:
            return verdict
        measures = {f"{name}/{key}": value for key, value in opinion.measures.items()}
        if opinion.reward is None:
            return Verdict(opinion.outcome, {}, f"{name}: {opinion.evidence}", measures=measures)
        agrees = opinion.outcome is Outcome.CORRECT
        measures |= {name: opinion.reward, f"disagreement/{name}": float(agrees != (outcome is Outcome.CORRECT))}
        if part.combine == "add":
            return _extend(verdict, parts={name: part.weight * opinion.reward}, measures=measures)
        return self._decide(_extend(verdict, measures=measures), part, agrees, f"{name}: {opinion.evidence}")

    def _decide(self, verdict: Verdict, part: VerifierPart, agrees: bool, evidence: str) -> Verdict:
        was_correct = verdict.outcome is Outcome.CORRECT
        is_correct = (was_correct and agrees) if part.combine == "all" else (was_correct or agrees)
        if is_correct == was_correct:
            return verdict
        outcome = Outcome.CORRECT if is_correct else Outcome.WRONG
        cleared_parts = {name: 0.0 for name in verdict.parts if name != "format"}  # a rubric, for example
        accuracy = {"accuracy": self.config.correct_reward if is_correct else 0.0}
        decision = replace(verdict, outcome=outcome, evidence=f"{verdict.evidence}; {evidence}")
        return _extend(decision, parts=cleared_parts | accuracy)

    def _add_styles(self, request: Request, verdict: Verdict) -> Verdict:
        if not verdict.outcome.judged:
            return verdict
        styles = {name: part for name, part in self.config.parts.items() if isinstance(part, StylePart)}
        values = {name: part.measure(request, verdict) for name, part in styles.items()}
        measures = {name: measure for name, measure in values.items() if measure is not None}
        verdict = _extend(verdict, measures=measures)
        is_open = {name: self._is_open(styles[name], verdict) for name in measures}
        pay = {name: styles[name].weight * value if is_open[name] else 0.0 for name, value in measures.items()}
        return _extend(verdict, parts=pay)

    def _is_open(self, part: Part, verdict: Verdict) -> bool:
        match part.gate:
            case "always":
                return True
            case "correct":
                return verdict.outcome is Outcome.CORRECT
            case "format":
                assert self.config.format_part is not None  # the configuration was checked
                return verdict.measures[self.config.format_part] == 1

    def _cap(self, verdict: Verdict) -> Verdict:
        cap = self.config.cap_wrong
        if cap is None or not verdict.outcome.judged:
            return verdict
        excess = 0.0 if verdict.outcome is Outcome.CORRECT else max(0.0, sum(verdict.parts.values()) - cap)
        return _extend(verdict, parts={"cap": 0.0 - excess})


def _extend(
    verdict: Verdict, parts: Mapping[str, float] | None = None, measures: Mapping[str, float] | None = None
) -> Verdict:
    return replace(verdict, parts={**verdict.parts, **(parts or {})}, measures={**verdict.measures, **(measures or {})})


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
        return self.each.get(kind) or VERIFIERS.read({**defaults, "kind": kind}, base=VerifierConfig)


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

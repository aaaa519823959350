"""The parts of a recipe, each made once, when a check first needs it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, TypeVar

from groupwise.checks import Advice, Finding, Severity
from groupwise.errors import GroupwiseError
from groupwise.models.policy import Policy, start_policy
from groupwise.models.size import ModelSize, language_model_size
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.sample_and_score import Actors, Clock, Seconds, sample_and_score
from groupwise.tasks import Task, make_task
from groupwise.trainers.reward_part import load_reward_models, with_reward_model_parts
from groupwise.trainers.rl_recipe import RlRecipe
from groupwise.types import Problem, ScoredGroup, Split
from groupwise.verifiers import Verifier, make_verifier

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PreflightOptions:
    """Sizes of the sample, and the price of time."""

    num_problems: int = 32  # training problems that are sampled
    num_samples: int = 16  # least completions of each; a larger group size counts
    price_per_hour: float | None = None  # price of an hour of this machine; None: unknown


@dataclass(frozen=True, slots=True)
class Sampled:
    """Completions of some training problems before any training."""

    groups: tuple[ScoredGroup, ...]
    seconds: Seconds


@dataclass(slots=True)
class Bench:
    """A recipe whose parts are made when they are asked for; a part that cannot be made says why every time."""

    recipe: RlRecipe
    options: PreflightOptions = PreflightOptions()
    _made: dict[str, Any] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _once(self, name: str, make: Callable[[], T]) -> T:
        if name not in self._made:
            try:
                self._made[name] = make()
            except GroupwiseError as error:
                self._made[name] = error
        if isinstance(made := self._made[name], GroupwiseError):
            raise made
        return made  # type: ignore[no-any-return]

    @property
    def task(self) -> Task:
        return self._once("task", lambda: make_task(self.recipe.task))

    def problems(self, split: Split) -> Sequence[Problem]:
        return self._once(f"problems {split}", lambda: list(self.task.problems(split)))

    def some(self, number: int, split: Split = "train") -> list[Problem]:
        """Return problems spread evenly over the split."""
        problems = self.problems(split)
        size = min(number, len(problems))
        return [problems[i * len(problems) // size] for i in range(size)]

    @property
    def verifier(self) -> Verifier:
        """The verifier, checked against the training problems as training does."""

        def make() -> Verifier:
            verifier = self._stack.enter_context(make_verifier(self.recipe.verifier))
            verifier.check([*self.problems("train"), *self.problems("dev")], self.task.template)
            return verifier

        return self._once("verifier", make)

    @property
    def size(self) -> ModelSize:
        return self._once("size", partial(language_model_size, self.recipe.model.path))

    @property
    def policy(self) -> Policy:
        return self._once("policy", lambda: start_policy(self.recipe.model, self.recipe.lora, self.recipe.run.seed))

    @property
    def actors(self) -> Actors:
        return self._once(
            "actors", lambda: Actors.of(self.policy, self.task.template, self.verifier, self.recipe.engine)
        )

    @property
    def sampled(self) -> Sampled:
        """Completions of some training problems, judged and paid as training pays them from its first step on."""

        def make() -> Sampled:
            recipe, clock = self.recipe, Clock()
            number = max(recipe.batch.group_size, self.options.num_samples)
            draws = Draws(recipe.run.seed, Purpose.PREFLIGHT)
            problems = self.some(self.options.num_problems)
            self.actors.engine.publish(self.policy, 0)
            scored = sample_and_score(self.actors, problems, number, recipe.sampling, draws, clock)
            if recipe.reward_models:
                models = load_reward_models(recipe.reward_models, recipe.model)
                scored = with_reward_model_parts(scored, models, recipe.reward_models, recipe.task.template, 0)
            return Sampled(tuple(scored), clock.seconds())

        return self._once("sampled", make)


def finding(
    severity: Severity, evidence: str, means: str, advice: Advice | Sequence[Advice], places: Sequence[str] = ()
) -> Finding:
    """Return a finding of the check that runs, with at most five places."""
    advice = (advice,) if isinstance(advice, Advice) else tuple(advice)
    return Finding(check="", severity=severity, evidence=evidence, means=means, advice=advice, places=tuple(places[:5]))


class Checked(NamedTuple):
    """Result of a check."""

    figures: Mapping[str, Any]
    findings: tuple[Finding, ...] = ()


Cost = Literal["free", "verifier", "model", "step"]
"""Needs of a check: the recipe and its problems; the verifier; the model and a sample; steps on a copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check."""

    name: str
    says: str
    cost: Cost
    run: Callable[[Bench], Checked]
    source: str = ""  # of its bounds


Verdict = Literal["GO", "GO WITH WARNINGS", "NO-GO"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """The outcome of all checks of a recipe."""

    findings: tuple[Finding, ...]  # the most severe first
    figures: Mapping[str, Mapping[str, Any]]
    not_done: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        levels = {finding.severity for finding in self.findings}
        if Severity.CRITICAL in levels:
            return "NO-GO"
        return "GO WITH WARNINGS" if Severity.WARNING in levels else "GO"

    def facts(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict, "findings": [finding.facts() for finding in self.findings],
            "figures": self.figures, "not_done": self.not_done,
            "seconds": {name: round(s, 3) for name, s in self.seconds.items()},
        }  # fmt: skip

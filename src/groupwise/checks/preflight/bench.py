"""The parts of a recipe, each made once, when a check first needs it."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean
from typing import Any, Literal, NamedTuple

from groupwise.checks import Advice, Finding, Severity, worst
from groupwise.models.policy import Policy, start_policy
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.environments import Crews
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.sandbox.base import Closing
from groupwise.tasks import Task, make_task
from groupwise.trainers.reward_part import load_reward_models, with_reward_model_parts
from groupwise.trainers.rl_recipe import RlRecipe
from groupwise.types import Problem, ScoredGroup, Split
from groupwise.verifiers import Verifier, make_verifier
from groupwise.verifiers.unjudged import Unjudged


@dataclass(frozen=True, slots=True)
class PreflightOptions:
    """Sizes of the sample, and the price of time."""

    num_problems: int = 32  # training problems that are sampled
    num_samples: int = 16  # least completions of each; a larger group size counts
    price_per_hour: float | None = None  # price of an hour of this machine; None: unknown
    budget_s: float = 0.0  # seconds for all checks together; what they leave no time for is not done; 0: no bound


@dataclass(frozen=True, slots=True)
class Sampled:
    """Completions of some training problems before any training."""

    groups: tuple[ScoredGroup, ...]
    wanted: int  # completions that there would be without a budget
    max_tokens: int  # of a completion; fewer than the recipe's where a budget allows no more
    tokens_per_second: float  # of a batch that a budget allows; 0 without one


FEW, PROBE_TOKENS = 4, 16
"""Completions of a problem where there is no time for all; and tokens of as many, by which the speed is measured."""
LEAST_TOKENS = 16  # of a completion that is worth sampling
HALF = 0.5  # share of what is left of a budget that goes into the sample; a rehearsal has the rest


@dataclass
class Bench(Closing):
    """A recipe whose parts are made when they are asked for; a part that cannot be made says why every time."""

    recipe: RlRecipe
    options: PreflightOptions = PreflightOptions()
    began: float = field(default_factory=time.perf_counter)
    _problems: dict[Split, Sequence[Problem]] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    def close(self) -> None:
        self._stack.close()

    @cached_property
    def task(self) -> Task:
        return make_task(self.recipe.task)

    def problems(self, split: Split) -> Sequence[Problem]:
        if split not in self._problems:
            self._problems[split] = list(self.task.problems(split))
        return self._problems[split]

    def some(self, number: int, split: Split = "train") -> list[Problem]:
        """Return problems spread evenly over the split."""
        problems = self.problems(split)
        size = min(number, len(problems))
        return [problems[i * len(problems) // size] for i in range(size)]

    @cached_property
    def verifier(self) -> Verifier:
        """The verifier, checked against the training problems as training does."""
        verifier = self._stack.enter_context(make_verifier(self.recipe.verifier))
        verifier.check([*self.problems("train"), *self.problems("dev")], self.task.template)
        return verifier

    @cached_property
    def policy(self) -> Policy:
        return start_policy(self.recipe.model, self.recipe.lora, self.recipe.run.seed)

    @cached_property
    def actors(self) -> Actors:
        actors = Actors.of(self.policy, self.task.template, self.verifier, self.recipe.engine)
        return replace(actors, crews=self.crews)

    @cached_property
    def crews(self) -> Crews:
        return Crews()

    @property
    def seconds_left(self) -> float:
        """Seconds of the budget that are left; infinite without one."""
        spent = time.perf_counter() - self.began
        return max(0.0, self.options.budget_s - spent) if self.options.budget_s else math.inf

    def _sample(
        self, problems: Sequence[Problem], number: int, max_tokens: int, verifier: Verifier | None = None
    ) -> list[ScoredGroup]:
        draws, sampling = Draws(self.recipe.run.seed, Purpose.PREFLIGHT), self.recipe.sampling
        actors = replace(self.actors, verifier=verifier) if verifier else self.actors
        sampling = sampling.model_copy(update={"max_tokens": max_tokens})
        return sample_and_score(actors, problems, number, sampling, draws)

    def _speed(self, problems: Sequence[Problem]) -> float:
        """Return the tokens that a few completions have in a second, their prompts' time counted; none is judged."""
        few, began = min(PROBE_TOKENS, self.recipe.sampling.max_tokens), time.perf_counter()
        scored = self._sample(problems[:FEW], -(-FEW // len(problems[:FEW])), few, Unjudged())
        tokens = sum(completion.num_tokens for group in scored for completion in group.group.completions)
        return tokens / (time.perf_counter() - began)

    def _within(self, problems: Sequence[Problem], number: int) -> Sampled:
        """Sample what half of what is left of the budget allows: all; or few of each, as many as fit; or short ones."""
        limit, wanted = self.recipe.sampling.max_tokens, len(problems) * number
        end = time.perf_counter() + HALF * self.seconds_left
        rate, length, scored = self._speed(problems), float(limit), list[ScoredGroup]()

        def room() -> float:
            return (end - time.perf_counter()) * rate

        if wanted * limit <= room():
            return Sampled(tuple(self._sample(problems, number, limit)), wanted, limit, rate)
        each = min(number, FEW)
        limit = min(limit, int(room() / each))
        while limit >= LEAST_TOKENS and len(scored) < len(problems):
            fit = int(room() / (length * each))
            if fit < 1 and scored:
                break
            began, batch = time.perf_counter(), problems[len(scored) : len(scored) + max(1, fit)]
            scored += self._sample(batch, each, limit)
            lengths = [completion.num_tokens for group in scored for completion in group.group.completions]
            rate = sum(lengths[-len(batch) * each :]) / (time.perf_counter() - began)
            length = max(1.0, fmean(lengths))
        return Sampled(tuple(scored), wanted, limit, rate)

    @cached_property
    def sampled(self) -> Sampled:
        """Completions of some training problems, judged and paid as training pays them from its first step on."""
        recipe, options = self.recipe, self.options
        number = max(recipe.batch.group_size, options.num_samples)
        problems = self.some(options.num_problems)
        self.actors.engine.publish(self.policy, 0)
        if options.budget_s:
            found = self._within(problems, number)
        else:
            limit = recipe.sampling.max_tokens
            scored = self._sample(problems, number, limit)
            found = Sampled(tuple(scored), len(scored) * number, limit, 0.0)
        if recipe.reward_models and found.groups:
            models = load_reward_models(recipe.reward_models, recipe.model)
            paid = with_reward_model_parts(found.groups, models, recipe.reward_models, recipe.task.template, 0)
            found = replace(found, groups=tuple(paid))
        return found


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
    not_done: str = ""  # what there was no time for


Cost = Literal["free", "verifier", "model", "step"]
"""Needs of a check: the recipe and its problems; the verifier; the model and a sample; steps on a copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check."""

    name: str
    says: str
    cost: Cost
    run: Callable[[Bench], Checked]
    source: str  # of its bounds


def check(name: str, cost: Cost, *, says: str, source: str) -> Callable[[Callable[[Bench], Checked]], Check]:
    """Make a check of a function."""
    return lambda run: Check(name=name, says=says, cost=cost, run=run, source=source)


Verdict = Literal["GO", "GO WITH WARNINGS", "NO-GO"]


def verdict_of(findings: Iterable[Finding]) -> Verdict:
    """Return the verdict of some findings: that of the most severe."""
    level = worst(findings)
    return "NO-GO" if level is Severity.CRITICAL else "GO WITH WARNINGS" if level is Severity.WARNING else "GO"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """The outcome of all checks of a recipe."""

    findings: tuple[Finding, ...]  # the most severe first
    figures: Mapping[str, Mapping[str, Any]]
    not_done: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        return verdict_of(self.findings)

    def verdict_by(self, check: str) -> Verdict:
        return verdict_of(finding for finding in self.findings if finding.check == check)

    def facts(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict, "verdicts": {name: self.verdict_by(name) for name in self.figures},
            "findings": [finding.facts() for finding in self.findings],
            "figures": self.figures, "not_done": self.not_done,
            "seconds": {name: round(s, 3) for name, s in self.seconds.items()},
        }  # fmt: skip

"""Around the steps of a run of reinforcement learning: which problems, the record, evaluation, the doctor."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from groupwise.checks import Severity
from groupwise.checks.doctor import Watch
from groupwise.errors import InvariantError
from groupwise.evaluation.evaluate import SECOND_SAMPLE, look_again, unparsable
from groupwise.evaluation.metrics import by_family, estimate
from groupwise.models.policy import load_policy
from groupwise.randomness import Draws, Purpose, key, permutation, uniforms
from groupwise.ranks.group import RANKS
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.runs.progress import tell
from groupwise.runs.row import rows_of
from groupwise.tasks.base import Task, split_problems
from groupwise.trainers.base import OnReport
from groupwise.trainers.record import Recorder, distributions
from groupwise.trainers.report import DevReport, StepResult, hash_tokens, ledger_group, step_report
from groupwise.trainers.rl_recipe import RlRecipe
from groupwise.training.session import Best, Session
from groupwise.types import Outcome, Problem, ScoredGroup
from groupwise.verifiers import Verifier

UNSEEN = 0.5
"""Pass rate of a problem that was never tried: worth the most, so it is tried."""
LEAST_WEIGHT = 0.01
"""Weight of problems always or never solved: they may change, so they come back now and then."""
FADING = 0.5
"""Share of the old rate that a new observation leaves."""


def problem_order(num_problems: int, prompts_per_step: int, seed: int, step: int) -> list[int]:
    """Order the problems of a step, then the rest of its epoch as spares; an epoch's remainder is left out."""
    epoch, position = divmod(step, num_problems // prompts_per_step)
    order = permutation(num_problems, seed, "problem order", epoch)
    turned = np.roll(order, -position * prompts_per_step)
    return [int(index) for index in turned]


class PassRates:
    """The pass rate of each problem and each difficulty, remembered across steps and fading as the policy changes."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._by_problem: dict[str, float] = dict(state.get("problem", {}))
        self._by_difficulty: dict[str, float] = dict(state.get("difficulty", {}))

    def state(self) -> dict[str, dict[str, float]]:
        return {"problem": dict(self._by_problem), "difficulty": dict(self._by_difficulty)}

    def learn(self, scored: Sequence[ScoredGroup]) -> None:
        shares: dict[str, list[float]] = {}
        for group in scored:
            judged = [verdict.outcome is Outcome.CORRECT for verdict in group.verdicts if verdict.outcome.judged]
            if judged:
                problem, share = group.group.prompt.problem, sum(judged) / len(judged)
                _fade(self._by_problem, problem.id, share)
                shares.setdefault(problem.difficulty, []).append(share)
        for difficulty, measured in shares.items():
            _fade(self._by_difficulty, difficulty, sum(measured) / len(measured))

    def estimate(self, problem: Problem) -> float:
        """Return the best known pass rate of the problem: its own, else its difficulty's, else one half."""
        return self._by_problem.get(problem.id, self._by_difficulty.get(problem.difficulty, UNSEEN))

    def draw(self, problems: Sequence[Problem], seed: int, step: int) -> list[int]:
        """Order all problems by draws without replacement, with weights p(1 - p): the variance of the reward.

        Exponential keys: Efraimidis and Spirakis 2006.
        """
        rates = np.array([self.estimate(problem) for problem in problems])
        weights = np.maximum(rates * (1 - rates), LEAST_WEIGHT)
        draws = uniforms(key(seed, "curriculum", step), np.arange(len(problems)))
        return [int(index) for index in np.argsort(-np.log1p(-draws) / weights, kind="stable")]


def _fade(rates: dict[str, float], name: str, share: float) -> None:
    rates[name] = share if name not in rates else FADING * rates[name] + (1 - FADING) * share


class RlRun:
    """Choosing problems, recording and evaluation around the step."""

    def __init__(
        self,
        recipe: RlRecipe,
        task: Task,
        actors: Actors,
        second: Verifier | None,
        session: Session,
        on_report: OnReport,
    ) -> None:
        self.recipe, self.task, self.actors, self.second = recipe, task, actors, second
        self.session, self.on_report = session, on_report
        self.recorder = Recorder(
            recipe.record, session.directory, actors.policy, recipe.sampling.temperature, session.progress.step,
            keep=recipe.needs_records,
        )  # fmt: skip
        self.pass_rates = PassRates(session.progress.pass_rates)
        self.test_is_open = False
        self.watch = Watch(session.directory.path, recipe.doctor.ignore) if RANKS.is_first else None

    def choose(self, problems: Sequence[Problem], step: int) -> tuple[Sequence[Problem], Sequence[Problem]]:
        size, seed = self.recipe.batch.prompts_per_step, self.recipe.run.seed
        if self.recipe.batch.curriculum:
            order = self.pass_rates.draw(problems, seed, step)
        else:
            order = problem_order(len(problems), size, seed, step)
        chosen = [problems[index] for index in order]
        return chosen[:size], chosen[size:]

    def plan_ahead(self, problems: Sequence[Problem], step: int) -> None:
        """Tell an engine that samples one step ahead the next problems; a step after a checkpoint has none waiting."""
        if not self.recipe.engine.looks_ahead:
            return
        if RANKS.by_first(self.session.directory.checkpoint(step).exists):
            self.actors.ahead.drop()
        done = step + 1
        if done < self.recipe.run.num_steps and done % self.session.config.checkpoint_every:
            self.actors.ahead.plan(self.choose(problems, done)[0], Draws(self.recipe.run.seed, Purpose.TRAIN, done))

    def is_last(self, step: int) -> bool:
        return self.session.progress.ending or step + 1 == self.recipe.run.num_steps

    def record(self, step: int, result: StepResult) -> None:
        began = time.perf_counter()
        after = self.recorder.step(step, result, self.recipe.loss.tokens_per_micro_batch)
        spreads = distributions(result, after)
        record_s = time.perf_counter() - began

        updates = self.session.optimizer.updates_done
        before = updates - result.update.num_updates
        ages = [before - group.scored.group.policy_version for group in result.groups]
        facts = {
            "step": step, "problems": [list(ids) for ids in result.problems],
            "groups": [ledger_group(group) for group in result.groups], "surrogate": result.update.surrogate,
            "grad_norm": result.update.grad_norm, "updates": updates, "weights": self.actors.policy.fingerprint(),
        } | ({"ages": ages} if any(ages) else {})  # fmt: skip
        report = step_report(step, self.recipe.run.num_steps, result, self.session.optimizer.lr(step), ages)
        metrics = {"kind": "step", **report._asdict(), "record_s": record_s, "distributions": spreads}
        if engine_facts := getattr(self.actors.engine, "facts", None):
            metrics["engine"] = engine_facts
        self.session.record(facts, metrics)

        progress = self.session.progress
        self.pass_rates.learn(result.sampled)  # groups that were replaced tell most: all or none was right
        progress.pass_rates = self.pass_rates.state()
        progress.sampled_tokens += report.sampled_tokens
        if self.recipe.token_budget and progress.sampled_tokens >= self.recipe.token_budget:
            progress.ending = True
        self.on_report(report)
        if step == 0 and RANKS.is_first:
            scored = [group.scored for group in result.groups]
            if said := unparsable(self.actors, scored, self.recipe.sampling.max_tokens):
                tell(said)

    def examine(self) -> None:
        findings = self.watch.look() if self.watch else []
        for finding in findings:
            self.on_report(finding)
        is_critical = any(finding.severity is Severity.CRITICAL for finding in findings)
        if self.recipe.doctor.stop_at_critical and RANKS.most(int(is_critical)):
            self.session.stopping = True

    def evaluate_start(self) -> None:
        best = self.session.progress.best
        if best is None:
            self.evaluate_dev(0)
        else:  # the process may have been killed between a checkpoint and its mark
            self._mark_best(best.step)

    def evaluate_dev(self, done: int) -> None:
        config = self.recipe.evaluation
        name, size = f"dev-step-{done:06d}", (config.num_problems, config.num_samples)
        scored = self._evaluate(Purpose.DEV, self.actors, size, name)
        solved = estimate("pass_at_1", rows_of(scored))
        best = self.session.progress.best
        is_best = best is None or math.isnan(best.pass_at_1) or solved.value > best.pass_at_1
        if is_best:
            self.session.progress.best = Best(done, solved.value)
        second = None
        if self.second is not None and config.second_verifier is not None:
            second = look_again(
                scored, config.second_verifier.kind, self.second, size=SECOND_SAMPLE,
                alarm=config.alarm, max_tokens=self.recipe.sampling.max_tokens, seed=self.recipe.run.seed,
            )  # fmt: skip
        more: dict[str, Any] = {"best": is_best} | ({"second": second.record()} if second else {})
        self._record_evaluation("dev", done, scored, more)
        if is_best:
            self.session.checkpoint(done)
            self._mark_best(done)
        self.on_report(DevReport(done, solved, is_best, second))

    def _mark_best(self, step: int) -> None:
        RANKS.by_first(lambda: self.session.directory.mark_best(step))

    def evaluate_test(self) -> None:
        """Open the test split once: the start and the best checkpoint, on the same random numbers."""
        config = self.recipe.evaluation
        self.test_is_open = True
        paths = {"test-before": self.recipe.model.path, "test-after": str(self.session.directory.best.resolve())}
        for name, path in paths.items():
            policy = load_policy(self.recipe.model.at(path))
            actors = Actors.of(policy, self.actors.template, self.actors.verifier, self.recipe.engine)
            scored = self._evaluate(Purpose.TEST, actors, (config.test_problems, config.test_samples), name)
            self._record_evaluation(name, self.recipe.run.num_steps, scored, {})

    def _evaluate(self, purpose: Purpose, actors: Actors, size: tuple[int, int], name: str) -> list[ScoredGroup]:
        if purpose is Purpose.TEST and not self.test_is_open:
            raise InvariantError(f"{name} would open the test split, which nothing may see before training has ended")
        num_problems, num_samples = size
        problems = split_problems(self.task, "test" if purpose is Purpose.TEST else "dev", num_problems)
        draws = Draws(self.recipe.run.seed, purpose)
        scored = sample_and_score(actors, problems, num_samples, self.recipe.sampling, draws)
        self.recorder.evaluation(name, scored)
        return scored

    def _record_evaluation(self, kind: str, done: int, scored: Sequence[ScoredGroup], more: dict[str, Any]) -> None:
        rows = rows_of(scored)
        facts = {
            "evaluation": kind, "step": done, "pass_at_1": list(estimate("pass_at_1", rows)),
            "length": estimate("length", rows).value, "truncated": estimate("truncated", rows).value,
            "tokens": hash_tokens(scored), **more,
        }  # fmt: skip
        families = {name: list(solved) for name, solved in by_family(rows).items()}
        shown = {key: value for key, value in facts.items() if key != "tokens"}
        self.session.record(facts, {"kind": kind, **shown, **({"families": families} if len(families) > 1 else {})})

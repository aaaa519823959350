"""Measure checkpoints: sample, verify, count, compare. `groupwise eval` is `evaluate` with a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from groupwise.algorithms.statistics import Estimate
from groupwise.config import Changes
from groupwise.evaluation.behaviour import Patterns, patterns_of
from groupwise.evaluation.checkpoints import context_of, refuse_run
from groupwise.evaluation.evaluate import ALARM, HeldOutCheck, look_again, open_second, second_section, unparsable
from groupwise.evaluation.metrics import MEASURES, by_problem, common, compare, estimate, figures
from groupwise.models.policy import load_policy
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.runs.progress import tell
from groupwise.runs.row import Row, rows_of
from groupwise.types import ScoredGroup, Split
from groupwise.verifiers import make_verifier, verifier_config


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of `evaluate`."""

    task: str
    split: str
    num_samples: int
    temperature: float
    seed: int
    scored: Mapping[str, Sequence[ScoredGroup]]
    """By checkpoint, the one asked for first: every completion with its verdict."""
    patterns: Patterns
    second: Mapping[str, HeldOutCheck]
    difference: Estimate | None
    """pass@1 minus that of the checkpoint it is held `against`, paired by problem; None without one."""

    @property
    def rows(self) -> tuple[Row, ...]:
        """The completions of the checkpoint asked for."""
        return rows_of(next(iter(self.scored.values())))

    @property
    def pass_at_1(self) -> Estimate:
        return estimate("pass_at_1", self.rows)

    def as_dict(self) -> dict[str, Any]:
        checkpoints = {name: figures(rows_of(scored), self.patterns) for name, scored in self.scored.items()}
        result: dict[str, Any] = {
            "task": self.task, "split": self.split, "problems": len(next(iter(self.scored.values()))),
            "samples": self.num_samples, "temperature": self.temperature, "seed": self.seed, "checkpoints": checkpoints,
        }  # fmt: skip
        for name, check in self.second.items():
            checkpoints[name]["second"] = check.record()
        if self.difference is not None:
            result["difference"] = self.difference._asdict()
        return result


def evaluate(
    checkpoint: str | Path,
    *,
    against: str | Path | None = None,
    task: str | None = None,
    split: Split | None = None,
    problems: int | None = None,
    samples: int | None = None,
    seed: int = 0,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    max_tokens: int | None = None,
    second: str | None = None,
    changes: Changes = (),
) -> Measurement:
    """Measure a checkpoint: pass@k, majority vote, lengths, behaviours, each difficulty. It is `groupwise eval`.

    >>> str(evaluate("base", task="arithmetic", problems=100).pass_at_1)  # doctest: +SKIP
    '0.354 [0.316, 0.393]'

    Args:
        checkpoint: a checkpoint directory, a hub name, or `base` for the shipped model.
        against: a second checkpoint, measured on the same problems with the same random numbers.
        task: a task's name, or `file.py:Class`; None: the task of the run that the checkpoint lies in.
        split: `train`, `dev` or `test`; None: `test`, or all rows of a plain file that no run divided into splits.
        problems: at most this many, from the first; None: 200 of a split, all rows of a plain file.
        samples: completions of each problem; None: 8.
        seed: of the draws.
        temperature: divides the logits; 0 takes the likeliest token; None: 1.
        top_k: keep the k likeliest tokens; 0 keeps all; None: 0.
        top_p: keep the likeliest tokens of this mass; 1 keeps all; None: 1.
        max_tokens: most tokens of a completion; None: as many as in the run, else the default.
        second: a verifier that judges correct completions again, for example `math`.
        changes: of the sections task, verifier, sampling, behaviour and engine, as for `load_recipe`.

    Raises:
        ConfigError: the path is a run and not a checkpoint, or a name or a value is unknown.
        DataError: problems cannot be read, or the task has none of the split.
        ModelError: a checkpoint cannot be loaded.
        VerifierError: the verifier failed on too many completions.
    """
    samples = samples or 8
    temperature, top_k = (1.0 if temperature is None else temperature), top_k or 0
    top_p = 1.0 if top_p is None else top_p
    names = [str(checkpoint), *([str(against)] if against else [])]
    sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "max_tokens": max_tokens}
    context = context_of(names[0], task, sampling, changes)
    patterns = patterns_of(context.behaviour)
    for name in names[1:]:
        refuse_run(name)
    part, selection = context.problems(split, problems)
    second_config = verifier_config(second_section(second, context.verifier.model_dump())) if second else None
    checks: dict[str, HeldOutCheck] = {}
    with open_second(second_config, context.task, context.verifier) as judge:
        draws = Draws(seed, Purpose(split or "test"))
        scored: dict[str, list[ScoredGroup]] = {}
        for name in names:
            with make_verifier(context.verifier) as verifier:
                verifier.check(selection, context.task.template)
                actors = Actors.of(load_policy(name), context.task.template, verifier, context.engine)
                scored[name] = sample_and_score(actors, selection, samples, context.sampling, draws)
                if said := unparsable(actors, scored[name], context.sampling.max_tokens):
                    tell(said)
        if judge is not None and second is not None:
            size, limit = len(selection) * samples, context.sampling.max_tokens
            look = partial(look_again, name=second, verifier=judge, size=size, alarm=ALARM, max_tokens=limit, seed=seed)
            checks = {name: look(groups) for name, groups in scored.items()}
    shares = [by_problem(rows_of(groups), MEASURES["pass_at_1"]) for groups in scored.values()]
    difference = compare(*common(shares[-1], shares[0])) if against else None
    return Measurement(
        context.task.name, part, samples, context.sampling.temperature, seed, scored, patterns, checks, difference
    )

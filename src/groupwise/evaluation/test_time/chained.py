"""What chains make of every problem at every budget, kept on disk as it is found. A budget is a number of links."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from groupwise.algorithms.pools import best_of_k
from groupwise.algorithms.step_metrics import aggregated
from groupwise.errors import DataError
from groupwise.evaluation.row import rows_of
from groupwise.evaluation.test_time.chains import Chainer, Link, check_phrases
from groupwise.evaluation.test_time.methods import Cost, Floats, Measured, Sizes, majority
from groupwise.evaluation.test_time.pool import Pool, Sample, Sampler
from groupwise.evaluation.test_time.scores import Scored, Scorer, Told
from groupwise.evaluation.test_time.settings import BudgetConfig
from groupwise.evaluation.test_time.store import Store, parts
from groupwise.rollout.sample_and_score import encode_prompt
from groupwise.types import Problem


class Chain(NamedTuple):
    """One chain of attempts, all of them judged."""

    samples: tuple[Sample, ...]
    scores: tuple[Scored, ...]
    """Empty where no process reward model is there."""


@dataclass(frozen=True, slots=True)
class Chained:
    """The chains of one problem."""

    problem: Problem
    chains: tuple[Chain, ...]
    sampled: tuple[int, ...]
    """Tokens that each link took, of all chains."""
    read: tuple[int, ...]
    shown: tuple[int, ...]
    """Of each link: attempts that were shown, or reasonings that were opened again."""
    seconds: float
    """Of one link of one chain."""

    @classmethod
    def read_from(cls, problem: Problem, value: dict[str, Any], seconds: float) -> Self:
        """From what `_written` made; chains with an attempt that the verifier failed on are left out."""
        judged = [[Sample(*fields) if fields else None for fields in chain] for chain in value["chains"]]
        scores = [[Scored(tuple(steps), tokens) for steps, tokens in chain] for chain in value["scores"]]
        whole = tuple(
            Chain(tuple(sample for sample in chain if sample is not None), tuple(own))
            for chain, own in zip(judged, scores, strict=True)
            if all(chain)
        )
        if not whole:
            raise DataError(f"the verifier failed in every chain of {problem.id}: see why with groupwise sample")
        sampled, read, shown = (tuple(value[name]) for name in ("sampled", "read", "shown"))
        return cls(problem, whole, sampled, read, shown, seconds)


def measure_chains(
    method: str,
    sampler: Sampler,
    scorer: Scorer | None,
    problems: Sequence[Problem],
    config: BudgetConfig,
    sizes: Sizes,
) -> tuple[list[Measured], list[dict[str, Any]]]:
    """A kind of chain at every budget, and how often its links changed an answer from right to wrong and back."""
    found = chained(method, sampler, scorer if method == "revise" else None, problems, config)
    return list(_measured(method, found, config, sizes)), flips(method, found)


def chained(
    method: str, sampler: Sampler, scorer: Scorer | None, problems: Sequence[Problem], config: BudgetConfig
) -> list[Chained]:
    """The chains of each problem; what is on disk is not made again."""
    links = max(config.budgets)
    dials: dict[str, Any] = {"method": method, "links": links}
    dials |= {"remembered": config.remembered} if method == "revise" else {"phrases": dict(config.phrases)}
    if method == "force":
        check_phrases(problems, config.phrases)
    read_by = {} if scorer is None else scorer.identity
    store = Store.of(sampler.directory, method, {**sampler.identity_of(config.chains), **dials, **read_by})
    found: list[Chained] = []
    for number, part in parts(problems):
        sampler.progress(method, len(found), len(problems))
        make = lambda part=part: _made(method, sampler, scorer, part, config)  # noqa: E731
        values, seconds = store.values(number, make)
        each = seconds / len(part) / links / config.chains
        found += [Chained.read_from(problem, value, each) for problem, value in zip(part, values, strict=True)]
    return found


def _made(
    method: str, sampler: Sampler, scorer: Scorer | None, problems: Sequence[Problem], config: BudgetConfig
) -> list[dict[str, Any]]:
    chainer = Chainer(sampler.actors, sampler.sampling, sampler.draws, config.chains)
    links = [chainer.start(problems)]
    while len(links) < max(config.budgets):
        step = (
            chainer.revised(links, config.remembered) if method == "revise" else chainer.forced(links, config.phrases)
        )
        links.append(step)
    return [_written(sampler, scorer, links, index) for index in range(len(problems))]


def _written(sampler: Sampler, scorer: Scorer | None, links: Sequence[Link], index: int) -> dict[str, Any]:
    rows = [rows_of([link.groups[index]]) for link in links]
    chains = [[of_link[chain] for of_link in rows] for chain in range(len(rows[0]))]
    samples = [[Sample.of(row) if row.outcome.judged else None for row in chain] for chain in chains]
    scored: list[list[Scored]] = [[] for _ in samples]
    if scorer is not None:
        problem = links[0].groups[index].group.prompt.problem
        prompt = encode_prompt(sampler.actors.policy, sampler.actors.template, problem)
        pool = Pool(problem, prompt.text, len(prompt.token_ids), (), 0.0)
        for number, chain in enumerate(samples):
            told = [
                Told.of(pool, sample, scorer.step, f"link {place} of chain {number} of {problem.id}")
                if sample
                else Told(prompt.text, (), "")
                for place, sample in enumerate(chain)
            ]
            scored[number] = scorer.texts(told)
    return {
        "chains": [[_fields(sample) for sample in chain] for chain in samples],
        "scores": scored,
        "sampled": [link.sampled[index] for link in links],
        "read": [link.read[index] for link in links],
        "shown": [link.shown[index] for link in links],
    }


def _fields(sample: Sample | None) -> list[Any] | None:
    return None if sample is None else [getattr(sample, name) for name in Sample.__dataclass_fields__]


def _measured(method: str, found: Sequence[Chained], config: BudgetConfig, sizes: Sizes) -> Iterator[Measured]:
    for links in sorted(set(config.budgets)):
        last = [[chain.samples[links - 1].right for chain in one.chains] for one in found]
        yield Measured(f"{method}/last", links, _mean(last), _cost(found, links, config, sizes, scored=False))
        if method != "revise":
            continue
        pools = [[_pool(one, chain, links) for chain in one.chains] for one in found]
        votes = [[majority(pool, links) for pool in own] for own in pools]
        yield Measured("revise/majority", links, _mean(votes), _cost(found, links, config, sizes, scored=False))
        if all(chain.scores for one in found for chain in one.chains):
            best = [
                [
                    best_of_k(_joined(chain, links, config), pool.right, links)
                    for chain, pool in zip(one.chains, own, strict=True)
                ]
                for one, own in zip(found, pools, strict=True)
            ]
            yield Measured("revise/best", links, _mean(best), _cost(found, links, config, sizes, scored=True))


def _mean(values: Sequence[Sequence[float]]) -> Floats:
    return np.array([sum(own) / len(own) for own in values], float)


def _pool(one: Chained, chain: Chain, links: int) -> Pool:
    return Pool(one.problem, "", 0, chain.samples[:links], 0.0)


def _joined(chain: Chain, links: int, config: BudgetConfig) -> list[float]:
    return [aggregated(scored.steps, config.aggregate) for scored in chain.scores[:links]]


def _cost(found: Sequence[Chained], links: int, config: BudgetConfig, sizes: Sizes, scored: bool) -> Cost:
    """Per chain, whose attempts all count, those that were thrown away too."""
    sampled = np.array([sum(one.sampled[:links]) / config.chains for one in found])
    read = np.array([sum(one.read[:links]) / config.chains for one in found])
    rewarded = np.zeros(len(found))
    if scored:
        rewarded = _mean([[sum(s.tokens for s in chain.scores[:links]) for chain in one.chains] for one in found])
    weights = sizes.rewards.get("prm", 0)
    operations = 2.0 * sizes.policy * (sampled + read) + 2.0 * weights * rewarded
    return Cost(sampled, rewarded, operations, links * np.array([one.seconds for one in found]))


def flips(method: str, found: Sequence[Chained]) -> list[dict[str, Any]]:
    """Of each link, how many right answers of the link before became wrong, and how many wrong ones right."""
    rows = []
    for link in range(1, len(found[0].sampled)):
        pairs = [(chain.samples[link - 1].right, chain.samples[link].right) for one in found for chain in one.chains]
        rows.append(
            {
                "method": method, "link": link + 1, "chains": len(pairs), "right_before": sum(a for a, _ in pairs),
                "right_to_wrong": pairs.count((True, False)), "wrong_to_right": pairs.count((False, True)),
                "shown": sum(one.shown[link] for one in found),
            }
        )  # fmt: skip
    return rows

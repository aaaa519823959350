"""What searches make of every problem at every budget, kept on disk as it is found."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from groupwise.algorithms.pools import best_of_k, weighted_vote
from groupwise.errors import DataError
from groupwise.evaluation.row import rows_of
from groupwise.evaluation.test_time.methods import Cost, Measured, Sizes, majority
from groupwise.evaluation.test_time.pool import Pool, Sample, Sampler
from groupwise.evaluation.test_time.scores import Scored, ScoredPool, Scorer
from groupwise.evaluation.test_time.search import Ends, SearchConfig, Searcher, Spent
from groupwise.evaluation.test_time.settings import BudgetConfig
from groupwise.evaluation.test_time.store import Store, parts
from groupwise.types import Problem


@dataclass(frozen=True, slots=True)
class Found:
    """The judged ends of one problem's search."""

    pool: Pool
    scored: ScoredPool
    spent: Spent

    @classmethod
    def read(cls, problem: Problem, value: dict[str, Any], seconds: float) -> Self:
        """From what `_written` made."""
        samples = tuple(Sample(*fields) for fields in value["samples"])
        if not samples:
            raise DataError(f"the verifier judged no end of the search for {problem.id}: see why with groupwise sample")
        scored = tuple(Scored(tuple(steps), tokens) for steps, tokens in value["scores"])
        return cls(Pool(problem, "", 0, samples, seconds), ScoredPool(scored, 0.0), Spent(*value["spent"]))


def search_config(method: str, slots: int, config: BudgetConfig) -> SearchConfig:
    """The search that a method's name stands for."""
    trees = max(1, slots // config.width) if method == "dvts" else 1
    lookahead = config.lookahead if method == "lookahead" else 0
    return SearchConfig(slots, config.width, trees, lookahead, config.max_rounds, config.aggregate)


def measure_search(
    method: str, sampler: Sampler, scorer: Scorer, problems: Sequence[Problem], config: BudgetConfig, sizes: Sizes
) -> Iterator[Measured]:
    """A search at every budget: the best end by its score, the weighted vote of the ends, and their majority."""
    for slots in sorted(set(config.budgets)):
        found = find(sampler, scorer, problems, search_config(method, slots, config))
        cost = _cost(found, sizes)
        pools = [(one.pool, one.scored.joined(config.aggregate)) for one in found]
        best = [best_of_k(scores, pool.right, len(scores)) for pool, scores in pools]
        vote = [weighted_vote(pool.answers, scores, pool.right, len(scores)).value for pool, scores in pools]
        most = [majority(pool, len(pool.samples)) for pool, _ in pools]
        for name, accuracy in (("best", best), ("weighted", vote), ("majority", most)):
            yield Measured(f"{method}/{name}", slots, np.array(accuracy), cost)


def find(sampler: Sampler, scorer: Scorer, problems: Sequence[Problem], config: SearchConfig) -> list[Found]:
    """The ends of a search for each problem; what is on disk is not searched again."""
    dials = {name: getattr(config, name) for name in config.__dataclass_fields__}
    identity = {**sampler.identity_of(config.slots), **scorer.identity, **dials}
    store = Store.of(sampler.directory, "search", identity)
    searcher = Searcher(sampler.actors, sampler.sampling, sampler.draws, scorer, config)
    found: list[Found] = []
    for number, part in parts(problems):
        sampler.progress(f"search with {config.slots} slots", len(found), len(problems))
        values, seconds = store.values(number, lambda part=part: _written(searcher.search(part)))  # type: ignore[misc]
        each = seconds / len(part)
        found += [Found.read(problem, value, each) for problem, value in zip(part, values, strict=True)]
    return found


def _written(ends: Sequence[Ends]) -> list[dict[str, Any]]:
    return [_one(one) for one in ends]


def _one(ends: Ends) -> dict[str, Any]:
    rows = rows_of([ends.group])
    kept = [index for index, row in enumerate(rows) if row.outcome.judged]
    samples = [Sample.of(rows[index]) for index in kept]
    return {
        "samples": [[getattr(sample, name) for name in Sample.__dataclass_fields__] for sample in samples],
        "scores": [ends.scored[index] for index in kept],
        "spent": [ends.spent.policy_tokens, ends.spent.prompt_tokens, ends.spent.reward_tokens],
    }


def _cost(found: Sequence[Found], sizes: Sizes) -> Cost:
    sampled, read, rewarded = (
        np.array([getattr(one.spent, name) for one in found], float) for name in Spent.__dataclass_fields__
    )
    operations = 2.0 * sizes.policy * (sampled + read) + 2.0 * sizes.rewards["prm"] * rewarded
    return Cost(sampled, rewarded, operations, np.array([one.pool.seconds for one in found]))

"""Thinking that is cut short: at a number of tokens the reasoning is closed, and the answer must follow.

The other direction of budget forcing (Muennighoff et al. 2025, "s1", arXiv:2501.19393, §3). What was sampled before the
cut stays as it was sampled, token by token; `</think>` is put in. A budget is a number of tokens, in units of
`cut_tokens`.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from groupwise.evaluation.row import rows_of
from groupwise.evaluation.test_time.chains import Chainer, Link, Opened
from groupwise.evaluation.test_time.methods import Cost, Measured, Sizes
from groupwise.evaluation.test_time.pool import Sampler
from groupwise.evaluation.test_time.settings import BudgetConfig
from groupwise.evaluation.test_time.store import Store, parts
from groupwise.rollout.pieces import beginning, joined, phrase
from groupwise.rollout.reflection import CLOSED, reasoning_end
from groupwise.types import Outcome, Problem


def measure_cuts(
    sampler: Sampler, problems: Sequence[Problem], config: BudgetConfig, sizes: Sizes
) -> Iterator[Measured]:
    """Accuracy with thinking cut short at every budget; means over the completions of each problem."""
    limits = [budget * config.cut_tokens for budget in sorted(set(config.budgets))]
    store = Store.of(sampler.directory, "cut", {**sampler.identity_of(config.chains), "limits": limits})
    values: list[dict[str, Any]] = []
    seconds: list[float] = []
    for number, part in parts(problems):
        sampler.progress("cut", len(values), len(problems))
        found, spent = store.values(number, partial(_made, sampler, part, config.chains, limits))
        values += found
        seconds += [spent / len(part) / len(limits) / config.chains] * len(part)
    for place, budget in enumerate(sorted(set(config.budgets))):
        share, sampled, read = (
            np.array([value[name][place] for value in values]) for name in ("right", "sampled", "read")
        )
        operations = 2.0 * sizes.policy * (sampled + read)
        yield Measured("cut", budget, share, Cost(sampled, 0 * sampled, operations, np.array(seconds)))


def _made(sampler: Sampler, problems: Sequence[Problem], chains: int, limits: Sequence[int]) -> list[dict[str, Any]]:
    chainer = Chainer(sampler.actors, sampler.sampling, sampler.draws, chains)
    first = chainer.start(problems)
    links = [cut(chainer, first, limit) for limit in limits]
    return [
        {
            "right": [_right(link, index) for link in links],
            "sampled": [sum(one.num_tokens for one in link.groups[index].group.completions) / chains for link in links],
            "read": [link.read[index] / chains for link in links],
        }
        for index in range(len(problems))
    ]


def _right(link: Link, index: int) -> float:
    """Share of right completions among those that the verifier judged."""
    judged = [row.outcome for row in rows_of([link.groups[index]]) if row.outcome.judged]
    return judged.count(Outcome.CORRECT) / max(1, len(judged))


def cut(chainer: Chainer, first: Link, limit: int) -> Link:
    """The completions of a link with at most so many sampled tokens before their reasoning is closed.

    One that closed it before, or ended, stays as it is; so does one that has no room for an answer. The result of a
    call that ended before the cut stays whole.
    """
    policy, opened, read = chainer.actors.policy, list[Opened](), list(first.read)
    closing: list[int] = policy.tokenizer(CLOSED, add_special_tokens=False)["input_ids"]
    for index, scored in enumerate(first.groups):
        prompt = scored.group.prompt
        for chain, pieces in enumerate(first.pieces[index]):
            whole = joined(pieces)
            if whole.num_drawn <= limit:
                continue
            begun = beginning(pieces, int(np.flatnonzero(whole.drawn)[limit]))
            if reasoning_end(policy, begun) is not None:
                continue
            results_behind = whole.num_put_in - joined(begun).num_put_in
            begun.append(phrase(closing, begun[-1].calls))
            key = chainer.draws.key_after(f"cut {limit}", prompt.problem.id, chain)
            if request := chainer.go_on(prompt, begun, key):
                opened.append(Opened(index, chain, begun, request))
                read[index] -= results_behind
    after = chainer.next(first, opened)
    return after._replace(read=[a + b for a, b in zip(read, after.read, strict=True)])

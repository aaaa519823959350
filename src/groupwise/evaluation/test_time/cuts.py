"""Thinking that is cut short: at a number of tokens the reasoning is closed, and the answer must follow.

The other direction of budget forcing (Muennighoff et al. 2025, "s1", arXiv:2501.19393, §3). What was sampled before the
cut stays as it was sampled, token by token; `</think>` is put in. A budget is a number of tokens, in units of
`cut_tokens`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from groupwise.evaluation.row import rows_of
from groupwise.evaluation.test_time.chains import Chainer, Link
from groupwise.evaluation.test_time.methods import Cost, Measured, Sizes
from groupwise.evaluation.test_time.pool import Sampler
from groupwise.evaluation.test_time.settings import BudgetConfig
from groupwise.evaluation.test_time.store import Store, parts
from groupwise.rollout.engine import Request, Sampled
from groupwise.rollout.reflection import CLOSED
from groupwise.rollout.sample_and_score import score_groups
from groupwise.types import Completion, Outcome, Problem


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
    """The completions of a link with at most so many tokens before their reasoning is closed.

    One that closed it before, or ended, stays as it is; so does one that has no room for an answer.
    """
    policy = chainer.actors.policy
    closing: list[int] = policy.tokenizer(CLOSED, add_special_tokens=False)["input_ids"]
    requests, places = list[Request](), list[tuple[int, int]]()
    for index, one in enumerate(first.groups):
        for completion in one.group.completions:
            begun = completion.token_ids[:limit].tolist()
            is_open = CLOSED not in policy.tokenizer.decode(begun)
            if is_open and len(completion.token_ids) > limit and limit + len(closing) < chainer.sampling.max_tokens:
                prompt = one.group.prompt
                key = chainer.draws.key_after(f"cut {limit}", prompt.problem.id, completion.sample_index)
                ids = (*prompt.token_ids, *begun, *closing)
                requests.append(Request(ids, (key,), limit + len(closing)))
                places.append((index, completion.sample_index))
    found: dict[int, Sampled] = {}
    chainer.actors.engine.generate(requests, chainer.sampling, lambda at, sampled: found.update({at: sampled[0]}))
    completions = [list(one.group.completions) for one in first.groups]
    read = list(first.read)
    for number, (index, chain) in enumerate(places):
        completions[index][chain] = _closed(chainer, completions[index][chain], limit, closing, found[number])
        read[index] += len(requests[number].token_ids)
    groups = [replace(one.group, completions=tuple(own)) for one, own in zip(first.groups, completions, strict=True)]
    scored = score_groups(chainer.actors, groups, chainer.sampling, chainer.draws)
    return Link(scored, read, [sum(place == index for place, _ in places) for index in range(len(groups))])


def _closed(chainer: Chainer, draft: Completion, limit: int, closing: Sequence[int], after: Sampled) -> Completion:
    """What was sampled up to the cut, the closing tag, which is put in, and what was sampled after it."""
    policy, gap = chainer.actors.policy, np.zeros(len(closing), np.float32)
    tokens = np.concatenate([draft.token_ids[:limit], np.array(closing, np.int64), after.token_ids])
    visible = tokens[:-1] if int(tokens[-1]) in policy.stop_ids else tokens
    is_measured = draft.entropy is not None and after.entropy is not None
    sampled = np.ones(len(tokens), np.bool_)
    sampled[limit : limit + len(closing)] = False
    return Completion(
        draft.sample_index,
        tokens,
        np.concatenate([draft.sampling_logprobs[:limit], gap, after.logprobs]),
        np.concatenate([draft.entropy[:limit], gap, after.entropy]) if is_measured else None,  # type: ignore[index]
        after.finish_reason,
        policy.tokenizer.decode(visible.tolist()),
        sampled=sampled,
    )

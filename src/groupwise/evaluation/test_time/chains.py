"""One attempt after another: sequential revision and budget forcing.

`revise` (Snell et al. 2024, arXiv:2408.03314, §6): the model reads its last attempts and tries again. Each attempt
precedes the next one as it was sampled, token by token, after its prompt: the format that a model trained on such
chains has learnt, and that any other takes for examples.

`force` (Muennighoff et al. 2025, "s1", arXiv:2501.19393, §3): where the reasoning would end, a phrase such as "Wait" is
inserted, and the model continues. `cut` is the other direction: at a number of tokens the reasoning is closed, and the
answer must follow; what was sampled before the cut stays as it was sampled.

A budget is a number of links; of `cut`, a number of tokens in units of `cut_tokens`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from groupwise.algorithms.pools import best_of_k
from groupwise.algorithms.step_metrics import aggregated
from groupwise.errors import ConfigError, DataError
from groupwise.evaluation.test_time.methods import BudgetConfig, Floats, Measured, Sizes, majority
from groupwise.evaluation.test_time.pool import Pool, Sample, Sampler, Scored, Scorer, Told
from groupwise.randomness import Draws
from groupwise.rollout.engine import Request
from groupwise.rollout.pieces import (
    CLOSED,
    Pieces,
    beginning,
    completion_in,
    go_on,
    joined,
    of_completion,
    opened_again,
    phrase,
    reasoning_end,
)
from groupwise.rollout.sample_and_score import Actors, continuations, sample_and_score, score_groups
from groupwise.rollout.sampling import SamplingConfig
from groupwise.runs.row import rows_of
from groupwise.types import Group, Outcome, Problem, Prompt, ScoredGroup

REMEMBERED = 4
"""Attempts that a revision is shown, the newest (Snell et al.: 4), as far as they fit."""


class Link(NamedTuple):
    """The attempts of one place in all chains."""

    groups: list[ScoredGroup]
    pieces: list[list[Pieces]]
    sampled: list[int]
    read: list[int]
    shown: list[int]


class Opened(NamedTuple):
    """An attempt that is continued."""

    problem: int
    chain: int
    begun: Pieces
    request: Request


@dataclass(frozen=True, slots=True)
class Chainer:
    """Makes chains."""

    actors: Actors
    sampling: SamplingConfig
    draws: Draws
    chains: int

    def start(self, problems: Sequence[Problem]) -> Link:
        groups = sample_and_score(self.actors, problems, self.chains, self.sampling, self.draws)
        pieces = [[of_completion(completion) for completion in scored.group.completions] for scored in groups]
        return Link(
            groups,
            [[(piece,) for piece in of_problem] for of_problem in pieces],
            [sum(piece.num_drawn for piece in of_problem) for of_problem in pieces],
            [
                len(scored.group.prompt.token_ids) + sum(piece.num_put_in for piece in of_problem)
                for scored, of_problem in zip(groups, pieces, strict=True)
            ],
            [0] * len(groups),
        )

    def revised(self, links: Sequence[Link], remembered: int) -> Link:
        opened, shown = list[Opened](), [0] * len(links[0].groups)
        for index in range(len(shown)):
            for chain in range(self.chains):
                ids, number = self._context(links, index, chain, remembered)
                problem = links[0].groups[index].group.prompt.problem.id
                key = self.draws.key_after(f"revision {len(links)}", problem, chain)
                opened.append(Opened(index, chain, (), Request(ids, (key,))))
                shown[index] += number
        return self.next(links[-1], opened)._replace(shown=shown)

    def _context(self, links: Sequence[Link], index: int, chain: int, remembered: int) -> tuple[tuple[int, ...], int]:
        prompt = links[0].groups[index].group.prompt.token_ids
        room = self.actors.policy.context_length - self.sampling.max_tokens
        ids, shown = prompt, 0
        for link in reversed(links[-remembered:]):
            attempt = link.groups[index].group.completions[chain]
            longer = (*prompt, *attempt.token_ids.tolist(), *ids)
            if len(longer) > room:
                break
            ids, shown = longer, shown + 1
        return ids, shown

    def forced(self, links: Sequence[Link], phrases: Mapping[str, str]) -> Link:
        draws, before, opened = replace(self.draws, detail=f"force {len(links)}"), links[-1], list[Opened]()
        for index, scored in enumerate(before.groups):
            prompt = scored.group.prompt
            for chain, pieces in enumerate(before.pieces[index]):
                begun = opened_again(self.actors.policy, pieces, phrases.get(prompt.problem.language))
                key = draws.key_after("reflection", prompt.problem.id, chain)
                if begun and (request := self.go_on(prompt, begun, key)):
                    opened.append(Opened(index, chain, begun, replace(request, begun=0)))  # draws of a new sequence
        return self.next(before, opened)

    def go_on(self, prompt: Prompt, begun: Pieces, key: int) -> Request | None:
        return go_on(prompt.token_ids, begun, (key,), self.sampling.max_tokens, self.actors.policy.context_length)

    def next(self, before: Link, opened: Sequence[Opened]) -> Link:
        policy = self.actors.policy
        continued = continuations(self.actors, [attempt.request for attempt in opened], self.sampling)
        pieces = [list(of_problem) for of_problem in before.pieces]
        completions = [list(scored.group.completions) for scored in before.groups]
        sampled, read, shown = ([0] * len(pieces) for _ in range(3))
        for attempt, [after] in zip(opened, continued, strict=True):
            new = (*attempt.begun, after)
            pieces[attempt.problem][attempt.chain] = new
            completion = completion_in(policy, attempt.chain, new, self.sampling.tools)
            completions[attempt.problem][attempt.chain] = completion
            sampled[attempt.problem] += after.num_drawn
            read[attempt.problem] += len(attempt.request.token_ids) + after.num_put_in
            shown[attempt.problem] += 1
        groups = [
            Group(scored.group.prompt, tuple(of_problem), self.draws.step, self.actors.engine.version)
            for scored, of_problem in zip(before.groups, completions, strict=True)
        ]
        scored = score_groups(self.actors, groups, self.sampling, self.draws)
        return Link(scored, pieces, sampled, read, shown)


def check_phrases(problems: Sequence[Problem], phrases: Mapping[str, str]) -> None:
    """Check that every language of the problems has a phrase."""
    if missing := sorted({problem.language for problem in problems} - set(phrases)):
        raise ConfigError(
            f"force has no phrase for problems in {missing[0]!r}: phrases are there for {', '.join(phrases)}"
        )


class Chain(NamedTuple):
    """One chain of attempts, all of them judged."""

    samples: tuple[Sample, ...]
    scores: tuple[Scored, ...]


class Chained(NamedTuple):
    """The chains of one problem."""

    problem: Problem
    chains: tuple[Chain, ...]
    sampled: Sequence[int]
    read: Sequence[int]
    shown: Sequence[int]
    seconds: float


def chained(
    method: str, sampler: Sampler, scorer: Scorer | None, problems: Sequence[Problem], config: BudgetConfig
) -> list[Chained]:
    """Make the chains of each problem; what is on disk is not made again."""
    links = max(config.budgets)
    identity: dict[str, Any] = {"method": method, "links": links, **({} if scorer is None else scorer.identity)}
    revises = method == "revise"
    identity |= {"remembered": REMEMBERED} if revises else {"phrases": dict(config.phrases)}
    if not revises:
        check_phrases(problems, config.phrases)

    def make(part: Sequence[Problem]) -> list[dict[str, Any]]:
        chainer = Chainer(sampler.actors, sampler.sampling, sampler.draws, config.chains)
        made = [chainer.start(part)]
        while len(made) < links:
            made.append(chainer.revised(made, REMEMBERED) if revises else chainer.forced(made, config.phrases))
        return [_value(scorer, made, index) for index in range(len(part))]

    found = []
    for problem, value, seconds in sampler.store(method, config.chains, identity).values(problems, make):
        chains = tuple(
            Chain(
                tuple(Sample(*fields) for fields in samples),
                tuple(Scored(tuple(steps), tokens) for steps, tokens in scores),
            )
            for samples, scores in zip(value["chains"], value["scores"], strict=True)
            if all(samples)
        )
        if not chains:
            raise DataError(f"the verifier failed in every chain of {problem.id}: see why with groupwise sample")
        each = seconds / links / config.chains
        found.append(Chained(problem, chains, value["sampled"], value["read"], value["shown"], each))
    return found


def _value(scorer: Scorer | None, links: Sequence[Link], index: int) -> dict[str, Any]:
    rows = [rows_of([link.groups[index]]) for link in links]
    chains = [[Sample.of(row) if row.outcome.judged else None for row in chain] for chain in zip(*rows, strict=True)]
    scored: list[list[Scored]] = [[] for _ in chains]
    if scorer is not None:
        prompt = links[0].groups[index].group.prompt
        for number, chain in enumerate(chains):
            told = [
                Told.of(prompt.text, sample, scorer.step, f"link {place} of chain {number} of {prompt.problem.id}")
                if sample
                else Told(prompt.text, (), "")
                for place, sample in enumerate(chain)
            ]
            scored[number] = scorer.texts(told)
    counts = {name: [getattr(link, name)[index] for link in links] for name in ("sampled", "read", "shown")}
    return {"chains": chains, "scores": scored, **counts}


def measure_chains(
    method: str,
    sampler: Sampler,
    scorer: Scorer | None,
    problems: Sequence[Problem],
    config: BudgetConfig,
    sizes: Sizes,
) -> tuple[list[Measured], list[dict[str, Any]]]:
    """Measure a kind of chain at every budget, and count the answers that its links changed."""
    found, measured = chained(method, sampler, scorer if method == "revise" else None, problems, config), []
    for links in sorted(set(config.budgets)):
        sampled = np.array([sum(of_problem.sampled[:links]) / config.chains for of_problem in found])
        read = np.array([sum(of_problem.read[:links]) / config.chains for of_problem in found])
        rewarded = [[sum(s.tokens for s in chain.scores[:links]) for chain in each.chains] for each in found]
        seconds = links * np.array([of_problem.seconds for of_problem in found])
        plain, scored = (sizes.cost(seconds, sampled, read, tokens) for tokens in (None, _mean(rewarded)))
        last = [[chain.samples[links - 1].right for chain in of_problem.chains] for of_problem in found]
        measured.append(Measured(f"{method}/last", links, _mean(last), plain))
        if method != "revise":
            continue
        votes, choices = list[list[float]](), list[list[float]]()
        for of_problem in found:
            pools = [Pool(of_problem.problem, "", 0, chain.samples[:links], 0.0) for chain in of_problem.chains]
            votes.append([majority(pool, links) for pool in pools])
            choices.append([])
            for chain, pool in zip(of_problem.chains, pools, strict=True):
                if chain.scores:
                    scores = [aggregated(each.steps, config.aggregate) for each in chain.scores[:links]]
                    choices[-1].append(best_of_k(scores, pool.right, links))
        measured.append(Measured("revise/majority", links, _mean(votes), plain))
        if all(chain.scores for of_problem in found for chain in of_problem.chains):
            measured.append(Measured("revise/best", links, _mean(choices), scored))
    return measured, flips(method, found)


def _mean(values: Sequence[Sequence[float]]) -> Floats:
    return np.array([sum(of_problem) / len(of_problem) for of_problem in values], float)


def flips(method: str, found: Sequence[Chained]) -> list[dict[str, Any]]:
    """Count, for each link, right answers of the link before that became wrong, and wrong ones that became right."""
    rows = []
    for link in range(1, len(found[0].sampled)):
        pairs = [(chain.samples[link - 1].right, chain.samples[link].right) for f in found for chain in f.chains]
        rows.append(
            {
                "method": method, "link": link + 1, "chains": len(pairs), "right_before": sum(a for a, _ in pairs),
                "right_to_wrong": pairs.count((True, False)), "wrong_to_right": pairs.count((False, True)),
                "shown": sum(of_problem.shown[link] for of_problem in found),
            }
        )  # fmt: skip
    return rows


def measure_cuts(
    sampler: Sampler, problems: Sequence[Problem], config: BudgetConfig, sizes: Sizes
) -> Iterator[Measured]:
    """Measure thinking that is cut short at every budget; means over the completions of each problem."""
    budgets, chains = sorted(set(config.budgets)), config.chains
    limits = [budget * config.cut_tokens for budget in budgets]

    def make(part: Sequence[Problem]) -> list[dict[str, Any]]:
        chainer = Chainer(sampler.actors, sampler.sampling, sampler.draws, chains)
        first = chainer.start(part)
        links = [cut(chainer, first, limit) for limit in limits]
        values = []
        for index in range(len(part)):
            groups = [link.groups[index] for link in links]
            outcomes = [[row.outcome for row in rows_of([group]) if row.outcome.judged] for group in groups]
            values.append(
                {
                    "right": [judged.count(Outcome.CORRECT) / max(1, len(judged)) for judged in outcomes],
                    "sampled": [sum(c.num_tokens for c in group.group.completions) / chains for group in groups],
                    "read": [link.read[index] / chains for link in links],
                }
            )
        return values

    found = list(sampler.store("cut", chains, {"limits": limits}).values(problems, make))
    seconds = np.array([each for _, _, each in found]) / len(limits) / chains
    for place, budget in enumerate(budgets):
        share, sampled, read = (
            np.array([value[name][place] for _, value, _ in found]) for name in ("right", "sampled", "read")
        )
        yield Measured("cut", budget, share, sizes.cost(seconds, sampled, read))


def cut(chainer: Chainer, first: Link, limit: int) -> Link:
    """Limit the sampled tokens of a link's completions before their reasoning is closed; results stay whole."""
    policy, opened, read = chainer.actors.policy, list[Opened](), list(first.read)
    closing: list[int] = policy.tokenizer(CLOSED, add_special_tokens=False)["input_ids"]
    for index, scored in enumerate(first.groups):
        prompt = scored.group.prompt
        for chain, pieces in enumerate(first.pieces[index]):
            whole = joined(pieces)
            if whole.num_drawn <= limit:
                continue
            kept = beginning(pieces, int(np.flatnonzero(whole.drawn)[limit]))
            if reasoning_end(policy, kept) is not None:
                continue
            results_behind = whole.num_put_in - joined(kept).num_put_in
            kept.append(phrase(closing, kept[-1].calls))
            key = chainer.draws.key_after(f"cut {limit}", prompt.problem.id, chain)
            if request := chainer.go_on(prompt, kept, key):
                opened.append(Opened(index, chain, kept, request))
                read[index] -= results_behind
    after = chainer.next(first, opened)
    return after._replace(read=[a + b for a, b in zip(read, after.read, strict=True)])

"""One attempt after another: sequential revision and budget forcing.

`revise` (Snell et al. 2024, arXiv:2408.03314, §6): the model reads its last attempts and tries again. An attempt
stands before the next one as it was sampled, token by token, each after its prompt: what a model that was trained on
such chains has learnt, and what any other takes for examples.

`force` (Muennighoff et al. 2025, "s1", arXiv:2501.19393, §3): where the reasoning would end, a phrase such as "Wait" is
put in, and the model goes on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from groupwise.errors import ConfigError
from groupwise.randomness import Draws
from groupwise.rollout.engine import Request
from groupwise.rollout.pieces import Pieces, completion_in, go_on, of_completion
from groupwise.rollout.reflection import opened_again
from groupwise.rollout.sample_and_score import Actors, continuations, sample_and_score, score_groups
from groupwise.rollout.sampling import SamplingConfig
from groupwise.types import Group, Problem, Prompt, ScoredGroup


class Link(NamedTuple):
    """The attempts of one place in all chains."""

    groups: list[ScoredGroup]
    """Of each problem, the attempt of every chain."""
    pieces: list[list[Pieces]]
    """What the attempts are made of, by problem and chain."""
    sampled: list[int]
    """Tokens that each problem's chains sampled here; an attempt that stayed as it was cost nothing again."""
    read: list[int]
    """Tokens read before the attempts of each problem were sampled, and results of tools."""
    shown: list[int]
    """Attempts that each problem's chains were shown together, or reasonings that were opened again."""


class Opened(NamedTuple):
    """An attempt that goes on."""

    problem: int
    chain: int
    begun: Pieces
    """What it has already; nothing for a new one."""
    request: Request


@dataclass(frozen=True, slots=True)
class Chainer:
    """What makes chains."""

    actors: Actors
    sampling: SamplingConfig
    draws: Draws
    chains: int
    """Chains per problem; their first attempts are independent samples."""

    def start(self, problems: Sequence[Problem]) -> Link:
        """The first attempts."""
        groups = sample_and_score(self.actors, problems, self.chains, self.sampling, self.draws)
        pieces = [[of_completion(one) for one in scored.group.completions] for scored in groups]
        return Link(
            groups,
            [[(one,) for one in own] for own in pieces],
            [sum(one.num_drawn for one in own) for own in pieces],
            [
                len(scored.group.prompt.token_ids) + sum(one.num_put_in for one in own)
                for scored, own in zip(groups, pieces, strict=True)
            ],
            [0] * len(groups),
        )

    def revised(self, links: Sequence[Link], remembered: int) -> Link:
        """The next attempts, each after the last few of its chain."""
        opened, shown = list[Opened](), [0] * len(links[0].groups)
        for index in range(len(shown)):
            for chain in range(self.chains):
                ids, number = self._context(links, index, chain, remembered)
                opened.append(Opened(index, chain, (), Request(ids, (self._key(links, index, chain),))))
                shown[index] += number
        return self.next(links[-1], opened)._replace(shown=shown)

    def _key(self, links: Sequence[Link], index: int, chain: int) -> int:
        return self.draws.key_after(f"revision {len(links)}", links[0].groups[index].group.prompt.problem.id, chain)

    def _context(self, links: Sequence[Link], index: int, chain: int, remembered: int) -> tuple[tuple[int, ...], int]:
        """The last attempts of a chain and the prompt again; and how many attempts there was room for."""
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
        """The same completions with their reasoning opened again; one that has no end or no room stays as it is."""
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
        """The request for what follows a beginning; None where there is no room."""
        return go_on(prompt.token_ids, begun, (key,), self.sampling.max_tokens, self.actors.policy.context_length)

    def next(self, before: Link, opened: Sequence[Opened]) -> Link:
        """The link in which these attempts went on, and all others stayed as they were."""
        policy = self.actors.policy
        continued = continuations(self.actors, [attempt.request for attempt in opened], self.sampling)
        pieces = [list(own) for own in before.pieces]
        completions = [list(scored.group.completions) for scored in before.groups]
        sampled, read, shown = ([0] * len(pieces) for _ in range(3))
        for one, [after] in zip(opened, continued, strict=True):
            new = (*one.begun, after)
            pieces[one.problem][one.chain] = new
            completions[one.problem][one.chain] = completion_in(policy, one.chain, new, self.sampling.tools)
            sampled[one.problem] += after.num_drawn
            read[one.problem] += len(one.request.token_ids) + after.num_put_in
            shown[one.problem] += 1
        groups = [
            Group(scored.group.prompt, tuple(own), self.draws.step, self.actors.engine.version)
            for scored, own in zip(before.groups, completions, strict=True)
        ]
        scored = score_groups(self.actors, groups, self.sampling, self.draws)
        return Link(scored, pieces, sampled, read, shown)


def check_phrases(problems: Sequence[Problem], phrases: Mapping[str, str]) -> None:
    """Every language that is asked has a phrase.

    Raises:
        ConfigError: names the language that has none.
    """
    if missing := sorted({problem.language for problem in problems} - set(phrases)):
        raise ConfigError(
            f"force has no phrase for problems in {missing[0]!r}: phrases are there for {', '.join(phrases)}"
        )

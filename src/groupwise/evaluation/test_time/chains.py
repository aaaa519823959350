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
from groupwise.rollout.engine import Request, Sampled
from groupwise.rollout.reflection import reflected
from groupwise.rollout.sample_and_score import Actors, sample_and_score, score_groups
from groupwise.rollout.sampling import SamplingConfig
from groupwise.types import Completion, FinishReason, Group, Problem, ScoredGroup


class Link(NamedTuple):
    """The attempts of one place in all chains."""

    groups: list[ScoredGroup]
    """Of each problem, the attempt of every chain."""
    read: list[int]
    """Tokens read before the attempts of each problem were sampled."""
    shown: list[int]
    """Attempts that each problem's chains were shown together, or reasonings that were opened again."""


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
        return Link(groups, [len(one.group.prompt.token_ids) for one in groups], [0] * len(groups))

    def revised(self, links: Sequence[Link], remembered: int) -> Link:
        """The next attempts, each after the last few of its chain."""
        problems, requests, read, shown = len(links[0].groups), list[Request](), list[int](), list[int]()
        for index in range(problems):
            before = len(requests)
            contexts = [self._context(links, index, chain, remembered) for chain in range(self.chains)]
            requests += [Request(ids, (self._key(links, index, chain),)) for chain, (ids, _) in enumerate(contexts)]
            read.append(sum(len(request.token_ids) for request in requests[before:]))
            shown.append(sum(number for _, number in contexts))
        found: dict[int, Sampled] = {}
        self.actors.engine.generate(requests, self.sampling, lambda at, sampled: found.update({at: sampled[0]}))
        groups = [
            self._group(links[0].groups[index].group, [found[index * self.chains + c] for c in range(self.chains)])
            for index in range(problems)
        ]
        return Link(score_groups(self.actors, groups, self.sampling, self.draws), read, shown)

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

    def _group(self, first: Group, sampled: Sequence[Sampled]) -> Group:
        policy = self.actors.policy
        texts = policy.tokenizer.batch_decode(
            [s.token_ids[: -1 if s.finish_reason is FinishReason.STOP else None].tolist() for s in sampled]
        )
        completions = tuple(
            Completion(i, s.token_ids, s.logprobs, s.entropy, s.finish_reason, text)
            for i, (s, text) in enumerate(zip(sampled, texts, strict=True))
        )
        return Group(first.prompt, completions, self.draws.step, self.actors.engine.version)

    def forced(self, links: Sequence[Link], phrases: Mapping[str, str]) -> Link:
        """The same completions with their reasoning opened again; one that has no end or no room stays as it is."""
        before = [one.group for one in links[-1].groups]
        draws = replace(self.draws, detail=f"force {len(links)}")
        policy, engine = self.actors.policy, self.actors.engine
        after = reflected(policy, engine, before, self.sampling, phrases, draws)
        pairs = [list(zip(a.completions, b.completions, strict=True)) for a, b in zip(before, after, strict=True)]
        opened = [[new for old, new in own if new is not old] for own in pairs]
        read = [
            sum(len(group.prompt.token_ids) + one.num_read - one.num_tokens for one in own)
            for group, own in zip(after, opened, strict=True)
        ]
        scored = score_groups(self.actors, after, self.sampling, self.draws)
        return Link(scored, read, [len(own) for own in opened])


def sampled_in(link: Link, before: Link | None) -> list[int]:
    """Tokens that each problem's chains sampled in a link; a completion that stayed as it was cost nothing again."""
    old = [one.group.completions for one in before.groups] if before else [()] * len(link.groups)
    return [
        sum(new.num_tokens for new in one.group.completions if not any(new is kept for kept in own))
        for one, own in zip(link.groups, old, strict=True)
    ]


def check_phrases(problems: Sequence[Problem], phrases: Mapping[str, str]) -> None:
    """Every language that is asked has a phrase.

    Raises:
        ConfigError: names the language that has none.
    """
    if missing := sorted({problem.language for problem in problems} - set(phrases)):
        raise ConfigError(
            f"force has no phrase for problems in {missing[0]!r}: phrases are there for {', '.join(phrases)}"
        )

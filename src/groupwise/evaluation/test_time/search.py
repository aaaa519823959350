"""Search over steps: completions grow step by step, and a process reward model chooses the ones that continue.

Beam search (Snell et al. 2024, arXiv:2408.03314, §5.2): N slots sample a step each; of those that are not finished the
best N / M are kept, each with M continuations; a finished one keeps its slot. So there are N ends, each of which is one
vote. DVTS (Beeching et al. 2024, "Scaling test-time compute with open models") is the same in N / M trees that do not
compete. Lookahead scores a slot after a few more greedy steps, whose text is discarded.

The first continuation keeps its parent's random numbers, so a beam with M = 1 is N independent samples.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from groupwise.algorithms.pools import best_of_k, weighted_vote
from groupwise.algorithms.step_metrics import aggregated
from groupwise.errors import DataError
from groupwise.evaluation.test_time.methods import BudgetConfig, Measured, Sizes, majority
from groupwise.evaluation.test_time.pool import Pool, Sample, Sampler, Scored, ScoredPool, Scorer, Told
from groupwise.models.policy import Policy
from groupwise.models.prompts import encode_prompt
from groupwise.randomness import Draws, key, uniforms
from groupwise.rollout.engine import Pause, Request, Sampled
from groupwise.rollout.pieces import completion_in, go_on, length, visible
from groupwise.rollout.sample_and_score import Actors, continuations, score_groups
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.tool_watch import ToolWatch
from groupwise.runs.row import rows_of
from groupwise.types import FinishReason, Group, Problem, Prompt, ScoredGroup, ToolCall
from groupwise.verifiers.steps import closed_steps, steps_after

MAX_ROUNDS = 40
"""Steps after which a search chooses no more (Snell et al.: 40)."""


@dataclass(frozen=True, slots=True)
class SearchConfig:
    """Parameters of a search."""

    slots: int
    width: int
    trees: int
    lookahead: int
    max_rounds: int
    aggregate: str


@dataclass(frozen=True, slots=True)
class Slot:
    """A partial completion."""

    path: str
    key: int
    pieces: tuple[Sampled, ...] = ()
    scored: Scored | None = None
    score: float = 0.0
    finish_reason: FinishReason | None = None
    problem: int = 0
    tree: int = 0

    @property
    def token_ids(self) -> list[int]:
        return [token for piece in self.pieces for token in piece.token_ids.tolist()]

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return self.pieces[-1].calls if self.pieces else ()


@dataclass(slots=True)
class Spent:
    """Tokens that a problem has cost."""

    policy_tokens: int = 0
    prompt_tokens: int = 0
    reward_tokens: int = 0

    def add(self, piece: Sampled) -> None:
        self.policy_tokens += piece.num_drawn
        self.prompt_tokens += piece.num_put_in


class Ends(NamedTuple):
    """The result of a search for one problem."""

    group: ScoredGroup
    scored: tuple[Scored, ...]
    spent: Spent


@dataclass(frozen=True, slots=True)
class Searcher:
    """The parts of a search."""

    actors: Actors
    sampling: SamplingConfig
    draws: Draws
    scorer: Scorer
    config: SearchConfig
    tools: ToolWatch | None = None

    def search(self, problems: Sequence[Problem]) -> list[Ends]:
        if not self.sampling.tools:
            return self._search(problems)
        with ToolWatch.of(self.actors.policy, self.sampling.tools) as tools:
            return replace(self, tools=tools)._search(problems)

    def _search(self, problems: Sequence[Problem]) -> list[Ends]:
        prompts = [encode_prompt(self.actors.policy, self.actors.template, problem) for problem in problems]
        spent, round_number = [Spent() for _ in problems], 0
        slots = [slot for index, problem in enumerate(problems) for slot in self._planted(index, problem)]
        while any(slot.finish_reason is None for slot in slots):
            slots = self._grown(slots, prompts, spent, None if round_number >= self.config.max_rounds else 1)
            slots = self._scored(slots, prompts, spent)
            round_number += 1
            slots = [
                slot
                for (problem_index, _), tree in groupby(slots, key=lambda slot: (slot.problem, slot.tree))
                for slot in self._branched(list(tree), problems[problem_index].id, round_number)
            ]
        policy, version, groups, scores = self.actors.policy, self.actors.engine.version, list[Group](), []
        for index, prompt in enumerate(prompts):
            ends = [slot for slot in slots if slot.problem == index]
            ends.sort(key=lambda slot: (int(slot.path.partition("/")[0]), slot.path))
            completions = tuple(
                completion_in(policy, place, slot.pieces, self.sampling.tools) for place, slot in enumerate(ends)
            )
            groups.append(Group(prompt, completions, self.draws.step, version))
            scores.append(tuple(slot.scored or Scored((), 0) for slot in ends))
        judged = score_groups(self.actors, groups, self.sampling, self.draws)
        return [Ends(*parts) for parts in zip(judged, scores, spent, strict=True)]

    def _planted(self, index: int, problem: Problem) -> list[Slot]:
        keys = self.draws.keys(problem.id, self.config.slots)
        trees = np.array_split(np.arange(self.config.slots), self.config.trees)
        return [
            Slot(str(number), keys[number], problem=index, tree=tree)
            for tree, places in enumerate(trees)
            for number in places.tolist()
        ]

    def _grown(
        self, slots: Sequence[Slot], prompts: Sequence[Prompt], spent: Sequence[Spent], steps: int | None
    ) -> list[Slot]:
        alike: dict[tuple[Any, ...], list[int]] = {}
        for place, slot in enumerate(slots):
            if slot.finish_reason is None:
                calls = tuple((call.tool, call.content, call.repeatable) for call in slot.calls)
                alike.setdefault((slot.problem, tuple(slot.token_ids), calls), []).append(place)
        requests = [
            self._request(prompts[problem], [slots[place] for place in places], steps)
            for (problem, *_), places in alike.items()
        ]
        sampled, grown = continuations(self.actors, requests, self.sampling, self.tools), list(slots)
        for places, request, pieces in zip(alike.values(), requests, sampled, strict=True):
            spent[slots[places[0]].problem].prompt_tokens += len(request.token_ids)
            for place, piece in zip(places, pieces, strict=True):
                slot = replace(slots[place], pieces=(*slots[place].pieces, piece), scored=None)
                spent[slot.problem].add(piece)
                room = self.actors.policy.context_length - len(prompts[slot.problem].token_ids) - len(slot.token_ids)
                room = min(room, self.sampling.max_tokens - length(slot.pieces))
                has_paused = piece.finish_reason is FinishReason.LENGTH and room > 0
                grown[place] = replace(slot, finish_reason=None if has_paused else piece.finish_reason)
        return grown

    def _request(self, prompt: Prompt, slots: Sequence[Slot], steps: int | None) -> Request:
        policy, slot, sampled = self.actors.policy, slots[0], slots[0].token_ids

        def num_closed(ids: Sequence[int]) -> int:
            return len(closed_steps(prompt.prefill, _text(policy, [*sampled, *ids]), self.scorer.step))

        goal = num_closed(()) + steps if steps else 0
        pause: Pause | None = (lambda ids: num_closed(ids) >= goal) if steps else None
        keys, most = tuple(slot.key for slot in slots), self.sampling.max_tokens
        request = go_on(prompt.token_ids, slot.pieces, keys, most, policy.context_length, pause)
        assert request is not None  # one without room has finished
        return request

    def _scored(self, slots: Sequence[Slot], prompts: Sequence[Prompt], spent: Sequence[Spent]) -> list[Slot]:
        new = [place for place, slot in enumerate(slots) if slot.scored is None]
        ahead = self._ahead([slots[place] for place in new], prompts, spent)
        told = [
            self._told(prompts[slots[place].problem], slots[place], more)
            for place, more in zip(new, ahead, strict=True)
        ]
        result = list(slots)
        for place, scored in zip(new, self.scorer.texts(told), strict=True):
            spent[slots[place].problem].reward_tokens += scored.tokens
            score = aggregated(scored.steps, self.config.aggregate)
            result[place] = replace(slots[place], scored=scored, score=score)
        return result

    def _told(self, prompt: Prompt, slot: Slot, more: Sequence[int]) -> Told:
        ids, name = [*slot.token_ids, *more], f"slot {slot.path} of {prompt.problem.id}"
        text, is_whole = _text(self.actors.policy, ids), ids[-1] in self.actors.policy.stop_ids
        if slot.finish_reason not in (None, FinishReason.STOP):
            return Told(prompt.text, (), name)
        cut = steps_after if is_whole else closed_steps
        return Told(prompt.text, tuple(cut(prompt.prefill, text, self.scorer.step)), name)

    def _ahead(self, slots: Sequence[Slot], prompts: Sequence[Prompt], spent: Sequence[Spent]) -> list[list[int]]:
        result: list[list[int]] = [[] for _ in slots]
        if not self.config.lookahead:
            return result
        unfinished = [place for place, slot in enumerate(slots) if slot.finish_reason is None]
        requests = [self._request(prompts[slots[p].problem], [slots[p]], self.config.lookahead) for p in unfinished]
        greedy = self.sampling.model_copy(update={"temperature": 0.0})
        sampled = continuations(self.actors, requests, greedy, self.tools)
        for place, request, [piece] in zip(unfinished, requests, sampled, strict=True):
            result[place] = piece.token_ids.tolist()
            spent[slots[place].problem].prompt_tokens += len(request.token_ids)
            spent[slots[place].problem].add(piece)
        return result

    def _branched(self, tree: Sequence[Slot], problem: str, round_number: int) -> list[Slot]:
        finished = [slot for slot in tree if slot.finish_reason is not None]
        going = [slot for slot in tree if slot.finish_reason is None]
        if not going or round_number > self.config.max_rounds:
            return list(tree)
        kept = max(1, len(going) // self.config.width)
        tie_key = key(self.draws.seed, "search ties", problem, going[0].path, round_number)
        lots = uniforms(tie_key, np.arange(len(going)))
        order = sorted(range(len(going)), key=lambda number: (-going[number].score, lots[number]))[:kept]
        branches = []
        for rank, number in enumerate(order):
            count = len(going) // kept + (rank < len(going) % kept)
            slot = going[number]
            branches.append(slot)
            for child in range(1, count):
                path = f"{slot.path}/{round_number}.{child}"
                branches.append(replace(slot, path=path, key=self.draws.key_after(f"search {path}", problem, child)))
        return [*finished, *branches]


def _text(policy: Policy, ids: Sequence[int]) -> str:
    text: str = policy.tokenizer.decode(visible(policy, list(ids)))
    return text


class Found(NamedTuple):
    """The judged ends of one problem's search."""

    pool: Pool
    scored: ScoredPool
    spent: Spent


def measure_search(
    method: str, sampler: Sampler, scorer: Scorer, problems: Sequence[Problem], config: BudgetConfig, sizes: Sizes
) -> Iterator[Measured]:
    """Measure the best end of a search by its score, the weighted vote of its ends, and their majority."""
    for slots in sorted(set(config.budgets)):
        trees = max(1, slots // config.width) if method == "dvts" else 1
        lookahead = config.lookahead if method == "lookahead" else 0
        found = find(
            sampler, scorer, problems, SearchConfig(slots, config.width, trees, lookahead, MAX_ROUNDS, config.aggregate)
        )
        sampled, read, rewarded = (
            np.array(column, float) for column in zip(*(astuple(f.spent) for f in found), strict=True)
        )
        cost = sizes.cost(np.array([f.pool.seconds for f in found]), sampled, read, rewarded)
        ends = [(f.pool, f.scored.joined(config.aggregate)) for f in found]
        accuracies = {
            "best": [best_of_k(scores, pool.right, len(scores)) for pool, scores in ends],
            "weighted": [weighted_vote(pool.answers, scores, pool.right, len(scores)).value for pool, scores in ends],
            "majority": [majority(pool, len(pool.samples)) for pool, _ in ends],
        }
        for name, accuracy in accuracies.items():
            yield Measured(f"{method}/{name}", slots, np.array(accuracy), cost)


def find(sampler: Sampler, scorer: Scorer, problems: Sequence[Problem], config: SearchConfig) -> list[Found]:
    """Search every problem; what is on disk is not searched again."""
    searcher = Searcher(sampler.actors, sampler.sampling, sampler.draws, scorer, config)
    identity, title = {**scorer.identity, **asdict(config)}, f"search with {config.slots} slots"
    store = sampler.store("search", config.slots, identity, title)

    def search(part: Sequence[Problem]) -> list[dict[str, Any]]:
        values = []
        for ends in searcher.search(part):
            rows = rows_of([ends.group])
            judged = [place for place, row in enumerate(rows) if row.outcome.judged]
            samples, scores = [Sample.of(rows[place]) for place in judged], [ends.scored[place] for place in judged]
            values.append({"samples": samples, "scores": scores, "spent": astuple(ends.spent)})
        return values

    found = []
    for problem, value, seconds in store.values(problems, search):
        if not value["samples"]:
            raise DataError(f"the verifier judged no end of the search for {problem.id}: see why with groupwise sample")
        pool = Pool(problem, "", 0, tuple(Sample(*fields) for fields in value["samples"]), seconds)
        scored = tuple(Scored(tuple(steps), tokens) for steps, tokens in value["scores"])
        found.append(Found(pool, ScoredPool(scored, 0.0), Spent(*value["spent"])))
    return found

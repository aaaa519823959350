"""Search over steps: completions grow step by step, and a process reward model says which of them go on.

Beam search (Snell et al. 2024, arXiv:2408.03314, §5.2): N slots sample a step each; of those that are not finished the
best N / M go on, each with M continuations; a finished one keeps its slot. So there are N ends, each of which is one
vote. DVTS (Beeching et al. 2024, "Scaling test-time compute with open models") is the same in N / M trees that do not
compete. Lookahead scores a slot after a few more greedy steps, whose text is thrown away.

The first continuation goes on with its parent's random numbers, so a beam with M = 1 is N independent samples.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from groupwise.algorithms.pools import best_of_k, weighted_vote
from groupwise.algorithms.step_metrics import aggregated
from groupwise.errors import DataError
from groupwise.evaluation.test_time.methods import Measured, Sizes, majority
from groupwise.evaluation.test_time.pool import Pool, Sample, Sampler
from groupwise.evaluation.test_time.scores import Scored, ScoredPool, Scorer, Told
from groupwise.evaluation.test_time.settings import BudgetConfig
from groupwise.models.policy import Policy
from groupwise.randomness import Draws, key, uniforms
from groupwise.rollout.engine import Pause, Request, Sampled
from groupwise.rollout.pieces import completion_in, go_on, length, visible
from groupwise.rollout.sample_and_score import Actors, continuations, encode_prompt, score_groups
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.tool_watch import ToolWatch
from groupwise.runs.row import rows_of
from groupwise.types import FinishReason, Group, Problem, Prompt, ScoredGroup, ToolCall
from groupwise.verifiers.steps import closed_steps, steps_after

MAX_ROUNDS = 40
"""Steps after which a search chooses no more (Snell et al.: 40)."""


@dataclass(frozen=True, slots=True)
class SearchConfig:
    """The dials of a search."""

    slots: int
    """N: completions at one time, and ends."""
    width: int
    """M: continuations of each slot that goes on; 1: nothing is chosen."""
    trees: int
    """Trees that do not compete: 1 for beam search, N / M for DVTS."""
    lookahead: int
    """Greedy steps that a slot's score looks ahead; 0: none."""
    max_rounds: int
    """Steps after which nothing is chosen any more: slots go on to their end."""
    aggregate: str
    """How the scores of steps are joined: `last`, `min`, `product` or `mean`."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A completion so far."""

    path: str
    """Where it comes from: its first slot, then every branch; its keys are made of it."""
    key: int
    pieces: tuple[Sampled, ...] = ()
    scored: Scored | None = None
    """What the reward model says of it; None where it has not been asked since the last piece."""
    score: float = 0.0
    finish_reason: FinishReason | None = None
    """Why it ended; None: it goes on."""

    @property
    def token_ids(self) -> list[int]:
        return [token for piece in self.pieces for token in piece.token_ids.tolist()]

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Of tools, so far."""
        return self.pieces[-1].calls if self.pieces else ()


@dataclass(slots=True)
class Spent:
    """Tokens that a problem has cost."""

    policy_tokens: int = 0
    """Sampled."""
    prompt_tokens: int = 0
    """Read before something was sampled, text that the search has found included, and results of tools."""
    reward_tokens: int = 0

    def add(self, piece: Sampled) -> None:
        """Count what was sampled, and what tools inserted."""
        self.policy_tokens += piece.num_drawn
        self.prompt_tokens += piece.num_put_in


class Ends(NamedTuple):
    """What a search found for one problem."""

    group: ScoredGroup
    scored: tuple[Scored, ...]
    """Of each completion; without steps where it was cut off."""
    spent: Spent


class _Tree(NamedTuple):
    problem: int
    slots: list[Slot]


@dataclass(frozen=True, slots=True)
class Searcher:
    """What a search needs."""

    actors: Actors
    sampling: SamplingConfig
    draws: Draws
    scorer: Scorer
    config: SearchConfig
    tools: ToolWatch | None = None
    """Open through all rounds of a search; a sandbox takes its time to start."""

    def search(self, problems: Sequence[Problem]) -> list[Ends]:
        """Search an answer to each problem; problems do not influence each other.

        Raises:
            DataError: the reward model cannot read a step.
            ModelError: it gives a score that is not a number.
        """
        if not self.sampling.tools:
            return self._search(problems)
        with ToolWatch.of(self.actors.policy, self.sampling.tools) as tools:
            return replace(self, tools=tools)._search(problems)

    def _search(self, problems: Sequence[Problem]) -> list[Ends]:
        prompts = [encode_prompt(self.actors.policy, self.actors.template, problem) for problem in problems]
        spent = [Spent() for _ in problems]
        trees = [tree for index, problem in enumerate(problems) for tree in self._planted(index, problem)]
        round_number = 0
        while any(slot.finish_reason is None for tree in trees for slot in tree.slots):
            is_free = round_number >= self.config.max_rounds
            grown = self._grown(trees, prompts, spent, pauses=not is_free)
            scored = self._scored(grown, prompts, spent)
            round_number += 1
            trees = [self._branched(tree, problems[tree.problem].id, round_number) for tree in scored]
        return self._ends(trees, prompts, spent)

    def _planted(self, index: int, problem: Problem) -> list[_Tree]:
        """Empty slots in trees of nearly equal size, with the keys of independent samples."""
        keys = self.draws.keys(problem.id, self.config.slots)
        places = np.array_split(np.arange(self.config.slots), self.config.trees)
        return [_Tree(index, [Slot(str(number), keys[number]) for number in part.tolist()]) for part in places]

    def _grown(
        self, trees: Sequence[_Tree], prompts: Sequence[Prompt], spent: Sequence[Spent], pauses: bool
    ) -> list[_Tree]:
        """Every slot that goes on has one more step; slots with the same text so far share their prefill."""
        places: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
        for number, tree in enumerate(trees):
            for position, slot in enumerate(tree.slots):
                if slot.finish_reason is None:
                    said = tuple((call.tool, call.content, call.repeatable) for call in slot.calls)
                    alike = tree.problem, tuple(slot.token_ids), said
                    places.setdefault(alike, []).append((number, position))
        requests = []
        for (problem, *_), at in places.items():
            slots = [trees[number].slots[position] for number, position in at]
            requests.append(self._request(prompts[problem], slots, 1 if pauses else None))
        found = continuations(self.actors, requests, self.sampling, self.tools)
        result = [_Tree(tree.problem, list(tree.slots)) for tree in trees]
        for (problem, *_), request, at, sampled in zip(places, requests, places.values(), found, strict=True):
            spent[problem].prompt_tokens += len(request.token_ids)
            for (number, position), piece in zip(at, sampled, strict=True):
                spent[problem].add(piece)
                slot = trees[number].slots[position]
                grown = replace(slot, pieces=(*slot.pieces, piece), scored=None)
                reason = self._reason(grown, prompts[problem])
                result[number].slots[position] = replace(grown, finish_reason=reason)
        return result

    def _request(self, prompt: Prompt, slots: Sequence[Slot], steps: int | None) -> Request:
        """For what follows the text that these slots have, up to so many more steps; None: to the end."""
        policy, slot = self.actors.policy, slots[0]
        pause = _pause(policy, prompt.prefill, slot.token_ids, self.scorer.step, steps) if steps else None
        keys, most = tuple(slot.key for slot in slots), self.sampling.max_tokens
        request = go_on(prompt.token_ids, slot.pieces, keys, most, policy.context_length, pause)
        assert request is not None  # one without room has finished
        return request

    def _reason(self, slot: Slot, prompt: Prompt) -> FinishReason | None:
        """Why a slot ends; None where it paused, and has room."""
        reason, left = slot.pieces[-1].finish_reason, self.sampling.max_tokens - length(slot.pieces)
        left = min(left, self.actors.policy.context_length - len(prompt.token_ids) - len(slot.token_ids))
        return None if reason is FinishReason.LENGTH and left > 0 else reason

    def _scored(self, trees: Sequence[_Tree], prompts: Sequence[Prompt], spent: Sequence[Spent]) -> list[_Tree]:
        """Every slot with a score of its steps; one that was cut off within a step has none."""
        new = [
            (number, at)
            for number, tree in enumerate(trees)
            for at, slot in enumerate(tree.slots)
            if slot.scored is None
        ]
        ahead = self._ahead([(trees[number].problem, trees[number].slots[at]) for number, at in new], prompts, spent)
        told = [
            self._told(prompts[trees[number].problem], trees[number].slots[at], more)
            for (number, at), more in zip(new, ahead, strict=True)
        ]
        result = [_Tree(tree.problem, list(tree.slots)) for tree in trees]
        for (number, at), scored in zip(new, self.scorer.texts(told), strict=True):
            spent[trees[number].problem].reward_tokens += scored.tokens
            slot, score = trees[number].slots[at], aggregated(scored.steps, self.config.aggregate)
            result[number].slots[at] = replace(slot, scored=scored, score=score)
        return result

    def _told(self, prompt: Prompt, slot: Slot, more: Sequence[int]) -> Told:
        ids, name = [*slot.token_ids, *more], f"slot {slot.path} of {prompt.problem.id}"
        text, is_whole = _text(self.actors.policy, ids), ids[-1] in self.actors.policy.stop_ids
        if slot.finish_reason not in (None, FinishReason.STOP):
            return Told(prompt.text, (), name)
        cut = steps_after if is_whole else closed_steps
        return Told(prompt.text, tuple(cut(prompt.prefill, text, self.scorer.step)), name)

    def _ahead(
        self, slots: Sequence[tuple[int, Slot]], prompts: Sequence[Prompt], spent: Sequence[Spent]
    ) -> list[list[int]]:
        """Of each slot, the tokens of the next few steps by greedy decoding; none where it is finished."""
        result: list[list[int]] = [[] for _ in slots]
        if not self.config.lookahead:
            return result
        open_ones = [number for number, (_, slot) in enumerate(slots) if slot.finish_reason is None]
        requests = [self._request(prompts[slots[n][0]], [slots[n][1]], self.config.lookahead) for n in open_ones]
        greedy = self.sampling.model_copy(update={"temperature": 0.0})
        sampled = continuations(self.actors, requests, greedy, self.tools)
        for number, request, [piece] in zip(open_ones, requests, sampled, strict=True):
            result[number] = piece.token_ids.tolist()
            spent[slots[number][0]].prompt_tokens += len(request.token_ids)
            spent[slots[number][0]].add(piece)
        return result

    def _branched(self, tree: _Tree, problem: str, round_number: int) -> _Tree:
        """The finished slots, and in all others continuations of the best of them; ties are drawn."""
        finished = [slot for slot in tree.slots if slot.finish_reason is not None]
        going = [slot for slot in tree.slots if slot.finish_reason is None]
        if not going or round_number > self.config.max_rounds:
            return tree
        kept = max(1, len(going) // self.config.width)
        lots = uniforms(
            key(self.draws.seed, "search ties", problem, going[0].path, round_number), np.arange(len(going))
        )
        order = sorted(range(len(going)), key=lambda number: (-going[number].score, lots[number]))[:kept]
        branches = []
        for rank, number in enumerate(order):
            count = len(going) // kept + (rank < len(going) % kept)
            branches += [self._branch(going[number], problem, round_number, child) for child in range(count)]
        return _Tree(tree.problem, [*finished, *branches])

    def _branch(self, slot: Slot, problem: str, round_number: int, child: int) -> Slot:
        if not child:
            return slot
        path = f"{slot.path}/{round_number}.{child}"
        return replace(slot, path=path, key=self.draws.key_after(f"search {path}", problem, child))

    def _ends(self, trees: Sequence[_Tree], prompts: Sequence[Prompt], spent: Sequence[Spent]) -> list[Ends]:
        slots: dict[int, list[Slot]] = {index: [] for index in range(len(prompts))}
        for tree in trees:
            slots[tree.problem] += tree.slots
        for of_one in slots.values():
            of_one.sort(key=lambda slot: (int(slot.path.partition("/")[0]), slot.path))
        groups = [self._group(prompt, slots[index]) for index, prompt in enumerate(prompts)]
        judged = score_groups(self.actors, groups, self.sampling, self.draws)
        scored = [tuple(slot.scored or Scored((), 0) for slot in slots[index]) for index in range(len(prompts))]
        return [Ends(*one) for one in zip(judged, scored, spent, strict=True)]

    def _group(self, prompt: Prompt, slots: Sequence[Slot]) -> Group:
        policy, tools = self.actors.policy, self.sampling.tools
        completions = tuple(completion_in(policy, index, slot.pieces, tools) for index, slot in enumerate(slots))
        return Group(prompt, completions, self.draws.step, self.actors.engine.version)


def _pause(policy: Policy, prefill: str, begun: Sequence[int], step: str, steps: int) -> Pause:
    """Stop where so many more steps are closed."""
    goal = len(closed_steps(prefill, _text(policy, begun), step)) + steps
    return lambda ids: len(closed_steps(prefill, _text(policy, [*begun, *ids]), step)) >= goal


def _text(policy: Policy, ids: Sequence[int]) -> str:
    text: str = policy.tokenizer.decode(visible(policy, list(ids)))
    return text


class Found(NamedTuple):
    """The judged ends of one problem's search."""

    pool: Pool
    scored: ScoredPool
    spent: Spent


def search_config(method: str, slots: int, config: BudgetConfig) -> SearchConfig:
    """Return the search that a method's name stands for."""
    trees = max(1, slots // config.width) if method == "dvts" else 1
    lookahead = config.lookahead if method == "lookahead" else 0
    return SearchConfig(slots, config.width, trees, lookahead, MAX_ROUNDS, config.aggregate)


def measure_search(
    method: str, sampler: Sampler, scorer: Scorer, problems: Sequence[Problem], config: BudgetConfig, sizes: Sizes
) -> Iterator[Measured]:
    """Measure the best end of a search by its score, the weighted vote of its ends, and their majority."""
    for slots in sorted(set(config.budgets)):
        found = find(sampler, scorer, problems, search_config(method, slots, config))
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
    """Search every problem; what is on disk is not searched again.

    Raises:
        DataError: the verifier judged no end for a problem.
    """
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

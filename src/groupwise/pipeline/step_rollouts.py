"""Steps' worth by going on from their ends: rollouts from prefixes, a search for the first mistake, a group by itself.

Every prefix that several completions share is rolled out once. What was rolled out is kept part by part, so that a kill
loses one part, and a repeat makes the same bytes.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from groupwise.evaluation.row import Row
from groupwise.models.policy import Policy
from groupwise.pipeline.collect import PROBLEMS_PER_PART
from groupwise.randomness import Draws
from groupwise.rollout.engine import Request, Sampled
from groupwise.rollout.pieces import own_text, phrase
from groupwise.rollout.sample_and_score import Actors
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.tool_rounds import generate_with_tools
from groupwise.rollout.tools import Result, Tool, ToolConfig, ToolSections, make_tools, results_in
from groupwise.rollout.tools.spans import BrokenCallError, Span
from groupwise.runs.atomic import write_file
from groupwise.tasks.base import Template
from groupwise.types import CallOutcome, FinishReason, Outcome, Problem, ToolCall, Verdict, calls_that_ran
from groupwise.verifiers import Request as Judged
from groupwise.verifiers.score import by_calls
from groupwise.verifiers.steps import step_ends


class Cut(NamedTuple):
    """A completion in steps."""

    row: Row
    ends: tuple[int, ...]
    """Where its steps end in its own text, in characters; the last is its length."""
    results: tuple[Span, ...] = ()
    """What tools put into its text, in characters."""

    @property
    def steps(self) -> tuple[str, ...]:
        return tuple(self.row.text[a:b] for a, b in zip((0, *self.ends), self.ends, strict=False))

    @property
    def prefixes(self) -> list[str]:
        """The text up to the end of every step but the last, whose worth is the completion's own.

        A step that ends with a call, or within its result, is gone on from behind the result, which nobody else writes.
        """
        behind = [next((b for a, b in self.results if a <= end < b), end) for end in self.ends[:-1]]
        return [self.row.prefill + self.row.text[:end] for end in behind]


class Rolled(NamedTuple):
    """Rollouts from a prefix."""

    successes: int
    judged: int
    """Rollouts that the verifier judged; those it failed on are no part of the share."""
    tokens: int


@dataclass(frozen=True, slots=True)
class Completer:
    """What goes on from prefixes."""

    actors: Actors
    sampling: SamplingConfig
    draws: Draws
    rollouts: int

    def roll(self, prefixes: Sequence[tuple[Problem, str]]) -> list[Rolled]:
        """Go on from every prefix of a problem's answer (prefill included), and judge."""
        policy, tools, results = self.actors.policy, make_tools(self.sampling.tools), dict[int, list[Sampled]]()
        template = self.actors.template
        begun = [_begun(template.prefill, prefix, tools) for _, prefix in prefixes]
        requests = [
            _request(policy, template, problem, one, self._keys(problem, prefix))
            for (problem, prefix), one in zip(prefixes, begun, strict=True)
        ]
        generate_with_tools(self.actors.engine, policy, requests, self.sampling, results.__setitem__)
        judged = [
            self._judged(problem, begun[index], one, text)
            for index, (problem, _) in enumerate(prefixes)
            for one, text in zip(results[index], _texts(policy, results[index]), strict=True)
        ]
        verdicts = iter(self.actors.verifier.verify_many(judged))
        return [
            self._counted(own, [by_calls(one.finish_reason, one.calls, next(verdicts)) for one in own])
            for own in (results[index] for index in range(len(prefixes)))
        ]

    def _judged(self, problem: Problem, begun: "_Begun", one: Sampled, text: str) -> Judged:
        before = phrase((), begun.calls)  # the calls of `one` that are not its own
        own = own_text(self.actors.policy, [before, one], self.sampling.tools)
        prefix, own_prefix = begun.prefill + begun.text, begun.prefill + begun.own(self.sampling.tools)
        return Judged(
            problem,
            prefix + text,
            truncated=one.finish_reason is FinishReason.LENGTH,
            prefill=prefix,
            num_calls=calls_that_ran(one.calls),
            own=None if own is None and own_prefix == prefix else own_prefix + (text if own is None else own),
        )

    def _keys(self, problem: Problem, prefix: str) -> tuple[int, ...]:
        return self.draws.keys(f"{problem.id} {sha256(prefix.encode()).hexdigest()}", self.rollouts)

    def _counted(self, sampled: Sequence[Sampled], verdicts: Sequence[Verdict]) -> Rolled:
        judged = [verdict.outcome for verdict in verdicts if verdict.outcome.judged]
        return Rolled(judged.count(Outcome.CORRECT), len(judged), sum(one.num_drawn for one in sampled))


class _Begun(NamedTuple):
    """The beginning of an answer, as its tools see it."""

    prefill: str
    text: str
    """What follows the prefill: no tool looks into a prompt."""
    results: tuple[Result, ...]

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(ToolCall(one.seen.tool, one.seen.call.content, CallOutcome.DONE) for one in self.results)

    @property
    def parts(self) -> list[str]:
        """What the policy wrote and what was put in, in turns; the last was written since the last result."""
        edges = [0, *(edge for one in self.results for edge in one.span), len(self.text)]
        return [self.text[a:b] for a, b in pairwise(edges)]

    def own(self, tools: ToolSections) -> str:
        """The text without what tools said that may not answer."""
        kept = [True, *(keeps for one in self.results for keeps in (tools[one.seen.tool].may_answer, True))]
        return "".join(part if keeps else " " for part, keeps in zip(self.parts, kept, strict=True))


def _begun(prefill: str, prefix: str, tools: Mapping[str, Tool]) -> _Begun:
    text = prefix.removeprefix(prefill)
    return _Begun(prefill, text, tuple(_results(text, tools)))


def _results(text: str, tools: Mapping[str, Tool]) -> Iterator[Result]:
    """Results up to a call that breaks the rules, if there is one: it ended the completion."""
    with suppress(BrokenCallError):
        yield from results_in(text, tools)


def cut_rows(rows: Sequence[Row], step: str, sections: Mapping[str, ToolConfig]) -> tuple[list[Cut], Counter[str]]:
    """Completions in steps; what was not judged, is empty, or was cut off within a step is counted and left out."""
    cut, dropped, tools = list[Cut](), Counter[str](), make_tools(sections)
    for row in rows:
        if not row.outcome.judged:
            dropped["not judged"] += 1
        elif row.finish_reason is FinishReason.LENGTH:
            dropped["cut off"] += 1
        elif not row.text:
            dropped["empty"] += 1
        else:
            results = tuple(result.span for result in _results(row.text, tools))
            cut.append(Cut(row, tuple(_ends(row, step)), results))
    return cut, dropped


def _ends(row: Row, step: str) -> Iterator[int]:
    """Ends in the completion; a step that ends within the prefill belongs to the prompt."""
    offset = len(row.prefill)
    return (end - offset for end in step_ends(row.prefill + row.text, step) if end > offset)


def _request(policy: Policy, template: Template, problem: Problem, begun: _Begun, keys: tuple[int, ...]) -> Request:
    """For what follows the prompt and a prefix; prefill and results are ids of their own, as they were in sampling."""
    tokenizer = policy.tokenizer
    parts = [tokenizer(part, add_special_tokens=False)["input_ids"] for part in (begun.prefill, *begun.parts)]
    ids = [*tokenizer(template.render(problem))["input_ids"], *(token for part in parts for token in part)]
    return Request(tuple(ids), keys, calls=begun.calls, since_result=len(parts[-1]))


def _texts(policy: Policy, sampled: Sequence[Sampled]) -> list[str]:
    ids = [one.token_ids.tolist() for one in sampled]
    texts: list[str] = policy.tokenizer.batch_decode([one[:-1] if one[-1] in policy.stop_ids else one for one in ids])
    return texts


Prefix = tuple[str, str]
"""A problem's id, and the beginning of an answer to it, prefill included."""


@dataclass(slots=True)
class Rollouts:
    """What is known of prefixes so far; each is rolled out once."""

    completer: Completer
    problems: Mapping[str, Problem]
    folder: Path
    progress: Callable[[str, int, int], None]
    found: dict[Prefix, Rolled]

    def ask(self, prefixes: Sequence[Prefix], name: str) -> None:
        """Roll out from those that are not known; parts that are in the folder under this name are read."""
        new = [one for one in dict.fromkeys(prefixes) if one not in self.found]
        for start in range(0, len(new), PROBLEMS_PER_PART):
            self.progress("prefixes rolled out", start, len(new))
            part = new[start : start + PROBLEMS_PER_PART]
            file = self.folder / f"{name}-{start:06d}.json"
            if not file.exists():
                rolled = self.completer.roll([(self.problems[problem], prefix) for problem, prefix in part])
                write_file(file, json.dumps(rolled).encode())
            self.found |= zip(part, (Rolled(*one) for one in json.loads(file.read_text("utf-8"))), strict=True)

    @property
    def tokens(self) -> int:
        """Tokens of all rollouts."""
        return sum(rolled.tokens for rolled in self.found.values())


def every_prefix(cut: Sequence[Cut], rollouts: Rollouts) -> list[list[Rolled | None]]:
    """Rollouts from the end of every step but the last: Math-Shepherd."""
    rollouts.ask([(one.row.problem, prefix) for one in cut for prefix in one.prefixes], "rollouts")
    return [[rollouts.found[one.row.problem, prefix] for prefix in one.prefixes] for one in cut]


def searched(cut: Sequence[Cut], rollouts: Rollouts, min_success: int) -> list[list[Rolled | None]]:
    """Rollouts from prefixes among which the first hopeless one is found by halving: OmegaPRM (arXiv:2406.06592).

    Only completions with a wrong answer are searched; all of them halve at the same time, so that a round is one batch.
    """
    bounds = {i: (0, len(one.ends)) for i, one in enumerate(cut) if one.row.outcome is not Outcome.CORRECT}
    asked: list[dict[int, Rolled]] = [{} for _ in cut]
    for number in range(max((len(one.ends) for one in cut), default=0)):
        middles = {i: (low + high) // 2 for i, (low, high) in bounds.items() if high - low > 1}
        if not middles:
            break
        prefixes = {i: (cut[i].row.problem, cut[i].prefixes[middle - 1]) for i, middle in middles.items()}
        rollouts.ask(list(prefixes.values()), f"search-{number:02d}")
        for i, middle in middles.items():
            rolled = asked[i][middle - 1] = rollouts.found[prefixes[i]]
            low, high = bounds[i]
            bounds[i] = (middle, high) if rolled.successes >= min_success else (low, middle)
            if not rolled.judged:
                del bounds[i]  # nobody can say on which side the mistake is
    return [[asked[i].get(step) for step in range(len(one.ends) - 1)] for i, one in enumerate(cut)]


def shared(cut: Sequence[Cut], rows: Sequence[Row]) -> list[list[Rolled | None]]:
    """A group labels itself (arXiv:2509.21154): the completions that begin with a prefix are rollouts from its end.

    Its own completion is one of them; where no other shares it, the prefix has none.
    """
    by_problem: dict[str, list[Row]] = {}
    for row in rows:
        if row.outcome.judged:
            by_problem.setdefault(row.problem, []).append(row)

    def rolled(problem: str, prefix: str) -> Rolled | None:
        sharing = [row for row in by_problem[problem] if (row.prefill + row.text).startswith(prefix)]
        if len(sharing) < 2:
            return None
        return Rolled(sum(row.outcome is Outcome.CORRECT for row in sharing), len(sharing), 0)

    return [[rolled(one.row.problem, prefix) for prefix in one.prefixes] for one in cut]


def by_search(rolled: Sequence[Rolled | None], right: bool, min_success: int) -> list[float | None]:
    """Labels of all steps: 1 up to the last prefix from which something succeeded, 0 from the first hopeless one on.

    Where the answer is right nothing was searched, and every step counts as right. Where the verifier judged none of a
    prefix's rollouts, nothing is known behind the last success.
    """
    if right:
        return [1.0] * (len(rolled) + 1)
    hopeful = [i for i, one in enumerate(rolled) if one is not None and one.successes >= min_success]
    is_open = any(one is not None and not one.judged for one in rolled)
    wrong_from = max(hopeful, default=-1) + 1
    return [1.0] * wrong_from + [None if is_open else 0.0] * (len(rolled) + 1 - wrong_from)

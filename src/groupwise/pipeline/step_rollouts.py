"""Values of steps from rollouts: of every prefix, of a search for the first mistake, of a group's own completions.

A prefix that several completions share is rolled out once. Rollouts are stored part by part, so that a kill loses one
part, and a repeat makes the same bytes.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from groupwise.models.prompts import encode_prompt
from groupwise.pipeline.collect import PROBLEMS_PER_PART
from groupwise.randomness import Draws
from groupwise.rollout.pieces import phrase
from groupwise.rollout.sample_and_score import Actors, Prefix, continue_and_score
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.tools import Result, Tool, ToolConfig, make_tools, results_in
from groupwise.rollout.tools.base import BrokenCallError, Span
from groupwise.runs.atomic import write_file
from groupwise.runs.progress import say
from groupwise.runs.row import Row, grouped
from groupwise.types import CallOutcome, FinishReason, Outcome, Problem, ToolCall
from groupwise.verifiers.steps import step_ends


class Cut(NamedTuple):
    """A completion in steps."""

    row: Row
    ends: tuple[int, ...]
    results: tuple[Span, ...] = ()

    @property
    def steps(self) -> tuple[str, ...]:
        return tuple(self.row.text[a:b] for a, b in zip((0, *self.ends), self.ends, strict=False))

    @property
    def prefixes(self) -> list[str]:
        """The text up to the end of every step but the last, whose value is the completion's outcome.

        A step that ends with a call, or within its result, is continued after the result, which no policy writes.
        """
        behind = [next((b for a, b in self.results if a <= end < b), end) for end in self.ends[:-1]]
        return [self.row.prefill + self.row.text[:end] for end in behind]


class Rolled(NamedTuple):
    """Rollouts from a prefix."""

    successes: int
    judged: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Completer:
    """Continues prefixes."""

    actors: Actors
    sampling: SamplingConfig
    draws: Draws
    rollouts: int

    def roll(self, prefixes: Sequence[tuple[Problem, str]]) -> list[Rolled]:
        tools = make_tools(self.sampling.tools)
        started = [self._prefix(problem, text, tools) for problem, text in prefixes]
        groups = continue_and_score(self.actors, started, self.sampling, self.draws)
        rolled = []
        for scored, prefix in zip(groups, started, strict=True):
            judged = [verdict.outcome for verdict in scored.verdicts if verdict.outcome.judged]
            before = sum(piece.num_drawn for piece in prefix.pieces)
            tokens = sum(completion.num_tokens - before for completion in scored.group.completions)
            rolled.append(Rolled(judged.count(Outcome.CORRECT), len(judged), tokens))
        return rolled

    def _prefix(self, problem: Problem, text: str, tools: Mapping[str, Tool]) -> Prefix:
        policy = self.actors.policy
        prompt = encode_prompt(policy, self.actors.template, problem)
        written = text.removeprefix(prompt.prefill)  # no tool looks into a prompt
        results = list(_results(written, tools))
        edges = [0, *(edge for result in results for edge in result.span), len(written)]
        parts = [policy.tokenizer(written[a:b], add_special_tokens=False)["input_ids"] for a, b in pairwise(edges)]
        sampled = np.repeat([i % 2 == 0 for i in range(len(parts))], [len(part) for part in parts])
        calls = tuple(ToolCall(result.seen.tool, result.seen.call.content, CallOutcome.DONE) for result in results)
        piece = replace(phrase([token for part in parts for token in part], calls), sampled=sampled)
        keys = self.draws.keys(f"{problem.id} {sha256(text.encode()).hexdigest()}", self.rollouts)
        return Prefix(prompt, (piece,), keys)


def _results(text: str, tools: Mapping[str, Tool]) -> Iterator[Result]:
    """Yield the results up to a call that breaks the rules: it ended the completion."""
    with suppress(BrokenCallError):
        yield from results_in(text, tools)


def cut_rows(rows: Sequence[Row], step: str, sections: Mapping[str, ToolConfig]) -> tuple[list[Cut], Counter[str]]:
    """Cut completions into steps; those that were not judged, are empty, or were cut off are counted and left out."""
    cut, dropped, tools = list[Cut](), Counter[str](), make_tools(sections)
    for row in rows:
        if not row.outcome.judged:
            dropped["not judged"] += 1
        elif row.finish_reason is FinishReason.LENGTH:
            dropped["cut off"] += 1
        elif not row.text:
            dropped["empty"] += 1
        else:
            results, offset = tuple(result.span for result in _results(row.text, tools)), len(row.prefill)
            # a step that ends within the prefill belongs to the prompt
            ends = tuple(end - offset for end in step_ends(row.prefill + row.text, step) if end > offset)
            cut.append(Cut(row, ends, results))
    return cut, dropped


@dataclass(slots=True)
class Rollouts:
    """Rollouts from prefixes; each prefix is rolled out once."""

    completer: Completer
    problems: Mapping[str, Problem]
    folder: Path
    found: dict[tuple[str, str], Rolled]

    def ask(self, prefixes: Sequence[tuple[str, str]], name: str) -> None:
        """Roll out from unknown prefixes; parts that are in the folder under this name are read."""
        new = [prefix for prefix in dict.fromkeys(prefixes) if prefix not in self.found]
        for start in range(0, len(new), PROBLEMS_PER_PART):
            say("prefixes rolled out", start, len(new))
            part = new[start : start + PROBLEMS_PER_PART]
            file = self.folder / f"{name}-{start:06d}.json"
            if not file.exists():
                rolled = self.completer.roll([(self.problems[problem], prefix) for problem, prefix in part])
                write_file(file, json.dumps(rolled).encode())
            self.found |= zip(part, (Rolled(*rolled) for rolled in json.loads(file.read_text("utf-8"))), strict=True)
        say("prefixes rolled out", 1, 1)

    @property
    def tokens(self) -> int:
        return sum(rolled.tokens for rolled in self.found.values())


def searched(cut: Sequence[Cut], rollouts: Rollouts) -> list[list[Rolled | None]]:
    """Find the first hopeless prefix by binary search: OmegaPRM (arXiv:2406.06592).

    Only completions with a wrong answer are searched, all of them at the same time, so that a round is one batch.
    """
    bounds = {i: (0, len(each.ends)) for i, each in enumerate(cut) if each.row.outcome is not Outcome.CORRECT}
    asked: list[dict[int, Rolled]] = [{} for _ in cut]
    for number in range(max((len(each.ends) for each in cut), default=0)):
        middles = {i: (low + high) // 2 for i, (low, high) in bounds.items() if high - low > 1}
        if not middles:
            break
        prefixes = {i: (cut[i].row.problem, cut[i].prefixes[middle - 1]) for i, middle in middles.items()}
        rollouts.ask(list(prefixes.values()), f"search-{number:02d}")
        for i, middle in middles.items():
            rolled = asked[i][middle - 1] = rollouts.found[prefixes[i]]
            low, high = bounds[i]
            bounds[i] = (middle, high) if rolled.successes else (low, middle)
            if not rolled.judged:
                del bounds[i]  # the side of the mistake is unknown
    return [[asked[i].get(step) for step in range(len(each.ends) - 1)] for i, each in enumerate(cut)]


def shared(cut: Sequence[Cut], rows: Sequence[Row]) -> list[list[Rolled | None]]:
    """Take a group's completions that start with a prefix as rollouts from it (arXiv:2509.21154)."""
    by_problem = grouped((row for row in rows if row.outcome.judged), lambda row: row.problem)

    def rolled(problem: str, prefix: str) -> Rolled | None:
        sharing = [row for row in by_problem[problem] if (row.prefill + row.text).startswith(prefix)]
        if len(sharing) < 2:
            return None
        return Rolled(sum(row.outcome is Outcome.CORRECT for row in sharing), len(sharing), 0)

    return [[rolled(each.row.problem, prefix) for prefix in each.prefixes] for each in cut]


def by_search(rolled: Sequence[Rolled | None], right: bool) -> list[float | None]:
    """Label all steps: 1 up to the last prefix from which a rollout succeeded, 0 from the first hopeless one on.

    Where the answer is right nothing was searched, and every step counts as right. Where the verifier judged none of a
    prefix's rollouts, the labels after the last success are None.
    """
    if right:
        return [1.0] * (len(rolled) + 1)
    hopeful = [i for i, each in enumerate(rolled) if each is not None and each.successes]
    is_open = any(each is not None and not each.judged for each in rolled)
    wrong_from = max(hopeful, default=-1) + 1
    return [1.0] * wrong_from + [None if is_open else 0.0] * (len(rolled) + 1 - wrong_from)

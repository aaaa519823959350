"""Recall in a directory: each piece of work leaves one file, and what is there is not done again.

pages.jsonl         every page as text, with what is known of it; copies are among them
dropped.jsonl       what became no page, and why; at the end near copies, too, and pages that removals leave too short
copies.json         number of every copy -> number of the page that it copies
round-N.json        what a round kept, the domains it pointed to, the answers, and what the seed grew by
removed.jsonl       paragraphs that a benchmark holds too
corpus.jsonl        the corpus: url, text, page (its number in pages.jsonl, from 0)
recall.json         figures, in the order of the work

Killed at any moment, the same call goes on and ends with the same bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from groupwise.recall import measure
from groupwise.recall.config import RecallConfig
from groupwise.recall.contamination import Index, Match, Rule
from groupwise.recall.lines import as_json, write_lines
from groupwise.recall.page import Page
from groupwise.recall.prepared import EVERY, Prepared, Progress
from groupwise.recall.rounds import Round, Rounds
from groupwise.runs.atomic import write_file
from groupwise.runs.jsonl import read_jsonl
from groupwise.tasks import make_task
from groupwise.types import Problem


@dataclass(frozen=True)
class Recall:
    """The whole work in a directory; `run` does what is not done yet."""

    config: RecallConfig
    directory: Path
    progress: Progress = field(default=lambda what, done, total: None)

    def run(self) -> dict[str, Any]:
        """Do what is left, and return the figures of `recall.json`.

        Raises:
            WaitingError: people have to answer first.
            ConfigError, DataError: a source cannot be read.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        rounds = Rounds(self.prepared).all()
        self._corpus(rounds[-1])
        facts = self._facts(rounds)
        write_file(self.directory / "recall.json", as_json(facts))
        return facts

    @cached_property
    def prepared(self) -> Prepared:
        """What the rounds work on."""
        return Prepared(self.config, self.directory, self.progress)

    def _corpus(self, last: Round) -> None:
        """Decontaminate what the last round kept, and write it."""
        path, how = self.directory / "corpus.jsonl", self.config.decontaminate
        if path.exists():
            return
        index = Index(self.items, Rule(how.ngram, how.min_ngram, how.expressions, how.numbers))
        rows, removed, short = list[dict[str, Any]](), list[dict[str, Any]](), list[int]()
        for done, number in enumerate(sorted(last.kept)):
            page = self.prepared.pages[number]
            matches = index.matches(page.paragraphs)
            removed += [_removal(page, match) for match in matches]
            bad = {match.segment for match in matches}
            text = "\n".join(part for place, part in enumerate(page.paragraphs) if place not in bad)
            if len(text) >= self.config.extract.min_characters:
                rows.append({"url": page.url, "text": text, "page": number})
            else:
                short.append(number)
            if done % EVERY == 0:
                self.prepared.progress("decontamination", done, len(last.kept))
        self.prepared.progress("decontamination", len(last.kept), len(last.kept))
        write_lines(self.directory / "removed.jsonl", removed)
        self._drop(short)
        write_lines(path, rows)

    def _drop(self, short: Sequence[int]) -> None:
        """Write near copies, and pages that are too short now, behind what became no page; they have a number."""
        pages, least = self.prepared.pages, self.config.extract.min_characters
        copies = {copy: f"a near copy of {pages[of].place}" for copy, of in self.prepared.copies.items()}
        reasons = {**copies, **dict.fromkeys(short, f"shorter than {least} characters without its removed paragraphs")}
        rows = [{"place": pages[n].place, "reason": reason, "page": n} for n, reason in sorted(reasons.items())]
        write_lines(self.directory / "dropped.jsonl", [*self._no_pages(), *rows])

    def _no_pages(self) -> list[dict[str, Any]]:
        """What became no page."""
        return [row.fields for row in read_jsonl(self.directory / "dropped.jsonl") if "page" not in row.fields]

    @cached_property
    def items(self) -> list[str]:
        """The texts of all benchmarks: questions, and what else their problems hold that is text."""
        problems = [
            problem
            for options in self.config.decontaminate.tasks.values()
            for task in (make_task(options),)
            for problem in (*task.problems("dev"), *task.problems("test"))
        ]
        return list(dict.fromkeys(text for problem in problems for text in _texts(problem)))

    def _facts(self, rounds: Sequence[Round]) -> dict[str, Any]:
        dropped = self._no_pages()
        removed = [row.fields for row in read_jsonl(self.directory / "removed.jsonl")]
        corpus = [row.fields for row in read_jsonl(self.directory / "corpus.jsonl")]
        return {
            "pages": len(self.prepared.pages) + len(dropped), "dropped": measure.reasons(dropped),
            "replaced_characters": sum(page.replaced for page in self.prepared.pages),
            "copies": measure.of_copies(self.prepared.pages, self.prepared.copies),
            "rounds": [dict(one.facts) for one in rounds],
            "decontamination": measure.of_removal(self.prepared.pages, rounds[-1].kept, removed, self.items),
            "corpus": {"pages": len(corpus), "characters": sum(len(row["text"]) for row in corpus)},
        }  # fmt: skip


def _texts(problem: Problem) -> list[str]:
    """The question and the answer; of a problem from a file its other texts, too."""
    return [problem.question, problem.reference, *(value for value in problem.data.values() if isinstance(value, str))]


def _removal(page: Page, match: Match) -> dict[str, Any]:
    return {"url": page.url, "paragraph": page.paragraphs[match.segment], **match._asdict()}

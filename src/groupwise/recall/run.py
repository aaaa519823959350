"""Recall in a directory: each piece of work leaves one file, and what is there is not done again.

pages.jsonl         every page as text, with what is known of it; copies are among them
dropped.jsonl       what became no page, and why; at the end near copies, too, and pages that removals leave too short
copies.json         number of every copy -> number of the page that it copies
round-N.json        what a round kept, the domains it pointed to, the answers, and what the seed grew by
removed.jsonl       paragraphs that a benchmark holds too
corpus.jsonl        the corpus: url, text, page (its number in pages.jsonl, from 0)
recall.json         figures, in the order of the work

After a kill at any moment, the same call resumes and ends with the same bytes.
"""

import json
import shutil
from collections.abc import Sequence, Set
from functools import cached_property
from pathlib import Path
from typing import Any

from groupwise.errors import CheckpointError
from groupwise.recall.config import RecallRecipe
from groupwise.recall.extract import MIN_CHARACTERS
from groupwise.recall.page import as_json, of_copies, of_removal, reasons, write_lines
from groupwise.recall.rounds import EVERY, Progress, Round, Rounds
from groupwise.recall.words import Index, Rule
from groupwise.runs.atomic import Hold, write_file
from groupwise.runs.directory import flattened
from groupwise.runs.inputs import INPUTS, compare, keep, references
from groupwise.runs.jsonl import read_jsonl
from groupwise.runs.processes import resuming
from groupwise.tasks import make_task

SETTINGS = "settings.json"


class Recall(Rounds):
    """The work in a directory; `run` does the rest of it."""

    def run(self) -> dict[str, Any]:
        self.directory.mkdir(parents=True, exist_ok=True)
        rounds = self.rounds()
        self._corpus(rounds[-1])
        facts = self._facts(rounds)
        write_file(self.directory / "recall.json", as_json(facts))
        return facts

    def _corpus(self, last: Round) -> None:
        path, how = self.directory / "corpus.jsonl", self.config.decontaminate
        if path.exists():
            return
        index = Index(self.items, Rule(numbers=how.numbers))
        pages, short = self.pages, list[int]()
        rows, removed = list[dict[str, Any]](), list[dict[str, Any]]()
        for done, number in enumerate(sorted(last.kept)):
            page = pages[number]
            matches = index.matches(page.paragraphs)
            removed += [
                {"url": page.url, "paragraph": page.paragraphs[match.segment], **match._asdict()} for match in matches
            ]
            bad = {match.segment for match in matches}
            text = "\n".join(part for place, part in enumerate(page.paragraphs) if place not in bad)
            if len(text) >= MIN_CHARACTERS:
                rows.append({"url": page.url, "text": text, "page": number})
            else:
                short.append(number)
            if done % EVERY == 0:
                self.progress("decontamination", done, len(last.kept))
        self.progress("decontamination", len(last.kept), len(last.kept))
        write_lines(self.directory / "removed.jsonl", removed)
        # near copies, and pages that are too short now, come after what became no page; they have a number
        copies = {copy: f"a near copy of {pages[of].place}" for copy, of in self.copies.items()}
        why = copies | dict.fromkeys(short, f"shorter than {MIN_CHARACTERS} characters without its removed paragraphs")
        dropped = [{"place": pages[n].place, "reason": reason, "page": n} for n, reason in sorted(why.items())]
        write_lines(self.directory / "dropped.jsonl", [*self._no_pages(), *dropped])
        write_lines(path, rows)

    def _no_pages(self) -> list[dict[str, Any]]:
        rows = (row.fields for row in read_jsonl(self.directory / "dropped.jsonl"))
        return [row for row in rows if "page" not in row]

    @cached_property
    def items(self) -> list[str]:
        problems = [
            problem
            for options in self.config.decontaminate.tasks.values()
            for task in (make_task(options),)
            for problem in (*task.problems("dev"), *task.problems("test"))
        ]
        texts = (
            text
            for problem in problems
            for text in (problem.question, problem.reference, *problem.data.values())
            if isinstance(text, str)
        )
        return list(dict.fromkeys(texts))

    def _facts(self, rounds: Sequence[Round]) -> dict[str, Any]:
        pages, dropped = self.pages, self._no_pages()
        removed, corpus = (
            [row.fields for row in read_jsonl(self.directory / name)] for name in ("removed.jsonl", "corpus.jsonl")
        )
        return {
            "pages": len(pages) + len(dropped), "dropped": reasons(dropped),
            "replaced_characters": sum(page.replaced for page in pages),
            "copies": of_copies(pages, self.copies),
            "rounds": [dict(each.facts) for each in rounds],
            "decontamination": of_removal(pages, rounds[-1].kept, removed, self.items),
            "corpus": {"pages": len(corpus), "characters": sum(len(row["text"]) for row in corpus)},
        }  # fmt: skip


def run_recall(recipe: RecallRecipe, progress: Progress, restart: bool = False) -> dict[str, Any]:
    """Run a recipe, or resume it; return the figures of `recall.json` (WaitingError: people have to answer first).

    `progress` hears of long work: (name, done, total). `restart` deletes the results of an earlier call, but not the
    files that people wrote. CheckpointError: the directory holds work of other settings or inputs, or is in use.
    """
    directory = Path(recipe.directory)
    _check(recipe, directory, restart)
    with Hold(directory, "directory"):
        if restart:
            _empty(directory, {directory.resolve() / "lock", *_of_people(recipe, directory)})
        settings, is_new = recipe.model_dump(mode="json", exclude={"directory"}), not (directory / SETTINGS).exists()
        if not is_new:
            way_out = "Put back what was there, or --restart to delete the work and begin again"
            compare(directory, references(recipe), (), way_out)
        write_file(directory / SETTINGS, (json.dumps(settings, indent=1) + "\n").encode())
        if is_new:
            keep(directory, [item.taken() for item in references(recipe)])
        with resuming(directory):
            return Recall(recipe, directory, progress).run()


def _check(recipe: RecallRecipe, directory: Path, restart: bool) -> None:
    if not directory.exists() or not any(directory.iterdir()):
        return
    if not (directory / SETTINGS).is_file():
        allowed = {directory.resolve() / name for name in ("lock", f".{SETTINGS}.tmp")}
        allowed |= _of_people(recipe, directory)
        files = (path for path in directory.rglob("*") if path.is_symlink() or not path.is_dir())
        if all(path.resolve() in allowed for path in files):
            return
        raise CheckpointError(f"{directory} exists and holds no recall: choose another directory")
    before = flattened(json.loads((directory / SETTINGS).read_text("utf-8")))
    now = flattened(recipe.model_dump(mode="json", exclude={"directory"}))
    changed = [key for key in sorted(before.keys() | now.keys()) if before.get(key) != now.get(key)]
    if changed and not restart:
        key = changed[0]
        raise CheckpointError(
            f"{directory} was started with {key} = {before.get(key)!r}, and it is {now.get(key)!r} now: choose another "
            "directory, or --restart to delete what is there"
        )


def _of_people(recipe: RecallRecipe, directory: Path) -> set[Path]:
    file = directory / SETTINGS
    before = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    annotators = (recipe.annotator.model_dump(mode="json"), before.get("annotator") or {})
    return {Path(entry["path"]).resolve() for entry in annotators if isinstance(entry.get("path"), str)}


def _empty(directory: Path, kept: Set[Path]) -> None:
    # what says whose work it is goes last: after a kill the rest is known, and none of it is gone on with
    for path in sorted(directory.iterdir(), key=lambda path: (path.name in (INPUTS, SETTINGS), path.name)):
        if path.resolve() in kept:
            continue
        if path.is_symlink() or not path.is_dir():
            path.unlink()
        elif any(path.resolve() in file.parents for file in kept):
            _empty(path, kept)
        else:
            shutil.rmtree(path)

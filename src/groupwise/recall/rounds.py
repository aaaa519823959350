"""The rounds: train on the seed, score and keep, look at the domains, ask about their addresses, let the seed grow."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from groupwise.errors import DataError
from groupwise.randomness import permutation
from groupwise.recall.config import Asked, RecallConfig
from groupwise.recall.extract import MAX_BYTES, MIN_CHARACTERS, extract, plain_text
from groupwise.recall.page import Page, Unreadable, as_json, domain, known_share, of_round, pattern, write_lines
from groupwise.recall.words import Descent, duplicates, exact_words, features, ngrams, signature, train, words
from groupwise.runs.atomic import write_file
from groupwise.runs.jsonl import read_jsonl

Progress = Callable[[str, int, int], None]
EVERY = 200
KNOWN_SHARE = 0.98
"""The rounds end where this share of a round's pages was there before (DeepSeekMath: 98 %)."""
COPY_NGRAM, COPY_BANDS, COPY_ROWS, COPY_AGREEMENT = 5, 14, 8, 0.7
"""Near copies by MinHash of word n-grams (datatrove's numbers): words of an n-gram, bands, minima in a band, and the
smallest share of equal minima between copies, an estimate of their Jaccard similarity."""
NGRAMS, BUCKETS = 3, 1 << 18
"""The classifier's longest n-gram of words (DeepSeekMath: 3), and the weights to which n-grams are hashed."""
MIN_COUNT, LR, EPOCHS = 3, 4.0, 3
"""Training (DeepSeekMath: 3, 0.1, 3). A text is a unit vector here, so the rate is larger than fastText's."""


@dataclass(frozen=True)
class Prepared:
    """The pages of a recall; each property is made when it is first read, or read from the directory."""

    config: RecallConfig
    directory: Path
    progress: Progress = field(default=lambda name, done, total: None)

    @cached_property
    def pages(self) -> list[Page]:
        path = self.directory / "pages.jsonl"
        if path.exists():
            return [Page.read(row.fields) for row in read_jsonl(path)]
        pages, dropped = dict[str, Page](), list[Unreadable]()
        for name, source in self.config.sources.items():
            for number, raw in enumerate(source.pages(self.config.seed, MAX_BYTES)):
                placed = raw.placed(name)
                page = placed if isinstance(placed, Unreadable) else extract(placed)
                if isinstance(page, Unreadable):
                    dropped.append(page)
                elif (first := pages.setdefault(page.url, page)) is not page:
                    dropped.append(Unreadable(page.place, f"the address of {first.place}"))
                if number % EVERY == 0:
                    self.progress(f"pages of {name}", number, number + EVERY)
            self.progress(f"pages of {name}", 1, 1)
        write_lines(self.directory / "dropped.jsonl", (entry._asdict() for entry in dropped))
        if not pages:
            raise DataError(
                f"the sources have no page of {MIN_CHARACTERS} characters or more; "
                f"{self.directory / 'dropped.jsonl'} names what they have ({len(dropped):,}), and why it is none"
            )
        write_lines(path, (page.as_dict() for page in pages.values()))
        return [Page.read(row.fields) for row in read_jsonl(path)]

    @cached_property
    def copies(self) -> dict[int, int]:
        path = self.directory / "copies.json"
        if not path.exists():
            signatures = [
                signature(ngrams(exact_words(page.text), COPY_NGRAM), COPY_BANDS * COPY_ROWS)
                for page in self._counted("near copies")
            ]
            copies = duplicates(signatures, COPY_BANDS, COPY_AGREEMENT)
            write_file(path, as_json({str(copy): original for copy, original in copies.items()}))
        return {int(copy): original for copy, original in json.loads(path.read_text("utf-8")).items()}

    @cached_property
    def unique(self) -> list[int]:
        return [number for number in range(len(self.pages)) if number not in self.copies]

    @cached_property
    def domains(self) -> dict[int, str]:
        return {number: domain(self.pages[number].url) for number in self.unique}

    @cached_property
    def patterns(self) -> dict[str, list[int]]:
        by_pattern = defaultdict[str, list[int]](list)
        for number in self.unique:
            by_pattern[pattern(self.pages[number].url)].append(number)
        return by_pattern

    def features_of(self, text: str) -> NDArray[np.int64]:
        return features(words(text, self.config.classifier.symbols), NGRAMS, BUCKETS)

    @cached_property
    def features(self) -> list[NDArray[np.int64]]:
        return [self.features_of(page.text) for page in self._counted("n-grams")]

    @cached_property
    def seed_texts(self) -> list[str]:
        begin, sources = self.config.begin, list(self.config.sources.values())
        known = [plain_text(text) for source in sources for text in source.known_texts(self.config.seed)]
        if not begin.path:
            texts = sources[0].seed_texts(self.config.seed, begin.num_texts)
            return [*map(plain_text, texts), *known]
        texts = list[str]()
        for row in islice(read_jsonl(Path(begin.path)), begin.num_texts):
            text = row.fields.get("text")
            cleaned = plain_text(text) if isinstance(text, str) else ""  # as pages are
            if not cleaned:  # it would teach that nothing is mathematics
                raise DataError(f"{row.place}: field 'text' is {text!r:.60}; the text of a page is needed")
            texts.append(cleaned)
        if not texts:
            raise DataError(f"{begin.path} holds no texts")
        return [*texts, *known]

    def _counted(self, name: str) -> Iterable[Page]:
        for number, page in enumerate(self.pages):
            if number % EVERY == 0:
                self.progress(name, number, len(self.pages))
            yield page
        self.progress(name, len(self.pages), len(self.pages))


class Kept(NamedTuple):
    """The pages that a round collects."""

    pages: frozenset[int]
    too_long: int
    threshold: float


def keep(scores: NDArray[np.float64], sizes: Sequence[int], budget: int, min_score: float) -> Kept:
    """Keep the best pages within the budget (0: any size), none below `min_score`; pages of one score stay together."""
    eligible = [i for i in np.argsort(-scores, kind="stable").tolist() if scores[i] >= min_score]
    fitting = [i for i in eligible if not budget or sizes[i] <= budget]
    kept: list[int] = []
    total, start = 0, 0
    while start < len(fitting):
        end = start
        while end < len(fitting) and scores[fitting[end]] == scores[fitting[start]]:
            end += 1
        total += sum(sizes[i] for i in fitting[start:end])
        if budget and total > budget:
            break
        kept += fitting[start:end]
        start = end
    threshold = float(scores[kept[-1]]) if kept else 1.0
    return Kept(frozenset(kept), len(eligible) - len(fitting), threshold)


def rich_domains(domains: Sequence[str], collected: Collection[int], share: float) -> list[tuple[str, int, int]]:
    """Return the domains of whose pages more than this share was collected, with both numbers, the richest first."""
    pages, found = Counter(domains), Counter(domains[index] for index in collected)
    rich = [(name, found[name], pages[name]) for name in sorted(found) if found[name] / pages[name] > share]
    return sorted(rich, key=lambda entry: -entry[1] / entry[2])


class Round(NamedTuple):
    """A finished round."""

    number: int
    kept: frozenset[int]
    grown: frozenset[int]
    answers: Mapping[str, bool]
    facts: Mapping[str, Any]


class Rounds(Prepared):
    """The rounds of a recall; one that is in the directory is read."""

    def rounds(self) -> list[Round]:
        rounds, limit = list[Round](), self.config.rounds.max_rounds
        while not rounds or (len(rounds) < limit and not self._knows(rounds[:-1], rounds[-1].kept)):
            path = self.directory / f"round-{len(rounds) + 1}.json"
            if not path.exists():
                write_file(path, as_json(self._made(rounds)))
            row = json.loads(path.read_text("utf-8"))
            kept, grown = frozenset(row["kept"]), frozenset(row["grown"])
            rounds.append(Round(row["number"], kept, grown, row["answers"], row["facts"]))
            self.progress("rounds", len(rounds), limit)
        self.progress("rounds", limit, limit)
        return rounds

    def _knows(self, before: Sequence[Round], kept: frozenset[int]) -> bool:
        return bool(before) and known_share(before[-1].kept, kept) >= KNOWN_SHARE

    def _made(self, before: Sequence[Round]) -> dict[str, Any]:
        how, number = self.config.rounds, len(before) + 1
        seed = frozenset[int]().union(*(earlier.grown for earlier in before))
        positives = [self.features_of(text) for text in self.seed_texts] + [self.features[i] for i in sorted(seed)]
        order = (self.unique[i] for i in permutation(len(self.unique), "negatives", self.config.seed).tolist())
        negatives = [self.features[i] for i in order if i not in seed][: self.config.classifier.negatives]
        labels = [True] * len(positives) + [False] * len(negatives)
        model = train([*positives, *negatives], labels, Descent(BUCKETS, MIN_COUNT, LR, EPOCHS, self.config.seed))
        scores = model.scores([self.features[i] for i in self.unique])
        best = keep(scores, [len(self.pages[i].text) for i in self.unique], how.max_characters, how.min_score)
        kept = frozenset(self.unique[place] for place in best.pages)
        rich = rich_domains([self.domains[i] for i in self.unique], best.pages, how.domain_share)
        is_last = number == how.max_rounds or self._knows(before, kept)
        known = {name for earlier in before for name in earlier.answers}
        asked = [] if is_last else self._asked([name for name, _, _ in rich], kept, known)
        answers = dict(self.config.annotator.answers(asked, number, self.config.seed))
        accepted = {page for name, is_right in answers.items() if is_right for page in self.patterns[name]}
        grown = accepted - kept - seed
        facts = of_round(self.pages, self.unique, before[-1].kept if before else frozenset(), kept) | {
            "seed": len(self.seed_texts) + len(seed), "threshold": round(best.threshold, 6), "too_long": best.too_long,
            "domains": [list(entry) for entry in rich], "asked": len(asked), "yes": sum(answers.values()),
            "grown": len(grown),
        }  # fmt: skip
        return {"number": number, "kept": sorted(kept), "grown": sorted(grown), "answers": answers, "facts": facts}

    def _asked(self, rich: Sequence[str], kept: frozenset[int], known: set[str]) -> list[Asked]:
        of_domain = defaultdict[str, list[str]](list)
        for name in sorted(self.patterns):
            of_domain[name.partition("/")[0]].append(name)
        asked = []
        for name in (name for domain_name in rich for name in of_domain[domain_name] if name not in known):
            numbers = self.patterns[name]
            if any(number not in kept for number in numbers):
                pages = [self.pages[number] for number in numbers]
                asked.append(Asked(name, pages, sum(number in kept for number in numbers)))
        return asked

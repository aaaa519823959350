"""The rounds: train on the seed, score and keep, look at the domains, ask about their addresses, let the seed grow."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from groupwise.randomness import permutation
from groupwise.recall import measure
from groupwise.recall.annotate import Asked
from groupwise.recall.classifier import Descent, Linear, train
from groupwise.recall.collection import Domain, Kept, keep, known_share, rich_domains
from groupwise.recall.lines import as_json
from groupwise.recall.prepared import Prepared
from groupwise.runs.atomic import write_file


class Round(NamedTuple):
    """A finished round."""

    number: int
    kept: frozenset[int]
    """Numbers of the pages that it collected."""
    grown: frozenset[int]
    """Numbers of the pages that join the seed after it."""
    answers: Mapping[str, bool]
    """By URL pattern, as annotated after it."""
    facts: Mapping[str, Any]
    """Figures for the report."""


@dataclass(frozen=True)
class Rounds:
    """The rounds of a recall; one that is in the directory is read."""

    on: Prepared

    def all(self) -> list[Round]:
        """Every round, until one finds little that is new."""
        rounds, how = list[Round](), self.on.config.rounds
        while not rounds or (len(rounds) < how.max_rounds and not self._is_last(rounds)):
            rounds.append(self._round(rounds))
            self.on.progress("rounds", len(rounds), how.max_rounds)
        self.on.progress("rounds", how.max_rounds, how.max_rounds)
        return rounds

    def _is_last(self, rounds: Sequence[Round]) -> bool:
        return self._knows(rounds[:-1], rounds[-1].kept)

    def _knows(self, before: Sequence[Round], kept: frozenset[int]) -> bool:
        """Whether the round before found nearly all of this already."""
        return bool(before) and known_share(before[-1].kept, kept) >= self.on.config.rounds.known_share

    def _round(self, before: Sequence[Round]) -> Round:
        path = self.on.directory / f"round-{len(before) + 1}.json"
        if not path.exists():
            write_file(path, as_json(self._made(before)))
        row = json.loads(path.read_text("utf-8"))
        return Round(row["number"], frozenset(row["kept"]), frozenset(row["grown"]), row["answers"], row["facts"])

    def _made(self, before: Sequence[Round]) -> dict[str, Any]:
        """Train, score, rank, keep; look at the domains, annotate, and grow the seed."""
        on, number = self.on, len(before) + 1
        seed = frozenset[int]().union(*(one.grown for one in before))
        kept = self._kept(self._trained(seed))
        rich = self._rich(kept.pages)
        is_last = number == on.config.rounds.max_rounds or self._knows(before, kept.pages)
        known = {name for one in before for name in one.answers}
        asked = [] if is_last else self._asked([one.name for one in rich], kept.pages, known)
        answers = dict(on.config.annotator.answers(asked, number, on.config.seed))
        accepted = {page for name, is_right in answers.items() if is_right for page in on.patterns[name]}
        grown = accepted - kept.pages - seed
        facts = measure.of_round(on.pages, on.unique, before[-1].kept if before else frozenset(), kept.pages) | {
            "seed": len(on.seed_texts) + len(seed), "threshold": round(kept.threshold, 6), "too_long": kept.too_long,
            "domains": [list(one) for one in rich], "asked": len(asked), "yes": sum(answers.values()),
            "grown": len(grown),
        }  # fmt: skip
        made = {"number": number, "kept": sorted(kept.pages), "grown": sorted(grown)}
        return made | {"answers": answers, "facts": facts}

    def _rich(self, kept: frozenset[int]) -> list[Domain]:
        """The domains that are looked at."""
        place = {number: index for index, number in enumerate(self.on.unique)}
        how = self.on.config.rounds
        names = [self.on.domains[number] for number in self.on.unique]
        return rich_domains(names, [place[number] for number in kept], how.domain_share if how.domain_rule else 0.0)

    def _trained(self, seed: frozenset[int]) -> Linear:
        """The classifier of the seed against random pages that are not in it."""
        on, how = self.on, self.on.config.classifier
        positives = [on.features_of(text) for text in on.seed_texts] + [on.features[i] for i in sorted(seed)]
        order = (on.unique[i] for i in permutation(len(on.unique), "negatives", on.config.seed).tolist())
        negatives = [on.features[i] for i in order if i not in seed][: how.negatives]
        labels = [True] * len(positives) + [False] * len(negatives)
        descent = Descent(how.buckets, how.min_count, how.lr, how.epochs, on.config.seed)
        return train([*positives, *negatives], labels, descent)

    def _kept(self, model: Linear) -> Kept:
        """What is kept, as numbers of pages."""
        on, how = self.on, self.on.config.rounds
        sizes = [len(on.pages[i].text) for i in on.unique]
        scores = model.scores([on.features[i] for i in on.unique])
        found = keep(scores, sizes, how.max_characters, how.min_score)
        return found._replace(pages=frozenset(on.unique[place] for place in found.pages))

    def _asked(self, rich: Sequence[str], kept: frozenset[int], known: set[str]) -> list[Asked]:
        """Patterns of rich domains with pages that were not kept, those of the richest domain first."""
        of_domain = defaultdict[str, list[str]](list)
        for name in sorted(self.on.patterns):
            of_domain[name.partition("/")[0]].append(name)
        names = [name for domain_name in rich for name in of_domain[domain_name] if name not in known]
        open_names = [name for name in names if any(number not in kept for number in self.on.patterns[name])]
        limit = self.on.config.annotator.patterns_per_round or len(open_names)
        return [self._question(name, kept) for name in open_names[:limit]]

    def _question(self, name: str, kept: frozenset[int]) -> Asked:
        numbers = self.on.patterns[name]
        return Asked(name, [self.on.pages[number] for number in numbers], sum(number in kept for number in numbers))

"""Instructions on form: write a text with 20 words, a given first word, no comma, ...; several rules at once.

The rules are read off a text drawn in advance, so they can all be kept together, and that text is the reference answer.
Any text that keeps them is correct (after IFEval: Zhou et al. 2023, arXiv 2311.07911).

The verifier needs `problem.data["constraints"]`, a list of mappings:
`{"kind": "count", "unit": ..., "least": n, "most": n}`, `{"kind": "keyword", "word": ..., "least": n, "most": n}`,
`{"kind": "case", "case": "lower" | "upper"}`, `{"kind": "first_word" | "last_word", "word": ...}`. A missing bound does
not apply.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar, Literal

from pydantic import Field

from groupwise.randomness import Draw, key
from groupwise.tasks.base import Candidate, GeneratedConfig, GeneratedTask
from groupwise.types import Outcome, Problem
from groupwise.verifiers.base import Finding, data_list
from groupwise.verifiers.exact import PartlyRight, UnreadableError

_ADJECTIVES = ("old", "quiet", "small", "bright", "green", "heavy", "gentle", "wooden", "distant", "curious")
_NOUNS = ("river", "garden", "teacher", "window", "train", "island", "letter", "bridge", "farmer", "lantern", "market")
_VERBS = ("finds", "follows", "paints", "remembers", "watches", "repairs", "describes", "visits", "draws", "misses")
_ADVERBS = ("today", "slowly", "again", "twice", "alone", "outside", "early", "gladly")

MIN_RULES = 2
"""Fewest rules in a problem."""
MAX_PARAGRAPHS = 2
"""Most paragraphs or bullet points of the reference text."""
MAX_SENTENCES = 2
"""Most sentences in a paragraph of the reference text."""
Case = Literal["", "lower", "upper"]
Rule = tuple[Mapping[str, Any], str]
"""A constraint as the verifier takes it, and in words."""


@dataclass(frozen=True, slots=True)
class Draft:
    """The text that rules are read off."""

    paragraphs: Sequence[Sequence[Sequence[str]]]
    bullets: bool
    """True: each paragraph is a line that starts with `- `, without blank lines between."""
    case: Case

    @property
    def text(self) -> str:
        paragraphs = [" ".join(f"{' '.join(words)}." for words in sentences) for sentences in self.paragraphs]
        return "\n".join(f"- {line}" for line in paragraphs) if self.bullets else "\n\n".join(paragraphs)

    @property
    def words(self) -> list[str]:
        return [word for sentences in self.paragraphs for words in sentences for word in words]


class InstructionsConfig(GeneratedConfig):
    """Dials of the instructions task."""

    max_rules: int = Field(default=4, ge=MIN_RULES, le=6)
    """Most rules in a problem; the fewest are 2."""


class Instructions(GeneratedTask):
    """Problems such as `Write a text that keeps all of these rules: It has exactly 12 words. ...`."""

    name: ClassVar[str] = "instructions"
    verifier: ClassVar[str] = "instructions"
    answers_any_question: ClassVar[bool] = False
    Config = InstructionsConfig
    config: InstructionsConfig

    def candidates(self) -> Iterator[Candidate]:
        return (draw_instructions(Draw("instructions", index), self.config) for index in count())


def draw_instructions(draw: Draw, config: InstructionsConfig) -> Candidate:
    """A problem; its content is the set of its rules."""
    cases: tuple[Case, ...] = ("", "lower", "upper")
    case = draw.choice(cases)
    spellings: Mapping[str, Callable[[str], str]] = {"": str, "lower": str.lower, "upper": str.upper}
    paragraphs = [
        [[spellings[case](word) for word in draw_sentence(draw)] for _ in range(draw.integer(1, MAX_SENTENCES))]
        for _ in range(draw.integer(1, MAX_PARAGRAPHS))
    ]
    draft = Draft(paragraphs, draw.choice((True, False)), case)
    length = draw.choice(("words", "sentences"))  # one of them always: prohibitions alone are kept by a single word
    other_kinds = draw.shuffled([kind for kind in RULES if kind != length])
    kinds = [length, *other_kinds][: draw.integer(MIN_RULES, config.max_rules)]
    rules = [RULES[kind](draw, draft) for kind in draw.shuffled(kinds)]
    sentences = [sentence for _, sentence in rules]
    content = " ".join(sorted(sentences))
    problem = Problem(
        id=f"instructions/{key('instructions', content):016x}",
        question="\n".join(["Write a text that keeps all of these rules:", *(f"- {text}" for text in sentences)]),
        reference=draft.text,
        difficulty=f"{len(rules)} rules",
        data={"constraints": [constraint for constraint, _ in rules]},
    )
    return content, problem


def draw_sentence(draw: Draw) -> list[str]:
    """Words of a sentence such as `The old river finds the green garden today`."""
    subject, object_ = draw.shuffled(_NOUNS)[:2]
    adjectives = [[draw.choice(_ADJECTIVES)] if draw.integer(0, 1) else [] for _ in range(2)]
    adverb = [draw.choice(_ADVERBS)] if draw.integer(0, 1) else []
    return ["The", *adjectives[0], subject, draw.choice(_VERBS), "the", *adjectives[1], object_, *adverb]


def _bounded_rule(draw: Draw, number: int, unit: str) -> Rule:
    low, high = number - draw.integer(1, 3), number + draw.integer(1, 3)
    bounds, phrase = draw.choice(
        (
            ({"least": number, "most": number}, f"exactly {number}"),
            ({"least": low}, f"at least {low}"),
            ({"least": low, "most": high}, f"between {low} and {high}"),
        )
    )
    return {"kind": "count", "unit": unit, **bounds}, f"It has {phrase} {unit}."


def _exact_rule(number: int, unit: str, meaning: str) -> Rule:
    sentence = f"It has exactly {number} {unit if number != 1 else unit.removesuffix('s')}; {meaning}."
    return {"kind": "count", "unit": unit, "least": number, "most": number}, sentence


def _layout_rule(draw: Draw, draft: Draft) -> Rule:
    number = len(draft.paragraphs)
    if draft.bullets:
        return _exact_rule(number, "bullets", 'a bullet is a line that begins with "- "')
    if draw.integer(0, 1):
        return _exact_rule(number, "lines", "blank lines do not count")
    return _exact_rule(number, "paragraphs", "a blank line parts two paragraphs")


def _case_rule(draw: Draw, draft: Draft) -> Rule:
    if not draft.case:
        position, word = draw.choice((("first", draft.words[0]), ("last", draft.words[-1])))
        return {"kind": f"{position}_word", "word": word}, f'Its {position} word is "{word}", in this spelling.'
    return {"kind": "case", "case": draft.case}, f"All its letters are {draft.case} case."


def _keyword_rule(draw: Draw, draft: Draft) -> Rule:
    word = draw.choice(draft.words).lower()
    number = [text.lower() for text in draft.words].count(word)
    if draw.integer(0, 1):
        return {"kind": "keyword", "word": word, "least": 1}, f'It contains the word "{word}".'
    times = f"exactly {number} time{'s' if number > 1 else ''}"
    return {"kind": "keyword", "word": word, "least": number, "most": number}, f'The word "{word}" occurs {times}.'


def _absence_rule(draw: Draw, draft: Draft) -> Rule:
    words = {word.lower() for word in draft.words}
    word = draw.choice([candidate for candidate in ("the", *_NOUNS, *_ADVERBS) if candidate not in words])
    return {"kind": "keyword", "word": word, "most": 0}, f'The word "{word}" does not occur.'


RULES: Mapping[str, Callable[[Draw, Draft], Rule]] = {
    "words": lambda draw, draft: _bounded_rule(draw, len(draft.words), "words"),
    "sentences": lambda draw, draft: _exact_rule(
        sum(map(len, draft.paragraphs)), "sentences", "a sentence ends with a full stop, ! or ?"
    ),
    "layout": _layout_rule,
    "case": _case_rule,
    "present": _keyword_rule,
    "absent": _absence_rule,
    "commas": lambda draw, draft: ({"kind": "count", "unit": "commas", "most": 0}, "It contains no comma."),
}
"""By kind of rule, the function that reads it off a draft; a problem has at most one of each."""

Constraint = Mapping[str, Any]

_WORD = re.compile(r"\w+(?:['’-]\w+)*")
_SENTENCE_END = re.compile(r"(?<![.!?])[.!?]++(?=\s|$)")
_BLANK_LINES = re.compile(r"\n[ \t]*\n\s*")


def words(text: str) -> list[str]:
    """Runs of letters and digits; an apostrophe or hyphen within a word does not split it."""
    return _WORD.findall(text)


COUNTS: Mapping[str, Callable[[str], int]] = {
    "words": lambda text: len(words(text)),
    "sentences": lambda text: len(_SENTENCE_END.findall(text)),
    "lines": lambda text: sum(bool(line.strip()) for line in text.split("\n")),
    "paragraphs": lambda text: len(_BLANK_LINES.split(text)),
    "bullets": lambda text: sum(line.startswith("- ") for line in text.split("\n")),
    "commas": lambda text: text.count(","),
}  # fmt: skip
"""Counts of a text without outer white space. Blank lines are not lines; they separate paragraphs."""


def _within(constraint: Constraint, number: int) -> bool:
    return bool(constraint.get("least", number) <= number <= constraint.get("most", number))


CHECKS: Mapping[str, Callable[[Constraint, str], bool]] = {
    "count": lambda constraint, text: _within(constraint, COUNTS[constraint["unit"]](text)),
    "keyword": lambda constraint, text: _within(
        constraint, [word.casefold() for word in words(text)].count(constraint["word"].casefold())
    ),
    "case": lambda constraint, text: {"lower": text.islower, "upper": text.isupper}[constraint["case"]](),
    "first_word": lambda constraint, text: words(text)[:1] == [constraint["word"]],
    "last_word": lambda constraint, text: words(text)[-1:] == [constraint["word"]],
}  # fmt: skip


class InstructionsVerifier(PartlyRight):
    """Correct is a text that meets all constraints; the measure `constraints` is the share (0 to 1) that is met."""

    one_right = False

    def find(self, problem: Problem, answer: str) -> Finding:
        constraints = data_list(problem, "constraints", dict)
        if character := next((c for c in answer if unicodedata.category(c) in ("Cc", "Cf") and c not in "\n\t"), ""):
            raise UnreadableError(f"the text has the invisible character U+{ord(character):04X}")
        if not words(answer):
            raise UnreadableError("the text has no word")
        violations = [constraint for constraint in constraints if not CHECKS[constraint["kind"]](constraint, answer)]
        outcome = Outcome.WRONG if violations else Outcome.CORRECT
        evidence = f"not met: {dict(violations[0])}" if violations else f"all {len(constraints)} constraints are met"
        return Finding(outcome, evidence, answer, {"constraints": 1 - len(violations) / len(constraints)})

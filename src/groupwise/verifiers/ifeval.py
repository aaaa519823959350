"""IFEval's 25 kinds of instructions (Zhou et al. 2023, arXiv:2311.07911), decided as its checkers decide.

`problem.data` has `instruction_id_list` and `kwargs`, as in the published rows. A strict check reads the answer as it
is, a loose one also without its first line, its last, both, and each of these without asterisks. Correct is an answer
that strictly follows all instructions; the measures are `prompt_loose`, and the shares of single instructions that are
followed, `instruction_strict` and `instruction_loose`, with their number, `instructions`.

Where the original asks nltk for sentences and words, or langdetect for the language, this asks a regular expression and
py3langid, so that a verdict repeats.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers.base import Finding, Request, Verifier, data_list, verdict
from groupwise.verifiers.style.language import language_of

Arguments = Mapping[str, Any]

_ABBREVIATION = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|Inc|Ltd|Co|vs|e\.g|i\.e|U\.S|Ph\.D|No|Fig|[A-Z])|(?:^|\n)\s*\d+)\.$"
)
_SENTENCE_END = re.compile(r"[.!?]+[\"'”’)\]]*(?=\s|$)")
_TOKEN = re.compile(r"\w(?:[\w./-]*\w)?|'\w+")


def count_sentences(text: str) -> int:
    """Return the number of sentences; an abbreviation, an initial or the number of a list ends none."""
    ends = [end.end() for end in _SENTENCE_END.finditer(text) if not _ABBREVIATION.search(text[: end.end()][-12:])]
    return len(ends) + bool(text[ends[-1] if ends else 0 :].strip())


def _related(number: int, relation: str, bound: int) -> bool:
    return number < bound if relation == "less than" else number >= bound


def num_highlights(text: str) -> int:
    """Return the number of texts between asterisks; one between two counts twice."""
    single = [found for found in re.findall(r"\*[^\n\*]*\*", text) if found.strip("*").strip()]
    double = [found for found in re.findall(r"\*\*[^\n\*]*\*\*", text) if found[2:-2].strip()]
    return len(single) + len(double)


def has_paragraphs(args: Arguments, text: str) -> bool:
    """Count the pieces between `***`, of which an inner one may not be empty."""
    pieces = [bool(piece.strip()) for piece in re.split(r"\s?\*\*\*\s?", text)]
    return all(pieces[1:-1]) and sum(pieces) == args["num_paragraphs"]


def has_first_word(args: Arguments, text: str) -> bool:
    """Count paragraphs between blank lines, and read the first word of one."""
    paragraphs = text.split("\n\n")
    number, place = sum(bool(paragraph.strip()) for paragraph in paragraphs), args["nth_paragraph"]
    if place > number or not (words := paragraphs[place - 1].split()):
        return False
    word = re.split(r"[.,?!'\"]", words[0].lstrip("'").lstrip('"'))[0].lower()
    return bool(number == args["num_paragraphs"] and word == args["first_word"].lower())


def has_postscript(args: Arguments, text: str) -> bool:
    """Look for a line that begins a postscript."""
    marker = args["postscript_marker"].strip()
    pattern = {"P.P.S": r"\s*p\.\s?p\.\s?s.*$", "P.S.": r"\s*p\.\s?s\..*$"}.get(marker, rf"\s*{marker.lower()}.*$")
    return bool(re.search(pattern, text.lower(), re.MULTILINE))


def is_json(args: Arguments, text: str) -> bool:
    """Try to read the text, without a fence around it, as JSON."""
    bare = re.sub(r"^```(?:json|Json|JSON)?|```$", "", text.strip()).strip()
    try:
        json.loads(bare)
    except (ValueError, RecursionError):
        return False
    return True


def has_two_responses(args: Arguments, text: str) -> bool:
    """Look for two texts that differ, with `******` between."""
    pieces = [piece.strip() for piece in text.split("******")]
    answers = [piece for piece in pieces if piece]
    return all(pieces[1:-1]) and len(answers) == 2 and answers[0] != answers[1]


def _found(word: str, text: str) -> int:
    return len(re.findall(word, text, re.IGNORECASE))


CHECKS: Mapping[str, Callable[[Arguments, str], bool]] = {
    "keywords:existence": lambda a, t: all(_found(word, t) for word in a["keywords"]),
    "keywords:frequency": lambda a, t: _related(_found(a["keyword"].strip(), t), a["relation"], a["frequency"]),
    "keywords:forbidden_words": lambda a, t: not any(_found(rf"\b{word}\b", t) for word in a["forbidden_words"]),
    "keywords:letter_frequency": lambda a, t: _related(
        Counter(t.lower())[a["letter"].strip().lower()], a["let_relation"], a["let_frequency"]
    ),
    "language:response_language": lambda a, t: language_of(t) == a["language"],
    "length_constraints:number_sentences": lambda a, t: _related(count_sentences(t), a["relation"], a["num_sentences"]),
    "length_constraints:number_paragraphs": has_paragraphs,
    "length_constraints:number_words": lambda a, t: _related(len(re.findall(r"\w+", t)), a["relation"], a["num_words"]),
    "length_constraints:nth_paragraph_first_word": has_first_word,
    "detectable_content:number_placeholders": lambda a, t: len(re.findall(r"\[.*?\]", t)) >= a["num_placeholders"],
    "detectable_content:postscript": has_postscript,
    "detectable_format:number_bullet_lists": lambda a, t: (
        len(re.findall(r"^\s*(?:\*[^\*]|-).*$", t, re.MULTILINE)) == a["num_bullets"]
    ),
    "detectable_format:constrained_response": lambda a, t: any(
        f"My answer is {word}." in t for word in ("yes", "no", "maybe")
    ),
    "detectable_format:number_highlighted_sections": lambda a, t: num_highlights(t) >= a["num_highlights"],
    "detectable_format:multiple_sections": lambda a, t: (
        len(re.findall(rf"{a['section_spliter'].strip()}\s?\d+", t)) >= a["num_sections"]
    ),
    "detectable_format:json_format": is_json,
    "detectable_format:title": lambda a, t: any(
        title.lstrip("<").rstrip(">").strip() for title in re.findall(r"<<[^\n]+>>", t)
    ),
    "combination:two_responses": has_two_responses,
    "combination:repeat_prompt": lambda a, t: t.strip().lower().startswith(a["prompt_to_repeat"].strip().lower()),
    "startend:end_checker": lambda a, t: t.strip().strip('"').lower().endswith(a["end_phrase"].strip().lower()),
    "startend:quotation": lambda a, t: len(t.strip()) > 1 and t.strip()[0] == t.strip()[-1] == '"',
    "change_case:capital_word_frequency": lambda a, t: _related(
        sum(word.isupper() for word in _TOKEN.findall(t)), a["capital_relation"], a["capital_frequency"]
    ),
    "change_case:english_capital": lambda a, t: t.isupper() and language_of(t) == "en",
    "change_case:english_lowercase": lambda a, t: t.islower() and language_of(t) == "en",
    "punctuation:no_comma": lambda a, t: "," not in t,
}


def variants(text: str) -> list[str]:
    """Return the texts that a loose check reads, the text itself among them."""
    lines = text.split("\n")
    cut = [text, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    return [*cut, *(each.replace("*", "") for each in cut)]


class IfevalVerifier(Verifier):
    """Decides whether a text follows the instructions of an IFEval prompt."""

    by_text_alone = True
    accepts_references = False  # there are none

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        return [self._judge(request.problem, request.text) for request in requests]

    def _judge(self, problem: Problem, text: str) -> Verdict:
        try:
            names = data_list(problem, "instruction_id_list", str)
            # as lm-eval, which leaves out arguments that are 0 or empty
            given = [{k: v for k, v in args.items() if v} for args in data_list(problem, "kwargs", dict)]
            rules = [(name, CHECKS[name], args) for name, args in zip(names, given, strict=True)]
            strict = [bool(text.strip()) and check(args, text) for _, check, args in rules]
            loose = [any(each.strip() and check(args, each) for each in variants(text)) for _, check, args in rules]
            if not rules:
                raise ValueError("it has no instructions")
        except (AttributeError, KeyError, TypeError, ValueError, re.error) as error:
            finding = Finding(Outcome.CRASHED, f"problem {problem.id}: {type(error).__name__}: {error}"[:400])
            return verdict(finding, self.config, tags_right=False)
        missed = next((name for (name, _, _), is_met in zip(rules, strict, strict=True) if not is_met), "")
        outcome = Outcome.WRONG if missed else Outcome.CORRECT
        evidence = f"not followed: {missed}" if missed else f"all {len(rules)} instructions are followed"
        measures = {
            "prompt_loose": float(all(loose)), "instructions": float(len(rules)),
            "instruction_strict": sum(strict) / len(rules), "instruction_loose": sum(loose) / len(rules),
        }  # fmt: skip
        return verdict(Finding(outcome, evidence, measures=measures), self.config, tags_right=False)

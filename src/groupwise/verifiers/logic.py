"""Verifiers of logic and structure: they judge exactly, in this process, in time linear in the text.

JSON is the one box, or else the one fenced block, or else all that follows the reasoning. It is strictly parsed, then
equal to the reference in structure, types and values. Strict means RFC 8259 without its leeway: no repeated key, no NaN
or Infinity, nothing before or after the value. An integer field takes no 3.0 and no true; a field whose reference is a
decimal number takes every spelling of that number. `problem.data["schema"]`, where there is one, is a JSON schema
(of the draft that it names, else 2020-12) that the value must fit.

Instructions on the form of a text need `problem.data["constraints"]`, a list of mappings:
`{"kind": "count", "unit": ..., "least": n, "most": n}`, `{"kind": "keyword", "word": ..., "least": n, "most": n}`,
`{"kind": "case", "case": "lower" | "upper"}`, `{"kind": "first_word" | "last_word", "word": ...}`. A missing bound does
not apply.
"""

import json
import re
import unicodedata
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Context, Decimal
from functools import lru_cache
from statistics import fmean
from typing import TYPE_CHECKING, Any

from pydantic import Field

from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers.base import ExtractingConfig, Finding, Request, Verifier, data_list, verdict
from groupwise.verifiers.extraction import Extracted, after_thinking, boxes, clipped, extract, thought_once

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

MAX_LENGTH = 10_000  # most characters of an answer that are read


class UnreadableError(Exception):
    """The answer is not in the required form; the message says what it is instead."""


class ExactVerifier(Verifier):
    """Reads the answer and judges it at once. Subclasses implement `find`."""

    Config = ExtractingConfig
    one_right = True
    by_text_alone = True
    config: ExtractingConfig

    @abstractmethod
    def find(self, problem: Problem, answer: str) -> Finding:
        """Judge an answer; raise UnreadableError where it is not in the required form."""

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        return [self._judge(request.problem, request.readable(self.config.extraction)) for request in requests]

    def explain(self, problem: Problem, text: str, verdict: Verdict) -> list[str]:
        region, mode, lines = after_thinking(text), self.config.extraction, list[str]()
        if region is not None:
            lines.append(f"after the reasoning comes {clipped(region)}")
            answer = extract(text, mode).answer
            lines += [] if answer is None else [f"the answer ({mode}) is {clipped(answer)}"]
        return [*lines, verdict.evidence]

    def extract(self, text: str) -> Extracted:
        return extract(text, self.config.extraction)

    def _judge(self, problem: Problem, text: str) -> Verdict:
        answer, reason, tags_right = self.extract(text)
        try:
            if answer is None:
                raise UnreadableError(reason)
            if len(answer) > MAX_LENGTH:
                raise UnreadableError(f"{len(answer)} characters, at most {MAX_LENGTH} are read")
            finding = self.find(problem, answer)
        except UnreadableError as error:
            finding = Finding(Outcome.UNPARSABLE, str(error))
        except Exception as error:  # a fault of ours or of the problem's data is never a wrong answer
            finding = Finding(Outcome.CRASHED, f"problem {problem.id}: {type(error).__name__}: {error}"[:400])
        return verdict(finding, self.config, tags_right=tags_right)


class PartialConfig(ExtractingConfig):
    """Settings of verifiers that measure by how much an answer is right."""

    partial_credit: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Reward part `partial`: this times the mean of the measures. Of `json` these are `parses`, `valid` (it fits the
    schema; left out where there is none) and `values` (the share that is right), of `instructions` it is `constraints`,
    the share that is met. 0: no such part."""


class PartlyRight(ExactVerifier):
    """Pays for its measures, each 0 to 1."""

    Config = PartialConfig
    config: PartialConfig

    def measures(self, problem: Problem, reached: Mapping[str, float]) -> Mapping[str, float]:
        """Return all measures of an answer that reached some."""
        return reached

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        verdicts, credit = super().verify_many(requests), self.config.partial_credit
        for index, (request, result) in enumerate(zip(requests, verdicts, strict=True)):
            if result.outcome.judged:
                measures = self.measures(request.problem, result.measures)
                partial = {"partial": credit * fmean(measures.values() or [0.0])} if credit else {}
                verdicts[index] = replace(result, parts={**result.parts, **partial}, measures=measures)
        return verdicts


def shown(text: str) -> str:
    """A piece of an answer for evidence: quoted, ASCII and short."""
    return ascii(text if len(text) <= 40 else f"{text[:37]}...")


_SEPARATOR = re.compile(r"[,;\n]|\band\b", re.IGNORECASE)
_CLAIM = re.compile(
    r"(?:\(?[0-9]{1,2}[).:] ?)?(?P<name>[^:=]{1,60}?) ?(?: is(?: an?)?|:|=) ?(?P<role>knight|knave)", re.IGNORECASE
)


class KnightsKnavesVerifier(ExactVerifier):
    """The role of everyone named in the reference answer, each named once and nothing else said.

    Reads `Zoey is a knight, Ella is a knave` (also `Zoey: knight`, numbered lines, `and`) in any order and case.
    """

    def find(self, problem: Problem, answer: str) -> Finding:
        try:
            reference = read_roles(problem.reference)
        except UnreadableError as error:
            return Finding(Outcome.CRASHED, f"the reference answer of problem {problem.id} is unreadable: {error}")
        roles, fault = read_roles(answer), ""
        if name := next((n for n in [*reference, *roles] if roles.get(n) != reference.get(n)), None):
            role, true_role = roles.get(name, "nothing"), reference.get(name, "asked about")
            fault = f"{shown(name)} is said to be {role}, not {true_role}"
        canonical = ", ".join(f"{name}: {role}" for name, role in sorted(roles.items()))
        return Finding(
            Outcome.WRONG if fault else Outcome.CORRECT, fault or "it equals the reference answer", canonical
        )


def read_roles(text: str) -> dict[str, str]:
    """Return the roles in an answer by name, both in lower case; raise UnreadableError."""
    roles = dict[str, str]()
    # without LaTeX's text commands, braces and dollars; `\\` breaks the line
    for mark, replacement in (("\\\\", "\n"), ("\\text", ""), ("{", ""), ("}", ""), ("$", "")):
        text = text.replace(mark, replacement)
    text = "\n".join(" ".join(line.split()) for line in text.split("\n"))
    for claim in filter(None, map(str.strip, _SEPARATOR.split(text.rstrip(".")))):
        if (match := _CLAIM.fullmatch(claim)) is None:
            raise UnreadableError(f"{shown(claim)} is not of the form `name is a knight` or `name is a knave`")
        if (name := match["name"].casefold()) in roles:
            raise UnreadableError(f"{shown(name)} is named twice")
        roles[name] = match["role"].lower()
    return roles


MAX_NESTING = 20
MAX_DIGITS = 100
_EXACT = Context(prec=MAX_DIGITS)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+\\?(?:"|\Z)', re.DOTALL)  # takes an open string too: linear on any text
_BRACKET = re.compile(r"[\[\]{}]")
_LARGE_EXPONENT = re.compile(r"[eE][-+]?0*[1-9][0-9]{3}")


_FENCED = re.compile(r"^[ \t]*```(?:json)?[ \t]*\n(.*?)^[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE | re.IGNORECASE)


class JsonVerifier(PartlyRight):
    """Object members may come in any order, list items may not; white space between tokens is free.

    It needs no box: bare JSON and one fenced block are answers, too. Its measures, each 0 to 1: `parses`, `valid` and
    `values`. A value is right under its path in reference and answer; one that only one of the two has counts as wrong.
    """

    def extract(self, text: str) -> Extracted:
        extraction = super().extract(text)
        region = after_thinking(text)
        if extraction.answer is not None or region is None or self.config.extraction != "boxed" or boxes(region):
            return extraction
        blocks = _FENCED.findall(region) if "```" in region else [region]
        if len(blocks) != 1:
            return Extracted(None, f"{len(blocks)} fenced blocks" if blocks else "no closed fenced block", False)
        answer = blocks[0].strip()
        return Extracted(answer, "", thought_once(text)) if answer else Extracted(None, "no answer", False)

    def measures(self, problem: Problem, reached: Mapping[str, float]) -> Mapping[str, float]:
        names = ("parses", "valid", "values") if "schema" in problem.data else ("parses", "values")
        return {name: reached.get(name, 0.0) for name in names}

    def find(self, problem: Problem, answer: str) -> Finding:
        schema = problem.data.get("schema", "")
        schema = schema if isinstance(schema, str) else json.dumps(schema)
        try:
            reference, right, fits = _read_reference(problem.reference, schema)
        except UnreadableError as error:
            return Finding(Outcome.CRASHED, f"the reference answer of problem {problem.id} is unreadable: {error}")
        content = _read(answer)
        fault = _difference(content, reference, "$")
        values = _leaves(content) if fault else right
        equal = sum(path in values and not _difference(values[path], right[path], "$") for path in right)
        measures = {"parses": 1.0, "values": equal / len(values.keys() | right.keys())}
        misfit = _misfit(content, schema) if schema and (fault or not fits) else ""
        if misfit and not fault:
            return Finding(Outcome.CRASHED, f"the reference answer of problem {problem.id} does not fit its schema")
        if schema and not misfit:
            measures["valid"] = 1.0
        evidence = fault or "it equals the reference answer"
        evidence = f"it does not fit the schema: {misfit}; {evidence}" if misfit else evidence
        return Finding(Outcome.WRONG if fault else Outcome.CORRECT, evidence, _CANONICAL.encode(content), measures)


@lru_cache(maxsize=1024)  # the completions of a group have one reference and one schema
def _read_reference(text: str, schema: str) -> tuple[Any, dict[tuple[str | int, ...], Any], bool]:
    content = _read(text)
    return content, _leaves(content), not schema or not _misfit(content, schema)


def _misfit(content: Any, schema: str) -> str:
    """Describe the first thing in a value that does not fit a schema; empty when all does."""
    fault = next(_validator(schema).iter_errors(content), None)
    return f"{fault.json_path}: {shown(fault.message)}" if fault else ""


@lru_cache(maxsize=1024)
def _validator(schema: str) -> "Validator":
    from jsonschema import Draft202012Validator, validators  # takes as long to load as all the rest of this module
    from referencing import Registry

    content = json.loads(schema, parse_float=Decimal)
    draft = validators.validator_for(content, default=Draft202012Validator)
    draft.check_schema(content)
    return draft(content, registry=Registry())  # which fetches nothing from the network


def _read(text: str) -> Any:
    depth = 0
    for bracket in _BRACKET.findall(_STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        if depth > MAX_NESTING:
            raise UnreadableError(f"nested deeper than {MAX_NESTING}")
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise UnreadableError(f"not JSON: {error}") from None


def _leaves(content: Any, path: tuple[str | int, ...] = ()) -> dict[tuple[str | int, ...], Any]:
    """The values of a JSON value that hold no other, by their paths; an empty object or list is one."""
    members = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    leaves: dict[tuple[str | int, ...], Any] = {}
    for name, member in members:
        leaves |= _leaves(member, (*path, name))
    return leaves or {path: content}


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(members)
    if len(content) != len(members):
        raise UnreadableError("a key occurs twice in one object")
    return content


def _bounded(digits: str) -> str:
    if digits.lstrip("-").isalpha():  # Infinity, NaN
        raise UnreadableError(f"{digits} is not JSON")
    if len(digits) > MAX_DIGITS:
        raise UnreadableError(f"a number has {len(digits)} characters, at most {MAX_DIGITS} are read")
    if _LARGE_EXPONENT.search(digits):
        raise UnreadableError(f"the number {shown(digits)} has an exponent of more than three digits")
    return digits


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_constant=_bounded,
    parse_float=lambda digits: Decimal(_bounded(digits)),
    parse_int=lambda digits: int(_bounded(digits)),
)
_CANONICAL = json.JSONEncoder(sort_keys=True, default=lambda number: {"number": str(_EXACT.normalize(number))})


def _difference(answer: Any, reference: Any, path: str) -> str:
    if isinstance(reference, Decimal) and type(answer) is int:
        answer = Decimal(answer)
    if type(answer) is not type(reference):
        return f"{path} is of type {_type(answer)}, not {_type(reference)}"
    if isinstance(reference, dict):
        if missing_keys := sorted(reference.keys() - answer.keys()):
            return f"{path} has no {shown(missing_keys[0])}"
        if extra_keys := sorted(answer.keys() - reference.keys()):
            return f"{path} has {shown(extra_keys[0])}, which is not in the reference"
        keys: Iterable[Any] = sorted(reference)
    elif isinstance(reference, list):
        if len(answer) != len(reference):
            return f"{path} has {len(answer)} items, not {len(reference)}"
        keys = range(len(reference))
    else:
        return "" if answer == reference else f"{path} is {shown(str(answer))}, not {shown(str(reference))}"
    differences = (_difference(answer[key], reference[key], f"{path}.{key}") for key in keys)
    return next(filter(None, differences), "")


def _type(value: Any) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", Decimal: "number"}
    return names.get(type(value), "null")


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

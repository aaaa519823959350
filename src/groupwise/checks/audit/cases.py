"""Labelled cases from files: what is judged, and which verdict it must get.

A line is one JSON object in one of two formats, recognised by its fields: `gold`, `response`, `expected` (a whole
completion), or `gold`, `pred`, `expected` (a prediction, put into the form the verifier reads unless it brings it).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.errors import DataError
from groupwise.runs.jsonl import read_jsonl
from groupwise.types import Problem
from groupwise.verifiers.base import Extraction

_FORMS: Mapping[Extraction, str] = {"boxed": "\\boxed{%s}", "tag": "<answer>%s</answer>", "last_number": "%s"}
_MARKS: Mapping[Extraction, str] = {"boxed": "\\boxed", "tag": "<answer>", "last_number": ""}
_BARE = re.compile(r"\$\$?[^$]*\$\$?|[-0-9.,]+|-?\\frac\{\d+\}\{\d+\}|[0-9]\*?x.*", re.DOTALL)
"""A prediction that is an answer and nothing else, although its row does not say so."""


@dataclass(frozen=True, slots=True)
class Case:
    """A completion and the verdict it must get."""

    name: str
    group: str
    """What it is counted under: the tier of a file's row, or the kind of an attack."""
    problem: Problem
    text: str
    """The prompt's prefill and the completion."""
    expected: bool | None
    """Whether it must be judged correct; None when any verdict will do: shown apart, never a miss."""
    note: str = ""
    """Why it is undecided, or what the row says of itself."""


def load_cases(paths: Sequence[Path], extraction: Extraction = "boxed", tiers: Sequence[str] = ()) -> list[Case]:
    """The cases of all files, of these tiers only where any are named.

    Raises:
        DataError: names the file and line that cannot be read, or the tiers there are.
    """
    cases = [_case(record.fields, extraction, record.place) for path in paths for record in read_jsonl(path)]
    known = sorted({case.group for case in cases})
    unknown = set(tiers) - set(known)
    if not cases or unknown:
        lacking = f"no case of tier {', '.join(sorted(unknown))}; tiers there: {', '.join(known)}" if cases else "empty"
        raise DataError(f"{', '.join(map(str, paths))}: {lacking}")
    return [case for case in cases if not tiers or case.group in tiers]


def _case(row: dict[str, Any], extraction: Extraction, where: str) -> Case:
    field = "response" if "response" in row else "pred"
    if not all(isinstance(row.get(name), str) for name in ("gold", field)):
        raise DataError(
            f"{where}: a case has the text fields gold and response, or gold and pred; this has {', '.join(row)}"
        )
    if "expected" not in row or not (row["expected"] is None or isinstance(row["expected"], bool)):
        raise DataError(f"{where}: expected = {row.get('expected')!r}: allowed are true, false and null (undecided)")
    if not isinstance(row.get("data", {}), dict):
        raise DataError(f"{where}: data = {row['data']!r}: a JSON object was expected")
    name, language = str(row.get("id", where)), str(row.get("language", "en"))
    problem = Problem(name, str(row.get("question", "")), row["gold"], language=language, data=row.get("data", {}))
    text, expected, note = row[field], row["expected"], str(row.get("note", ""))
    if field == "pred":
        text = _in_form(row, extraction)
        if expected and _MARKS[extraction] not in text:
            expected, note = None, f"the answer stands in prose, without {_MARKS[extraction]}, which is not read"
    return Case(name, str(row.get("tier", "attack")), problem, text, expected, note)


def _in_form(row: dict[str, Any], extraction: Extraction) -> str:
    text: str = row["pred"]
    has_form = _MARKS[extraction] and _MARKS[extraction] in text
    is_bare = not has_form and ("wrap" not in row or _BARE.fullmatch(text.strip()))
    return _FORMS[extraction] % text.strip() if is_bare or row.get("wrap") == "boxed" else text

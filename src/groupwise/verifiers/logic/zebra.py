"""Zebra puzzles: one asked-for value, or the whole table as `1: Anna, tea; 2: Ben, milk`, equal to the reference."""

import re

from groupwise.verifiers.logic.base import ReferenceVerifier, UnreadableError, plain, shown

Table = dict[int, tuple[str, ...]]
"""Sorted values in lower case by house number; a single asked-for value stands under 0."""

_ROW = re.compile(r"(?:(?:house )?(?P<house>[1-9][0-9]?) ?: ?)?(?P<values>[^:]+)", re.IGNORECASE)
_VALUE = re.compile(r"[^\W\d_]+(?:[ '-][^\W\d_]+)*")


class ZebraVerifier(ReferenceVerifier[Table]):
    """The rows may stand in any order, and so may the values of a row; no house and no value stands twice."""

    def read(self, text: str) -> Table:
        table: Table = {}
        for row in re.split(r"[;\n]", plain(text).rstrip(".")):
            if row.strip():
                house, values = _read_row(row.strip())
                if house in table:
                    raise UnreadableError(f"house {house} stands twice" if house else "several answers")
                table[house] = values
        _refuse_repeats(table)
        return table

    def difference(self, found: Table, wanted: Table) -> str:
        for house in [*wanted, *found]:
            if found.get(house) != wanted.get(house):
                told, right = (", ".join(table.get(house, ("nothing",))) for table in (found, wanted))
                return f"{f'house {house}' if house else 'the value'} is {shown(told)}, not {shown(right)}"
        return ""

    def canonical(self, content: Table) -> str:
        if 0 in content:
            return "".join(content[0])
        return "; ".join(f"{house}: {', '.join(values)}" for house, values in sorted(content.items()))


def _read_row(row: str) -> tuple[int, tuple[str, ...]]:
    match = _ROW.fullmatch(row)
    values = [value.strip().casefold() for value in match["values"].split(",")] if match else []
    if match is None or not all(_VALUE.fullmatch(value) for value in values):
        raise UnreadableError(f"{shown(row)} is neither a value nor of the form `1: value, value`")
    if match["house"] is None and len(values) > 1:
        raise UnreadableError(f"{shown(row)} gives {len(values)} values, one is asked for")
    return int(match["house"] or 0), tuple(sorted(values))


def _refuse_repeats(table: Table) -> None:
    values = [value for row in table.values() for value in row]
    if 0 in table and len(table) > 1:
        raise UnreadableError("a value stands outside the table")
    if len(set(values)) != len(values):
        raise UnreadableError("a value stands twice")

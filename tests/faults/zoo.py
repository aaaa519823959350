"""All faults, and the table of them: `python tests/faults/zoo.py > docs/faults.md`."""

import tomllib
from pathlib import Path

import faults_of_runs
import faults_of_sampling
import faults_of_updates
import faults_of_verdicts
from planting import Edit

from lab import Fault

FAULTS = (*faults_of_sampling.FAULTS, *faults_of_verdicts.FAULTS, *faults_of_updates.FAULTS, *faults_of_runs.FAULTS)
KINDS = tomllib.loads(Path(__file__).with_name("kinds.toml").read_text(encoding="utf-8"))["kind"]
"""Kinds of faults that people met in other systems: what happens here instead, and the test that holds it."""

HEAD = """# Faults that are noticed

Each row is a mistake that systems of this kind have made, or easily make. A test plants it into the running code
(`tests/faults`) and requires that the check beside it notices, and that the same check lets the sound code pass. Where
an error is named, the program itself ends with it, in any run; else a test of this repository fails. The table is made
by `python tests/faults/zoo.py > docs/faults.md`.

| fault | planted in | noticed by | raised in |
|---|---|---|---|
"""


MET = """
## Kinds that others met

Reported in public for other systems; none of them is silent here.

| others met | here | test |
|---|---|---|
"""


def table() -> str:
    """The document."""
    planted = "".join(f"| {fault.what} | {_planted(fault)} | {_noticed(fault)} |\n" for fault in FAULTS)
    return HEAD + planted + MET + "".join(f"| {k['met']} | {k['here']} | `tests/{k['test']}` |\n" for k in KINDS)


def _planted(fault: Fault) -> str:
    places = [
        _place(edit.where) if isinstance(edit, Edit) else (edit.__doc__ or "").rstrip(".") for edit in fault.plant
    ]
    return "<br>".join([*dict.fromkeys(places), *(f"recipe: `{setting}`" for setting in fault.settings)])


def _noticed(fault: Fault) -> str:
    check = fault.check
    if not check.says:
        return f"test | `{check.where}`"
    return f"`{check.error.__name__}`: … {check.says.strip()} … | {_place(check.where)}"


def _place(where: str) -> str:
    return f"`{where.partition(':')[0].replace('.', '/')}`"


if __name__ == "__main__":
    print(table(), end="")

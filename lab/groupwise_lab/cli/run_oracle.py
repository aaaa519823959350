"""`groupwise oracle`: how far every estimator is from the true gradient, in worlds where that is known."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from groupwise.errors import ConfigError
from groupwise.runs.atomic import write_file
from groupwise_lab.oracle.document import document
from groupwise_lab.oracle.report import LEGEND, Section, shown
from groupwise_lab.oracle.sections import COMBINATIONS, SECTIONS
from groupwise_lab.oracle.toys import Dials


@dataclass(frozen=True, slots=True)
class OracleRequest:
    """What the command line asks for."""

    sections: tuple[str, ...]
    """None named: all but the combinations."""
    combinations: bool
    dials: Dials
    write: Path | None
    as_json: bool


def run_oracle(request: OracleRequest, console: Console) -> None:
    """Go through the sections and show them, or write the document."""
    makers = {**SECTIONS, **COMBINATIONS}
    if request.write:
        _write(request, request.write, console)
        return
    names = request.sections or tuple(SECTIONS)
    unknown = [name for name in names if name not in makers]
    if unknown:
        raise ConfigError(f"there is no section {unknown[0]!r}; known are {', '.join(makers)}")
    keys = dict.fromkeys([*names, *(COMBINATIONS if request.combinations else ())])
    sections = (makers[name](request.dials) for name in keys)
    if request.as_json:
        print(json.dumps(as_json(sections, request.dials), indent=1, ensure_ascii=False))
        return
    for section in sections:
        console.print(_table(section))
        console.print(f"{section.text}\n{section.world}\n", markup=False, highlight=False)
    for name, meaning in LEGEND.items():
        console.print(f"{name}: {meaning}", markup=False, highlight=False)


def _write(request: OracleRequest, path: Path, console: Console) -> None:
    if request.sections or request.combinations or request.as_json or request.dials != Dials():
        raise ConfigError("--write writes the default report; leave out sections, sizes, the seed, --all and --json")
    write_file(path, document({name: make(request.dials) for name, make in SECTIONS.items()}).encode())
    console.print(f"{path}: {len(SECTIONS)} sections")


def as_json(sections: Iterable[Section], dials: Dials) -> dict[str, Any]:
    """All figures; what is not defined (a cosine with a zero gradient) is null."""
    return {
        "seed": dials.seed,
        "sections": [
            {
                "section": section.key,
                "title": section.title,
                "world": section.world,
                "rows": [
                    {"setting": row.name, **dict(zip(section.columns, map(_finite, row.values), strict=True))}
                    for row in section.rows
                ],
            }
            for section in sections
        ],
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _table(section: Section) -> Table:
    table = Table(title=f"{section.title}  [dim]--section {section.key}[/]", title_justify="left", box=SIMPLE)
    table.add_column("setting", overflow="fold")
    for name in section.columns:
        table.add_column(name, justify="right", min_width=len(max(name.split(), key=len)), overflow="fold")
    for row in section.rows:
        table.add_row(row.name, *map(shown, row.values))
    return table

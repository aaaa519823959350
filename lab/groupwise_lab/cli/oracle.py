"""`groupwise oracle`: every estimator beside the true gradient, in worlds where that is known."""

import json as json_text
import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE
from rich.table import Table

from groupwise.cli.app import app, console
from groupwise.errors import ConfigError

if TYPE_CHECKING:
    from groupwise_lab.oracle.report import Section


@app.command()
def oracle(
    section: Annotated[list[str] | None, typer.Option(help="Show this section only. Repeatable.")] = None,
    combinations: Annotated[
        bool, typer.Option("--all", help="Add every advantage with every loss and aggregation.")
    ] = False,
    tokens: Annotated[
        int | None, typer.Option(min=2, help="Tokens of the vocabulary, the stop token included.")
    ] = None,
    length: Annotated[int | None, typer.Option(min=1, help="Token limit of a completion.")] = None,
    group_size: Annotated[int | None, typer.Option(min=2, help="Completions per prompt.")] = None,
    prompts: Annotated[int | None, typer.Option(min=1, help="Prompts per batch.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of policies and rewards.")] = 0,
    write: Annotated[
        Path | None, typer.Option(help="Write the table of algorithms with the figures (Markdown).")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Compare every estimator with the true policy gradient, in worlds so small that every batch can be enumerated.

    Columns: `cosine` between the expected gradient E[g] and the true one ∇J (1: the right direction); `scale`, the
    length of E[g] along ∇J (a learning rate makes up for it); `bias` = |E[g] - ∇J| / |∇J|, which no number of samples
    averages away; `noise`, one batch's standard deviation in units of |E[g]| (n batches divide it by √n).

    Each section has a world of its own size; a size given here applies to all. Nothing is sampled, so the
    figures are exact and the same every time.

    Examples:
        groupwise oracle

        groupwise oracle --section prompts --group-size 4

        groupwise oracle --section kl --seed 1 --json
    """
    from groupwise.runs.atomic import write_file
    from groupwise_lab.oracle.document import document
    from groupwise_lab.oracle.report import LEGEND
    from groupwise_lab.oracle.sections import COMBINATIONS, SECTIONS
    from groupwise_lab.oracle.toys import Dials

    dials, makers = Dials(tokens, length, group_size, prompts, seed), {**SECTIONS, **COMBINATIONS}
    if write:
        if section or combinations or json or dials != Dials():
            raise ConfigError(
                "--write writes the default report; leave out sections, sizes, the seed, --all and --json"
            )
        write_file(write, document({name: make(dials) for name, make in SECTIONS.items()}).encode())
        console.print(f"{write}: {len(SECTIONS)} sections")
        return
    names = section or list(SECTIONS)
    if unknown := [name for name in names if name not in makers]:
        raise ConfigError(f"there is no section {unknown[0]!r}; known are {', '.join(makers)}")
    sections = [makers[name](dials) for name in dict.fromkeys([*names, *(COMBINATIONS if combinations else ())])]
    if json:
        print(json_text.dumps({"seed": dials.seed, "sections": as_json(sections)}, indent=1, ensure_ascii=False))
        return
    for made in sections:
        console.print(table_of(made))
        console.print(f"{made.text}\n{made.world}\n", markup=False, highlight=False)
    for name, meaning in LEGEND.items():
        console.print(f"{name}: {meaning}", markup=False, highlight=False)


def as_json(sections: "Iterable[Section]") -> list[dict[str, Any]]:
    """Return all figures; an undefined one (a cosine with a zero gradient) is null."""
    return [
        {
            "section": section.key,
            "title": section.title,
            "world": section.world,
            "rows": [
                {
                    "setting": row.name,
                    **{
                        column: value if math.isfinite(value) else None
                        for column, value in zip(section.columns, row.values, strict=True)
                    },
                }
                for row in section.rows
            ],
        }
        for section in sections
    ]


def table_of(section: "Section") -> Table:
    """Return a section as a table for the terminal."""
    from groupwise_lab.oracle.report import shown

    table = Table(title=f"{section.title}  [dim]--section {section.key}[/]", title_justify="left", box=SIMPLE)
    table.add_column("setting", overflow="fold")
    for name in section.columns:
        table.add_column(name, justify="right", min_width=len(max(name.split(), key=len)), overflow="fold")
    for row in section.rows:
        table.add_row(row.name, *map(shown, row.values))
    return table

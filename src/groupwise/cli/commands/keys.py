"""`groupwise keys`: its arguments and options, and what its help says."""

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.app import app, console


@app.command()
def keys(
    section: Annotated[str | None, typer.Argument(help="A section, for example `optimizer`; default: all.")] = None,
    kind: Annotated[str | None, typer.Option(help="One kind of the section only.")] = None,
    write: Annotated[Path | None, typer.Option(help="Write the reference of all keys to this file.")] = None,
) -> None:
    """List what a recipe may hold: every key, its allowed values, its default and its meaning.

    Examples:

        groupwise keys optimizer

        groupwise keys data --kind generated
    """
    from rich.markdown import Markdown

    from groupwise.cli import keys as reference

    if write:
        write.write_text(reference.page(), encoding="utf-8")
        console.print(f"written to {write}")
        return
    document = reference.reference()
    headings = reference.choose(document, section, kind) if section else document.headings
    console.print(Markdown(reference.markdown(document, headings)))

"""`groupwise export`: a run's newest checkpoint as a plain Hugging Face directory."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from groupwise.cli.app import RunPath, app, console


@app.command()
def export(
    run: RunPath,
    directory: Annotated[Path, typer.Argument(help="Where to write the model; an existing directory is replaced.")],
    gguf: Annotated[Literal["f32", "f16", "q8_0"] | None,
        typer.Option(help="Write a GGUF file too, in this precision, for llama.cpp, Ollama and LM Studio.")] = None,
) -> None:  # fmt: skip
    """Write a run's newest checkpoint as a plain Hugging Face directory, with the record of how it was made.

    Example:

        groupwise export runs/arithmetic models/reasoner
        groupwise export runs/arithmetic models/reasoner --gguf q8_0
    """
    from groupwise.models.export import export as export_run

    export_run(run, directory, gguf)
    console.print(f"{directory}: the newest checkpoint of {run}, with provenance.json and a model card")

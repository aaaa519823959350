"""`groupwise verify`: its arguments and options, and what its help says."""

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.app import Overrides, app, console


@app.command()
def verify(
    verifier: Annotated[str, typer.Argument(help="A verifier's name, e.g. `math`.")],
    completion: Annotated[
        str | None, typer.Argument(help="The completion; without it, or with `-`, standard input is read.")
    ] = None,
    reference: Annotated[str, typer.Option(help="The reference answer.")] = "",
    file: Annotated[Path | None, typer.Option(help="Read the completion from a file.")] = None,
    question: Annotated[str, typer.Option(help="The question, for verifiers that read it.")] = "",
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=JSON|FILE",
            help="What else the verifier needs, e.g. `--data target=16` (repeatable); or a file of problems, whose "
            "reference answers are checked instead.",
        ),
    ] = None,
    language: Annotated[str, typer.Option(help="Language of the question (ISO 639-1).")] = "en",
    overrides: Overrides = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    r"""Judge one completion and explain the verdict step by step.

    Examples:

        groupwise verify math --reference 391 'So it is \boxed{391}.'

        groupwise verify countdown --data numbers='[3, 5, 2]' --data target=16 '\boxed{(3+5)*2}'

        groupwise verify math --data problems.jsonl --set task.answer_field=solution
    """
    from groupwise.cli.verify import check_data, read_completion, read_data, run_verify
    from groupwise.types import Problem

    if data and len(data) == 1 and data[0].endswith((".jsonl", ".json", ".parquet")):
        if not check_data(verifier, Path(data[0]), overrides or [], console):
            raise typer.Exit(1)
        return
    problem = Problem("asked", question, reference, language=language, data=read_data(data or []))
    if not run_verify(verifier, read_completion(completion, file), problem, overrides or [], console, json):
        raise typer.Exit(1)

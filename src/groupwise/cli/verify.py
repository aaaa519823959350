"""`groupwise verify`: one completion, its verdict, and how it came about; or the reference answers of a file."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from groupwise.cli.app import Json, Overrides, app, console, print_json, refuse
from groupwise.config.places import decoded
from groupwise.errors import ConfigError, DataError, told_as
from groupwise.runs.jsonl import read_json

if TYPE_CHECKING:
    from groupwise.checks.audit.verifier import Explained
    from groupwise.types import Problem

STYLES = {"correct": "bold green", "wrong": "bold red", "unparsable": "bold yellow"}


@app.command()
def verify(
    verifier: Annotated[str, typer.Argument(help="A verifier's name, e.g. `math`.")],
    completion: Annotated[
        str | None, typer.Argument(help="The completion; without it, or with `-`, standard input is read.")] = None,
    reference: Annotated[str, typer.Option(help="The reference answer.")] = "",
    file: Annotated[Path | None, typer.Option(help="Read the completion from a file.")] = None,
    question: Annotated[str, typer.Option(help="The question, for verifiers that read it.")] = "",
    data: Annotated[list[str] | None, typer.Option(metavar="KEY=JSON|FILE",
        help="What else the verifier needs, e.g. `--data target=16` (repeatable); or a file of problems, whose "
        "reference answers are checked instead.")] = None,
    language: Annotated[str, typer.Option(help="Language of the question (ISO 639-1).")] = "en",
    overrides: Overrides = None,
    json: Json = False,
) -> None:  # fmt: skip
    r"""Judge one completion and explain the verdict step by step.

    Examples:

        groupwise verify math --reference 391 'So it is \boxed{391}.'

        groupwise verify countdown --data numbers='[3, 5, 2]' --data target=16 '\boxed{(3+5)*2}'

        groupwise verify math --data problems.jsonl --set task.answer_field=solution
    """
    from groupwise.checks.audit.verifier import check_references, verify
    from groupwise.types import Problem
    from groupwise.verifiers.extraction import clipped

    if data and len(data) == 1 and ("=" not in data[0] or os.path.exists(data[0])):
        is_said = completion not in (None, "-")
        refuse("on a file of problems", COMPLETION=is_said, reference=reference, file=file, question=question,
               language=language != "en", json=json)  # fmt: skip
        references = check_references(verifier, data[0], overrides or [])
        faulty = [problem for problem in references.problems if problem.id in references.faults]
        lines = [f"row {p.id.rpartition('-')[2]}: {clipped(p.reference)}: {references.faults[p.id]}" for p in faulty]
        counts = f"{len(references.faults)} of {len(references.problems)} reference answers"
        for line in (*lines, f"{counts} of {data[0]} cannot be read or do not pass"):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        if references.faults:
            raise typer.Exit(1)
        return
    problem = Problem("asked", question, reference, language=language, data=read_data(data or []))
    if completion not in (None, "-") and file is not None:
        raise ConfigError("give the completion as text or with --file, not both")
    text = str(completion)
    if completion in (None, "-"):
        with told_as(DataError, f"{file or 'standard input'} cannot be read", OSError, UnicodeDecodeError):
            text = decoded(sys.stdin.buffer.read() if file is None else file.read_bytes()).replace("\r\n", "\n")
    explained = verify(verifier, text, problem, overrides or [])
    if json:
        print_json(explained.as_dict())
    else:
        show_verdict(explained, problem, text)
    if explained.verdict.outcome.failed:
        raise typer.Exit(1)


def read_data(pairs: Sequence[str]) -> dict[str, Any]:
    """Read `key=json` pairs, for verifiers that need more than a reference answer."""
    data: dict[str, Any] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        try:
            data[name.strip()] = read_json(value, f"--data {name.strip()}")
        except DataError as error:
            raise ConfigError(
                f"{error}; the form is key=JSON, for example numbers='[3, 5, 2]', or one file of problems"
            ) from None
    return data


def show_verdict(explained: "Explained", problem: "Problem", completion: str) -> None:
    """Print the completion, the steps of the verdict and its reward."""
    from groupwise.verifiers.extraction import clipped

    verdict = explained.verdict
    text = Text("completion  ", style="dim").append(clipped(completion, 600), style="default")
    text.append("\nreference   ", style="dim").append(clipped(problem.reference))
    for number, step in enumerate(explained.steps, start=1):
        text.append(f"\n  {number}. ", style="dim").append(step)
    text.append(f"\n{verdict.outcome}", style=STYLES.get(verdict.outcome, "bold magenta"))
    reward = "no reward: the verifier failed" if verdict.outcome.failed else "no reward: the verifier has no verdict"
    if verdict.outcome.judged:
        parts = ", ".join(f"{name} {value:g}" for name, value in verdict.parts.items())
        reward = f"reward {sum(verdict.parts.values()):g} ({parts})"
    text.append(f"  {reward}")
    if verdict.answer is not None:
        text.append(f"  answer {clipped(verdict.answer)}")
    console.print(text, soft_wrap=True)

"""`groupwise verify`: one completion, its verdict, and how it came about; or the reference answers of a file."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from groupwise.checks.audit.verify import Explained, check_references, verify
from groupwise.errors import ConfigError, DataError
from groupwise.types import Outcome, Problem
from groupwise.verifiers.extraction import clipped

STYLES = {Outcome.CORRECT: "bold green", Outcome.WRONG: "bold red", Outcome.UNPARSABLE: "bold yellow"}


def check_data(verifier: str, path: Path, overrides: Sequence[str], console: Console) -> bool:
    """List the reference answers of a file that cannot be read or do not pass; False where there are any."""
    references = check_references(verifier, path, overrides)
    for problem in references.problems:
        if problem.id in references.faults:
            row = problem.id.rpartition("-")[2]
            line = f"row {row}: {clipped(problem.reference)}: {references.faults[problem.id]}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    counts = f"{len(references.faults)} of {len(references.problems)} reference answers"
    line = f"{counts} of {path} cannot be read or do not pass"
    console.print(line, markup=False, highlight=False, soft_wrap=True)
    return not references.faults


def run_verify(
    verifier: str, completion: str, problem: Problem, overrides: Sequence[str], console: Console, as_json: bool
) -> bool:
    """Judge one completion and explain; False when the verifier itself failed."""
    explained = verify(verifier, completion, problem, overrides)
    if as_json:
        print(json.dumps(explained.as_dict(), indent=1))
    else:
        _print(explained, problem, completion, console)
    return not explained.verdict.outcome.failed


def read_completion(text: str | None, file: Path | None) -> str:
    """The completion from the command line, a file, or standard input (no text, or `-`).

    Raises:
        ConfigError: both are named.
        DataError: the file cannot be read.
    """
    if text not in (None, "-") and file is not None:
        raise ConfigError("give the completion as text or with --file, not both")
    if file is None:
        return sys.stdin.read() if text in (None, "-") else str(text)
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read: {error}") from None


def read_data(pairs: Sequence[str]) -> dict[str, Any]:
    """`key=json` pairs, for verifiers that need more than a reference answer."""
    data: dict[str, Any] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        try:
            data[name.strip()] = json.loads(value)
        except json.JSONDecodeError:
            raise ConfigError(
                f"--data {pair!r} must look like key=JSON, for example numbers='[3, 5, 2]', or be a file of problems "
                "(.jsonl, .json, .parquet)"
            ) from None
    return data


def _print(explained: Explained, problem: Problem, completion: str, console: Console) -> None:
    verdict = explained.verdict
    text = Text("completion  ", style="dim").append(clipped(completion, 600), style="default")
    text.append("\nreference   ", style="dim").append(clipped(problem.reference))
    for number, step in enumerate(explained.steps, start=1):
        text.append(f"\n  {number}. ", style="dim").append(step)
    text.append(f"\n{verdict.outcome}", style=STYLES.get(verdict.outcome, "bold magenta"))
    unpaid = "no reward: the verifier failed" if verdict.outcome.failed else "no reward: the verifier has no verdict"
    text.append(f"  {_reward_line(verdict.parts) if verdict.outcome.judged else unpaid}")
    if verdict.answer is not None:
        text.append(f"  answer {clipped(verdict.answer)}")
    console.print(text, soft_wrap=True)


def _reward_line(parts: Mapping[str, float]) -> str:
    return f"reward {sum(parts.values()):g} ({', '.join(f'{name} {value:g}' for name, value in parts.items())})"

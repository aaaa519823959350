"""`groupwise verify`: one completion, its verdict, and how it came about; or the reference answers of a file."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.text import Text

from groupwise.config import Section, parse
from groupwise.errors import ConfigError, DataError
from groupwise.tasks.base import Template
from groupwise.tasks.jsonl import Jsonl, JsonlConfig
from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers import VERIFIERS, Request, VerifierConfig, make_verifier
from groupwise.verifiers.extraction import clipped
from groupwise.verifiers.math import MathVerifier

STYLES = {Outcome.CORRECT: "bold green", Outcome.WRONG: "bold red", Outcome.UNPARSABLE: "bold yellow"}


class _Settings(Section):
    """What can be set."""

    verifier: Annotated[VerifierConfig, VERIFIERS]
    """How the completion is judged."""


class _DataSettings(_Settings):
    """What can be set where the reference answers of a file are checked."""

    task: JsonlConfig
    """Which fields hold question and answer."""


def check_data(verifier: str, path: Path, overrides: Sequence[str], console: Console) -> bool:
    """List the reference answers of a file that cannot be read or do not pass; False where there are any.

    Raises:
        ConfigError, DataError: the file cannot be used.
    """
    given = {"verifier": {"kind": verifier}, "task": {"kind": "jsonl", "path": str(path), "dev_fraction": 0.0}}
    settings = parse(_DataSettings, given, overrides, source="verify")
    problems, template = Jsonl(settings.task).problems("train"), settings.task.template
    with make_verifier(settings.verifier) as judge:
        requests = [Request(problem, template.gold_answer(problem)) for problem in problems]
        faults = {
            problem.id: verdict.evidence
            for problem, verdict in zip(problems, judge.verify_many(requests), strict=True)
            if verdict.outcome is not Outcome.CORRECT
        }
        if isinstance(judge, MathVerifier):
            faults |= {problem.id: reason for problem, reason in judge.unreadable(problems)}
    for problem in problems:
        if problem.id in faults:
            row = problem.id.rpartition("-")[2]
            line = f"row {row}: {clipped(problem.reference)}: {faults[problem.id]}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    line = f"{len(faults)} of {len(problems)} reference answers of {path} cannot be read or do not pass"
    console.print(line, markup=False, highlight=False, soft_wrap=True)
    return not faults


def run_verify(
    verifier: str, completion: str, problem: Problem, overrides: Sequence[str], console: Console, as_json: bool
) -> bool:
    """Judge one completion and explain; False when the verifier itself failed."""
    config = parse(_Settings, {"verifier": {"kind": verifier}}, overrides, source="verify").verifier
    with make_verifier(config) as judge:
        judge.check([problem], Template())
        verdict = judge.verify(problem, completion)
        steps = judge.explain(problem, completion, verdict)
    if as_json:
        print(json.dumps(_as_json(verdict, steps), indent=1))
    else:
        _print(verdict, steps, problem, completion, console)
    return not verdict.outcome.failed


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


def _as_json(verdict: Verdict, steps: Sequence[str]) -> dict[str, Any]:
    return {
        "outcome": verdict.outcome,
        "reward": verdict.reward,
        "parts": dict(verdict.parts),
        "answer": verdict.answer,
        "evidence": verdict.evidence,
        "explanation": list(steps),
        "measures": dict(verdict.measures),
    }


def _print(verdict: Verdict, steps: Sequence[str], problem: Problem, completion: str, console: Console) -> None:
    told = Text("completion  ", style="dim").append(clipped(completion, 600), style="default")
    told.append("\nreference   ", style="dim").append(clipped(problem.reference))
    for number, step in enumerate(steps, start=1):
        told.append(f"\n  {number}. ", style="dim").append(step)
    told.append(f"\n{verdict.outcome}", style=STYLES.get(verdict.outcome, "bold magenta"))
    unpaid = "no reward: the verifier failed" if verdict.outcome.failed else "no reward: the verifier has no verdict"
    told.append(f"  {_reward_line(verdict.parts) if verdict.outcome.judged else unpaid}")
    if verdict.answer is not None:
        told.append(f"  answer {clipped(verdict.answer)}")
    console.print(told, soft_wrap=True)


def _reward_line(parts: Mapping[str, float]) -> str:
    return f"reward {sum(parts.values()):g} ({', '.join(f'{name} {value:g}' for name, value in parts.items())})"

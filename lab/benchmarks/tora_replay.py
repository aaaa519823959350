"""Recorded traces of ToRA on GSM8K (Gou et al. 2023, arXiv:2309.17452), through our interpreter and our verifier.

    python lab/benchmarks/tora_replay.py ../shared/data/tora/tora_70b_gsm8k.jsonl --tier landlock

Every program of a trace runs again as the `python` tool runs it, and what it says is compared with the output that the
authors recorded. Then the verifier judges the answers, whose share is compared with the score that they report (84.3).
An answer is what the trace boxes; where it boxes nothing, what the program printed, as in the authors' evaluation.
"""

import argparse
import json
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.rollout.tools import Call
from groupwise.rollout.tools.python import PythonTool, PythonToolConfig
from groupwise.sandbox.base import SandboxConfig
from groupwise.types import Outcome, Problem
from groupwise.verifiers import Request, make_verifier, verifier_config

OUTPUT = re.compile(r"\n?```output\n(.*?)\n```\n?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Trace:
    """One recorded answer."""

    index: int
    question: str
    reference: str
    programs: tuple[str, ...]
    outputs: tuple[str, ...]
    """The answer of the authors' interpreter to each program."""
    text: str


def read(line: str) -> Trace:
    """A line of the authors' file; programs are found as the tool finds them."""
    row: dict[str, Any] = json.loads(line)
    text, programs, outputs = row["code"][0], [], []
    at, tool = 0, PythonTool()
    for match in OUTPUT.finditer(text):
        found = tool.look(text[at : match.start()])
        if isinstance(found, Call):
            programs.append(found.content)
            outputs.append(match[1])
        at = match.end()
    return Trace(row["idx"], row["question"], row["gt"].replace(",", ""), tuple(programs), tuple(outputs), text)


def answer(trace: Trace) -> str:
    """The text that is judged."""
    last = OUTPUT.split(trace.text)[-1]
    if "\\boxed" in last:
        return last
    printed = trace.outputs[-1].splitlines()[-1] if trace.outputs and trace.outputs[-1] else ""
    return f"\\boxed{{{printed}}}"


def rerun(traces: list[Trace], tier: str, workers: int) -> list[tuple[Trace, str, str]]:
    """(trace, recorded, ours) of every call."""
    sandbox = SandboxConfig(tier=tier, num_workers=workers, wall_s=10.0, cpu_s=5)  # type: ignore[arg-type]
    calls = [(trace, i) for trace in traces for i in range(len(trace.programs))]
    with PythonTool(PythonToolConfig(sandbox=sandbox)) as tool, ThreadPoolExecutor(workers) as threads:
        said = threads.map(lambda call: tool.run(call[0].programs[call[1]]).text, calls)
        return [(trace, trace.outputs[i], ours) for (trace, i), ours in zip(calls, said, strict=True)]


def judged(traces: list[Trace], kind: str) -> Counter[Outcome]:
    """Verdicts on the answers."""
    requests = [Request(Problem(f"gsm8k/{t.index}", t.question, t.reference), answer(t)) for t in traces]
    with make_verifier(verifier_config({"kind": kind})) as verifier:
        return Counter(verdict.outcome for verdict in verifier.verify_many(requests))


def main() -> None:
    """Print what differs, the share of identical outputs, and the score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path)
    parser.add_argument("--tier", default="bubblewrap")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--verifier", default="math")
    parser.add_argument("--first", type=int, default=None, help="only so many traces")
    options = parser.parse_args()
    lines = options.traces.read_text(encoding="utf-8").splitlines()[: options.first]
    traces = [read(line) for line in lines]
    calls = rerun(traces, options.tier, options.workers)
    same = sum(recorded.strip() == ours.strip() for _, recorded, ours in calls)
    for trace, recorded, ours in calls:
        if recorded.strip() != ours.strip():
            print(f"  {trace.index}: recorded {recorded[-70:]!r}, ours {ours[-70:]!r}")
    outcomes = judged(traces, options.verifier)
    print(f"{len(traces)} traces, {len(calls)} calls: {same} outputs identical ({same / max(1, len(calls)):.2%})")
    print(f"correct {outcomes[Outcome.CORRECT] / len(traces):.1%} ({dict(outcomes)})")


if __name__ == "__main__":
    main()

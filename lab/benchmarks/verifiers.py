"""Speed of verifiers: mathematical verdicts in this process and by two workers, the verdicts of a step, latencies.

`python lab/benchmarks/verifiers.py [CASES]`, where CASES is a JSON Lines file of cases with `gold`, `pred` and `wrap`.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from groupwise.tasks import make_task
from groupwise.tasks.base import Task
from groupwise.types import Outcome, Problem
from groupwise.verifiers import Request, make_verifier
from groupwise.verifiers.math import MathVerifier

REPEATS = 7
EASY = [
    ("{n}", "{n}", True), ("{n}", "{n}.0", True), ("{n}", "1{n}", False), (r"\frac{{{n}}}{{7}}", "{n}/7", True),
    ("0.{n}", ".{n}", True), ("({n}, 2)", r"\left({n},2\right)", True), ("{n}", r"{n} \text{{ cm}}", True),
    ("{n},3", r"\{{3, {n}\}}", True), (r"\text{{(C)}}", "C", True), ("{n}", r"x = {n}", True),
]  # fmt: skip
SYMBOLIC = [
    ("x^2+{n}x", "x(x+{n})", True), (r"\frac{{\sqrt{{{n}}}}}{{2}}", r"\frac{{{n}}}{{2\sqrt{{{n}}}}}", True),
    (r"{n}\pi", r"\frac{{2\pi \cdot {n}}}{{2}}", True), ("a+{n}b", "a-{n}b", False), ("2^{n}", "2^{n}+1", False),
    (r"\sin^2 x + {n}", r"{n}+1-\cos^2 x", True), ("y={n}x+1", "2y-{n}x-{n}x=2", True), ("{n}+4i", "4i+{n}", True),
]  # fmt: skip
TASKS = [
    "arithmetic", "word_problems", "countdown", "knights_knaves", "json_extraction", "instructions",
    "propositional_proofs",
]  # fmt: skip
"""Those that bring their problems with them."""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="?", type=Path, help="JSON Lines with gold, pred, wrap")
    cases = parser.parse_args().cases
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}, {REPEATS} repeats, least to most")
    with make_verifier({"kind": "math", "num_workers": 2}) as verifier:
        report("easy, in process", lambda i: rate(verifier, EASY, 2_000, i))
        report("symbolic, two workers", lambda i: rate(verifier, SYMBOLIC, 40, i))
    for task in TASKS:
        times = step_ms(task)
        print(f"a step of {task:21} {statistics.median(times):5.1f} ms   [{times[0]:.1f}, {times[-1]:.1f}]")
    if cases:
        latencies(cases)


def report(name: str, measure: Callable[[int], float]) -> None:
    """One line: the median and the range of a rate; the first run starts processes and is not counted."""
    measure(0)
    rates = sorted(measure(i + 1) for i in range(REPEATS))
    print(f"{name:24} {statistics.median(rates):9,.0f} verdicts/s   [{rates[0]:,.0f}, {rates[-1]:,.0f}]")


def rate(verifier: MathVerifier, kinds: Sequence[tuple[str, str, bool]], rounds: int, repeat: int) -> float:
    """Verdicts per second on pairs that never occurred before, so that no cache helps; each verdict is checked."""
    numbers = range(11 + repeat * rounds, 11 + (repeat + 1) * rounds)
    pairs = [(gold.format(n=n), pred.format(n=n), right) for n in numbers for gold, pred, right in kinds]
    requests = [Request(Problem("", "", gold), f"<think>so</think> \\boxed{{{pred}}}") for gold, pred, _ in pairs]
    start = time.perf_counter()
    verdicts = verifier.verify_many(requests)
    taken = time.perf_counter() - start
    for (gold, pred, right), verdict in zip(pairs, verdicts, strict=True):
        assert (verdict.outcome is Outcome.CORRECT) == right, (gold, pred, verdict)
    return len(pairs) / taken


def step_ms(name: str) -> list[float]:
    """Milliseconds of processor time for a step's verdicts: 16 problems, 16 completions each, half of them right."""
    task = make_task(name)
    problems = task.problems("train")
    times = []
    with make_verifier(task.verifier) as verifier:
        for repeat in range(REPEATS):
            requests = [request(task, problem, n) for problem in problems[16 * repeat :][:16] for n in range(16)]
            start = time.process_time()
            verdicts = verifier.verify_many(requests)
            times.append(1000 * (time.process_time() - start))
            assert sum(verdict.outcome is Outcome.CORRECT for verdict in verdicts) == len(requests) // 2 == 128
    return sorted(times)


def request(task: Task, problem: Problem, number: int) -> Request:
    """A completion of its own for every number; the even ones are right."""
    text = task.template.gold_answer(replace(problem, reference="7919") if number % 2 else problem)
    return Request(problem, text.replace("</think>", f"{'I add the parts. ' * 25}{number}</think>", 1))


def latencies(path: Path) -> None:
    """Percentiles of the time one verdict takes on the cases, by one warm worker."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    with MathVerifier() as verifier:
        verifier.start()
        times = []
        for row in rows:
            text = row["pred"] if "\\boxed" in row["pred"] else f"\\boxed{{{row['pred']}}}"
            start = time.perf_counter()
            verifier.verify(Problem("", "", row["gold"]), text)
            times.append(1000 * (time.perf_counter() - start))
    cuts = statistics.quantiles(times, n=100)
    shown = ", ".join(f"p{p} {cuts[p - 1]:.2f}" for p in (50, 90, 95, 99))
    print(f"{'latency on ' + str(len(rows)) + ' cases':24} {shown}, most {max(times):.1f} ms")


if __name__ == "__main__":
    main()

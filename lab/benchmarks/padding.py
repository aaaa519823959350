"""Measure the reward of true steps that lead nowhere: the table of docs/do/prm.md.

    python lab/benchmarks/padding.py

One group of four completions: right after three true equations; twice a slip (true, false, true, wrong); and wrong
after ten true equations that are of no use. Printed is the advantage of each first token, by kind of advantage.
"""

from collections.abc import Iterator

import torch

from groupwise.algorithms.step_advantages import Process, ProcessGae, ProcessMin
from groupwise.checks.preflight.machine import PADDED

KINDS = {
    "`process`": Process(kind="process"),
    "`process`, `outcome_weight = 3`": Process(kind="process", outcome_weight=3.0),
    "`process_min`": ProcessMin(kind="process_min"),
    "`process_gae`, λ = 1": ProcessGae(kind="process_gae"),
}


def rows() -> Iterator[tuple[str, list[float]]]:
    """By kind, the advantage of the first token of each completion."""
    ends = [torch.arange(1, len(own) + 1) for own in PADDED]
    for name, kind in KINDS.items():
        yield name, [float(own[0]) for own in kind.of_steps(PADDED, ends, [len(own) for own in PADDED])]


def main() -> None:
    """Print the table."""
    print("| advantage | right | slip | padded, wrong |\n|---|---|---|---|")
    for name, (right, slip, _, padded) in rows():
        print(f"| {name} | {right:.2f} | {slip:.2f} | {padded:.2f} |")


if __name__ == "__main__":
    main()

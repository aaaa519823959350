"""Compare what two versions computed: the ledgers of two runs, or of all stages of two pipelines, fact by fact.

    python lab/benchmarks/same_runs.py runs/before runs/after

Compared are problems, tokens, outcomes, rewards, advantages, gradient norms and weights of every step and evaluation. A
ledger that is the same byte for byte is said to be; where one differs, the first fact that does is named. Ledgers of
0.1.0 hashed all advantages per token; one that is the same at every token is a number now, and counts as the same.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

CHAIN = "previous"
"""The fact that follows from all lines before."""
MAX_TOKENS = 4096
"""Longest completion for which a number is tried as its hash."""


def ledgers(folder: Path) -> dict[str, Path]:
    """By name, the ledgers of a run or of a pipeline's stages."""
    return {str(path.parent.relative_to(folder)): path for path in sorted(folder.rglob("ledger.jsonl"))}


def facts(path: Path) -> list[dict[str, Any]]:
    """The lines of a ledger."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != CHAIN} for line in lines]


def same(before: Any, after: Any) -> bool:
    """Return True if two facts are the same, an advantage as its hash or as a number."""
    if isinstance(before, dict) and isinstance(after, dict):
        return before.keys() == after.keys() and all(same(before[key], after[key]) for key in before)
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(map(same, before, after))
    if isinstance(before, str) and isinstance(after, float):
        return any(before == hashed(after, count) for count in range(1, MAX_TOKENS))
    return bool(before == after)


def hashed(value: float, count: int) -> str:
    """As ledgers hash the advantages of this many tokens."""
    return hashlib.sha256(np.full(count, value, "<f4").tobytes()).hexdigest()[:16]


def difference(before: Path, after: Path) -> str:
    """Return the first difference of two ledgers in words; empty where they agree in all facts."""
    old, new = facts(before), facts(after)
    for number, (one, other) in enumerate(zip(old, new, strict=False)):
        for key in sorted(one.keys() | other.keys()):
            if not same(one.get(key), other.get(key)):
                return f"line {number}: {key} was {one.get(key)!r:.80} and is {other.get(key)!r:.80}"
    return "" if len(old) == len(new) else f"{len(old)} lines before, {len(new)} after"


def main(before: Path, after: Path) -> int:
    """Print a line per ledger; 1 if any differs or is missing."""
    old, new = ledgers(before), ledgers(after)
    failed = not old
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            said, failed = f"only in {before if name in old else after}", True
        elif old[name].read_bytes() == new[name].read_bytes():
            said = "the same, byte for byte"
        else:
            said = difference(old[name], new[name]) or "the same facts"
            failed |= said != "the same facts"
        print(f"{name}: {said}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:3])))

"""Every fault before every preflight: `python lab/benchmarks/preflight/flights.py --write docs/preflight.md`."""

import argparse
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hangar import CASES, SLOW_CASES, Case, fly, heaviest

from groupwise.checks import Finding
from groupwise.checks.preflight import CHECKS

COSTS = {
    "free": "free; `groupwise train` does it, too", "verifier": "the verifier's time",
    "model": "a sample of 32 problems", "step": "three steps on a copy",
}  # fmt: skip
HEAD = """# The preflight

`groupwise preflight RECIPE` says before a run what would go wrong with it: GO, GO WITH WARNINGS or NO-GO (exit status
2), with what was seen, what will come of it, and what to change. Figures of every check are shown whether or not
anything is wrong: pass rates, groups without a signal for three group sizes, the smallest difference that dev can tell
from chance, time and tokens to the end. `--json` is for programs, `--write FILE` keeps it, `--leave-out CHECK` leaves
a check out, `--price-per-hour` says what the run will cost. `groupwise train` does the checks that cost nothing, and
refuses to begin after a NO-GO unless it is told `--anyway`.

All checks together take two minutes (`--seconds`), whatever the model: it measures the speed of a few completions,
samples as many as half of the time that is left allows, and rehearses steps of as many prompts as the rest allows.
Every check says its verdict when it is done; the end says what there was no time for.

`groupwise preflight PIPELINE` checks every stage as far as it can be before the stages in front of it have run:
settings and files of all, problems, memory, disk and verifier of those of reinforcement learning, and prompts, sample
and rehearsal of those that start from a model that is there. What waits for an earlier stage is named as not done.

This page is made by `python lab/benchmarks/preflight/flights.py --write docs/preflight.md`, which flies the cases of
the second
table.

## Checks

| check | looks at | costs | bounds are from |
|---|---|---|---|
"""


class Result(NamedTuple):
    """A case, and the heaviest thing that was said of it."""

    case: Case
    found: Finding | None

    @property
    def right(self) -> bool:
        """Whether that is what the case deserves."""
        level = self.found.severity if self.found else None
        return level is self.case.severity


def document(results: Sequence[Result]) -> str:
    """The page."""
    checks = "".join(f"| `{c.name}` | {c.says} | {COSTS[c.cost]} | {c.source} |\n" for c in CHECKS.values())
    rows = "".join(_row(result) for result in results)
    head = "| recipe | fault | check | said | because |\n|---|---|---|---|---|\n"
    return f"{HEAD}{checks}\n## Recipes with a fault\n\n{counted(results)}\n\n{head}{rows}"


def counted(results: Sequence[Result]) -> str:
    """How many are judged as they deserve, in a sentence."""
    return f"{sum(result.right for result in results)} of {len(results)} are judged as they deserve."


def _row(result: Result) -> str:
    case, found = result
    evidence = re.sub(r"/\S*/(?=rewards\.py)", "", found.evidence) if found else "-"  # no place of this machine
    because = shorten(evidence, 160).replace("|", "\\|").replace("<", "&lt;")  # a tag would be one on the page, too
    return f"| {case.name} | {case.what} | `{case.check}` | {found.severity if found else 'GO'} | {because} |\n"


def shorten(text: str, most: int) -> str:
    """One line of at most this many characters, cut between words."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1].rpartition(' ')[0]} …"


def main() -> int:
    """Fly, write; 1 where a recipe was not judged as it deserves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    results = []
    for case in (*CASES, *SLOW_CASES):
        with tempfile.TemporaryDirectory() as folder:
            results.append(Result(case, heaviest(fly(case, Path(folder)), case.check)))
        print(_row(results[-1]), end="", file=sys.stderr, flush=True)
    print(counted(results))
    if options.write:
        options.write.write_text(document(results), encoding="utf-8")
    return int(not all(result.right for result in results))


if __name__ == "__main__":
    sys.exit(main())

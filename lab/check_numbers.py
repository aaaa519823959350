"""Rerun numbers of the documents: ten at random, by the commands that the pages name for them.

    python lab/check_numbers.py                 # ten, each of at most five minutes
    python lab/check_numbers.py --count 3 --seed 7 --minutes 1
    python lab/check_numbers.py --list          # all that are known, and what each takes

A number is an entry of `lab/numbers.toml`, or the first seed of a claim of the ledger. Outputs are kept in
`build/numbers`: killed, the same command goes on where it was, and `--again` measures anew. A number is `the same` to
the digits that the page gives; `inside` the interval that the page gives, or of a claim the interval in which 95 % of
further seeds lie; or `outside`: then the exit status is 1. Another processor rounds otherwise, so samples differ there,
and `inside` is what to expect.
"""

import argparse
import hashlib
import math
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
WORK = ROOT / "build" / "numbers"
LINKED = ("recipes", "benchmarks", "examples", "tests")
_NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
_FIGURE = re.compile(rf"({_NUMBER})[^\[(\d]*(?:[\[(]({_NUMBER})(?:, |\.\.| to )({_NUMBER})[\])])?")


@dataclass(frozen=True)
class Number:
    """A number that a page gives, and how to have it again."""

    page: str
    """Its path in the repository."""
    text: str
    """As it stands there: the value first, perhaps with its interval."""
    command: str
    pattern: str
    """Regular expression over what the command prints; its group is the value."""
    minutes: float
    """Of one core."""
    factor: float = 1.0
    """Factor of the printed value: 100 where the page has percent."""
    needs: str = ""
    """Requirements that this repository does not bring; such numbers are not picked."""
    interval: tuple[float, float] | None = None
    """In which a value of another machine may lie, where the text has none."""

    @property
    def value(self) -> float:
        """The number itself."""
        return _number(self._match[1])

    @property
    def digits(self) -> int:
        """Digits behind the point."""
        return len(self._match[1].partition(".")[2].partition("e")[0])

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The interval of the text, or the one that is given."""
        found = self._match
        return (_number(found[2]), _number(found[3])) if found[2] else self.interval

    @property
    def _match(self) -> re.Match[str]:
        found = _FIGURE.search(self.text)
        if found is None:
            raise ValueError(f"{self.page}: {self.text!r} has no number")
        return found

    def judged(self, found: float) -> str:
        """`the same`, `inside` or `outside`."""
        if round(found, self.digits) == round(self.value, self.digits):
            return "the same"
        return "inside" if self.bounds and self.bounds[0] <= found <= self.bounds[1] else "outside"


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def registered(path: Path = ROOT / "lab" / "numbers.toml") -> list[Number]:
    """The numbers of numbers.toml."""
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["number"]
    return [Number(**{**one, "interval": tuple(one["interval"]) if "interval" in one else None}) for one in entries]


def of_claims(folder: Path = ROOT / "lab" / "claims") -> Iterator[Number]:
    """The first seed of every claim that has been measured, with the interval for one further seed of the others."""
    from groupwise_lab.claims.config import load_ledger
    from groupwise_lab.claims.decided import decided, shown
    from groupwise_lab.claims.document import told
    from groupwise_lab.claims.results import read_results

    from groupwise.algorithms.statistics import T_95, Estimate

    ledger = load_ledger(folder)
    results = read_results(folder, ledger.arms.arms)
    for name, claim in ledger.claims.items():
        one = decided(claim, results)
        if 0 not in one.seeds:
            continue
        size, percent = len(one.values), 100 if claim.statistic.unit == "%" else 1
        interval = None
        if size > 1:
            half = T_95[size - 2] * np.std(one.values, ddof=1) * math.sqrt(1 + 1 / size)
            low, high = shown(claim.statistic, [np.mean(one.values) - half, np.mean(one.values) + half])
            interval = (percent * low, percent * high)
        alone = Estimate(one.values[one.seeds.index(0)], -math.inf, math.inf)
        yield Number(
            "docs/claims.md", told(claim.statistic, alone), f"groupwise claims {name} --seeds 1 --folder claims",
            rf"^{name} - [^:]*: ({_NUMBER})", sum(ledger.arms.arms[arm].minutes for arm in claim.arms),
            interval=interval,
        )  # fmt: skip


def prepared(work: Path, root: Path = ROOT) -> None:
    """A folder like a checkout: links to what commands read, and the ledger without its results."""
    work.mkdir(parents=True, exist_ok=True)
    for name in LINKED:
        if (root / name).exists() and not (work / name).exists():
            (work / name).symlink_to(root / name)
    if (root / "claims").exists() and not (work / "claims").exists():
        shutil.copytree(root / "claims", work / "claims", ignore=shutil.ignore_patterns("results"))


def output(command: str, work: Path) -> str:
    """Return the output of a command, from its file if it has been run before.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    kept = work / "outputs" / f"{hashlib.sha256(command.encode()).hexdigest()[:16]}.txt"
    if kept.exists():
        return kept.read_text(encoding="utf-8")
    words = shlex.split(command)
    begin = {"groupwise": [sys.executable, "-m", "groupwise"], "python": [sys.executable]}.get(words[0], words[:1])
    wide = {**os.environ, "COLUMNS": "500"}
    done = subprocess.run([*begin, *words[1:]], cwd=work, env=wide, capture_output=True, text=True, check=True)
    kept.parent.mkdir(exist_ok=True)
    new = kept.with_suffix(".new")
    new.write_text(done.stdout, encoding="utf-8")
    new.rename(kept)
    return done.stdout


def found(number: Number, work: Path) -> float:
    """The value today.

    Raises:
        ValueError: the command does not print it.
    """
    match = re.search(number.pattern, output(number.command, work), re.MULTILINE | re.DOTALL)
    if match is None:
        raise ValueError(f"`{number.command}` prints nothing like {number.pattern!r}")
    return number.factor * _number(match[1])


def check(numbers: Sequence[Number], work: Path) -> int:
    """Rerun numbers and say of each what it is today; returns how many lie outside or could not be had."""
    bad = 0
    for one in numbers:
        try:
            value = found(one, work)
            verdict = one.judged(value)
            said = f"{value:.{one.digits}f}"
        except (ValueError, subprocess.CalledProcessError) as error:
            lines = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
            verdict, said = "failed", lines[-1]
        bad += verdict in ("outside", "failed")
        print(f"{verdict:>8}  {one.page}: {one.text} -> {said}   `{one.command}`", flush=True)
    return bad


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Rerun numbers of the documents.")
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="of the choice")
    parser.add_argument("--minutes", type=float, default=5.0, help="longest command, in minutes of one core")
    parser.add_argument("--list", action="store_true", help="run nothing")
    parser.add_argument("--again", action="store_true", help="forget what was run before")
    asked = parser.parse_args()
    numbers = [*registered(), *of_claims()]
    if asked.list:
        for one in numbers:
            needs = f"; needs {one.needs}" if one.needs else ""
            print(f"{one.page}: {one.text}  `{one.command}`, {one.minutes:g} minutes{needs}")
        return 0
    if asked.again:
        shutil.rmtree(WORK, ignore_errors=True)
    prepared(WORK)
    can = [one for one in numbers if not one.needs and one.minutes <= asked.minutes]
    print(
        f"{len(numbers)} numbers are known; {len(can)} of them need nothing else and at most {asked.minutes:g} minutes"
    )
    return int(check(random.Random(asked.seed).sample(can, min(asked.count, len(can))), WORK) > 0)


if __name__ == "__main__":
    sys.exit(main())

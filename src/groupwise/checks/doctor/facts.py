"""Facts that the rules read from a run directory; what was not recorded is None or missing."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, Self

from groupwise.checks.doctor.trends import LIKELY, SURE, WINDOW, falls, rises
from groupwise.config.schema import value_at
from groupwise.errors import CheckpointError, ConfigError, DataError
from groupwise.runs.records import Records
from groupwise.runs.row import Flat, Row, flat_because
from groupwise.types import Outcome
from groupwise.verifiers.style.language import scripts_of, written_words

FIRST, LAST = 5, 25
"""Steps at either end of a run whose completions are read; of those between, the scalars alone: a long run fits into
memory, and nothing that rules compare is missing."""
SHOWN = 5  # completions or groups that a finding names at most


class GroupFacts(NamedTuple):
    """One group."""

    problem: str
    completions: tuple[Row, ...]

    @property
    def flat(self) -> Flat | None:
        return flat_because([c.outcome for c in self.completions], [c.reward for c in self.completions])

    @property
    def distinct(self) -> float:
        """Different answers per completion, 1 / G to 1."""
        return len({c.answer for c in self.completions}) / len(self.completions)


@dataclass(frozen=True, slots=True)
class StepFacts:
    """One training step."""

    step: int
    line: Mapping[str, Any]
    groups: tuple[GroupFacts, ...]  # empty where its completions were not recorded
    weights: str | None = None  # fingerprint of the weights after it

    def number(self, name: str) -> float | None:
        """Return a scalar; None where it was not measured or is not finite."""
        value: Any = None
        for table in (self.line, self.line.get("parts"), self.line.get("distributions")):
            if value is None and isinstance(table, Mapping):
                value = table.get(name)
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None

    @property
    def completions(self) -> list[Row]:
        return [completion for group in self.groups for completion in group.completions]

    @property
    def num_completions(self) -> int:
        """Number of completions, also where they were not read; 0 where it is unknown."""
        length = (self.line.get("distributions") or {}).get("length")
        return int(length["num"]) if isinstance(length, Mapping) and "num" in length else len(self.completions)


class DevFacts(NamedTuple):
    """One dev evaluation."""

    step: int  # finished steps before it
    pass_at_1: float  # NaN where its line has no number
    line: Mapping[str, Any]
    solved: Mapping[str, float]  # pass rate of each judged problem; empty where completions were not recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """One run, as far as it has got."""

    config: Mapping[str, Any]
    steps: tuple[StepFacts, ...]
    dev: tuple[DevFacts, ...]
    beside: tuple[Mapping[str, Any], ...] = ()  # lines of an imported run that are of no training step
    damage: tuple[str, ...] = ()  # damaged, missing or contradictory files, a sentence each

    def key(self, dotted: str, default: Any = None) -> Any:
        value = value_at(self.config, dotted.split("."))
        return default if value is None else value

    def series(self, name: str) -> list[tuple[int, float]]:
        """(step, value) of a scalar of every step that measured it."""
        return [(step.step, value) for step in self.steps if (value := step.number(name)) is not None]

    def values(self, name: str) -> list[float]:
        return [value for _, value in self.series(name)]

    def until(self, step: int) -> Self:
        return replace(
            self,
            steps=tuple(item for item in self.steps if item.step <= step),
            dev=tuple(item for item in self.dev if item.step <= step + 1),
        )

    @property
    def remaining(self) -> int:
        """Steps that it has still to do."""
        return int(self.key("run.num_steps", 0)) - 1 - self.steps[-1].step

    @property
    def dev_rates(self) -> list[float]:
        return [result.pass_at_1 for result in self.dev]

    def since(self, first: int) -> int:
        """Return the number of steps from the first one on, those without a line included."""
        return max(0, self.steps[-1].step - first + 1)

    def persists(self, name: str, bad: Callable[[float], bool]) -> int:
        """First step of the stretch that lasts to the end and in which a scalar is bad; the last one without it."""
        since = self.steps[-1].step
        for step, value in reversed(self.series(name)):
            if not bad(value):
                break
            since = step
        return since

    def improves(self) -> bool:
        """Return True if dev or the pass rate in training rises, or has risen, as far as the numbers show.

        The best of a few evaluations says that dev rises; of many, one is the best by chance, and a run that has them
        has steps enough for a sure rise.
        """
        dev, correct = self.dev_rates, self.values("sampled_correct")
        lately = correct[-max(2 * WINDOW, len(correct) // 3) :]
        if len(dev) >= 2 * WINDOW:
            return min(rises(lately), rises(dev[-max(WINDOW, len(dev) // 3) :])) < SURE
        return rises(lately) < LIKELY or (len(dev) > 1 and dev[-1] >= max(dev[:-1]) and dev[-1] > dev[0])

    def worsens(self) -> bool:
        """Return True if the pass rate in training falls, or dev fell clearly below its best."""
        dev, correct = self.dev_rates, self.values("sampled_correct")
        lately = correct[-max(2 * WINDOW, len(correct) // 3) :]
        return falls(lately) < LIKELY or (len(dev) > 1 and dev[-1] < max(dev) - 0.1)

    def has_gained(self) -> bool:
        """Return True if the pass rate surely rises over the whole run, or dev is above its start.

        For what is bad from the first step on: a rise of the last steps alone comes by chance in one of twenty runs.
        """
        dev = self.dev_rates
        return rises(self.values("sampled_correct")) < SURE or (len(dev) > 1 and dev[-1] - dev[0] > 0.02)

    def gains(self) -> float:
        """Return the one-sided p-value of "the pass rate of the last 10 steps is not above that of the first 5"."""
        return 0.5 * math.erfc(self._change() / math.sqrt(2))

    def loses(self) -> float:
        """The same of "is not below"."""
        return 0.5 * math.erfc(-self._change() / math.sqrt(2))

    def _change(self) -> float:
        """Standard errors by which the pass rate is now above the start's."""
        known = [(value * step.num_completions, step.num_completions) for step in self.steps
                 if (value := step.number("sampled_correct")) is not None]  # fmt: skip
        (then, before), (now, after) = (
            (sum(right for right, _ in some), sum(number for _, number in some))
            for some in (known[:WINDOW], known[-2 * WINDOW :])
        )
        if len(known) < 3 * WINDOW or not before or not after:
            return 0.0
        pooled = (then + now) / (before + after)
        error = math.sqrt(pooled * (1 - pooled) * (1 / before + 1 / after))
        return (now / after - then / before) / error if error else 0.0


def read_facts(path: str | Path) -> RunFacts:
    """Read a run directory. Raises ConfigError and DataError."""
    records = Records.open(path)
    lines = records.metrics()
    if not lines or "signal" not in lines[0]:
        raise ConfigError(f"{path} has no recorded steps of reinforcement learning; the doctor reads no others")
    weights = {line.get("step"): line.get("weights") for line in records.ledger() if "groups" in line}
    recorded = set(records.steps()) & {int(line["step"]) for line in (*lines[:FIRST], *lines[-LAST:])}
    steps = tuple(read_step(records, line, recorded, weights) for line in lines)
    dev = tuple(read_dev(records, line) for line in records.metrics("dev"))
    damage = damage_of(records, [s.step for s in steps])
    beside = tuple(records.metrics("theirs"))
    return RunFacts(config=records.config, steps=steps, dev=dev, beside=beside, damage=damage)


def read_step(
    records: Records, line: Mapping[str, Any], recorded: set[int], weights: Mapping[Any, str | None]
) -> StepFacts:
    """Read one step of a run."""
    step = int(line["step"])
    return StepFacts(step, line, read_groups(records, step) if step in recorded else (), weights.get(step))


def read_groups(records: Records, at: int | str) -> tuple[GroupFacts, ...]:
    """Read the groups that were kept of a step, or all of an evaluation."""
    rows = [row for row in records.rows(at) if row.discarded is None]
    return tuple(GroupFacts(problem, tuple(group)) for problem, group in groupby(rows, lambda row: row.problem))


@lru_cache(maxsize=8192)
def strays(text: str, language: str | None) -> bool:
    """Return True if a text has a word in another script than its problem's language; False where that is unknown."""
    scripts = scripts_of(language or "")
    if scripts is None or (text.isascii() and "LATIN" in scripts):
        return False
    return bool(written_words(text, scripts)[1])


@lru_cache(maxsize=8192)
def ends_in_loop(text: str, times: int = 4, least: int = 24) -> bool:
    """Return True if a text ends in one phrase, repeated at least `times` times over at least `least` characters.

    >>> ends_in_loop("So " + "wait, " * 8), ends_in_loop("1 + 1 = 2")
    (True, False)
    """
    tail = text[-400:]
    for size in range(1, len(tail) // times + 1):
        needed = max(times, -(-least // size))
        if needed * size > len(tail):
            continue
        phrase = tail[-size:]
        if phrase.strip() and tail.endswith(phrase * needed):
            return True
    return False


def read_dev(records: Records, line: Mapping[str, Any]) -> DevFacts:
    """Read one dev evaluation of a run."""
    name = f"dev-step-{int(line['step']):06d}"
    solved: dict[str, float] = {}
    if name in records.evaluations():
        for group in read_groups(records, name):
            judged = [row for row in group.completions if row.outcome.judged]
            if judged:  # a failed verdict is no wrong answer
                solved[group.problem] = fmean(row.outcome is Outcome.CORRECT for row in judged)
    estimate = line.get("pass_at_1")
    value = estimate[0] if isinstance(estimate, list) and estimate else None
    return DevFacts(int(line["step"]), float(value) if isinstance(value, int | float) else math.nan, line, solved)


def damage_of(records: Records, steps: Sequence[int]) -> tuple[str, ...]:
    """Return what the record of a run lacks or contradicts, a sentence each."""
    faults = list(map(str, records.damage))
    try:
        records.directory.ledger.check()
    except (CheckpointError, DataError) as error:
        faults.append(str(error).replace(f"{records.path}/", ""))
    if isinstance(imported := records.config.get("imported"), Mapping):  # in its own rhythm and without a ledger
        return (*faults, *map(str, imported.get("damage") or ()))
    if missing := sorted(set(range(steps[0], steps[-1] + 1)) - set(steps)):
        faults.append(f"metrics.jsonl has no line of step {_some(missing)}")
    ledger = {line["step"] for line in records.ledger() if "groups" in line and isinstance(line.get("step"), int)}
    if ledger and (missing := sorted(set(steps) - ledger)):
        faults.append(f"ledger.jsonl has no line of step {_some(missing)}")
    every = int(records.config.get("record", {}).get("every", 1))
    wanted = {step for step in steps if every and step % every == 0}
    if missing := sorted(wanted - set(records.steps())):
        faults.append(f"rollouts has no file of step {_some(missing)}")
    return tuple(faults)


def _some(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:SHOWN]))
    return shown if len(numbers) <= SHOWN else f"{shown} and {len(numbers) - SHOWN} more"

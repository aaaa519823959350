"""A run that another system recorded: what its importer returns, and a run directory is made of."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from groupwise.errors import ConfigError
from groupwise.runs.jsonl import opened
from groupwise.runs.ledger import TORN, Damage
from groupwise.types import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One completion as another system recorded it. What it did not is None; what was no number there is NaN."""

    prompt: str
    text: str
    reward: float | None
    parts: Mapping[str, float]  # parts of the reward by name; their sum is the reward
    measures: Mapping[str, float] = field(default_factory=dict)
    advantage: float | None = None
    reference: str = ""

    @property
    def not_finite(self) -> list[str]:
        """Names of its numbers that are NaN or infinite."""
        values = {"reward": self.reward, "advantage": self.advantage, **self.measures, **self.parts}
        return [name for name, value in values.items() if value is not None and not math.isfinite(value)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """A run of another system. Steps have the numbers that it gave them."""

    scalars: Mapping[int, Mapping[str, float]]
    """By step, under the names of our step lines; a name that it does not have was not recorded."""
    theirs: Mapping[int, Mapping[str, float]] = field(default_factory=dict)  # by step, what has no name of ours
    answers: Mapping[int, list[Answer]] = field(default_factory=dict)
    dev: Mapping[int, list[Answer]] = field(default_factory=dict)
    """Completions of evaluations by the step before which they stand."""
    damage: tuple[str, ...] = ()  # unreadable and contradictory things, a sentence each
    not_numbers: tuple[str, ...] = ()  # names that hold no numbers and were left out


class Correct(NamedTuple):
    """Criterion of a correct answer: a measure, or a part of the reward, above a bound."""

    name: str
    above: float

    @classmethod
    def of(cls, text: str) -> "Correct":
        """Read `NAME` (above 0.5) or `NAME>BOUND`.

        >>> Correct.of("accuracy_reward"), Correct.of("score>0")
        (Correct(name='accuracy_reward', above=0.5), Correct(name='score', above=0.0))

        Raises ConfigError: the bound is no number.
        """
        name, _, bound = text.partition(">")
        try:
            return cls(name.strip(), float(bound) if bound else 0.5)
        except ValueError:
            raise ConfigError(f"--correct {text!r}: {bound!r} is no number; allowed is NAME or NAME>BOUND") from None

    def judge(self, answer: Answer) -> Outcome:
        """Return the outcome; none where the number, or the reward, is missing or not finite."""
        value = {"reward": answer.reward, **answer.parts, **answer.measures}.get(self.name)
        if any(number is None or not math.isfinite(number) for number in (value, answer.reward)):
            return Outcome.NONE
        return Outcome.CORRECT if value is not None and value > self.above else Outcome.WRONG


SHARES = ("signal", "sampled_correct", "clipped", "truncated", "dev")  # scalars between 0 and 1
AMOUNTS = ("entropy", "grad_norm", "lr", "length", "seconds", "generate_s", "verify_s", "train_s")  # never below 0
FLAT = "frac_reward_zero_std"  # the share of groups without a signal, as TRL counts it


@dataclass(slots=True)
class Scalars:
    """Numbers by step under another system's names, as they come, and what is odd about them."""

    names: Mapping[str, str]
    """Their names and ours; where several of theirs mean one of ours, the first there is counts."""
    steps: dict[int, dict[str, float]] = field(default_factory=dict)
    damage: list[str] = field(default_factory=list)
    not_numbers: dict[str, None] = field(default_factory=dict)  # names, in their order
    _newest: dict[str, int] = field(default_factory=dict)
    _odd: dict[str, list[str]] = field(default_factory=dict)

    def add(self, step: Any, values: Mapping[str, Any], place: str) -> None:
        """Take the values of a step; what stands for a number that we know, and is none, is NaN."""
        at = number(step)
        if at is None or not math.isfinite(at) or at != int(at) or at < 0:
            self._odd.setdefault("a step is a whole number", []).append(f"{place} has {step!r}")
            return
        row = self.steps.setdefault(int(at), {})
        for name, raw in values.items():
            value = number(raw)
            if value is None and name not in self.names:
                self.not_numbers[name] = None
                continue
            if value is None:
                value = math.nan
                if raw is not None:
                    self._odd.setdefault("not a number", []).append(f"{place}: {name} is {raw!r}"[:200])
            if (newest := self._newest.get(name, -1)) > at:
                said = "the steps go back: it was resumed, or two runs are mixed"
                self._odd.setdefault(said, []).append(f"{name} from step {newest} to {at:.0f}")
            self._newest[name] = int(at)
            if name in row and not (row[name] == value or (math.isnan(row[name]) and math.isnan(value))):
                said = "of two numbers for one step the later counts"
                self._odd.setdefault(said, []).append(f"{name} of step {at:.0f} is {row[name]:g}, then {value:g}")
            row[name] = value

    def weights(self, names: Sequence[str], given: Mapping[int, NDArray[np.float64]]) -> dict[str, float]:
        """Return the weights of the reward functions, and make what was logged of each what it paid.

        TRL writes no weights down. It logs the reward, a sum with them: of the means that it logs, or, where a function
        did not judge every completion, of what they gave in the batch of a step.
        """
        ones, is_whole = np.ones(len(names)), all(np.isfinite(gave).all() for gave in given.values())
        sums = [[*([row.get(f"rewards/{name}/mean", math.nan) for name in names] if is_whole else
                   np.nansum(given[step], axis=0) / max(1, np.isfinite(given[step]).any(axis=1).sum())), row["reward"]]
                for step, row in self.steps.items() if "reward" in row and (is_whole or step in given)]  # fmt: skip
        table = np.array([row for row in sums if np.isfinite(row).all()]).reshape(-1, len(names) + 1)
        known, paid = table[:, :-1], table[:, -1]
        tried = [ones]
        if len(paid) > len(names) and known.any() and np.linalg.cond(known[:, known.any(axis=0)]) < 1e4:
            fitted = np.linalg.lstsq(known, paid)[0]
            tried += [fitted.round(digits) for digits in (2, 4, 6)]
        fits = [one.tolist() for one in tried if len(paid) and np.allclose(known @ one, paid, rtol=1e-4, atol=1e-6)]
        if given and names and any("reward" in row for row in self.steps.values()) and not fits:
            self.damage.append(
                f"rewards that were logged are no sum of {', '.join(names)} with weights that could be found: the "
                "rewards of completions are sums without weights"
            )
        weights = dict(zip(names, fits[0] if fits else ones.tolist(), strict=True))
        for name, row in ((name, row) for name in weights for row in self.steps.values() if given):
            for figure, factor in (("mean", weights[name]), ("std", abs(weights[name]))):
                if (logged := f"rewards/{name}/{figure}") in row:
                    row[logged] *= factor
        return weights

    def foreign(self, answers: Mapping[int, list[Answer]], dev: Mapping[int, list[Answer]] | None = None) -> Foreign:
        """Return the run, with our names for what has one."""
        scalars, theirs = dict[int, dict[str, float]](), dict[int, dict[str, float]]()
        every = {name for row in self.steps.values() for name in row}  # of verl's sets, one for the whole run
        core = min((name for name in every if re.fullmatch("val-core/.+/acc/mean@[0-9]+", name)), default=None)
        names, other_units = dict[int, dict[str, str]](), set[str]()  # theirs by ours, by step; shares that are none
        for step, row in sorted(self.steps.items()):
            ours, called = dict[str, float](), dict[str, str]()
            rest = dict(row)
            for name, our in self.names.items():
                if name in rest and our not in ours:
                    ours[our], called[our] = rest.pop(name), name
            for name, value in row.items():
                kind, _, part = name.removeprefix("train/").partition("/")
                if kind == "rewards" and part.endswith(("/mean", "/std")):  # TRL's, also where it is the pass rate
                    ours[f"part/{part}"] = value
                    rest.pop(name, None)
                elif kind == "rewards" and part and "/" not in part and "reward" in ours:  # as TRL wrote it until 0.15
                    ours[f"part/{part}/mean"] = rest.pop(name)
                elif kind == FLAT and "signal" not in ours:
                    ours["signal"], called["signal"] = 1 - rest.pop(name), name
                elif name == core and "dev" not in ours:
                    ours["dev"], called["dev"] = rest.pop(name), name
            for name, value in tuple(ours.items()):
                if name in SHARES and math.isfinite(value) and not -1e-6 <= value <= 1 + 1e-6:
                    allowed = "a share is between 0 and 1"
                    other_units.add(name)
                elif name in AMOUNTS and -math.inf < value < 0:
                    allowed = "this is never negative"
                    rest[called[name]] = ours.pop(name)
                else:
                    continue
                said = f"{allowed}: {name} is in another unit, or another quantity, and is left out"
                self._odd.setdefault(said, []).append(f"{called[name]} is {row[called[name]]:g} at step {step}")
            names[step] = called
            if ours:
                scalars[step] = ours
            if rest:
                theirs[step] = rest
        for step, known in scalars.items():
            for name in other_units.intersection(known):  # of per cent, those below 1 look like a share
                del known[name]
                theirs.setdefault(step, {})[names[step][name]] = self.steps[step][names[step][name]]
        odd = (f"{what} ({places[0]}{f', and {len(places) - 1} more' if places[1:] else ''})"
                for what, places in self._odd.items())  # fmt: skip
        return Foreign(
            scalars=scalars, theirs=theirs, answers=answers, dev=dev or {}, damage=(*self.damage, *odd),
            not_numbers=tuple(self.not_numbers),
        )  # fmt: skip


def json_lines(path: Path, damage: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield place and object of every line; others are damage, and so is a last line that was cut.

    A last line without its line feed is whole if it is an object. Raises DataError: the file cannot be read.
    """
    broken = list[Damage]()
    with opened(path) as file:
        for place, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                what = f"it is not JSON: {error}" if line.endswith(b"\n") else TORN
                broken.append(Damage(path.name, what, place))
                continue
            if isinstance(value, dict):
                yield f"{path}, line {place}", value
            else:
                broken.append(Damage(path.name, "it is not an object", place))
    damage += map(str, broken[:20])
    if len(broken) > 20:
        damage.append(f"{path.name}: {len(broken) - 20} more lines cannot be read")


def number(value: Any) -> float | None:
    """Return the number that a value is or spells, NaN and the infinities included; None where it is none.

    >>> number("NaN"), number(10**400), number(True), number("1e400"), number("about 3"), number(None)
    (nan, inf, 1.0, inf, None, None)
    """
    if not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None
    except OverflowError:
        return math.inf if isinstance(value, int) and value > 0 else -math.inf


def measures_of(values: Mapping[str, Any], but: Iterable[str] = ()) -> dict[str, float]:
    """Return the numbers beside a completion; of texts those alone that stand for what JSON cannot write."""
    numbers = {name: number(raw) for name, raw in values.items() if name not in but}
    return {
        name: value for name, value in numbers.items()
        if value is not None and not (isinstance(values[name], str) and math.isfinite(value))
    }  # fmt: skip


def as_text(value: Any) -> str:
    """Return a field as text: conversations as `role: content`, blocks in a row, all else as Python writes it."""
    items = value if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value) else []
    if items and all("content" in item or "tool_calls" in item for item in items):
        return "\n".join(f"{item.get('role', '')}: {said(item)}" for item in items)
    if items and all(isinstance(item.get("text"), str) for item in items):
        return "".join(item["text"] for item in items)
    return "" if value is None else str(value)


def said(message: Mapping[str, Any]) -> str:
    """Return what a message says, and the calls of tools in it.

    >>> said({"content": None, "tool_calls": [{"function": {"name": "now"}}]})
    '[{"function": {"name": "now"}}]'
    """
    calls = message.get("tool_calls")
    called = json.dumps(calls, ensure_ascii=False, default=str) if calls else ""
    return " ".join(filter(None, (as_text(message.get("content")), called)))

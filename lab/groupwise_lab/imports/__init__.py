"""Runs of other systems as run directories: `groupwise import`. What was not recorded is null, and named."""

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from groupwise.config.recipes import dump_tables
from groupwise.errors import ConfigError, DataError
from groupwise.runs.atomic import write_file
from groupwise.runs.directory import RunDirectory
from groupwise.runs.ledger import as_json
from groupwise.runs.rollouts import write_rows
from groupwise.runs.row import Index, flat_because
from groupwise.types import Outcome
from groupwise_lab.imports.foreign import Answer, Correct, Foreign, Scalars
from groupwise_lab.imports.stores import read_events, read_history
from groupwise_lab.imports.trainers import OPENRLHF, PRIME_RL, TRL, VERL, read_prime_rl, read_trl, read_verl

WANTED = (
    "reward", "signal", "sampled_correct", "entropy", "kl", "clipped", "grad_norm", "lr", "length", "truncated", "loss",
)  # fmt: skip
"""Scalars of a step that rules and pages are about."""
OURS = (
    *WANTED, "seconds", "explained_variance", "kl_after_updates", "effective_samples", "generate_s", "verify_s",
    "train_s", "dev",
)  # fmt: skip
"""Scalars that `--scalar` may name; `dev`: the pass rate of an evaluation before the step."""
READERS: Mapping[str, Callable[[Path, Scalars], None]] = {"tensorboard": read_events, "wandb": read_history}
"""Readers of stores that keep scalars alone, of any trainer."""
NOT_FINITE = "not_finite"  # of a line: completions with such a number, by its name
THEIRS = "theirs"  # scalars under their own names: a table of a step's line, or the kind of a line without such a step
DEV = "dev"  # the name of a scalar that is an evaluation's
UNKNOWN = "unknown"  # finish reason of a completion of which none was recorded


@dataclass(frozen=True, slots=True)
class Imported:
    """Summary of an imported run."""

    num_steps: int
    num_completions: int
    num_evaluations: int
    lacks: tuple[str, ...]  # scalars that it did not record
    parts: tuple[str, ...]  # of the reward, of a run without completions


def write_imported(foreign: Foreign, system: str, source: Path, target: Path, correct: str | None) -> Imported:
    """Make a new run directory of what was read of another system's run at `source`.

    `correct` is the number that says that an answer is correct: `NAME` (above 0.5) or `NAME>BOUND`; None: the only part
    of the reward. Raises ConfigError and DataError: the directory exists, it is not known what correct means, or there
    is nothing to import.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(f"{target} exists already: choose a new directory for the imported run")
    every = [answer for answers in (*foreign.answers.values(), *foreign.dev.values()) for answer in answers]
    parts = sorted({name for answer in every for name in answer.parts})
    if correct is None and len(parts) > 1:
        raise ConfigError(
            f"which number says that an answer is correct? Name one with --correct NAME or --correct 'NAME>BOUND'; "
            f"there are {', '.join(parts)}"
        )
    judge = Correct.of(correct if correct is not None else (parts or ["reward"])[0])
    names = {name for answer in every for name in ("reward", *answer.parts, *answer.measures)} or {
        name[5:-5] for line in foreign.scalars.values() for name in line if re.fullmatch("part/.+/mean", name)
    }
    if correct is not None and judge.name not in names:
        of = "completion has a number" if every else "completions were recorded, and no part of the reward is"
        raise ConfigError(f"no {of} {judge.name!r}; there are {', '.join(sorted(names)) or 'none'}")
    means = {step: line.get(f"part/{judge.name}/mean", math.nan) for step, line in foreign.scalars.items()}
    odd_means = {step: mean for step, mean in means.items() if math.isfinite(mean) and not 0 <= mean <= 1}
    if correct is not None and not every and odd_means:
        step, mean = next(iter(odd_means.items()))
        raise ConfigError(
            f"--correct {correct}: without completions its mean is the share of correct answers, between 0 and 1; at "
            f"step {step} it is {mean:g}"
        )
    lines = {step: _line(step, foreign, judge) for step in sorted({*foreign.scalars, *foreign.answers})}
    if not lines:
        raise DataError(f"{source} has no step to import")
    run = RunDirectory(target)
    lacks = tuple(name for name in WANTED if all(line.get(name) is None for line in lines.values()))
    (target / "rollouts").mkdir(parents=True)
    tables = {
        "algorithm": "imported",
        "run": {"directory": str(target), "num_steps": max(lines) + 1},
        "record": {"every": 0},
        "imported": {"system": system, "source": str(source), "lacks": list(lacks), "damage": list(foreign.damage)},
    }
    write_file(run.config, dump_tables(tables).encode())
    index = Index(run, max(lines) + 1)
    for step, answers in sorted(foreign.answers.items()):
        index.add(f"step-{step:06d}", write_rows(run.rollouts(step), _groups(step, answers, judge)))
    dev = {step: value for step, line in lines.items() if (value := line.pop(DEV, None)) is not None}
    done = {step: line for step, line in lines.items()
            if step in foreign.answers or foreign.scalars[step].keys() - {DEV}}  # fmt: skip
    written: list[dict[str, Any]] = [*done.values()]
    of_dev = [f"{of}rewards/{judge.name}/mean" for of in ("eval_", "eval/")]  # TRL's own name, and its boards'
    for step, row in foreign.theirs.items() if correct is not None and not every else ():
        if (value := next((row[name] for name in of_dev if name in row), math.nan)) >= 0:
            dev.setdefault(step, value)
    for step, value in ((step, value) for step, value in sorted(dev.items()) if step not in foreign.dev):
        written.append({"kind": "dev", "step": step, "pass_at_1": [value] * 3})
    for step, answers in sorted(foreign.dev.items()):
        groups = _groups(step, answers, judge)
        odd = Counter(name for answer in answers for name in answer.not_finite)
        index.add(f"dev-step-{step:06d}", write_rows(run.rollouts(f"dev-step-{step:06d}"), groups))
        share = fmean(fmean(row["outcome"] == Outcome.CORRECT for row in group) for group in groups)
        written.append({"kind": "dev", "step": step, "pass_at_1": [share] * 3, **({NOT_FINITE: odd} if odd else {})})
    for step in sorted(foreign.theirs.keys() - done.keys()):
        written.append({"kind": THEIRS, "step": step, THEIRS: foreign.theirs[step]})
    # at once: a log of many steps would wait for the disk at every line
    write_file(run.metrics.path, "".join(f"{json.dumps(as_json(line))}\n" for line in written).encode())
    write_file(run.finished, b"{}\n")
    return Imported(len(done), len(every), len({*dev, *foreign.dev}), lacks, () if every else tuple(sorted(names)))


def _groups(step: int, answers: Iterable[Answer], judge: Correct) -> list[list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for answer in answers:
        group, outcome = groups.setdefault(answer.prompt, []), judge.judge(answer)
        digest = hashlib.sha256(answer.prompt.encode("utf-8", "replace")).hexdigest()
        group.append({
            "step": step, "problem": f"prompt-{digest[:12]}", "difficulty": "", "language": "",
            "question": answer.prompt, "reference": answer.reference, "open_ended": False, "prompt": answer.prompt,
            "prefill": "", "sample": len(group), "text": answer.text, "finish_reason": UNKNOWN, "outcome": str(outcome),
            "evidence": f"{judge.name} above {judge.above:g} counts as correct",
            "reward": answer.reward if outcome.judged or answer.not_finite else None, "reward_parts": answer.parts,
            "measures": answer.measures, "advantage": answer.advantage, "policy_version": None,
        })  # fmt: skip
    return list(groups.values())


def _line(step: int, foreign: Foreign, judge: Correct) -> dict[str, Any]:
    """Return the line of a step: the system's own scalars; where it has none, those of its completions."""
    line: dict[str, Any] = {"kind": "step", "step": step, "signal": None}
    if theirs := foreign.theirs.get(step):
        line[THEIRS] = theirs
    if odd := Counter(name for answer in foreign.answers.get(step, ()) for name in answer.not_finite):
        line[NOT_FINITE] = odd
    scalars = dict(foreign.scalars.get(step, {}))
    parts = {name: value for name, value in scalars.items() if name.startswith("part/")}
    if answers := foreign.answers.get(step):
        groups = _groups(step, answers, judge)
        judged = [row for group in groups for row in group if Outcome(row["outcome"]).judged]
        rewards = [row["reward"] for row in judged if row["reward"] is not None]
        signal = [flat_because([Outcome(r["outcome"]) for r in g], [r["reward"] for r in g]) is None for g in groups]
        correct = fmean(row["outcome"] == Outcome.CORRECT for row in judged) if judged else None
        for name in sorted({name for row in judged for name in row["reward_parts"]}):
            every = [row["reward_parts"][name] for row in judged if name in row["reward_parts"]]
            values = [value for value in every if math.isfinite(value)] or [math.nan]
            parts = {f"part/{name}/mean": fmean(values), f"part/{name}/std": pstdev(values)} | parts
        if scalars.get("signal") == 1 and not all(signal):
            del scalars["signal"]  # theirs was of the batch as a whole, or of rewards that are no numbers
        reward = fmean(rewards) if rewards else None
        line |= {"reward": reward, "correct": correct, "sampled_correct": correct, "signal": fmean(signal)}
    elif not foreign.answers and 0 <= parts.get(f"part/{judge.name}/mean", math.nan) <= 1:  # the mean of a 0 or 1
        line["sampled_correct"] = parts[f"part/{judge.name}/mean"]
    return {**line, **{name: value for name, value in scalars.items() if name not in parts}, "parts": parts}


def read_scalars(system: str, source: Path, own: Sequence[str] = ()) -> Foreign:
    """Read what W&B or TensorBoard keep of a run, with the names of the trainers that write there and `own` ones.

    Raises ConfigError and DataError.
    """
    names: dict[str, str] = {}
    for pair in own:
        ours, _, theirs = pair.partition("=")
        if ours not in OURS:
            raise ConfigError(f"--scalar {pair}: {ours!r} is no scalar of a step; allowed are {', '.join(OURS)}")
        names[theirs] = ours
    for known in (TRL, VERL, OPENRLHF, PRIME_RL, {name: name for name in OURS if name != "dev"}):
        for theirs, ours in known.items():
            for spelled in (theirs, f"train/{theirs}", f"step/{theirs}"):
                names.setdefault(spelled, ours)
    logged = Scalars(names)
    READERS[system](source, logged)
    there = sorted({name for values in logged.steps.values() for name in values})
    for pair in own:
        if (theirs := pair.partition("=")[2]) not in there:
            raise ConfigError(f"--scalar {pair}: {theirs!r} was not recorded; there are {', '.join(there[:30])}")
    foreign = logged.foreign({})
    if not foreign.scalars:
        raise DataError(
            f"{source} has no scalar whose name is known; name one with --scalar OURS=THEIRS, for example "
            f"--scalar reward={there[0] if there else 'NAME'}; there are {', '.join(there[:30]) or 'none'}"
        )
    return foreign


__all__ = [
    "READERS", "Answer", "Correct", "Foreign", "Imported", "read_prime_rl", "read_scalars", "read_trl", "read_verl",
    "write_imported",
]  # fmt: skip

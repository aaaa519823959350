"""Labels of steps against the truth: error by number of rollouts, and accuracy for every token that they cost.

    python lab/benchmarks/step_labels.py  # five seeds, 100 problems each; goes on where it was killed
    python lab/benchmarks/step_labels.py --seeds 1 --problems 20  # a trial
    python lab/benchmarks/step_labels.py --labels runs/process/seed-*/stages/labels_mc/data.jsonl  # what is there

The last form rolls nothing out: it reads the rows of `method = "monte_carlo"` stages, a file for each seed, and has no
other rollouts to predict from.

The shipped model answers products of two digits by two; the plan says what every step is, for nothing. From the end of
every step but the last 32 rollouts are drawn, and 32 others beside them. Printed:

1. Hard labels of N rollouts: the share of sound steps that they miss and of wrong ones that they accept, as the exact
   mean over subsets of the 32, beside what independent rollouts predict (from the 32 others, (1 - p)^N of each prefix
   by its unbiased estimate), the difference with its 95 % interval over problems, and what one chance for all sound
   and one for all wrong prefixes would predict.
2. Every way to make labels: share of steps and of first mistakes that agree with the plan, and rollout tokens for each
   completion. Soft labels count as right from 1/2 on, and their mean distance to the truth stands beside.
"""

import argparse
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from machine import describe

from groupwise.algorithms.statistics import Estimate, bootstrap_difference, mean_over_seeds, pass_at_k
from groupwise.models.config import ModelConfig
from groupwise.models.loading import quiet_transformers
from groupwise.models.policy import load_policy
from groupwise.pipeline.collect import collect_rows
from groupwise.pipeline.step_labels import exact_labels
from groupwise.pipeline.step_rollouts import Completer, Rolled, Rollouts, by_search, cut_rows, searched, shared
from groupwise.randomness import Draws, Purpose, key, uniforms
from groupwise.rollout.sample_and_score import Actors
from groupwise.rollout.sampling import SamplingConfig
from groupwise.runs.atomic import write_file
from groupwise.tasks import make_task
from groupwise.tasks.arithmetic import ArithmeticConfig
from groupwise.tasks.base import split_problems
from groupwise.tasks.step_rows import first_wrong, read_steps
from groupwise.types import Outcome
from groupwise.verifiers import make_verifier
from groupwise.verifiers.working import StepKind

STEP = "sentence"
REPEATS = 20
"""Drawn subsets for methods without a closed form."""


class Known(NamedTuple):
    """A completion with its truth and what rollouts found."""

    problem: str
    prefixes: Sequence[str]
    """The text up to the end of every step but the last."""
    right: bool
    """Its answer."""
    truth: Sequence[float]
    rolled: Sequence[Rolled]
    """Of every prefix, the first rollouts."""
    again: Sequence[Rolled]
    """Others; empty where there are none."""

    @property
    def cut(self) -> Any:
        """As the stage has it."""
        row = SimpleNamespace(problem=self.problem, outcome=Outcome.CORRECT if self.right else Outcome.WRONG)
        return SimpleNamespace(row=row, ends=range(len(self.truth)), prefixes=self.prefixes)


def main() -> None:
    """Measure every seed, and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--problems", type=int, default=100)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--rollouts", type=int, default=32)
    parser.add_argument("--directory", type=Path, default=Path("runs/step-labels"))
    parser.add_argument("--labels", type=Path, nargs="+", default=[])
    options = parser.parse_args()
    quiet_transformers()
    if options.labels:
        found = [figures(*from_file(path)) for path in options.labels]
        print(f"{describe()}; {len(found)} files, {sum(one['completions'] for one in found):,} completions")
    else:
        found = [measured(options, seed) for seed in range(options.seeds)]
        print(f"{describe()}; {options.problems} problems x {options.samples}, seeds 0 to {options.seeds - 1}")
    print_errors([one["errors"] for one in found])
    print_methods([one["methods"] for one in found])


def measured(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """The figures of a seed; kept when they are there."""
    folder = options.directory / f"{options.problems}x{options.samples}x{options.rollouts}" / f"seed-{seed}"
    kept = folder / "figures.json"
    if not kept.exists():
        write_file(kept, json.dumps(figures(*collected(options, seed, folder)), indent=1).encode())
    print(f"seed {seed}: {kept}", flush=True)
    return dict(json.loads(kept.read_text()))


def figures(known: Sequence[Known], sampled: Sequence[Any] = ()) -> dict[str, Any]:
    """Both tables; without the samples, a group cannot label itself."""
    largest = max((rolled.judged for one in known for rolled in one.rolled), default=0)
    return {
        "completions": len(known), "errors": errors(known, largest), "methods": methods(known, sampled, largest),
    }  # fmt: skip


def from_file(path: Path) -> tuple[list[Known], list[Any]]:
    """Rows of labels by rollouts, with their truth, and the groups they are; a rollout has the stage's mean tokens."""
    rows = [row for row in read_steps(path) if row.provenance.get("kinds")]
    texts = [["".join(row.steps[: step + 1]) for step in range(len(row.steps) - 1)] for row in rows]
    counts = {
        (row.problem, text): (won, judged)
        for row, own in zip(rows, texts, strict=True)
        for text, won, judged in zip(own, row.provenance["successes"], row.provenance["rollouts"], strict=True)
    }
    facts = json.loads((path.parent / "facts.json").read_text())
    tokens = facts["statistics"]["rollout_tokens"] / sum(judged for _, judged in counts.values())
    known = [
        Known(
            row.problem, own, bool(row.final_answer_correct),
            [float(StepKind(kind).correct) for kind in row.provenance["kinds"]],
            [Rolled(won, judged, round(tokens * judged)) for won, judged in (counts[row.problem, t] for t in own)], (),
        )
        for row, own in zip(rows, texts, strict=True)
    ]  # fmt: skip
    outcomes = {True: Outcome.CORRECT, False: Outcome.WRONG}
    return known, [(row.problem, "".join(row.steps), outcomes[bool(row.final_answer_correct)]) for row in rows]


def collected(options: argparse.Namespace, seed: int, folder: Path) -> tuple[list[Known], list[Any]]:
    """Completions with truth and rollouts; parts that are on disk are read."""
    task = make_task(ArithmeticConfig(kind="arithmetic", kinds=("product",), digits=(2, 2)))
    problems = split_problems(task, "train", options.problems)
    by_id, sampling = {problem.id: problem for problem in problems}, SamplingConfig(max_tokens=96)
    folder.mkdir(parents=True, exist_ok=True)
    with make_verifier(task.verifier_config) as verifier:
        actors = Actors.of(load_policy(ModelConfig(path="base")), task.template, verifier)
        sampled = collect_rows(
            actors, problems, options.samples, sampling, Draws(seed, Purpose.STEP_LABELS), folder / "samples"
        )
        cut = cut_rows(sampled, STEP)[0]
        both = []
        for name in ("rollouts", "again"):
            completer = Completer(actors, sampling, Draws(seed, Purpose.STEP_LABELS, 0, name), options.rollouts)
            rollouts = Rollouts(completer, by_id, folder / "samples", {})
            rollouts.ask([(one.row.problem, prefix) for one in cut for prefix in one.prefixes], name)
            both.append([[rollouts.found[one.row.problem, prefix] for prefix in one.prefixes] for one in cut])
    known = [
        Known(
            one.row.problem, one.prefixes, one.row.outcome is Outcome.CORRECT,
            exact_labels(by_id[one.row.problem], one, STEP).labels, rolled, again,
        )
        for one, rolled, again in zip(cut, *both, strict=True)
    ]  # fmt: skip
    return known, [(row.problem, row.prefill + row.text, row.outcome) for row in sampled]


def sizes(largest: int) -> list[int]:
    """Numbers of rollouts that are measured."""
    return [n for n in (1, 4, 8, 16, 32, 64) if n <= largest]


# ------------------------------------------------------------------------------- 1. hard labels, predicted and seen


def errors(known: Sequence[Known], largest: int) -> dict[str, Any]:
    """By kind of prefix and N: errors seen and predicted, by problem; every prefix counts once."""
    unique = {
        (one.problem, prefix): (one.truth[step], one.rolled[step], one.again[step] if one.again else None)
        for one in known
        for step, prefix in enumerate(one.prefixes)
    }
    found: dict[str, Any] = {}
    for kind, wanted in (("sound missed", 1.0), ("wrong accepted", 0.0)):
        of_kind = [(problem, *rest) for (problem, _), rest in unique.items() if rest[0] == wanted]
        chance = float(
            np.mean([(again or rolled).successes / (again or rolled).judged for *_, rolled, again in of_kind])
        )
        for n in sizes(largest):
            seen = [accepted(rolled, n, wanted) for *_, rolled, _ in of_kind]
            predicted = [accepted(again, n, wanted) for *_, again in of_kind if again]
            problems = [problem for problem, *_ in of_kind]
            found[f"{kind} {n}"] = {
                "prefixes": len(of_kind), "seen": float(np.mean(seen)),
                "predicted": float(np.mean(predicted)) if predicted else math.nan,
                "difference": list(over_problems(problems, predicted, seen)) if predicted else [math.nan] * 3,
                "one chance": (1 - chance) ** n if wanted else 1 - (1 - chance) ** n,
            }  # fmt: skip
    return found


def accepted(rolled: Rolled, n: int, wanted: float) -> float:
    """Of all subsets of n rollouts, the share that errs: none succeeds from a sound prefix, any from a wrong one."""
    some = pass_at_k(rolled.judged, rolled.successes, n)
    return 1 - some if wanted else some


def over_problems(problems: Sequence[str], before: Sequence[float], after: Sequence[float]) -> Estimate:
    """Difference of means over prefixes, with an interval for which the problems are the units."""
    names, count = sorted(set(problems)), len(problems)
    at = {name: index for index, name in enumerate(names)}
    sums = np.zeros((2, len(names)))
    for problem, first, second in zip(problems, before, after, strict=True):
        sums[:, at[problem]] += (first, second)
    scale = len(names) / count
    return bootstrap_difference((sums[0] * scale).tolist(), (sums[1] * scale).tolist())


# --------------------------------------------------------------------------------------- 2. all methods, by their cost


def methods(known: Sequence[Known], sampled: Sequence[Any], largest: int) -> dict[str, Any]:
    """By method: agreement with the plan, step by step and of the first mistake, and tokens."""
    found = {"exact": summary(known, [list(one.truth) for one in known], 0.0)}
    if sampled:
        found["group_tree hard"] = grouped(known, sampled, hard=True)
        found["group_tree soft"] = grouped(known, sampled, hard=False)
    for n in sizes(largest):
        for name, labels in drawn(known, n).items():
            runs = [summary(known, made, tokens) for made, tokens in labels]
            found[f"{name} {n}"] = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
    return found


def drawn(known: Sequence[Known], n: int) -> Mapping[str, Iterator[tuple[list[list[float | None]], float]]]:
    """Labels of n of the rollouts, some times over, and their tokens."""
    return {
        "monte_carlo hard": (every(known, n, repeat, hard=True) for repeat in range(REPEATS)),
        "monte_carlo soft": (every(known, n, repeat, hard=False) for repeat in range(REPEATS)),
        "binary_search": (halved(known, n, repeat) for repeat in range(REPEATS)),
    }


def subset(problem: str, prefix: str, rolled: Rolled, n: int, repeat: int) -> Rolled:
    """n of the rollouts of a prefix; the same prefix has the same ones."""
    order = np.argsort(uniforms(key("step labels", n, repeat, problem, prefix), np.arange(rolled.judged)))[:n]
    return Rolled(int((order < rolled.successes).sum()), len(order), round(rolled.tokens * n / rolled.judged))


class Drawn(Rollouts):
    """Rollouts that are drawn from those that are known."""

    def ask(self, prefixes: Sequence[tuple[str, str]], name: str) -> None:
        """Know these, too."""
        self.found |= {one: self.problems[one] for one in prefixes}  # type: ignore[misc, index]


def table_of(known: Sequence[Known], n: int, repeat: int) -> dict[tuple[str, str], Rolled]:
    """n rollouts of every prefix."""
    return {
        (one.problem, prefix): subset(one.problem, prefix, rolled, n, repeat)
        for one in known
        for prefix, rolled in zip(one.prefixes, one.rolled, strict=True)
    }


def every(known: Sequence[Known], n: int, repeat: int, hard: bool) -> tuple[list[list[float | None]], float]:
    """Math-Shepherd."""
    table = table_of(known, n, repeat)
    made = []
    for one in known:
        rolled = [table[one.problem, prefix] for prefix in one.prefixes]
        own = [float(r.successes > 0) if hard else r.successes / r.judged for r in rolled]
        made.append([*own, float(one.right)])
    return made, sum(rolled.tokens for rolled in table.values())


def halved(known: Sequence[Known], n: int, repeat: int) -> tuple[list[list[float | None]], float]:
    """OmegaPRM's search."""
    rollouts = Drawn(None, table_of(known, n, repeat), Path(), lambda what, done, total: None, {})  # type: ignore[arg-type]
    rolled = searched([one.cut for one in known], rollouts)
    made = [by_search(own, one.right) for one, own in zip(known, rolled, strict=True)]
    return made, rollouts.tokens


def grouped(known: Sequence[Known], sampled: Sequence[Any], hard: bool) -> dict[str, float]:
    """A group labels itself."""
    made = []
    rows: Any = [SimpleNamespace(problem=p, prefill="", text=text, outcome=outcome) for p, text, outcome in sampled]
    for one, rolled in zip(known, shared([one.cut for one in known], rows), strict=True):
        worth = [r and (float(r.successes > 0) if hard else r.successes / r.judged) for r in rolled]
        made.append([*worth, float(one.right)])
    return summary(known, made, 0.0)


def summary(known: Sequence[Known], made: Sequence[Sequence[float | None]], tokens: float) -> dict[str, float]:
    """Agreement of labels with the truth: of steps before the last, which rollouts are for, and of first mistakes."""
    pairs = [
        (label, truth)
        for one, own in zip(known, made, strict=True)
        for label, truth in zip(own[:-1], one.truth[:-1], strict=True)
    ]
    there = [(label, truth) for label, truth in pairs if label is not None]
    agreeing = [first_wrong(own) == first_wrong(one.truth) for one, own in zip(known, made, strict=True)]
    return {
        "labelled": len(there) / len(pairs),
        "steps right": float(np.mean([(label >= 0.5) == (truth >= 0.5) for label, truth in there])) if there else 0.0,
        "distance": float(np.mean([abs(label - truth) for label, truth in there])) if there else math.nan,
        "first mistakes right": float(np.mean(agreeing)),
        "tokens": tokens / len(known),
    }


# --------------------------------------------------------------------------------------------------------- printing


def print_errors(found: Sequence[Mapping[str, Mapping[str, Any]]]) -> None:
    """The first table, means over seeds with Student's interval of the difference."""
    print("\nhard labels       N   prefixes   seen    predicted   difference [95 % over seeds]      one chance for all")
    for name in found[0]:
        kind, n = name.rsplit(" ", 1)
        seen, predicted, chance = (
            np.mean([one[name][key] for one in found]) for key in ("seen", "predicted", "one chance")
        )
        differences = [one[name]["difference"][0] for one in found]
        difference = shown(mean_over_seeds(differences), "+.4f") if not math.isnan(differences[0]) else "-"
        prefixes = sum(one[name]["prefixes"] for one in found)
        numbers = f"{prefixes:10,}   {seen:.4f}   {predicted:.4f}   {difference:32}   {chance:.4f}"
        print(f"{kind:15} {n:>3} {numbers}")


def print_methods(found: Sequence[Mapping[str, Mapping[str, float]]]) -> None:
    """The second table."""
    print(
        f"\n{'method':20} labelled   {'steps right':24}   {'first mistakes right':24}   distance   tokens a completion"
    )
    for name in found[0]:
        mean = {key: mean_over_seeds([one[name][key] for one in found]) for key in found[0][name]}
        print(
            f"{name:20} {mean['labelled'].value:8.3f}   {shown(mean['steps right']):24}   "
            f"{shown(mean['first mistakes right']):24}   {mean['distance'].value:8.3f}   {mean['tokens'].value:10,.0f}"
        )


def shown(estimate: Estimate, form: str = ".3f") -> str:
    """Value and interval."""
    value, low, high = (format(number, form) for number in estimate)
    return f"{value} [{low}, {high}]"


if __name__ == "__main__":
    main()

"""The problems themselves: counts, repeats, contradictions, and evaluation problems that training sees."""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from groupwise.checks.doctor.finding import Advice
from groupwise.checks.preflight.bench import Bench
from groupwise.checks.preflight.finding import Check, Checked, Finding, Level
from groupwise.errors import GroupwiseError
from groupwise.types import Problem, Split
from groupwise.verifiers.math import MathVerifier

SHOWN = 5
"""Problems that a finding names at most."""
REPEATED = 0.01
"""Share of repeated questions from which on they are worth a warning."""


def same(question: str) -> str:
    r"""What a question is compared by: case, spaces and the form of letters do not tell questions apart.

    >>> same("What  is\n１ + 1? ")
    'what is 1 + 1?'
    """
    return " ".join(unicodedata.normalize("NFKC", question).casefold().split())


def data(bench: Bench) -> Checked:
    """Look at every problem of every split that the recipe uses."""
    splits, missing = _splits(bench)
    found = [
        *missing,
        *_counts(bench, splits),
        *_overlaps(splits),
        *_repeats(splits["train"]),
        *_answers(bench, splits),
    ]
    figures: dict[str, Any] = {f"{split} problems": len(problems) for split, problems in splits.items()}
    for what in ("difficulty", "language"):
        counts = Counter(str(getattr(problem, what)) for problem in splits["train"])
        figures[what] = dict(counts.most_common(SHOWN))
    return Checked(figures, tuple(found))


def _finding(level: Level, evidence: str, means: str, change: Advice, places: Sequence[str] = ()) -> Finding:
    shown = tuple(places[:SHOWN])
    return Finding(check="data", level=level, evidence=evidence, means=means, change=(change,), places=shown)


def _splits(bench: Bench) -> tuple[dict[Split, Sequence[Problem]], list[Finding]]:
    """The problems of the splits that the recipe uses; that none are there to test on would show at the end."""
    splits: dict[Split, Sequence[Problem]] = {split: bench.problems(split) for split in ("train", "dev")}
    if not (wanted := bench.recipe.evaluation.test_problems):
        return splits, []
    try:
        return {**splits, "test": bench.problems("test")}, []
    except GroupwiseError as error:
        without = _finding(
            Level.NO_GO, f"evaluation.test_problems = {wanted}, but {error}",
            "The run ends with this error after its last step.",
            Advice("evaluation.test_problems", "0, or give the task problems to test on"),
        )  # fmt: skip
        return splits, [without]


def _counts(bench: Bench, splits: Mapping[Split, Sequence[Problem]]) -> Iterator[Finding]:
    batch, evaluation = bench.recipe.batch, bench.recipe.evaluation
    wanted = {"train": batch.prompts_per_step, "dev": evaluation.num_problems, "test": evaluation.test_problems}
    for split, problems in splits.items():
        if not problems or (split == "train" and len(problems) < wanted[split]):
            short = _finding(
                Level.NO_GO, f"{len(problems)} {split} problems, {wanted[split]} are wanted",
                "The run ends with an error when it needs them.",
                Advice(f"{bench.recipe.algorithm}.prompts_per_step" if split == "train" else "task",
                       f"at most {len(problems)}" if problems else f"give it {split} problems"),
            )  # fmt: skip
            yield replace(short, is_error=split != "test")  # of those the run speaks at once
        elif len(problems) < wanted[split]:
            yield _finding(
                Level.NOTE, f"{len(problems)} {split} problems, {wanted[split]} are wanted",
                "All there are will be used; the interval of the result is wider.", Advice("task", "more problems"),
            )  # fmt: skip


def _overlaps(splits: Mapping[Split, Sequence[Problem]]) -> Iterator[Finding]:
    seen = {split: {same(problem.question): problem.id for problem in problems} for split, problems in splits.items()}
    for first, second in combinations(seen, 2):
        common = sorted(seen[first].keys() & seen[second].keys())
        if not common:
            continue
        trained = first == "train"
        yield _finding(
            Level.NO_GO if trained else Level.WARNING,
            f"{len(common)} of {len(seen[second])} {second} questions are {first} questions too (case, spaces and "
            "width of letters apart)",
            "What is measured there is memory: the result will look better than it is." if trained else
            "The best checkpoint is chosen on problems of the final test.",
            Advice("task", f"leave these questions out of the {first} problems"),
            [f"{second} {seen[second][text]} = {first} {seen[first][text]}" for text in common],
        )  # fmt: skip


def _repeats(problems: Sequence[Problem]) -> Iterator[Finding]:
    by_question: dict[str, list[Problem]] = defaultdict(list)
    for problem in problems:
        by_question[same(problem.question)].append(problem)
    repeated = [own for own in by_question.values() if len(own) > 1]
    split = [own for own in repeated if len({(same(p.reference), repr(sorted(p.data.items()))) for p in own}) > 1]
    other = [own for own in split if len({same(problem.reference) for problem in own}) > 1]
    if other:
        yield _finding(
            Level.NO_GO if len(other) > REPEATED * len(by_question) else Level.WARNING,
            f"{len(other)} training questions stand there with different reference answers, for example "
            f"{[problem.reference[:60] for problem in other[0]]}",
            "The same right answer is paid in one group and not in the other.",
            Advice("task", "keep one reference answer of each question"), [own[0].id for own in other],
        )  # fmt: skip
    extra = sum(len(own) - 1 for own in repeated)
    if extra > REPEATED * len(problems):
        yield _finding(
            Level.WARNING, f"{extra} of {len(problems)} training problems repeat an earlier question",
            "Some problems count several times in every epoch.", Advice("task", "leave the repeats out"),
            [own[1].id for own in repeated],
        )  # fmt: skip


def _answers(bench: Bench, splits: Mapping[Split, Sequence[Problem]]) -> Iterator[Finding]:
    empty = [problem.id for problems in splits.values() for problem in problems if not problem.question.strip()]
    if empty:
        yield _finding(
            Level.NO_GO, f"{len(empty)} problems have no question", "The model is asked nothing.",
            Advice("task.question_field", "the field that holds the question"), empty,
        )  # fmt: skip
    answers = Counter(problem.reference for problem in splits["train"] if not problem.open_ended)
    judged = sum(answers.values())
    common, times = answers.most_common(1)[0] if answers else ("", 0)
    if judged >= 20 and bench.verifier.accepts_references and common and times > 0.9 * judged:
        yield _finding(
            Level.WARNING, f"{times} of {judged} reference answers are {common[:60]!r}",
            "One answer, learnt once, solves nearly everything.",
            Advice("task.answer_field", "the field that holds the answer, or more varied problems"),
        )  # fmt: skip
    if not isinstance(bench.verifier, MathVerifier):
        return
    unreadable = bench.verifier.unreadable([p for problems in splits.values() for p in problems if not p.open_ended])
    if unreadable:
        share = len(unreadable) / sum(map(len, splits.values()))
        yield _finding(
            Level.NO_GO if share > REPEATED else Level.WARNING,
            f"{len(unreadable)} reference answers ({share:.1%}) cannot be read; {unreadable[0][1]}",
            "Nothing that the model writes will be judged correct there.",
            Advice("task.answer_field", "another field, or task.answer_pattern"),
            [f"{problem.id}: {problem.reference[:60]!r}" for problem, _ in unreadable],
        )  # fmt: skip


DATA = Check(
    name="data", says="counts, repeats, contradictory answers, and evaluation problems that training sees",
    cost="free", run=data, source="exact repeats after NFKC, case and spaces; bounds are shares of the problems",
)  # fmt: skip

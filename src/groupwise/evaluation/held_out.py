"""Reward hacking: rewarded completions are judged again, by a verifier that training never uses.

A policy also learns its verifier's mistakes. A second verifier with other mistakes, on a sample of the rewarded
completions, shows where the two disagree: where it rejects more than a few, training has found answers that are
rewarded and wrong.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from groupwise.algorithms.statistics import Estimate, mean_share
from groupwise.errors import ConfigError, VerifierError
from groupwise.evaluation.metrics import MEASURES, by_problem
from groupwise.randomness import permutation
from groupwise.runs.row import rows_of
from groupwise.tasks.base import Task
from groupwise.types import Outcome, Problem, ScoredGroup
from groupwise.verifiers import VERIFIERS, Verifier, VerifierConfig, make_verifier, score, second_verifiers
from groupwise.verifiers.table import with_shared

ALARM = 0.05
NUM_REFERENCES = 32


class Rejected(NamedTuple):
    """A completion that training rewards and the second verifier rejects."""

    problem: str
    sample: int
    text: str
    evidence: str


class HeldOutCheck(NamedTuple):
    """The second verifier's verdict on a sample of the rewarded completions."""

    verifier: str
    judged: int
    rejected: int
    failed: int
    share: Estimate
    """Share of them that it rejects, with the 95 % interval over problems; nan if none was judged."""
    alarm: bool
    example: Rejected | None

    def record(self) -> dict[str, Any]:
        return {
            "verifier": self.verifier, "judged": self.judged, "rejected": self.rejected, "failed": self.failed,
            "share": list(self.share) if self.judged else None, "alarm": self.alarm,
            "example": {k: v for k, v in self.example._asdict().items() if k != "text"} if self.example else None,
        }  # fmt: skip

    def __str__(self) -> str:
        counts = f"{self.verifier} rejects {self.rejected} of {self.judged} completions that training pays"
        share = f", {self.share}" if self.judged else ""
        failures = f", and failed on {self.failed}" if self.failed else ""
        return f"{counts}{share}{failures}"


def second_section(section: Any, trained: Mapping[str, Any], folder: Path | None = None) -> Any:
    """Complete a second verifier's table or name by the table of the one that trains: both read answers alike."""
    shared = {key: value for key, value in trained.items() if key not in VerifierConfig.model_fields}
    if shared.get("extraction") == "last_number":
        del shared["extraction"]
    return with_shared(section, shared, folder)


def open_second(
    section: VerifierConfig | None, task: Task, trained: VerifierConfig
) -> AbstractContextManager[Verifier | None]:
    """Open the second verifier for a task that is trained with `trained`; None if none is named."""
    if section is None:
        return nullcontext()
    if section.kind in (trained.kind, *(config.kind for config in second_verifiers(trained.parts).values())):
        raise ConfigError(f"the second verifier {section.kind!r} is used in training already; it must be another one")
    name, verifier = section.kind, make_verifier(section)
    problems = [problem for problem in task.problems("dev") if is_asked(problem, name)]
    if not problems:
        raise ConfigError(f"the second verifier {name!r} can judge no dev problem of task {task.name}")
    for problem in problems[:: max(1, len(problems) // NUM_REFERENCES)][:NUM_REFERENCES]:
        answer = task.template.gold_answer(problem)
        verdict = verifier.verify(problem, answer)
        if verdict.outcome is not Outcome.CORRECT:
            verifier.close()
            raise VerifierError(
                f"the second verifier {name!r} cannot judge task {task.name}: it rejects the reference answer of "
                f"{problem.id}: {answer!r} is {verdict.outcome} ({verdict.evidence})"
            )
    return verifier


def look_again(
    scored: Sequence[ScoredGroup], name: str, verifier: Verifier, *, size: int, alarm: float, max_tokens: int, seed: int
) -> HeldOutCheck:
    """Ask the second verifier about at most `size` correct completions, drawn by the seed."""
    candidates = [
        (place, sample)
        for place, group in enumerate(scored)
        if is_asked(group.group.prompt.problem, name)
        for sample, verdict in enumerate(group.verdicts)
        if verdict.outcome is Outcome.CORRECT
    ]
    picks = sorted(candidates[index] for index in permutation(len(candidates), "second verifier", seed)[:size])
    drawn = [
        replace(scored[place].group, completions=tuple(scored[place].group.completions[i] for _, i in members))
        for place, members in groupby(picks, key=itemgetter(0))
    ]
    rescored = score(drawn, verifier, max_tokens)
    entries = [
        (group.group.prompt.problem.id, completion, verdict)
        for group in rescored
        for completion, verdict in zip(group.group.completions, group.verdicts, strict=True)
    ]
    judged = [entry for entry in entries if entry[2].outcome.judged]
    rejected = [Rejected(p, c.sample_index, c.text, v.evidence) for p, c, v in judged if v.outcome != Outcome.CORRECT]
    share = mean_share([1 - correct for correct in by_problem(rows_of(rescored), MEASURES["pass_at_1"]).values()])
    return HeldOutCheck(
        verifier=name, judged=len(judged), rejected=len(rejected),
        failed=sum(verdict.outcome.failed for _, _, verdict in entries), share=share, alarm=share.low > alarm,
        example=rejected[0] if rejected else None,
    )  # fmt: skip


def is_asked(problem: Problem, name: str) -> bool:
    """Return True for a closed mathematical problem whose own verifier is not the second one."""
    kind = problem.verifier
    return not problem.open_ended and (not kind or (kind != name and VERIFIERS.find(kind).mathematical))

"""Rules about episodes: silent without them, and where something is learnt."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from groupwise.checks.doctor.completions import DONE, TURNS, ended_by_limits, turns_collapse
from groupwise.checks.doctor.facts import GroupFacts, RunFacts, StepFacts
from groupwise.runs.row import Row
from groupwise.types import FinishReason, Outcome, TurnRecord


def run(turns: list[float], done: float = 1.0, correct: float | None = None) -> RunFacts:
    steps = []
    for step, mean in enumerate(turns):
        parts: dict[str, Any] = {TURNS: mean, DONE: done, "measure/ended/turn_limit/mean": 1 - done}
        rate = 0.2 if correct is None else 0.1 + correct * step
        steps.append(StepFacts(step, {"step": step, "parts": parts, "sampled_correct": rate}, ()))
    return RunFacts(config={"run": {"num_steps": len(turns)}}, steps=tuple(steps), dev=())


FALLING = [max(1.0, 4.0 - 0.2 * step) for step in range(20)]


@pytest.mark.parametrize(
    ("facts", "severity"),
    [(run(FALLING), "critical"), (run([max(2.0, turns) for turns in FALLING]), "warning"), (run([4.0] * 20), None),
     (run(FALLING, correct=0.04), None), (run([1.0] * 20), None)],
)  # fmt: skip
def test_turns_collapse(facts: RunFacts, severity: str | None) -> None:
    found = turns_collapse(facts)
    assert (found.severity if found else None) == severity
    if found:
        assert "episodes went from 3.6 to" in found.evidence


@pytest.mark.parametrize(
    ("facts", "severity"),
    [(run([3.0] * 8, done=0.2), "critical"), (run([3.0] * 8, done=0.7), "warning"), (run([3.0] * 8, done=0.9), None),
     (run([3.0] * 12, done=0.2, correct=0.05), None),
     (RunFacts(config={}, steps=(StepFacts(0, {"step": 0}, ()),) * 8, dev=()), None)],
)  # fmt: skip
def test_ended_by_limits(facts: RunFacts, severity: str | None) -> None:
    found = ended_by_limits(facts)
    assert (found.severity if found else None) == severity
    if found:
        assert "80% by turn_limit" in found.evidence or "30% by turn_limit" in found.evidence


@pytest.mark.parametrize(("said", "again"), [("aba", "; 1 of 1 of them say a turn twice"), ("abc", "")])
def test_limits_that_end_what_repeats_itself_are_said(said: str, again: str) -> None:
    ids = np.arange(5)
    row = Row(
        problem="p", difficulty="", language=None, question="", reference="", open_ended=False, prefill="", sample=0,
        text=f"{said[0]}-{said[1]}+{said[2]}", finish_reason=FinishReason.TURN_LIMIT, outcome=Outcome.WRONG,
        answer=None, evidence="", num_tokens=3, turns=tuple(map(TurnRecord, (1, 3, 5))), token_ids=ids,
        token_ends=ids + 1, sampled=ids % 2 == 0,
    )  # fmt: skip
    facts = run([3.0] * 8, done=0.2)
    last = replace(facts.steps[-1], groups=(GroupFacts("p", (row,)),))
    found = ended_by_limits(replace(facts, steps=(*facts.steps[:-1], last)))
    assert found is not None
    assert found.evidence.partition("was never decided")[2].startswith(again)
    assert bool(again) == ("twice" in found.evidence)

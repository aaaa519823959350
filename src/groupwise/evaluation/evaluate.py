"""Evaluation, shared by trainers, pipelines and `groupwise eval`: sample problems several times and verify."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from groupwise.config import ReadIf, Section
from groupwise.evaluation.held_out import ALARM
from groupwise.randomness import Draws
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.rollout.sampling import SamplingConfig
from groupwise.runs.row import Row, rows_of
from groupwise.tasks.base import FORMS, asking
from groupwise.tasks.table import place_of
from groupwise.types import FinishReason, Outcome, Problem, ScoredGroup
from groupwise.verifiers import VERIFIERS, VerifierConfig
from groupwise.verifiers.extraction import clipped

JUDGED_AGAIN = ReadIf(lambda evaluation: evaluation.second_verifier is not None, "a second_verifier")


class EvaluationConfig(Section):
    """Evaluation on held-out problems during the run, and once on the test split at its end."""

    every: int = Field(20, ge=1)
    """Steps between two evaluations on the dev split."""
    num_problems: int = Field(100, ge=1)
    """Dev problems (the first of the split)."""
    num_samples: int = Field(4, ge=1)
    """Completions per dev problem."""
    test_problems: int = Field(200, ge=0)
    """Test problems; the test split is opened once, after training, for the start and the best checkpoint. 0: never."""
    test_samples: int = Field(4, ge=1)
    """Completions per test problem."""
    second_verifier: Annotated[VerifierConfig, VERIFIERS] | None = None
    """Verifier that training never uses and that judges a sample of every dev evaluation again, for example `math`
    beside `number`: where it rejects what training rewards, training has found a hole in its verifier. Missing keys of
    its section are those of the `verifier` section."""
    second_sample: Annotated[int, Field(ge=1), JUDGED_AGAIN] = 100
    """Completions with a correct answer that it judges, drawn at random."""
    alarm: Annotated[float, Field(ge=0, lt=1), JUDGED_AGAIN] = ALARM
    """The alarm sounds when it rejects more than this share of them, beyond chance (lower end of the 95 % interval)."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scored completions of an evaluation; `evaluation.metrics` makes figures of its rows."""

    scored: tuple[ScoredGroup, ...]

    @property
    def rows(self) -> tuple[Row, ...]:
        return rows_of(self.scored)


def evaluate(
    actors: Actors, problems: Sequence[Problem], num_samples: int, sampling: SamplingConfig, draws: Draws
) -> Evaluation:
    """Sample `num_samples` completions of each problem and verify them; any checkpoint gets the same random numbers."""
    return Evaluation(tuple(sample_and_score(actors, problems, num_samples, sampling, draws)))


MANY = 0.5
"""Share of unparsable completions beyond which it is said."""
MARKS = {"boxed": "\\boxed{", "tag": "<answer>", "code": "```"}
"""Texts without which there is no answer at a place, by the names of `tasks.base.FORMS`."""
EXCERPT = 120  # Characters of the completion that is shown, its end


def unparsable(actors: Actors, scored: Sequence[ScoredGroup], max_tokens: int) -> str:
    """Say in one sentence that most completions hold no answer that can be read, and what would help; else empty."""
    judged = [(c, v) for group in scored for c, v in zip(group.group.completions, group.verdicts, strict=True)]
    without = [(c, v) for c, v in judged if v.outcome is Outcome.UNPARSABLE]
    if len(without) <= MANY * len(judged):
        return ""
    template, config = actors.template, actors.verifier.config
    (first, verdict), total = without[0], len(judged)
    place = place_of(config)
    mark, form = MARKS.get(place, ""), asking(place, thinks=False) if place in FORMS else ""
    cut = sum(c.finish_reason is FinishReason.LENGTH for c, _ in without)
    name = {"boxed": "\\boxed{}", "tag": "<answer></answer>", "code": "a block in ```"}.get(place, "")
    holding = sum(mark in c.text for c, _ in without) if mark else 0
    count = "none" if not holding else f"only {holding}"
    missing = f"{count} of {len(without)} contains {name}" if mark else verdict.evidence
    if mark and mark not in template.prompt + template.system + template.prefill:
        help_ = f"the prompt does not ask for it: set task.template.prompt = {form!r}"
    elif template.chat is not True and actors.policy.tokenizer.chat_template:
        help_ = "the model has a chat template, which the prompt does without: set task.template.chat = true"
    elif cut > MANY * len(without):
        help_ = f"{cut} were cut at {max_tokens} tokens: set sampling.max_tokens = {2 * max_tokens}"
    else:
        help_ = "the prompt asks for it: show the model an example in task.template.prompt, or train it on some first"
    return (
        f"{len(without)} of {total} completions are unparsable: {missing}, and {help_}; "
        f"one ends in {clipped(first.text[-EXCERPT:])!r}"
    )

"""`groupwise sample`: ask one question, see several completions and what the verifier makes of each."""

from contextlib import suppress
from typing import Any

from rich.console import Console
from rich.text import Text

from groupwise.cli.checkpoints import context_of
from groupwise.errors import ConfigError, DataError
from groupwise.models.config import ModelConfig
from groupwise.models.loading import quiet_transformers
from groupwise.models.policy import load_policy
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.tasks.base import Task
from groupwise.types import SPLITS, Outcome, Problem
from groupwise.verifiers import make_verifier

STYLES = {Outcome.CORRECT: "green", Outcome.WRONG: "red", Outcome.UNPARSABLE: "yellow"}


def run_sample(
    checkpoint: str, question: str, reference: str | None, num_samples: int, task: str | None,
    sampling: dict[str, Any], seed: int, overrides: list[str], console: Console,
) -> None:  # fmt: skip
    """Print completions with verdicts; without a known reference answer, with the answer that was read."""
    quiet_transformers()
    if task is None and checkpoint == "base":
        task = "arithmetic"
    context = context_of(checkpoint, task, sampling, overrides)
    known = find_question(context.task, question)
    if known is None and not context.task.answers_any_question:
        raise ConfigError(
            f"the verifier of task {context.task.name} needs more than a reference answer: ask one of its questions, "
            f"for example {context.task.problems('test')[0].question!r}"
        )
    problem = known or Problem(id="asked", question=question, reference=reference or "0")
    with make_verifier(context.verifier) as verifier:
        verifier.check([problem], context.task.template)
        policy = load_policy(ModelConfig(path=checkpoint))
        actors, draws = Actors.of(policy, context.task.template, verifier), Draws(seed, Purpose.SAMPLE)
        scored = sample_and_score(actors, [problem], num_samples, context.sampling, draws)[0]
    judged = known is not None or reference is not None
    for completion, verdict in zip(scored.group.completions, scored.verdicts, strict=True):
        finding = f"{verdict.outcome}: {verdict.evidence}" if judged else f"answer: {verdict.answer or 'none'}"
        style = STYLES.get(verdict.outcome, "magenta") if judged else "cyan"
        console.print(Text(scored.group.prompt.prefill + completion.text), soft_wrap=True)
        console.print(Text(f"  {completion.num_tokens} tokens, {completion.finish_reason}; {finding}", style=style))
    if not judged:
        console.print(
            "[dim]No reference answer is known for this question; give one with --reference to see verdicts.[/]"
        )


def find_question(task: Task, question: str) -> Problem | None:
    """The task's own problem with this question, in any split."""
    for split in SPLITS:
        with suppress(DataError):  # data without this split
            for problem in task.problems(split):
                if problem.question == question:
                    return problem
    return None

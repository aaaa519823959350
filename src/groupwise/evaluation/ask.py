"""Ask a checkpoint one question. `groupwise sample` is `sample` with its answers printed."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from groupwise.config import Changes
from groupwise.errors import ConfigError, DataError
from groupwise.evaluation.checkpoints import context_of
from groupwise.models.policy import load_policy
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.tasks.base import Task
from groupwise.types import SPLITS, Completion, Problem, ScoredGroup, Verdict
from groupwise.verifiers import make_verifier


@dataclass(frozen=True, slots=True)
class Answers:
    """Several completions of one question. Iterating gives each completion with its verdict."""

    scored: ScoredGroup
    judged: bool

    def __iter__(self) -> Iterator[tuple[Completion, Verdict]]:
        return zip(self.scored.group.completions, self.scored.verdicts, strict=True)

    def __len__(self) -> int:
        return len(self.scored.verdicts)

    @property
    def texts(self) -> list[str]:
        return [self.scored.group.prompt.prefill + completion.text for completion, _ in self]


def sample(
    checkpoint: str | Path,
    question: str,
    reference: str | None = None,
    *,
    task: str | None = None,
    samples: int = 4,
    seed: int = 0,
    temperature: float = 1.0,
    max_tokens: int | None = None,
    changes: Changes = (),
) -> Answers:
    r"""Ask a checkpoint a question and judge the answers. It is `groupwise sample`.

    >>> sample("base", "What is 23 × 17?", samples=2).texts  # doctest: +SKIP
    ['<think>23×10=230. 23×7=161. 230+161=391.</think>\\boxed{391}', '<think>23×17=381</think>\\boxed{381}']

    Args:
        checkpoint: a checkpoint directory, a hub name, or `base` for the shipped model.
        question: what is asked.
        reference: the reference answer; None: that of the task's problem with this question, if there is one.
        task: task of the template and the verifier; None: that of the run that the checkpoint lies in.
        samples: completions.
        seed: of the draws.
        temperature: divides the logits; 0 takes the likeliest token.
        max_tokens: most tokens of a completion; None: as many as in the run, else the default.
        changes: of the sections task, verifier and sampling, as for `load_recipe`.

    Raises:
        ConfigError: the path is a run and not a checkpoint, the verifier needs more than a reference answer and the
            question is none of the task, or a name or a value is unknown.
        ModelError: the checkpoint cannot be loaded, or its tokenizer cannot write the question.
    """
    path = str(checkpoint)
    if task is None and path == "base":
        task = "arithmetic"
    context = context_of(path, task, {"temperature": temperature, "max_tokens": max_tokens}, changes)
    own_problem = find_question(context.task, question)
    if own_problem is None and not context.task.answers_any_question:
        raise ConfigError(
            f"the verifier of task {context.task.name} needs more than a reference answer: ask one of the task's "
            f"questions, for example {context.task.problems('test')[0].question!r}"
        )
    problem = own_problem or Problem(id="asked", question=question, reference=reference or "0")
    with make_verifier(context.verifier) as verifier:
        verifier.check([problem], context.task.template)
        actors = Actors.of(load_policy(path), context.task.template, verifier)
        draws = Draws(seed, Purpose.SAMPLE)
        scored = sample_and_score(actors, [problem], samples, context.sampling, draws)[0]
    return Answers(scored, judged=own_problem is not None or reference is not None)


def find_question(task: Task, question: str) -> Problem | None:
    """Return the task's problem with this question, in any split; None if it has none."""
    for split in SPLITS:
        with suppress(DataError):  # data without this split
            for problem in task.problems(split):
                if problem.question == question:
                    return problem
    return None

"""Ask a model one question. `groupwise sample` is `sample` with its answers printed as they are written."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from groupwise.config import Changes, parse
from groupwise.errors import ConfigError
from groupwise.evaluation.checkpoints import PROBLEMS, Context, context_of, is_known, refuse_run, refuse_unread
from groupwise.models.policy import load_policy
from groupwise.models.prompts import encode_prompt
from groupwise.randomness import Draw, Draws, Purpose
from groupwise.rollout.engine import Request
from groupwise.rollout.pieces import Written, completion_in
from groupwise.rollout.sample_and_score import Actors, continuations, score_groups
from groupwise.rollout.sampling import SamplingConfig
from groupwise.tasks.base import Template
from groupwise.types import Completion, Group, Problem, Prompt, ScoredGroup, Verdict
from groupwise.verifiers import make_verifier
from groupwise.verifiers.unjudged import Unjudged

OnText = Callable[[int, str, bool], None]
"""Called with the number of a completion, what it goes on with, and whether that was its end."""
TALK_TOKENS = 512
"""Most tokens of an answer to a question of no task."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Several completions of one question. Iterating gives each completion with its verdict."""

    scored: ScoredGroup
    judged: bool
    is_free: bool = False  # of no task, so nothing was looked for in them

    def __iter__(self) -> Iterator[tuple[Completion, Verdict]]:
        return zip(self.scored.group.completions, self.scored.verdicts, strict=True)

    def __len__(self) -> int:
        return len(self.scored.verdicts)

    @property
    def texts(self) -> list[str]:
        return [self.scored.group.prompt.prefill + completion.text for completion, _ in self]


def sample(
    checkpoint: str | Path,
    question: str | None = None,
    reference: str | None = None,
    *,
    task: str | None = None,
    samples: int | None = None,
    seed: int = 0,
    temperature: float = 1.0,
    max_tokens: int | None = None,
    changes: Changes = (),
    on_prompt: Callable[[Prompt], None] = lambda prompt: None,
    on_text: OnText = lambda index, text, is_end: None,
) -> Answers:
    r"""Ask a model a question, and judge the answers where a task is known. It is `groupwise sample`.

    >>> sample("base", "What is 23 × 17?", samples=2, seed=3).texts  # doctest: +SKIP
    ['<think>23×10=230. 23×7=161. 230+161=391.</think>\\boxed{391}', '<think>23×17=471</think>\\boxed{471}']

    Without a task the question is the user's message, where the tokenizer has a chat template, else a text to go on
    with.

    Args:
        checkpoint: a checkpoint directory, a hub name, a GGUF file, or `base` for the shipped model.
        question: what is asked; None: one of the task's problems.
        reference: the reference answer; None: that of the task's problem with this question, if there is one.
        task: task of the template and the verifier; None: that of the run that the checkpoint lies in, if it does.
        samples: completions; None: 4 with a task, 1 without.
        seed: of the draws.
        temperature: divides the logits; 0 takes the likeliest token.
        max_tokens: most tokens of a completion; None: as many as in the run, else the default (512 without a task).
        changes: of the sections task, verifier and sampling, as for `load_recipe`.
        on_prompt: called with the prompt, as the model reads it.
        on_text: called with every piece of a completion.

    Raises:
        ConfigError: the path is a run and not a checkpoint, the verifier needs more than a reference answer and the
            question is none of the task, or a name or a value is unknown.
        ModelError: the checkpoint cannot be loaded, or its tokenizer cannot write the question.
    """
    path = str(checkpoint)
    if task is None and path == "base":
        task = "arithmetic"
    limits = {"temperature": temperature, "max_tokens": max_tokens}
    refuse_run(path)
    if task is None and not is_known(path):
        if question is None or reference is not None or changes:
            raise ConfigError(
                f"{path} lies in no run, so its task is not known: name it with --task, or give a question alone"
            )
        policy = load_policy(path, trusted=True)
        template = Template(prompt="{question}", chat=bool(policy.tokenizer.chat_template))
        problem = Problem("asked", question, "")
        if limits["max_tokens"] is None:
            room = policy.context_length - len(encode_prompt(policy, template, problem).token_ids)
            limits = {**limits, "max_tokens": max(1, min(TALK_TOKENS, room))}
        sampling = parse(SamplingConfig, limits, source="sampling")
        actors = Actors.of(policy, template, Unjudged())
        scored = _asked(actors, problem, samples or 1, sampling, Draws(seed, Purpose.SAMPLE), on_prompt, on_text)
        return Answers(scored, judged=False, is_free=True)
    refuse_unread(changes, ("task", "verifier", "sampling"))
    context = context_of(path, task, limits, changes)
    problem, is_known_problem = _problem(context, question, reference, seed)
    with make_verifier(context.verifier) as verifier:
        verifier.check([problem], context.task.template)
        actors = Actors.of(load_policy(path, trusted=True), context.task.template, verifier)
        draws = Draws(seed, Purpose.SAMPLE)
        scored = _asked(actors, problem, samples or 4, context.sampling, draws, on_prompt, on_text)
    return Answers(scored, judged=is_known_problem or reference is not None)


def _problem(context: Context, question: str | None, reference: str | None, seed: int) -> tuple[Problem, bool]:
    """Return the problem, and whether it is one of the task's."""
    if question is None:
        if not (problems := context.task.problems("test")[:PROBLEMS]):
            raise ConfigError(f"task {context.task.name} has no test problems to draw one from: give a question")
        return Draw("sample", seed).choice(problems), True
    problem = next((problem for problem in context.task.every_problem() if problem.question == question), None)
    if problem is None and not context.task.answers_any_question:
        raise ConfigError(
            f"the verifier of task {context.task.name} needs more than a reference answer: ask one of the task's "
            f"questions, for example {context.task.problems('test')[0].question!r}"
        )
    asked = problem or Problem(id="asked", question=question, reference="0")
    return asked if reference is None else replace(asked, reference=reference), problem is not None


def _asked(
    actors: Actors, problem: Problem, samples: int, sampling: SamplingConfig, draws: Draws,
    on_prompt: Callable[[Prompt], None], on_text: OnText,
) -> ScoredGroup:  # fmt: skip
    policy = actors.policy
    prompt = encode_prompt(policy, actors.template, problem)
    on_prompt(prompt)

    def telling(index: int) -> Callable[[Sequence[int]], bool]:
        written = Written(policy.tokenizer)
        if prompt.prefill:
            on_text(index, prompt.prefill, False)

        def tell(ids: Sequence[int]) -> bool:
            is_end = ids[-1] in policy.stop_ids or len(ids) >= sampling.max_tokens
            shown = ids[:-1] if ids[-1] in policy.stop_ids else ids
            on_text(index, written.add(shown, is_end), is_end)
            return False

        return tell

    keys = draws.keys(problem.id, samples)
    requests = [Request(prompt.token_ids, (key,), pause=telling(index)) for index, key in enumerate(keys)]
    pieces = continuations(actors, requests, sampling)
    completions = tuple(completion_in(policy, i, sampled, sampling.tools) for i, sampled in enumerate(pieces))
    return score_groups(actors, [Group(prompt, completions, draws.step, actors.engine.version)], sampling, draws)[0]

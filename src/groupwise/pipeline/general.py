"""General data (without reasoning) for the second fine-tuning, judged by models where no rule can."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator

from groupwise.config import Section
from groupwise.config.schema import RewardModelRef
from groupwise.errors import VerifierError
from groupwise.models.config import ModelConfig
from groupwise.models.packed import Sequences, micro_batches
from groupwise.models.reward_model import RewardModel, load_reward_model
from groupwise.pipeline.recipe import Name
from groupwise.randomness import Draw, key
from groupwise.tasks import TaskOptions, make_task
from groupwise.tasks.base import split_problems
from groupwise.tasks.texts import Writer
from groupwise.trainers.sft import PairsData, read_file
from groupwise.types import Outcome, Problem
from groupwise.verifiers import Request, make_verifier
from groupwise.verifiers.extraction import after_thinking
from groupwise.verifiers.judge.config import JudgeConfig


class ModelJudge(Section):
    """A reward model that sorts candidates."""

    path: RewardModelRef
    """The reward model, for example `{helpful}`."""
    see: Literal["completion", "answer"] = "completion"
    """`completion`: it reads all of it. `answer`: only what stands after `</think>`."""
    keep: float = Field(0.5, gt=0, le=1)
    """Share of the candidates, the best by its score, that it keeps."""


class GeneralData(Section):
    """Source of general data, and its judges."""

    task: TaskOptions
    """Whose training problems the generated answers are for; a name in `tasks`."""
    file: PairsData | None = None
    """Prompt/completion pairs of your own instead of generated answers."""
    num_problems: int = Field(1000, ge=1)
    """Problems with generated answers (the last of the split)."""
    answers_per_problem: int = Field(2, ge=1)
    """Generated answers of each, by different hands."""
    writer: Writer | None = None
    """Who writes the generated answers, for example `worlds/general.py:Hands`; not needed with `file`."""
    reward_models: dict[Name, ModelJudge] = Field(default_factory=dict)
    """A candidate is kept if every one of them keeps it."""
    judge: JudgeConfig | None = None
    """A generative judge behind an endpoint, which must say that the answer is right; None: it is not asked."""

    @model_validator(mode="after")
    def _plain(self) -> Self:
        if not self.file and not self.writer:
            raise ValueError("there is neither a writer of answers nor a file of them; one of the two is needed")
        if self.task.template.chat:
            raise ValueError("task.template.chat = true: rows of data are plain text, so false is allowed")
        if self.file and self.judge and "{reference}" in self.judge.prompt:
            raise ValueError(
                "judge.prompt holds {reference}, which rows of a file do not have: use {question} and {answer}"
            )
        return self


class Candidate(Section):
    """A row that may be taken."""

    prompt: str
    """What is asked."""
    completion: str
    """What is answered."""
    problem: str
    """Id of the problem; of a file: its place."""
    language: str
    """Language of the problem; of a file: unknown, empty."""


Progress = Callable[[str, int, int], None]


def general_rows(
    data: GeneralData, most: int, seed: int, model: ModelConfig, progress: Progress
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """At most `most` rows of general data, in random order, and their statistics."""
    problems = {problem.id: problem for problem in split_problems(make_task(data.task), "train", None)}
    candidates = _from_file(data.file) if data.file else _generated(data, list(problems.values()), seed)
    dropped = Counter[str]()
    remaining = set(range(len(candidates)))
    for done, (name, judge) in enumerate(data.reward_models.items()):
        progress("judges", done, len(data.reward_models))
        best = _best(candidates, judge, model, "" if data.file else data.task.template.prefill)
        dropped[f"below the best {judge.keep:.0%} by {name}"] = len(remaining - best)
        remaining &= best
    progress("judges", len(data.reward_models), len(data.reward_models))
    if data.judge:
        approved = _approved(candidates, problems, data.judge, remaining)
        dropped["not approved by the judge"] = len(remaining - approved)
        remaining = approved
    order = sorted(remaining, key=lambda index: key(seed, "general", index))[:most]
    rows = [
        {
            **candidates[i].model_dump(),
            "source": "general",
            "judged_by": [*data.reward_models, *(["judge"] * bool(data.judge))],
        }
        for i in order
    ]
    statistics = {"candidates": len(candidates), "kept": len(remaining), "taken": len(rows), "dropped": dict(dropped)}
    return rows, {"general": statistics}


def _from_file(file: PairsData) -> list[Candidate]:
    return [
        Candidate(prompt=prompt, completion=completion, problem=f"{Path(path).name}:{number}", language="")
        for path in file.paths
        for number, (prompt, completion) in enumerate(read_file(file, path))
    ]


def _generated(data: GeneralData, problems: Sequence[Problem], seed: int) -> list[Candidate]:
    template, writer = data.task.template, data.writer
    assert writer is not None
    return [
        Candidate(
            prompt=template.render(problem) + template.prefill,
            completion=writer.written(Draw("general document", seed, problem.id, hand), problem).removeprefix(
                template.prefill
            ),
            problem=problem.id,
            language=problem.language,
        )
        for problem in problems[-data.num_problems :]
        for hand in range(data.answers_per_problem)
    ]


def _best(candidates: Sequence[Candidate], judge: ModelJudge, config: ModelConfig, prefill: str) -> set[int]:
    """Indices of the best share of the candidates by a reward model's score.

    What reads answers only reads them after the question alone, without the opened reasoning, as it was trained.
    """
    model = load_reward_model(config.at(judge.path)).freeze()
    answers = judge.see == "answer"
    texts = [
        after_thinking(prefill + candidate.completion) if answers else candidate.completion for candidate in candidates
    ]
    prompts = [candidate.prompt.removesuffix(prefill) if answers else candidate.prompt for candidate in candidates]
    readable = [index for index, text in enumerate(texts) if text and text.strip()]
    scores = dict(zip(readable, _scores(model, [(prompts[i], str(texts[i]).strip()) for i in readable]), strict=True))
    ranked = sorted(readable, key=lambda index: (-scores[index], index))
    return set(ranked[: round(judge.keep * len(candidates))])


@torch.no_grad()
def _scores(model: RewardModel, pairs: Sequence[tuple[str, str]], budget: int = 16384) -> list[float]:
    """Score of every (prompt, completion)."""
    end = model.tokenizer.eos_token_id
    prompts = model.tokenizer([prompt for prompt, _ in pairs])["input_ids"]
    completions = model.tokenizer([text for _, text in pairs], add_special_tokens=False)["input_ids"]
    sequences = [Sequences(p, [[*c, end]]) for p, c in zip(prompts, completions, strict=True)]
    chunks = micro_batches([len(sequence.prompt) + len(sequence.completions[0]) for sequence in sequences], budget)
    return [score for chunk in chunks for score in model.scores([sequences[i] for i in chunk]).tolist()]


def _approved(
    candidates: Sequence[Candidate], problems: Mapping[str, Problem], judge: JudgeConfig, remaining: set[int]
) -> set[int]:
    """Indices of the candidates whose answer a generative judge calls right.

    Raises:
        VerifierError: it could not judge too many of them.
    """
    indices = sorted(remaining)
    chosen = [candidates[i] for i in indices]
    asked = [problems.get(c.problem) or Problem(c.problem, c.prompt, "", language=c.language or "en") for c in chosen]
    with make_verifier({"kind": "judge", "judge": judge}) as verifier:
        requests = [Request(problem, candidate.completion) for problem, candidate in zip(asked, chosen, strict=True)]
        verdicts = verifier.verify_many(requests)
        most = verifier.config.max_failure_share * len(verdicts)
    failed = [verdict for verdict in verdicts if verdict.outcome.failed]
    if len(failed) > most:
        raise VerifierError(
            f"the judge of general data failed on {len(failed)} of {len(verdicts)} answers; allowed are {most:g}; for "
            f"example: {failed[0].evidence}"
        )
    return {i for i, verdict in zip(indices, verdicts, strict=True) if verdict.outcome is Outcome.CORRECT}

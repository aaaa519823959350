"""Stage `rejection_sampling`: data of the second fine-tuning, from a reasoning model's own completions.

DeepSeek-R1 (arXiv:2501.12948, section 2.3.3): many completions per prompt, only correct ones, without mixed languages,
long paragraphs and loops; with them general data without reasoning, three to one, judged by models where no rule can.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from groupwise.config import Section
from groupwise.config.schema import DataRef, ModelRef, RewardModelRef, label
from groupwise.errors import VerifierError
from groupwise.models.config import ModelConfig
from groupwise.models.loading import tokenizer_of
from groupwise.models.packed import Sequences
from groupwise.models.policy import load_policy
from groupwise.models.prompts import ended, prompt_ids
from groupwise.models.reward_model import RewardModel, load_reward_model, score_completions
from groupwise.pipeline.base import Made, Stage, Workplace
from groupwise.pipeline.collect import Asked, Filters, balanced, collect_rows, counts, data_row, episodes_in, keep
from groupwise.pipeline.directory import read_rows
from groupwise.pipeline.recipe import Name
from groupwise.randomness import Draw, Draws, Purpose, key, permutation
from groupwise.rollout.sample_and_score import Actors
from groupwise.runs.progress import counted
from groupwise.runs.row import Row
from groupwise.tasks import TaskOptions, make_task
from groupwise.tasks.base import split_problems
from groupwise.tasks.episodes import environments
from groupwise.tasks.preferences import Writer
from groupwise.trainers.sft import PairsData, read_pairs
from groupwise.types import Outcome, Problem
from groupwise.verifiers import Request, make_verifier
from groupwise.verifiers.extraction import after_thinking
from groupwise.verifiers.judge.config import JudgeConfig


class ModelJudge(Section):
    """A reward model that sorts candidates."""

    path: RewardModelRef
    """The reward model, for example `{helpful}`."""
    see: Literal["completion", "answer"] = "completion"
    """`completion`: it reads everything. `answer`: only the text after `</think>`."""
    keep: float = Field(0.5, gt=0, le=1)
    """Share of the candidates that it keeps, the best by its score."""


class GeneralData(Section):
    """Source of general data, and its judges."""

    task: TaskOptions
    """Task for whose training problems answers are generated; a name in `tasks`."""
    file: PairsData | None = None
    """Prompt/completion pairs in place of generated answers."""
    num_problems: int = Field(1000, ge=1)
    """Problems with generated answers (the last of the split)."""
    answers_per_problem: int = Field(2, ge=1)
    """Generated answers of each, by different writers."""
    writer: Writer | None = None
    """Writer of the generated answers, for example `worlds/general.py:Hands`; not needed with `file`."""
    reward_models: dict[Name, ModelJudge] = Field(default_factory=dict)
    """A candidate is kept if every one of them keeps it."""
    judge: JudgeConfig | None = None
    """A generative judge behind an endpoint that must call the answer right; None: no judge."""

    @model_validator(mode="after")
    def _plain(self) -> Self:
        if self.task.template.chat:
            raise ValueError("task.template.chat = true: rows of data are plain text, so false is allowed")
        if not self.file and not self.writer:
            raise ValueError("there is neither a writer of answers nor a file of them; one of the two is needed")
        if self.file and self.judge and "{reference}" in self.judge.prompt:
            raise ValueError(
                "judge.prompt holds {reference}, which rows of a file do not have: use {question} and {answer}"
            )
        return self


class Candidate(NamedTuple):
    """A row that may be taken."""

    prompt: str
    completion: str
    problem: str
    language: str


class RejectionConfig(Asked):
    """Settings of the stage. Of an episode the turns that the model said are learnt, and its replies are read."""

    plays = True
    path: ModelRef
    """The model that is sampled, for example `{reasoning_rl}`."""
    num_problems: int = Field(512, ge=1)
    """Training problems, the last of the split: fewer of them were seen in training."""
    num_samples: int = Field(8, ge=1)
    """Completions per problem."""
    filters: Filters = Filters()
    """Conditions for keeping a completion."""
    per_problem: int = Field(4, ge=0)
    """Most completions of one problem; 0: any number."""
    num_rows: int = Field(2000, ge=1)
    """Most rows of reasoning; taken evenly from the difficulties."""
    include: tuple[DataRef, ...] = ()
    """Data sets whose rows are all taken, for example `{cold_start}`; they count as reasoning."""
    reasoning_per_general: float = Field(3.0, gt=0)
    """Rows of reasoning for each row of general data (DeepSeek-R1: 600,000 to 200,000)."""
    general: GeneralData | None = None
    """General data; None: no general data."""


class RejectionSampling(Stage[RejectionConfig]):
    """Sample, reject, add general data."""

    Config = RejectionConfig
    makes = "data"

    def run(self, settings: RejectionConfig, work: Workplace) -> Made:
        sampled, problems = self._sample(settings, work)
        selection = keep(sampled, settings.filters, settings.per_problem)
        chosen = balanced(selection.rows, settings.num_rows, settings.seed)
        template, model = settings.task.template, label(self.config.path)
        reasoning = [data_row(template, problems[row.problem], row, "rejection sampling", model) for row in chosen]
        if environments(settings.task):
            episodes = episodes_in(work.directory.samples, tokenizer_of(settings.path))
            for row in reasoning:
                if pieces := episodes.get((row["problem"], row["sample"])):
                    del row["prompt"], row["completion"]
                    row |= {"pieces": pieces, "rendered": bool(template.chat)}
        reasoning += [row for path in settings.include for row in read_rows(Path(path))]
        rows, statistics = reasoning, dict[str, Any]()
        if settings.general:
            most = round(len(reasoning) / settings.reasoning_per_general)
            general, statistics = general_rows(settings.general, most, settings.seed, settings.model)
            rows = reasoning + general
        shuffled = [rows[i] for i in permutation(len(rows), settings.seed, "rejection sampling")]
        tokens = sum(row.length for row in sampled)
        solved = {row.problem for row in sampled if row.outcome is Outcome.CORRECT}
        figures = {
            "rows": len(rows), "sampled": len(sampled), "dropped": dict(selection.dropped),
            "sources": counts(rows, "source"), "languages": counts(rows, "language"),
            "problems_solved": len(solved), "problems": len({row.problem for row in sampled}),
        }  # fmt: skip
        return work.made(shuffled, figures | statistics, tokens)

    def _sample(self, settings: RejectionConfig, work: Workplace) -> tuple[list[Row], dict[str, Problem]]:
        task = make_task(settings.task)
        problems = split_problems(task, "train", None)[-settings.num_problems :]
        with make_verifier(task.verifier_config) as verifier:
            verifier.check(problems, task.template)
            policy = load_policy(settings.model.at(settings.path))
            actors = Actors.of(policy, task.template, verifier, settings.engine)
            rows = collect_rows(
                actors, problems, settings.num_samples, settings.sampling, Draws(settings.seed, Purpose.REJECTION),
                work.directory.samples,
            )  # fmt: skip
        return rows, {problem.id: problem for problem in problems}


def general_rows(
    data: GeneralData, most: int, seed: int, model: ModelConfig
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return at most `most` rows of general data, in random order, and their statistics."""
    problems = {problem.id: problem for problem in split_problems(make_task(data.task), "train", None)}
    candidates = _candidates(data, list(problems.values()), seed)
    dropped = Counter[str]()
    remaining = set(range(len(candidates)))
    for name, judge in counted("judges", data.reward_models.items(), len(data.reward_models)):
        best = _best(candidates, judge, model, "" if data.file else data.task.template.prefill)
        dropped[f"below the best {judge.keep:.0%} by {name}"] = len(remaining - best)
        remaining &= best
    if data.judge:
        approved = _approved(candidates, problems, data.judge, remaining)
        dropped["not approved by the judge"] = len(remaining - approved)
        remaining = approved
    order = sorted(remaining, key=lambda index: key(seed, "general", index))[:most]
    judged_by = [*data.reward_models, *(["judge"] * bool(data.judge))]
    rows = [{**candidates[i]._asdict(), "source": "general", "judged_by": judged_by} for i in order]
    statistics = {"candidates": len(candidates), "kept": len(remaining), "taken": len(rows), "dropped": dict(dropped)}
    return rows, {"general": statistics}


def _candidates(data: GeneralData, problems: Sequence[Problem], seed: int) -> list[Candidate]:
    if data.file:
        return [
            Candidate(prompt, completion, f"{Path(path).name}:{number}", "")
            for path in data.file.paths
            for number, (prompt, completion) in enumerate(read_pairs(data.file, [path]))
        ]
    assert data.writer is not None
    template, candidates = data.task.template, []
    for problem in problems[-data.num_problems :]:
        prompt = template.render(problem) + template.prefill
        for hand in range(data.answers_per_problem):
            answer = data.writer.written(Draw("general document", seed, problem.id, hand), problem)
            completion = answer.removeprefix(template.prefill)
            candidates.append(Candidate(prompt, completion, problem.id, problem.language))
    return candidates


def _best(candidates: Sequence[Candidate], judge: ModelJudge, config: ModelConfig, prefill: str) -> set[int]:
    model = load_reward_model(config.at(judge.path)).freeze()
    answers = judge.see == "answer"
    texts = [
        after_thinking(prefill + candidate.completion) if answers else candidate.completion for candidate in candidates
    ]
    prompts = [candidate.prompt.removesuffix(prefill) if answers else candidate.prompt for candidate in candidates]
    readable = [index for index, text in enumerate(texts) if text and text.strip()]
    told = [(prompts[i], str(texts[i]).strip(), f"the completion of {candidates[i].problem}") for i in readable]
    scores = dict(zip(readable, _scores(model, judge.path, told), strict=True))
    return set(sorted(readable, key=lambda index: (-scores[index], index))[: round(judge.keep * len(candidates))])


def _scores(model: RewardModel, path: str, told: Sequence[tuple[str, str, str]], budget: int = 0) -> list[float]:
    prompts = [prompt_ids(model, prompt, f"the prompt {prompt[:60]!r}") for prompt, _, _ in told]
    completions = model.tokenizer([text for _, text, _ in told], add_special_tokens=False)["input_ids"]
    sequences = [Sequences(p, [ended(model, c)]) for p, c in zip(prompts, completions, strict=True)]
    return score_completions(model, path, sequences, [name for _, _, name in told], budget)


def _approved(
    candidates: Sequence[Candidate], problems: Mapping[str, Problem], judge: JudgeConfig, remaining: set[int]
) -> set[int]:
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

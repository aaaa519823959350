"""Stage `step_labels`: a model's completions cut into steps, and of each step whether it is right.

`exact` asks the task's own plan (`verifiers.working`), which only embedded tasks have. `monte_carlo` is Math-Shepherd
(arXiv:2312.08935): from the text up to the end of a step a completer goes on several times, and the step is as good as
the share of rollouts that the task's verifier calls correct. A prefix that several completions share is rolled out
once. Every row says where its labels come from, and where there is a truth the statistics say how many agree with it.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from groupwise.artifacts import ModelRef, label
from groupwise.config import ReadIf
from groupwise.errors import ConfigError
from groupwise.evaluation.row import Row
from groupwise.models.policy import Policy, load_policy
from groupwise.pipeline.base import Made, Stage, Workplace
from groupwise.pipeline.collect import PROBLEMS_PER_PART, Asked, collect_rows
from groupwise.pipeline.directory import write_rows
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.engine import Request, Sampled
from groupwise.rollout.sample_and_score import Actors
from groupwise.rollout.sampling import SamplingConfig
from groupwise.runs.atomic import write_file
from groupwise.tasks import make_task
from groupwise.tasks.base import Template, split_problems
from groupwise.tasks.step_rows import StepRow, first_wrong
from groupwise.types import FinishReason, Outcome, Problem, Verdict
from groupwise.verifiers import Request as Judged
from groupwise.verifiers import make_verifier
from groupwise.verifiers.steps import Step, step_ends
from groupwise.verifiers.working import PLANNED, judge_working

_BY_ROLLOUTS = ReadIf(lambda config: config.method == "monte_carlo", 'method = "monte_carlo"')


class StepLabelsConfig(Asked):
    """Settings of the stage."""

    path: ModelRef
    """The model whose completions are labelled, for example `{base}`."""
    split: Literal["train", "dev"] = "train"
    """Whose problems: `train` to learn from, `dev` to choose a threshold on and to measure."""
    num_problems: int = Field(256, ge=1)
    """Problems, the first of the split."""
    num_samples: int = Field(4, ge=1)
    """Completions per problem."""
    step: Step = "sentence"
    """What ends a step: `sentence`, `newline`, `equation`, or a regular expression whose matches end steps."""
    method: Literal["exact", "monte_carlo"] = "exact"
    """`exact`: by the problem's own plan; `monte_carlo`: by rollouts from the end of every step."""
    completer: Annotated[ModelRef, _BY_ROLLOUTS] = ""
    """The model that goes on; empty: the one whose completions are labelled."""
    rollouts: Annotated[int, Field(ge=1), _BY_ROLLOUTS] = 8
    """Rollouts from every prefix (Math-Shepherd: 8)."""
    estimate: Annotated[Literal["hard", "soft"], _BY_ROLLOUTS] = "hard"
    """`hard`: right if at least `min_success` rollouts succeed; `soft`: the share that does."""
    min_success: Annotated[
        int, Field(ge=1), ReadIf(lambda c: (c.method, c.estimate) == ("monte_carlo", "hard"), 'estimate = "hard"')
    ] = 1
    """Rollouts that must succeed (1 is best by Qwen2.5-Math-PRM, arXiv:2501.07301)."""
    agree_with: Annotated[Literal["none", "exact"], _BY_ROLLOUTS] = "none"
    """`exact`: only completions are kept whose first mistake the plan sees at the same step (consensus filter)."""
    keep: Literal["all", "until_first_error"] = "all"
    """`until_first_error`: steps behind the first mistake have no label (PRM800K); an outcome model then learns from
    completions without a mistake alone."""

    @model_validator(mode="after")
    def _check_success(self) -> Self:
        if self.min_success > self.rollouts:
            raise ValueError(f"min_success = {self.min_success}; at most rollouts = {self.rollouts} is allowed")
        return self


class Cut(NamedTuple):
    """A completion in steps."""

    row: Row
    ends: tuple[int, ...]
    """Where its steps end in its own text, in characters; the last is its length."""

    @property
    def steps(self) -> tuple[str, ...]:
        return tuple(self.row.text[a:b] for a, b in zip((0, *self.ends), self.ends, strict=False))

    @property
    def prefixes(self) -> list[str]:
        """The text up to the end of every step but the last, whose worth is the completion's own."""
        return [self.row.prefill + self.row.text[:end] for end in self.ends[:-1]]


class Rolled(NamedTuple):
    """Rollouts from a prefix."""

    successes: int
    judged: int
    """Rollouts that the verifier judged; those it failed on are no part of the share."""
    tokens: int


@dataclass(frozen=True, slots=True)
class Completer:
    """What goes on from prefixes."""

    actors: Actors
    sampling: SamplingConfig
    draws: Draws
    rollouts: int

    def roll(self, prefixes: Sequence[tuple[Problem, str]]) -> list[Rolled]:
        """Go on from every prefix of a problem's answer (prefill included), and judge."""
        policy, results = self.actors.policy, dict[int, list[Sampled]]()
        requests = [
            Request(_ids(policy, self.actors.template, problem, prefix), self._keys(problem, prefix))
            for problem, prefix in prefixes
        ]
        self.actors.engine.generate(requests, self.sampling, lambda index, sampled: results.update({index: sampled}))
        judged = [
            Judged(problem, prefix + text, truncated=one.finish_reason is FinishReason.LENGTH, prefill=prefix)
            for index, (problem, prefix) in enumerate(prefixes)
            for one, text in zip(results[index], _texts(policy, results[index]), strict=True)
        ]
        verdicts = iter(self.actors.verifier.verify_many(judged))
        return [self._counted(results[i], [next(verdicts) for _ in results[i]]) for i in range(len(prefixes))]

    def _keys(self, problem: Problem, prefix: str) -> tuple[int, ...]:
        return self.draws.keys(f"{problem.id} {sha256(prefix.encode()).hexdigest()}", self.rollouts)

    def _counted(self, sampled: Sequence[Sampled], verdicts: Sequence[Verdict]) -> Rolled:
        judged = [verdict.outcome for verdict in verdicts if verdict.outcome.judged]
        return Rolled(judged.count(Outcome.CORRECT), len(judged), sum(len(one.token_ids) for one in sampled))


class StepLabels(Stage[StepLabelsConfig]):
    """Samples, cuts, labels."""

    Config = StepLabelsConfig
    makes = "data"

    def run(self, settings: StepLabelsConfig, work: Workplace) -> Made:
        task = make_task(settings.task)
        problems = split_problems(task, settings.split, settings.num_problems)
        by_id = {problem.id: problem for problem in problems}
        if settings.method == "exact":
            _check_plans(problems)
        with make_verifier(task.verifier_config) as verifier:
            verifier.check(problems, task.template)
            actors = Actors.of(load_policy(settings.model.at(settings.path)), task.template, verifier)
            sampled = collect_rows(
                actors, problems, settings.num_samples, settings.sampling, Draws(settings.seed, Purpose.STEP_LABELS),
                work.directory.samples, partial(work.progress, "problems sampled"),
            )  # fmt: skip
            cut, dropped = cut_rows(sampled, settings.step)
            rolled: list[list[Rolled]] = [[] for _ in cut]
            if settings.method == "monte_carlo":
                rolled = self._rolled(settings, work, actors, cut, by_id)
        rows = [self._row(settings, one, of, by_id[one.row.problem]) for one, of in zip(cut, rolled, strict=True)]
        kept = [row for row in rows if _agrees(row, settings)]
        dropped["first mistake elsewhere"] = len(rows) - len(kept)
        digest = write_rows(work.directory.data, [row.record() for row in kept])
        tokens = sum(row.num_tokens for row in sampled) + _tokens(cut, rolled)
        return Made(work.directory.data, digest, tokens, 0, _statistics(kept, dropped))

    def _rolled(
        self,
        settings: StepLabelsConfig,
        work: Workplace,
        actors: Actors,
        cut: Sequence[Cut],
        by_id: Mapping[str, Problem],
    ) -> list[list[Rolled]]:
        if settings.completer:
            policy = load_policy(settings.model.at(settings.completer))
            actors = Actors.of(policy, actors.template, actors.verifier)
        draws = Draws(settings.seed, Purpose.STEP_LABELS, 0, "rollouts")
        completer = Completer(actors, settings.sampling, draws, settings.rollouts)
        distinct = list(dict.fromkeys((one.row.problem, prefix) for one in cut for prefix in one.prefixes))
        found: dict[tuple[str, str], Rolled] = {}
        for start in range(0, len(distinct), PROBLEMS_PER_PART):
            work.progress("prefixes rolled out", start, len(distinct))
            part = distinct[start : start + PROBLEMS_PER_PART]
            file = work.directory.samples / f"rollouts-{start:06d}.json"
            if not file.exists():  # a kill loses one part
                rolled = completer.roll([(by_id[problem], prefix) for problem, prefix in part])
                write_file(file, json.dumps(rolled).encode())
            found |= zip(part, (Rolled(*one) for one in json.loads(file.read_text("utf-8"))), strict=True)
        return [[found[one.row.problem, prefix] for prefix in one.prefixes] for one in cut]

    def _row(self, settings: StepLabelsConfig, cut: Cut, rolled: Sequence[Rolled], problem: Problem) -> StepRow:
        truth = exact_labels(problem, cut, settings.step) if set(PLANNED) <= problem.data.keys() else None
        right = cut.row.outcome is Outcome.CORRECT
        labels: list[float | None] = [*estimated(rolled, settings), float(right)]
        if truth and settings.method == "exact":
            labels = [*truth.labels]
        if settings.keep == "until_first_error" and (error := first_wrong(labels)) is not None:
            labels[error + 1 :] = [None] * (len(labels) - error - 1)
        return StepRow(
            settings.task.template.render(problem) + cut.row.prefill, cut.steps, tuple(labels), problem.id,
            settings.split, problem.difficulty, right, self._provenance(settings, cut, rolled, truth),
        )  # fmt: skip

    def _provenance(
        self, settings: StepLabelsConfig, cut: Cut, rolled: Sequence[Rolled], truth: "Truth | None"
    ) -> dict[str, Any]:
        made = {
            "method": settings.method, "model": label(self.config.path), "sample": cut.row.sample,
            "step": settings.step, "kinds": truth and list(truth.kinds),
            "exact_first_error": truth and first_wrong(truth.labels),
        }  # fmt: skip
        if settings.method == "exact":
            return made
        return {
            **made, "completer": label(self.config.completer or self.config.path), "estimate": settings.estimate,
            "successes": [one.successes for one in rolled], "rollouts": [one.judged for one in rolled],
        }  # fmt: skip


class Truth(NamedTuple):
    """What the plan says of a completion's steps."""

    labels: tuple[float, ...]
    kinds: tuple[str, ...]


def cut_rows(rows: Sequence[Row], step: str) -> tuple[list[Cut], Counter[str]]:
    """Completions in steps; what was not judged, is empty, or was cut off within a step is counted and left out."""
    cut, dropped = list[Cut](), Counter[str]()
    for row in rows:
        if not row.outcome.judged:
            dropped["not judged"] += 1
        elif row.finish_reason is FinishReason.LENGTH:
            dropped["cut off"] += 1
        elif not row.text:
            dropped["empty"] += 1
        else:
            cut.append(Cut(row, tuple(_ends(row, step))))
    return cut, dropped


def _ends(row: Row, step: str) -> Iterator[int]:
    """Ends in the completion; a step that ends within the prefill belongs to the prompt."""
    offset = len(row.prefill)
    return (end - offset for end in step_ends(row.prefill + row.text, step) if end > offset)


def exact_labels(problem: Problem, cut: Cut, step: str) -> Truth:
    """1 for every step without a mistake, own or inherited, else 0; and what each step is."""
    row = cut.row
    verdict = Verdict(row.outcome, {}, row.evidence, row.answer)
    judged = judge_working(problem, row.prefill + row.text, verdict, step).steps[-len(cut.ends) :]
    return Truth(tuple(float(one.kind.correct) for one in judged), tuple(str(one.kind) for one in judged))


def estimated(rolled: Sequence[Rolled], settings: StepLabelsConfig) -> list[float | None]:
    """Labels by rollouts; None where the verifier judged none of them."""
    if settings.estimate == "hard":
        return [float(one.successes >= settings.min_success) if one.judged else None for one in rolled]
    return [one.successes / one.judged if one.judged else None for one in rolled]


def _agrees(row: StepRow, settings: StepLabelsConfig) -> bool:
    return settings.agree_with == "none" or row.first_error == row.provenance["exact_first_error"]


def _check_plans(problems: Sequence[Problem]) -> None:
    without = [problem.id for problem in problems if not set(PLANNED) <= problem.data.keys()]
    if without:
        raise ConfigError(
            f'method = "exact" needs problems with a plan, and {len(without)} of {len(problems)} have none (the first: '
            f'{without[0]}); allowed for them is "monte_carlo"'
        )


def _ids(policy: Policy, template: Template, problem: Problem, prefix: str) -> tuple[int, ...]:
    """The prompt's tokens and those of the prefix, which begins with the prefill."""
    tokenizer = policy.tokenizer
    return (
        *tokenizer(template.render(problem))["input_ids"], *tokenizer(prefix, add_special_tokens=False)["input_ids"]
    )  # fmt: skip


def _texts(policy: Policy, sampled: Sequence[Sampled]) -> list[str]:
    ids = [one.token_ids.tolist() for one in sampled]
    texts: list[str] = policy.tokenizer.batch_decode([one[:-1] if one[-1] in policy.stop_ids else one for one in ids])
    return texts


def _tokens(cut: Sequence[Cut], rolled: Sequence[Sequence[Rolled]]) -> int:
    """Tokens of all rollouts; a prefix that is shared counts once."""
    found = {
        (one.row.problem, prefix): of_prefix.tokens
        for one, of in zip(cut, rolled, strict=True)
        for prefix, of_prefix in zip(one.prefixes, of, strict=False)
    }
    return sum(found.values())


def _statistics(rows: Sequence[StepRow], dropped: Mapping[str, int]) -> dict[str, Any]:
    labels = [value for row in rows for value in row.labels if value is not None]
    known = [row for row in rows if row.provenance["kinds"] is not None]
    agreeing = sum(row.first_error == row.provenance["exact_first_error"] for row in known)
    return {
        "rows": len(rows),
        "steps": sum(len(row.steps) for row in rows),
        "mean_label": round(sum(labels) / len(labels), 6) if labels else None,
        "answers_right": sum(bool(row.final_answer_correct) for row in rows),
        "right_answers_with_wrong_working": sum(
            bool(row.final_answer_correct) and row.provenance["exact_first_error"] is not None for row in known
        ),
        "first_error_agrees_with_plan": round(agreeing / len(known), 6) if known else None,
        "dropped": {reason: count for reason, count in dropped.items() if count},
    }

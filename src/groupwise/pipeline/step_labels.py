"""Stage `step_labels`: completions cut into steps, with a label for each: right or wrong.

`exact` reads the task's own plan (`verifiers.working`), which only embedded tasks have. `monte_carlo` is Math-Shepherd
(arXiv:2312.08935): a completer continues the text up to the end of a step several times, and the step's value is the
share of rollouts that the task's verifier calls correct. `binary_search` is OmegaPRM's search for the first step
after which nothing succeeds (arXiv:2406.06592); `group_tree` takes a group's own completions for rollouts; `import`
reads a file of labels. Every row records the origin of its labels, and where the truth is known the statistics count
the rows that agree with it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from groupwise.config import ReadIf
from groupwise.config.schema import DataRef, ModelRef, label
from groupwise.errors import ConfigError, DataError
from groupwise.models.policy import load_policy
from groupwise.models.prompts import encode_prompt
from groupwise.pipeline.base import Made, Stage, Workplace
from groupwise.pipeline.collect import Asked, collect_rows
from groupwise.pipeline.step_rollouts import Completer, Cut, Rolled, Rollouts, by_search, cut_rows, searched, shared
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.sample_and_score import Actors
from groupwise.runs.row import Row
from groupwise.tasks import make_task
from groupwise.tasks.base import Task, split_problems
from groupwise.tasks.step_rows import Format, StepRow, first_wrong, read_steps
from groupwise.types import Outcome, Problem, Prompt, Verdict
from groupwise.verifiers import make_verifier
from groupwise.verifiers.steps import Step
from groupwise.verifiers.working import PLANNED, judge_working


def _with(*methods: str) -> ReadIf:
    return ReadIf(lambda config: config.method in methods, " or ".join(f'method = "{method}"' for method in methods))


ENOUGH = 8
"""Completions without any step's end that show that the setting is wrong."""
_SAMPLED = _with("exact", "monte_carlo", "binary_search", "group_tree")
_COMPARED = _with("monte_carlo", "binary_search", "group_tree", "import")
_ROLLED = _with("monte_carlo", "binary_search")
_IMPORTED = _with("import")


class StepLabelsConfig(Asked):
    """Settings of the stage."""

    method: Literal["exact", "monte_carlo", "binary_search", "group_tree", "import"] = "exact"
    """`exact`: by the problem's own plan; `monte_carlo`: by rollouts from the end of every step; `binary_search`: by
    rollouts from the ends of few, which find the first hopeless one; `group_tree`: by the other completions of the same
    problem with the same start, at no further cost; `import`: as a file has them."""
    path: Annotated[ModelRef, _SAMPLED] = ""
    """The model whose completions are labelled, for example `{base}`."""
    split: Annotated[Literal["train", "dev"], _SAMPLED] = "train"
    """Split of the problems: `train` to learn from, `dev` to choose a threshold on and to measure."""
    skip_problems: Annotated[int, _SAMPLED] = Field(0, ge=0)
    """Problems at the start of the split that are skipped, so that two stages have different ones."""
    num_problems: Annotated[int, _SAMPLED] = Field(256, ge=1)
    """Problems, the first of the split after those."""
    num_samples: Annotated[int, _SAMPLED] = Field(4, ge=1)
    """Completions per problem."""
    step: Annotated[Step, _SAMPLED] = "sentence"
    """End of a step: `sentence`, `newline`, `equation`, or a regular expression whose matches end steps."""
    completer: Annotated[ModelRef, _ROLLED] = ""
    """The model that makes rollouts; empty: the one whose completions are labelled."""
    rollouts: Annotated[int, Field(ge=1), _ROLLED] = 8
    """Rollouts from every prefix (Math-Shepherd and OmegaPRM: 8)."""
    estimate: Annotated[Literal["hard", "soft"], _with("monte_carlo", "group_tree")] = "hard"
    """`hard`: right if a rollout succeeds (best by Qwen2.5-Math-PRM, arXiv:2501.07301); `soft`: the share that does."""
    agree_with: Annotated[Literal["none", "exact"], _COMPARED] = "none"
    """`exact`: only completions are kept whose first mistake the plan sees at the same step (consensus filter)."""
    file: Annotated[DataRef, _IMPORTED] = ""
    """The file of labelled steps to import. Rows whose question is a dev or test problem of the task are left out."""
    format: Annotated[Format, _IMPORTED] = "groupwise"
    """Its format (`tasks.step_rows`)."""
    from_rollouts: Annotated[Literal["no", "hard", "soft"], _IMPORTED] = "no"
    """`hard`, `soft`: labels from the counts of rollouts in the file's rows, as `estimate` defines them, without new
    rollouts; `no`: the labels of the file."""
    keep: Literal["all", "until_first_error"] = "all"
    """`until_first_error`: steps after the first mistake have no label (PRM800K); an outcome model then learns from
    completions without a mistake alone."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.method == "group_tree" and self.num_samples < 2:
            raise ValueError("num_samples = 1 leaves a group nothing to share; at least 2 is allowed")
        if self.method == "import" and not self.file:
            raise ValueError('method = "import" needs a file')
        if self.method != "import" and not self.path:
            raise ValueError(f'method = "{self.method}" needs a path, the model whose completions are labelled')
        return self


class StepLabels(Stage[StepLabelsConfig]):
    """Sample, cut and label; or import."""

    Config = StepLabelsConfig
    makes = "data"

    def run(self, settings: StepLabelsConfig, work: Workplace) -> Made:
        task, sampled, tokens = make_task(settings.task), list[Row](), 0
        if settings.method == "import":
            rows, dropped = imported(settings, task)
        else:
            problems = split_problems(task, settings.split, None)[settings.skip_problems :][: settings.num_problems]
            if not problems:
                raise ConfigError(f"skip_problems = {settings.skip_problems} skips all {settings.split} problems")
            by_id = {problem.id: problem for problem in problems}
            without = [problem.id for problem in problems if not set(PLANNED) <= problem.data.keys()]
            if without and "exact" in (settings.method, settings.agree_with):
                is_method = settings.method == "exact"
                allowed = 'are method = "monte_carlo", "binary_search" and "group_tree"' if is_method else 'is "none"'
                raise ConfigError(
                    f'{"method" if is_method else "agree_with"} = "exact" needs problems with a plan, and '
                    f"{len(without)} of {len(problems)} have none (the first: {without[0]}); allowed for them {allowed}"
                )
            with make_verifier(task.verifier_config) as verifier:
                verifier.check(problems, task.template)
                actors = Actors.of(load_policy(settings.model.at(settings.path)), task.template, verifier)
                prompts = {one.id: encode_prompt(actors.policy, task.template, one) for one in problems}
                draws = Draws(settings.seed, Purpose.STEP_LABELS)
                sampled = collect_rows(
                    actors, problems, settings.num_samples, settings.sampling, draws,
                    work.directory.samples,
                )  # fmt: skip
                cut, dropped = cut_rows(sampled, settings.step, settings.sampling.tools)
                if len(cut) >= ENOUGH and all(len(each.ends) == 1 for each in cut):  # a few may just be short
                    raise DataError(
                        f"step = {settings.step!r} ends no step within any of the {len(cut)} completions (the first "
                        f"starts with {cut[0].row.text[:60]!r}): there would be outcomes alone to learn from; choose "
                        "a step that these texts have"
                    )
                rolled, tokens = self._rolled(settings, work, actors, cut, sampled, by_id)
            labelled = [
                self._row(settings, each, of_steps, prompts[each.row.problem])
                for each, of_steps in zip(cut, rolled, strict=True)
            ]
            rows = [row for row in labelled if _agrees(row, settings)]
            dropped["first mistake elsewhere"] = len(labelled) - len(rows)
        if not rows:
            why = ", ".join(f"{count} {reason}" for reason, count in dropped.items() if count)
            raise DataError(f"stage {self.name}: no row is left ({why or 'nothing was there'})")
        statistics = {**_statistics(rows, dropped), "rollout_tokens": tokens}
        sampled_tokens = sum(row.length for row in sampled) + tokens
        return work.made([row.record() for row in rows], statistics, sampled_tokens)

    def _rolled(
        self, settings: StepLabelsConfig, work: Workplace, actors: Actors, cut: Sequence[Cut], sampled: Sequence[Row],
        by_id: Mapping[str, Problem],
    ) -> tuple[list[list[Rolled | None]], int]:  # fmt: skip
        if settings.method == "exact":
            return [[None] * (len(each.ends) - 1) for each in cut], 0
        if settings.method == "group_tree":
            return shared(cut, sampled), 0
        if settings.completer:
            policy = load_policy(settings.model.at(settings.completer))
            actors = Actors.of(policy, actors.template, actors.verifier)
        draws = Draws(settings.seed, Purpose.STEP_LABELS, 0, "rollouts")
        completer = Completer(actors, settings.sampling, draws, settings.rollouts)
        rollouts = Rollouts(completer, by_id, work.directory.samples, {})
        if settings.method == "binary_search":
            return searched(cut, rollouts), rollouts.tokens
        # from the end of every step but the last: Math-Shepherd
        asked = [[(each.row.problem, prefix) for prefix in each.prefixes] for each in cut]
        rollouts.ask([prefix for of_row in asked for prefix in of_row], "rollouts")
        return [[rollouts.found[prefix] for prefix in of_row] for of_row in asked], rollouts.tokens

    def _row(self, settings: StepLabelsConfig, cut: Cut, rolled: Sequence[Rolled | None], prompt: Prompt) -> StepRow:
        problem = prompt.problem
        truth = exact_labels(problem, cut, settings.step) if set(PLANNED) <= problem.data.keys() else None
        right = cut.row.outcome is Outcome.CORRECT
        labels = truth.labels if truth and settings.method == "exact" else estimated(rolled, right, settings)
        provenance: dict[str, Any] = {
            "method": settings.method, "model": label(self.config.path), "sample": cut.row.sample,
            "step": settings.step, "kinds": truth and list(truth.kinds),
            "exact_first_error": truth and first_wrong(truth.labels), "answer": cut.row.answer,
        }  # fmt: skip
        if settings.method in ("monte_carlo", "binary_search"):
            provenance["completer"] = label(self.config.completer or self.config.path)
        if settings.method != "exact":
            provenance["estimate"] = settings.estimate
            provenance["successes"] = [each and each.successes for each in rolled]
            provenance["rollouts"] = [each and each.judged for each in rolled]
        return StepRow(
            prompt.text, cut.steps, kept_labels(labels, settings.keep), problem.id, settings.split, problem.difficulty,
            right, provenance, bool(settings.task.template.chat),
        )  # fmt: skip


class Truth(NamedTuple):
    """Labels and kinds of a completion's steps by the plan."""

    labels: tuple[float, ...]
    kinds: tuple[str, ...]


def exact_labels(problem: Problem, cut: Cut, step: str) -> Truth:
    """Label every step by the plan: 1 without a mistake, own or inherited, else 0; and name its kind."""
    row = cut.row
    verdict = Verdict(row.outcome, {}, row.evidence, row.answer)
    judged = judge_working(problem, row.prefill + row.text, verdict, step)[-len(cut.ends) :]
    return Truth(tuple(float(each.kind.correct) for each in judged), tuple(str(each.kind) for each in judged))


def estimated(rolled: Sequence[Rolled | None], right: bool, settings: StepLabelsConfig) -> list[float | None]:
    """Label all steps by rollouts from their ends; None without a judged rollout. The last has the outcome."""
    if settings.method == "binary_search":
        return by_search(rolled, right)
    known = [each if each is not None and each.judged else None for each in rolled]
    if settings.estimate == "hard":
        return [*(each and float(each.successes > 0) for each in known), float(right)]
    return [*(each and each.successes / each.judged for each in known), float(right)]


def kept_labels(labels: Sequence[float | None], keep: str) -> tuple[float | None, ...]:
    """Return the labels; with `until_first_error`, None for steps after the first mistake."""
    error = first_wrong(labels) if keep == "until_first_error" else None
    return tuple(labels) if error is None else (*labels[: error + 1], *[None] * (len(labels) - error - 1))


def imported(settings: StepLabelsConfig, task: Task) -> tuple[list[StepRow], Counter[str]]:
    """Read the rows of a file, without those whose question is a dev or test problem of the task."""
    held_out = {" ".join(problem.question.split()) for split in ("dev", "test") for problem in task.problems(split)}
    kept, dropped = list[StepRow](), Counter[str]()
    source = {"method": "import", "file": Path(settings.file).name}
    if settings.from_rollouts != "no":
        source["estimate"] = settings.from_rollouts
    for row in read_steps(settings.file, settings.format):
        if " ".join(row.prompt.split()) in held_out:
            dropped["held-out problem"] += 1
            continue
        labels = row.labels if settings.from_rollouts == "no" else relabelled(row, settings.from_rollouts)
        own = replace(row, labels=kept_labels(labels, settings.keep), provenance={**row.provenance, **source})
        if _agrees(own, settings):
            kept.append(own)
        else:
            dropped["first mistake elsewhere"] += 1
    return kept, dropped


def relabelled(row: StepRow, estimate: str) -> list[float | None]:
    """Label a row's steps by its counts of rollouts; the last step has the outcome."""
    successes, rollouts = (row.provenance.get(name) for name in ("successes", "rollouts"))
    counted = all(isinstance(counts, list) and len(counts) == len(row.steps) - 1 for counts in (successes, rollouts))
    if not counted or row.final_answer_correct is None:
        raise DataError(
            f"from_rollouts = {estimate!r}: the row that starts with {row.prompt[:60]!r} lacks the number of "
            "`rollouts` from each step, that of `successes`, or `final_answer_correct`"
        )
    pairs = zip(successes or (), rollouts or (), strict=True)
    known = [None if not judged else float(won > 0) if estimate == "hard" else won / judged for won, judged in pairs]
    return [*known, float(row.final_answer_correct)]


def _agrees(row: StepRow, settings: StepLabelsConfig) -> bool:
    if settings.agree_with == "none":
        return True
    if row.provenance.get("kinds") is None:
        raise DataError(
            f"agree_with = {settings.agree_with!r}: the truth of the row that starts with {row.prompt[:60]!r} is "
            'unknown; allowed is agree_with = "none", or problems with a plan'
        )
    return bool(row.first_error == row.provenance["exact_first_error"])


def _statistics(rows: Sequence[StepRow], dropped: Mapping[str, int]) -> dict[str, Any]:
    labels = [value for row in rows for value in row.labels if value is not None]
    known = [row for row in rows if row.provenance.get("kinds") is not None]
    agreeing = sum(row.first_error == row.provenance["exact_first_error"] for row in known)
    sound = sum(row.provenance["exact_first_error"] is None for row in known)
    return {
        "rows": len(rows), "steps": sum(len(row.steps) for row in rows), "labels": len(labels),
        "without_boundary": sum(len(row.steps) == 1 for row in rows),
        "mean_label": round(sum(labels) / len(labels), 6) if labels else None,
        "answers_right": sum(bool(row.final_answer_correct) for row in rows),
        "right_answers_with_wrong_working": sum(
            bool(row.final_answer_correct) and row.provenance["exact_first_error"] is not None for row in known
        ),
        "sound_workings": round(sound / len(known), 6) if known else None,
        "first_error_agrees_with_plan": round(agreeing / len(known), 6) if known else None,
        "dropped": {reason: count for reason, count in dropped.items() if count},
    }  # fmt: skip

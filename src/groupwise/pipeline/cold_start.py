"""Stage `cold_start`: a small data set of readable long reasoning, before the model's reinforcement learning.

DeepSeek-R1 (arXiv:2501.12948, section 2.3.1) collected it by few-shot prompts that ask for reflection and verification,
from R1-Zero's own completions in readable form, and by people's post-processing. Here the latter is a rule: a summary
after the answer, in the style of several writers.
"""

from typing import Any, Self

from pydantic import Field, model_validator

from groupwise.config import Section
from groupwise.config.schema import ModelRef, label
from groupwise.errors import ConfigError
from groupwise.evaluation.behaviour import row_behaviours
from groupwise.models.policy import load_policy
from groupwise.pipeline.base import Made, Stage, Workplace
from groupwise.pipeline.collect import Asked, Filters, Kept, balanced, collect_rows, counts, data_row, keep
from groupwise.pipeline.recipe import Name
from groupwise.randomness import Draw, Draws, Purpose
from groupwise.rollout.engine import make_engine
from groupwise.rollout.sample_and_score import Actors
from groupwise.rollout.sampling import SamplingConfig
from groupwise.runs.row import Row
from groupwise.tasks import make_task
from groupwise.tasks.base import Task, Template, split_problems
from groupwise.tasks.preferences import Writer
from groupwise.types import Problem
from groupwise.verifiers import make_verifier


class Example(Section):
    """A question with a model completion."""

    question: str = Field(min_length=1)
    """The question, without the task's template."""
    completion: str = Field(min_length=1)
    """Text after the prompt."""
    language: str = "en"
    """Language of both (ISO 639-1)."""


class SourceConfig(Section):
    """A model whose completions are collected."""

    path: ModelRef
    """The model, for example `{zero}` or `{base}`."""
    few_shot: bool = False
    """Show it the stage's examples (those in the problem's language) before every question."""
    reflection: dict[str, str] = Field(default_factory=dict)
    """By language, a phrase that opens its reasoning again, for example ` Wait, let me check.`: the model's
    continuation of its reasoning and the phrase replaces the rest. For models that do not follow examples."""
    num_problems: int = Field(256, ge=1)
    """Training problems it is asked."""
    num_samples: int = Field(8, ge=1)
    """Completions per problem."""
    sampling: SamplingConfig | None = None
    """Sampling; None: that of the pipeline."""
    filters: Filters = Filters()
    """Conditions for keeping a completion."""


class ColdStartConfig(Asked):
    """Settings of the stage."""

    examples: tuple[Example, ...] = ()
    """Examples written by hand; they are shown to few-shot sources, and are rows of the data set."""
    sources: dict[Name, SourceConfig] = Field(min_length=1)
    """Models to collect from, by names that you choose."""
    per_problem: int = Field(2, ge=0)
    """Most completions of one problem from one source; 0: any number."""
    num_rows: int = Field(2000, ge=1)
    """Most rows from sources; taken evenly from the difficulties."""
    summaries: Writer | None = None
    """Writer of a summary after every answer, for example `worlds/general.py:Hands`; None: completions stay as they
    are."""

    @model_validator(mode="after")
    def _examples(self) -> Self:
        if self.task.template.chat:
            raise ValueError("task.template.chat = true: examples and summaries are plain text, so false is allowed")
        if (asked := [name for name, source in self.sources.items() if source.few_shot]) and not self.examples:
            raise ValueError(f"sources.{asked[0]}.few_shot = true shows the examples, and there are none: add examples")
        return self


class ColdStart(Stage[ColdStartConfig]):
    """Collect cold-start data."""

    Config = ColdStartConfig
    makes = "data"

    def run(self, settings: ColdStartConfig, work: Workplace) -> Made:
        task = make_task(settings.task)
        sampled = {name: self._sample(name, settings, task, work) for name in settings.sources}
        selected: dict[str, Kept] = {}
        for name, samples in sampled.items():
            before = [row for selection in selected.values() for row in selection.rows]
            selected[name] = keep(samples, settings.sources[name].filters, settings.per_problem, before)
        problems = {problem.id: problem for problem in task.problems("train")}
        named = [(name, row) for name, selection in selected.items() for row in selection.rows]
        of = {id(row): name for name, row in named}
        chosen = balanced([row for _, row in named], settings.num_rows, settings.seed)
        rows: list[dict[str, Any]] = [
            {
                "prompt": _asked(task.template, example), "completion": example.completion, "source": "by hand",
                "language": example.language,
            }
            for example in settings.examples
        ]  # fmt: skip
        for row in chosen:
            source, problem, completion, edits = of[id(row)], problems[row.problem], row.text, list[str]()
            if settings.summaries is not None:
                draw = Draw("summary", settings.seed, problem.id, row.sample)
                completion = f"{completion} {settings.summaries.summary(draw, problem.reference, problem.language)}"
                edits.append("summary added")
            made = data_row(task.template, problem, row, source, label(self.config.sources[source].path))
            rows.append({**made, "completion": completion, "behaviours": sorted(row_behaviours(row)), "edits": edits})
        tokens = sum(row.length for samples in sampled.values() for row in samples)
        statistics = {
            "rows": len(rows),
            "sampled": {name: len(samples) for name, samples in sampled.items()},
            "kept": {name: len(selection.rows) for name, selection in selected.items()},
            "dropped": {name: selection.dropped for name, selection in selected.items()},
            "sources": counts(rows, "source"), "languages": counts(rows, "language"),
        }  # fmt: skip
        return work.made(rows, statistics, tokens)

    def _sample(self, name: str, settings: ColdStartConfig, task: Task, work: Workplace) -> list[Row]:
        source = settings.sources[name]
        problems = split_problems(task, "train", source.num_problems)
        rows: list[Row] = []
        with make_verifier(task.verifier_config) as verifier:
            verifier.check(problems, task.template)
            policy = load_policy(settings.model.at(source.path))
            engine = make_engine(settings.engine, policy)
            for language in dict.fromkeys(problem.language for problem in problems):
                subset = [problem for problem in problems if problem.language == language]
                examples = settings.examples if source.few_shot else ()
                template = few_shot(task.template, [example for example in examples if example.language == language])
                actors = Actors(policy, engine, template, verifier, source.reflection)
                draws = Draws(settings.seed, Purpose.COLD_START, detail=f"{name} {language}")
                rows += collect_rows(
                    actors, subset, source.num_samples, source.sampling or settings.sampling, draws,
                    work.directory.samples, f"{name}, {language}",
                )  # fmt: skip
        return rows


def few_shot(template: Template, examples: list[Example]) -> Template:
    """Return the template with worked examples before the question."""
    blocks = "".join(f"{_asked(template, example)}{example.completion}\n\n" for example in examples)
    shown = template.model_copy(update={"prompt": blocks + template.prompt})
    if blocks and blocks not in shown.render(Problem("", "", "")):
        raise ConfigError(
            f"few_shot puts examples before template.prompt, and the template {template.kind!r} does not write them as "
            "they are; allowed is few_shot = false, or a render that reads template.prompt"
        )
    return shown


def _asked(template: Template, example: Example) -> str:
    return template.render(Problem("", example.question, "")) + template.prefill

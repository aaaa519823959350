"""`groupwise eval`: a checkpoint measured on problems, or a process reward model on labelled steps."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from groupwise.cli.app import Checkpoint, Json, Overrides, app, console, options_from, print_json, refuse, table_of

if TYPE_CHECKING:
    from groupwise.evaluation.evaluate import HeldOutCheck


@app.command("eval")
@options_from(
    "groupwise.evaluation.measure:evaluate", suite="groupwise.evaluation.suite:evaluate_suite",
    steps="groupwise.evaluation.steps:evaluate_steps",
)  # fmt: skip
def evaluate(
    checkpoint: Checkpoint,
    suite: Annotated[str | None, typer.Option(
        metavar="NAMES", help="Benchmarks by published protocols, e.g. `gsm8k,humaneval:evalplus,mbpp`.")] = None,
    steps: Annotated[Path | None,
        typer.Option(metavar="FILE", help="Labelled steps (JSON lines): CHECKPOINT is a process reward model.")] = None,
    overrides: Overrides = None,
    json: Json = False,
    **settings: Any,
) -> None:  # fmt: skip
    r"""Measure a checkpoint: pass@1 with a 95 % interval, unbiased pass@k, majority vote, behaviours, each difficulty.

    With `--suite` it measures benchmarks by protocols that others recognise, beside the values that they published.

    With `--steps` it measures how well a process reward model finds the first mistake of a working: ProcessBench's F1
    and others.

    Examples:

        groupwise eval base --task arithmetic --samples 16

        groupwise eval runs/arithmetic/checkpoints/best --against base

        groupwise eval base --task jsonl --set task.path=mine.jsonl --set 'task.template.prompt="{question}\n"'

        groupwise eval base --task word_problems --set 'task.languages=["zh"]' --json

        groupwise eval base --task arithmetic --set 'behaviour.patterns.checks.en=["hold on"]'

        groupwise eval model.gguf --suite gsm8k,math500,humaneval,mbpp

        groupwise eval runs/prm/checkpoints/step-200 --steps steps_test.jsonl --dev steps_dev.jsonl
    """
    from groupwise.models.loading import quiet_transformers

    quiet_transformers()
    of_suite, of_steps = ({name: settings.pop(name) for name in names} for names in (ONLY_OF_SUITES, ONLY_OF_STEPS))
    if suite is not None:
        refuse("with --suite", steps=steps)
        evaluate_suite(checkpoint, suite, of_suite, settings, overrides or [], json)
        return
    if steps is not None:
        refuse("with --steps", set=overrides, **settings | {"temperature": settings["temperature"] is not None})
        evaluate_steps(checkpoint, steps, of_steps, json)
        return
    from groupwise.evaluation.measure import evaluate

    measurement = evaluate(checkpoint, changes=overrides or [], **settings)
    if json:
        print_json(measurement.as_dict())
        return
    console.print(figures(measurement.as_dict()))
    for check in measurement.second.values():
        show_second(check)
    if gain := measurement.difference:
        shown = "-" if gain.value != gain.value else gain.signed
        console.print(f"pass@1, paired difference to {settings['against']}: {shown}")


ONLY_OF_SUITES, ONLY_OF_STEPS = ("data", "directory", "dtype", "cache_mb"), ("dev", "format", "reference", "beta")
OF_SUITES = ("problems", "samples", "seed")
"""Options that a suite reads as an ordinary evaluation does."""
OF_SAMPLING = ("temperature", "top_k", "top_p", "max_tokens")


def evaluate_suite(
    model: str, suite: str, own: dict[str, Any], settings: dict[str, Any], changes: list[str], as_json: bool
) -> None:
    """Measure a model by the protocols of benchmarks, and print one table."""
    from groupwise.evaluation.suite import evaluate_suite
    from groupwise.runs.progress import tell

    given = {name: value for name, value in settings.items() if value is not None}
    odd = sorted(given.keys() - {*OF_SUITES, *OF_SAMPLING})
    refuse("with --suite, whose protocols say what is asked", **dict.fromkeys(odd, True))
    sampling = {name: given.pop(name) for name in OF_SAMPLING if name in given}
    scores = evaluate_suite(model, suite.split(","), sampling=sampling, changes=changes, **own, **given)
    title = f"{model}, 95 % intervals over problems"
    names = ("benchmark", "protocol", "right, %", "n", "published", "tokens", "cut")
    table = table_of(*names, title=title, box=None, padding=(0, 1, 0, 0), pad_edge=False)
    lines, notes = [], dict[str, None]()
    for score in scores:
        lines.append(score.as_dict())
        notes |= dict.fromkeys(score.notes())
        tell(f"{score.benchmark}, {score.protocol}, {score.reading}: {score.share}")
        table.add_row(*score.cells())
    if as_json:
        print_json(lines)
        return
    console.print(table)
    for note in notes:
        console.print(note, highlight=False, markup=False, soft_wrap=True)


def show_second(check: "HeldOutCheck") -> None:
    """Print the second verifier's result: a plain line, or a red one with an example; texts are made safe to print."""
    from groupwise.cli.runs import printable

    line = f"  second verifier: {check}"
    if check.alarm and check.example:
        example = check.example
        line = (
            f"  ALARM, reward hacking: {check}\n"
            f"  for example completion {example.sample} of {example.problem}:\n  {printable(example.text)}\n"
            f"  {printable(example.evidence)}"
        )
    console.print(line, style="bold red" if check.alarm else "", highlight=False, markup=False, soft_wrap=True)


def figures(result: dict[str, Any]) -> Table:
    """Return the table of a measurement: a column for each checkpoint."""
    size = f"{result['problems']} problems × {result['samples']} samples"
    from groupwise.evaluation.metrics import metric

    title = f"{result['task']}, {result['split']}: {size}, 95 % intervals"
    table = table_of("", right=result["checkpoints"], title=title, min_width=60)
    summaries = list(result["checkpoints"].values())
    keys = dict.fromkeys(key for summary in summaries for key in summary)
    # the second verifier has its own line
    for key in [key for key in keys if key not in ("by_difficulty", "calls_by_difficulty", "second")]:
        name = key.replace("_", " ") if key in ("verdict_errors", "no_verdict") else metric(key).name
        table.add_row(name, *(_cell(key, summary.get(key)) for summary in summaries))
    for group, key in (("by_difficulty", "pass_at_1"), ("calls_by_difficulty", "calls")):
        for label in filter(None, summaries[0].get(group, {})):  # problems may name no difficulty
            cells = (_cell(key, summary.get(group, {}).get(label)) for summary in summaries)
            table.add_row(f"{metric(key).name}, {label}", *cells)
    return table


def _cell(key: str, value: Any) -> str:
    from groupwise.algorithms.statistics import Estimate
    from groupwise.evaluation.metrics import metric, show

    if isinstance(value, dict):
        estimate = Estimate(**value)
        return str(estimate) if key.startswith(("pass_at_", "majority_")) else show(estimate, metric(key))
    return "-" if value is None else str(value)


STEP_FIGURES = {
    "threshold": "threshold", "f1": "F1 of the first mistake",
    "first_error_found": "first mistake named, where there is one",
    "correct_passed": "nothing named, where there is none", "auc": "area under the curve of steps",
    "calibration_error": "calibration error",
    "wrong_working_found": "named, where the answer is right and a step wrong",
    "lowest_at_end": "lowest score at the last step",
}  # fmt: skip


def evaluate_steps(model: str, file: Path, own: dict[str, Any], as_json: bool) -> None:
    """Measure a process reward model on labelled steps; null or a dash where there was nothing to measure."""
    from math import isnan

    from groupwise.evaluation.steps import evaluate_steps

    result = evaluate_steps(model, file, **own)
    if as_json:
        print_json(result.as_dict())
        return
    chosen = f"threshold chosen on {own['dev']}" if own["dev"] else "threshold 1/2"
    title = f"{file}: {result.rows} completions, {chosen}, 95 % intervals"
    table = table_of(title=title, show_header=False)
    for key, name in STEP_FIGURES.items():
        value = getattr(result, key)
        number = value if isinstance(value, float) else value.value
        table.add_row(name, "-" if isnan(number) else f"{value:.3f}" if isinstance(value, float) else str(value))
    console.print(table)

"""`groupwise sample`: one question, several completions and the verifier's verdict on each."""

from typing import Annotated, Any

import typer
from rich.text import Text

from groupwise.cli.app import Checkpoint, Overrides, app, console, options_from

STYLES = {"correct": "green", "wrong": "red", "unparsable": "yellow"}


@app.command()
@options_from("groupwise.evaluation.ask:sample")
def sample(
    checkpoint: Checkpoint,
    question: Annotated[str, typer.Argument(help="What to ask, e.g. 'What is 23 × 17?'.")],
    reference: Annotated[str | None, typer.Option(help="Reference answer; problems of the task are looked up.")] = None,
    samples: Annotated[int, typer.Option("--samples", "-n", min=1, help="Completions.")] = 4,
    overrides: Overrides = None,
    **settings: Any,
) -> None:
    """Ask a checkpoint a question and see several completions with their verdicts.

    Example:

        groupwise sample base 'What is 23 × 17?' --samples 6
    """
    show_answers(checkpoint, question, reference, samples=samples, changes=overrides or [], **settings)


def show_answers(checkpoint: str, question: str, reference: str | None = None, **settings: Any) -> None:
    """Print completions with verdicts; without a known reference answer, with the answer that was read.

    The settings are those of `groupwise.evaluation.ask.sample`.
    """
    from groupwise.evaluation.ask import sample
    from groupwise.models.loading import quiet_transformers

    quiet_transformers()
    answers = sample(checkpoint, question, reference, **settings)
    for text, (completion, verdict) in zip(answers.texts, answers, strict=True):
        finding = f"{verdict.outcome}: {verdict.evidence}" if answers.judged else f"answer: {verdict.answer or 'none'}"
        style = STYLES.get(verdict.outcome, "magenta") if answers.judged else "cyan"
        console.print(Text(text), soft_wrap=True)
        console.print(Text(f"  {completion.num_tokens} tokens, {completion.finish_reason}; {finding}", style=style))
    if not answers.judged:
        console.print(
            "[dim]No reference answer is known for this question; give one with --reference to see verdicts.[/]"
        )

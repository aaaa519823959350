"""`groupwise sample`: one question, completions as they are written, and the verifier's verdict on each."""

import gc
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from groupwise.cli.app import Checkpoint, Overrides, app, console, options_from

if TYPE_CHECKING:
    from groupwise.types import Prompt

STYLES = {"correct": "green", "wrong": "red", "unparsable": "yellow"}


@app.command()
@options_from("groupwise.evaluation.ask:sample")
def sample(
    checkpoint: Checkpoint,
    question: Annotated[str | None, typer.Argument(
        help="What to ask, e.g. 'What is 23 × 17?'; left out, one of the task's problems.")] = None,
    reference: Annotated[str | None, typer.Option(help="Reference answer; problems of the task are looked up.")] = None,
    samples: Annotated[int | None, typer.Option("--samples", "-n", min=1,
        help="Completions; default: 4 with a task, 1 without.")] = None,
    overrides: Overrides = None,
    **settings: Any,
) -> None:  # fmt: skip
    """Ask a model a question and read its completions as they are written; with a task, with their verdicts.

    A model that lies in no run is asked the question alone, through its chat template if it has one. With `--task` and
    no question a problem is drawn, and shown as the model reads it.

    Examples:

        groupwise sample base 'What is 23 × 17?' --samples 6

        groupwise sample HuggingFaceTB/SmolLM2-135M-Instruct 'Name three rivers.'

        groupwise sample model.gguf --task json_extraction
    """
    show_answers(checkpoint, question, reference, samples=samples, changes=overrides or [], **settings)


class _Writer:
    """Prints completions one below the other: the first unfinished one as it grows, the others when it has ended."""

    def __init__(self) -> None:
        self._next, self._waiting, self._ended = 0, dict[int, str](), set[int]()
        self._begun = set[int]()

    def __call__(self, index: int, text: str, is_end: bool) -> None:
        self._waiting[index] = self._waiting.get(index, "") + text
        self._ended |= {index} if is_end else set()
        while self._next in self._waiting:
            if self._next and self._next not in self._begun:
                console.print(Text(f"{self._next + 1}:", style="dim"))
            self._begun.add(self._next)
            console.print(Text(self._waiting.pop(self._next)), end="", soft_wrap=True)
            if self._next not in self._ended:
                break
            console.print()
            self._next += 1


def show_answers(checkpoint: str, question: str | None, reference: str | None = None, **settings: Any) -> None:
    """Print completions with verdicts; without a known reference answer, with the answer that was read.

    The settings are those of `groupwise.evaluation.ask.sample`.
    """
    gc.disable()  # imports make a million objects and no garbage: looking for it takes a tenth of the time
    from groupwise.evaluation.ask import sample
    from groupwise.models.loading import quiet_transformers

    gc.enable()
    quiet_transformers()

    def show_prompt(prompt: "Prompt") -> None:
        if question is None:
            console.print(Text(prompt.text, style="dim"), soft_wrap=True)

    writer = _Writer()
    answers = sample(checkpoint, question, reference, on_prompt=show_prompt, on_text=writer, **settings)
    for number, (completion, verdict) in enumerate(answers, 1):
        outcome = f"{verdict.outcome}: {verdict.evidence}" if answers.judged else f"answer: {verdict.answer or 'none'}"
        style = STYLES.get(verdict.outcome, "magenta") if answers.judged else "cyan"
        name = f"{number}: " if len(answers) > 1 else ""
        said = f"  {name}{completion.num_tokens} tokens, {completion.finish_reason}"
        console.print(Text(said if answers.is_free else f"{said}; {outcome}", style=style))
    if not answers.judged and not answers.is_free:
        console.print(
            "[dim]No reference answer is known for this question; give one with --reference to see verdicts.[/]"
        )

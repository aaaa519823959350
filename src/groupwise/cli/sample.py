"""`groupwise sample`: one question, several completions and what the verifier makes of each."""

from typing import Any

from rich.console import Console
from rich.text import Text

from groupwise.evaluation.ask import sample
from groupwise.models.loading import quiet_transformers
from groupwise.types import Outcome

STYLES = {Outcome.CORRECT: "green", Outcome.WRONG: "red", Outcome.UNPARSABLE: "yellow"}


def run_sample(console: Console, checkpoint: str, question: str, reference: str | None, **options: Any) -> None:
    """Print completions with verdicts; without a known reference answer, with the answer that was read.

    The options are those of `sample`.
    """
    quiet_transformers()
    answers = sample(checkpoint, question, reference, **options)
    for text, (completion, verdict) in zip(answers.texts, answers, strict=True):
        finding = f"{verdict.outcome}: {verdict.evidence}" if answers.judged else f"answer: {verdict.answer or 'none'}"
        style = STYLES.get(verdict.outcome, "magenta") if answers.judged else "cyan"
        console.print(Text(text), soft_wrap=True)
        console.print(Text(f"  {completion.num_tokens} tokens, {completion.finish_reason}; {finding}", style=style))
    if not answers.judged:
        console.print(
            "[dim]No reference answer is known for this question; give one with --reference to see verdicts.[/]"
        )

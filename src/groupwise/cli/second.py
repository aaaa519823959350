"""What the second verifier says, on the terminal: a plain line, or a red one with an example."""

from rich.console import Console

from groupwise.cli.summary import printable
from groupwise.evaluation.held_out import HeldOutCheck


def show_second(check: HeldOutCheck, console: Console) -> None:
    """Print what it says; the text of a model is made safe for a terminal."""
    line = f"  second verifier: {check}"
    if check.alarm and check.example:
        example = check.example
        line = (
            f"  ALARM, reward hacking: {check}\n"
            f"  for example completion {example.sample} of {example.problem}:\n  {printable(example.text)}\n"
            f"  {printable(example.evidence)}"
        )
    console.print(line, style="bold red" if check.alarm else "", highlight=False, markup=False, soft_wrap=True)

"""`groupwise demo`: what Groupwise does, on this machine, with nothing but the package."""

from collections.abc import Sequence

from rich.console import Console

from groupwise.cli.preflight import before_training
from groupwise.cli.sample import run_sample
from groupwise.cli.train import run_recipe
from groupwise.runs.run import Run
from groupwise.trainers import load_recipe

RECIPE = "arithmetic"
QUESTION = "What is 23 × 17?"
"""What the trained model is asked; its answer, 391, is looked up by the task."""


def run_demo(overrides: Sequence[str], restart: bool, console: Console) -> None:
    """Train the shipped recipe with its evaluation before and after, then ask the best checkpoint a question."""
    recipe = load_recipe(RECIPE, overrides)
    before_training(recipe, anyway=False, console=console)
    run_recipe(recipe, restart, console)
    run = Run.open(recipe.run.directory)
    if not run.finished:
        return  # stopped by Ctrl-C, and said so
    console.print(f"\n{QUESTION}", style="bold")
    run_sample(console, str(run.best), QUESTION, None)
    console.print(f"Next: groupwise explore {run.path}, groupwise doctor {run.path}", highlight=False)

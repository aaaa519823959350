"""`groupwise memory`: the memory plan of a recipe as a table."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from groupwise.checks.memory import MIB
from groupwise.checks.memory_of_rank import plan_of_rank
from groupwise.errors import ConfigError
from groupwise.models.loading import quiet_transformers
from groupwise.trainers import load_recipe
from groupwise.trainers.rl_recipe import RlRecipe


def show_memory(path: Path, overrides: Sequence[str], prompt_tokens: int, ranks: int, console: Console) -> None:
    """Print what stays, what sampling and training add, and the peak."""
    quiet_transformers()
    recipe = load_recipe(path, overrides)
    if not isinstance(recipe, RlRecipe):
        raise ConfigError(f"{path}: memory is predicted for reinforcement learning, not for {recipe.algorithm}")
    memory = plan_of_rank(recipe, prompt_tokens, ranks)
    table = Table(Column("part", overflow="fold"), Column("MiB", justify="right", overflow="fold"), box=None)
    for title, parts in (("always", memory.weights), ("sampling", memory.sampling), ("training", memory.training)):
        table.add_row(f"[dim]{title}[/]", "")
        for name, size in parts.items():
            table.add_row(f"  {name}", f"{size / MIB:,.1f}")
    table.add_row("[bold]peak[/]", f"[bold]{memory.peak / MIB:,.1f}[/]")
    if memory.offloaded:
        table.add_row("[dim]in the processor's memory[/]", "")
        for name, size in memory.offloaded.items():
            table.add_row(f"  {name}", f"{size / MIB:,.1f}")
        table.add_row("[bold]of the processor[/]", f"[bold]{sum(memory.offloaded.values()) / MIB:,.1f}[/]")
    console.print(table)
    if memory.checkpointing:
        console.print("Activation checkpointing: layers compute themselves again in the backward.", style="dim")
    console.print("The libraries themselves need about 500 MiB more.", style="dim")

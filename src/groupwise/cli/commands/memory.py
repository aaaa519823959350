"""`groupwise memory`: its arguments and options, and what its help says."""

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.app import Overrides, app, console


@app.command()
def memory(
    recipe: Annotated[Path, typer.Argument(help="A TOML recipe of reinforcement learning.")],
    overrides: Overrides = None,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Tokens of a prompt.")] = 64,
    ranks: Annotated[
        int, typer.Option(min=1, help="Processes that train the model together; one of them is shown.")
    ] = 1,
) -> None:
    """Predict how much memory a recipe needs, part by part, without loading the model.

    Examples:

        groupwise memory recipes/arithmetic.toml

        groupwise memory recipes/ppo.toml --set model.path=Qwen/Qwen2.5-0.5B-Instruct --prompt-tokens 256

        groupwise memory recipes/gsm8k.toml --set model.path=Qwen/Qwen3-8B --ranks 8
    """
    from groupwise.cli.memory import show_memory

    show_memory(recipe, overrides or [], prompt_tokens, ranks, console)

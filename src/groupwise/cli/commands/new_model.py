"""`groupwise new-model`: its arguments and options, and what its help says."""

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.app import app, console


@app.command("new-model")
def new_model(
    directory: Annotated[Path, typer.Argument(help="Where to write the model directory.")],
    architecture: Annotated[str, typer.Option(help="qwen2, qwen3, llama or mistral.")] = "qwen2",
    hidden_size: Annotated[int, typer.Option(min=8, help="Width.")] = 64,
    layers: Annotated[int, typer.Option(min=1, help="Blocks.")] = 2,
    context_length: Annotated[int, typer.Option(min=8, help="Longest sequence, in tokens.")] = 4096,
    seed: Annotated[int, typer.Option(help="Seed of the weights.")] = 0,
) -> None:
    """Write a small model with random weights and a byte tokenizer, to try a recipe end to end without a hub.

    Example:

        groupwise new-model models/tiny && groupwise train recipes/gsm8k.toml --set model.path=models/tiny
    """
    from groupwise.config import parse
    from groupwise.models.checkpoint import save_checkpoint
    from groupwise.models.loading import quiet_transformers
    from groupwise.models.new_model import NewModel, byte_tokenizer, new_policy
    from groupwise.runs.atomic import refuse_to_replace

    quiet_transformers()
    refuse_to_replace(directory)
    shape = {"architecture": architecture, "hidden_size": hidden_size, "num_hidden_layers": layers}
    settings = {"intermediate_size": 2 * hidden_size, "context_length": context_length, "seed": seed}
    policy = new_policy(parse(NewModel, {**shape, **settings}, source="new-model"), byte_tokenizer())
    save_checkpoint(directory, policy)
    kind = f"{architecture} with {policy.num_parameters:,} random parameters"
    console.print(f"{directory}: {kind} and a byte tokenizer")

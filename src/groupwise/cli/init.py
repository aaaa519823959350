"""`groupwise init`: a small project with a reward, data, a recipe and a test, that trains at once; or a small model."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.app import app, console

PROJECT = Path(__file__).parent / "project"
"""The files; those of `WITH_NAMES` have placeholders for the directory's path and name."""
WITH_NAMES = ("recipe.toml", "README.md")


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(help="A new or an empty directory.")],
    model: Annotated[bool, typer.Option("--model",
        help="Write a small model with random weights and a byte tokenizer instead.")] = False,
    overrides: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE",
        help="With --model: another value of what `groupwise keys new_model` lists. Repeatable.")] = None,
) -> None:  # fmt: skip
    """Write a small project of your own - a reward, problems, a recipe and a test - that trains at once.

    With `--model` it writes a model without any training, to try a recipe from end to end without a hub: two layers of
    Qwen 2 of width 64, with a context of 4,096 tokens.

    Examples:

        groupwise init mine && groupwise train mine/recipe.toml

        groupwise init models/tiny --model --set num_hidden_layers=1

        groupwise train recipes/gsm8k.toml --set model.path=models/tiny
    """
    from groupwise.errors import ConfigError

    if model:
        from groupwise.config import parse
        from groupwise.models.checkpoint import save_checkpoint
        from groupwise.models.loading import quiet_transformers
        from groupwise.models.new_model import NewModel, byte_tokenizer, new_policy
        from groupwise.runs.atomic import refuse_to_replace

        quiet_transformers()
        refuse_to_replace(directory)
        shape = {"architecture": "qwen2", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
        config = parse(NewModel, {**shape, "context_length": 4096}, overrides or [], source="the new model")
        policy = new_policy(config, byte_tokenizer())
        save_checkpoint(directory, policy)
        kind = f"{config.architecture} with {policy.num_parameters:,} random parameters"
        console.print(f"{directory}: {kind} and a byte tokenizer")
        return
    if overrides:
        raise ConfigError("--set changes the model of `groupwise init --model`; a project has its own recipe.toml")
    names = ", ".join(file.name for file in write_project(directory))
    command = shlex.join(["groupwise", "train", f"{directory}/recipe.toml"])
    console.print(f"{directory}: {names}\nNext: {command}", highlight=False)


def write_project(directory: Path) -> list[Path]:
    """Write the project's files. Raises ConfigError: the directory exists and is not empty."""
    from groupwise.config import toml_literal
    from groupwise.errors import ConfigError
    from groupwise.runs.atomic import translated_disk_errors, write_file

    if directory.exists() and not (directory.is_dir() and not any(directory.iterdir())):
        raise ConfigError(f"{directory} exists and is not an empty directory: name a new one")
    files = []
    with translated_disk_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        for file in sorted(path for path in PROJECT.iterdir() if path.is_file()):
            text = file.read_text(encoding="utf-8")
            if file.name in WITH_NAMES:
                name = toml_literal(directory.resolve().name)[1:-1]
                text = text.format(directory=shlex.quote(str(directory)), name=name)
            write_file(directory / file.name, text.encode())
            files.append(directory / file.name)
    return files

"""`groupwise oracle`: its arguments and options, and what its help says."""

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.app import app, console


@app.command()
def oracle(
    section: Annotated[list[str] | None, typer.Option(help="Show this section only. Repeatable.")] = None,
    combinations: Annotated[
        bool, typer.Option("--all", help="Add every advantage with every loss and aggregation.")
    ] = False,
    tokens: Annotated[
        int | None, typer.Option(min=2, help="Tokens of the vocabulary, the stop token included.")
    ] = None,
    length: Annotated[int | None, typer.Option(min=1, help="Token limit of a completion.")] = None,
    group_size: Annotated[int | None, typer.Option(min=2, help="Completions per prompt.")] = None,
    prompts: Annotated[int | None, typer.Option(min=1, help="Prompts per batch.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of policies and rewards.")] = 0,
    write: Annotated[
        Path | None, typer.Option(help="Write the table of algorithms with the figures (Markdown).")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Compare every estimator with the true policy gradient, in worlds so small that every batch can be enumerated.

    Columns: `cosine` between the expected gradient E[g] and the true one ∇J (1: the right direction); `scale`, the
    length of E[g] along ∇J (a learning rate makes up for it); `bias` = |E[g] - ∇J| / |∇J|, which no number of samples
    averages away; `noise`, one batch's standard deviation in units of |E[g]| (n batches divide it by √n).

    Each section has a world of its own size; a size given here applies to all. Nothing is sampled, so the
    figures are exact and the same every time.

    Examples:
        groupwise oracle

        groupwise oracle --section prompts --group-size 4

        groupwise oracle --section kl --seed 1 --json
    """
    from groupwise_lab.cli.run_oracle import OracleRequest, run_oracle
    from groupwise_lab.oracle.toys import Dials

    dials = Dials(tokens, length, group_size, prompts, seed)
    run_oracle(OracleRequest(tuple(section or []), combinations, dials, write, json), console)

"""`groupwise replay`: a recorded completion beside the one made again."""

from typing import Annotated

import typer
from rich.text import Text

from groupwise.cli.app import RunPath, app, console
from groupwise.runs.progress import say


@app.command()
def replay(
    run: RunPath,
    step: Annotated[int, typer.Option(min=0, help="Training step (0-based).")],
    problem: Annotated[str, typer.Option(help="Problem id, e.g. arithmetic/23x17.")],
    sample: Annotated[int, typer.Option(min=0, help="Completion within the group.")] = 0,
) -> None:
    """Regenerate a recorded completion and compare, token by token and bit by bit; exit status 1 if they differ.

    Example:

        groupwise replay runs/arithmetic --step 37 --problem arithmetic/23x17 --sample 5
    """
    from groupwise.models.loading import quiet_transformers
    from groupwise.trainers.replay import replay

    quiet_transformers()
    result = replay(run, step, problem, sample, lambda number: say("steps repeated", number, 0))
    console.print(f"weights: {result.started_from}, {result.steps_repeated} steps repeated")
    console.print(Text(f"recorded     {result.recorded.text}"), soft_wrap=True)
    console.print(Text(f"regenerated  {result.text}"), soft_wrap=True)
    if result.identical:
        console.print(f"identical: {len(result.token_ids)} tokens, log-probabilities equal to the bit", style="green")
        return
    if result.same_tokens and result.text != result.recorded.text:
        console.print("same tokens, but the recorded text is not theirs: it was changed", style="red")
    elif result.same_tokens:
        console.print(f"same tokens; log-probabilities differ by up to {result.logprob_difference:.2g}", style="yellow")
    else:
        recorded = result.recorded.token_ids.tolist() if result.recorded.token_ids is not None else []
        pairs = enumerate(zip(result.token_ids, recorded, strict=False))
        shorter = min(len(result.token_ids), len(recorded))
        position = next((i for i, (a, b) in pairs if a != b), shorter)
        console.print(f"different from token {position} on", style="red")
    raise typer.Exit(1)

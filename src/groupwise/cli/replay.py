"""`groupwise replay`: a recorded completion beside the one made again."""

from pathlib import Path

from rich.console import Console
from rich.text import Text

from groupwise.models.loading import quiet_transformers
from groupwise.trainers.replay import replay


def run_replay(run: Path, step: int, problem: str, sample: int, console: Console) -> bool:
    """Print both completions and the verdict; True when they are identical."""
    quiet_transformers()
    with console.status("repeating steps and sampling") as status:
        result = replay(run, step, problem, sample, lambda number: status.update(f"repeating step {number}"))
    console.print(f"weights: {result.started_from}, {result.steps_repeated} steps repeated")
    console.print(Text(f"recorded     {result.recorded.text}"), soft_wrap=True)
    console.print(Text(f"regenerated  {result.text}"), soft_wrap=True)
    if result.identical:
        console.print(f"identical: {len(result.token_ids)} tokens, log-probabilities equal to the bit", style="green")
    elif result.same_tokens and result.text != result.recorded.text:
        console.print("same tokens, but the recorded text is not theirs: it was changed", style="red")
    elif result.same_tokens:
        console.print(f"same tokens; log-probabilities differ by up to {result.logprob_difference:.2g}", style="yellow")
    else:
        recorded = result.recorded.token_ids.tolist() if result.recorded.token_ids is not None else []
        pairs = enumerate(zip(result.token_ids, recorded, strict=False))
        shorter = min(len(result.token_ids), len(recorded))
        position = next((i for i, (a, b) in pairs if a != b), shorter)
        console.print(f"different from token {position} on", style="red")
    return result.identical

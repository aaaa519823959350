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
        again = replay(run, step, problem, sample, lambda now: status.update(f"repeating step {now}"))
    console.print(f"weights: {again.started_from}, {again.steps_repeated} steps repeated")
    console.print(Text(f"recorded     {again.recorded['text']}"), soft_wrap=True)
    console.print(Text(f"regenerated  {again.text}"), soft_wrap=True)
    if again.identical:
        console.print(f"identical: {len(again.token_ids)} tokens, log-probabilities equal to the bit", style="green")
    elif again.token_ids == again.recorded["token_ids"] and again.text != again.recorded["text"]:
        console.print("same tokens, but the recorded text is not theirs: it was changed", style="red")
    elif again.token_ids == again.recorded["token_ids"]:
        console.print(f"same tokens; log-probabilities differ by up to {again.logprob_difference:.2g}", style="yellow")
    else:
        pairs = enumerate(zip(again.token_ids, again.recorded["token_ids"], strict=False))
        place = next((i for i, (a, b) in pairs if a != b), min(len(again.token_ids), len(again.recorded["token_ids"])))
        console.print(f"different from token {place} on", style="red")
    return again.identical

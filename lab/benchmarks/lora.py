"""Adapters in sampling: how far sampler and trainer are apart, merged and unmerged, and what the products cost.

    python lab/benchmarks/lora.py [ADAPTERS]

ADAPTERS is a directory of adapters, such as runs/lora/checkpoints/best; without it, random ones of rank 8 on the
shipped model. Completions are sampled twice with the same keys: from the adapted layers, as training does, and from a
plain model with the products added to its weights. Both are then read by the adapted model, as a trainer reads them.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from machine import describe

from groupwise.models.checkpoint import save_checkpoint
from groupwise.models.config import LoraConfig, ModelConfig
from groupwise.models.loading import quiet_transformers
from groupwise.models.policy import Policy, load_policy, start_policy
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.rollout.sampling import SamplingConfig
from groupwise.tasks import make_task
from groupwise.tasks.arithmetic import ArithmeticConfig
from groupwise.training.tokens import per_token
from groupwise.types import Group
from groupwise.verifiers.unjudged import Unjudged

GROUPS, GROUP_SIZE, TOKENS, REPEATS = 8, 16, 96, 5


def random_adapters(directory: str) -> str:
    """Adapters of rank 8 on the shipped model, whose B is as large as some training makes it."""
    policy = start_policy(ModelConfig(device="cpu"), LoraConfig(rank=8), seed=0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in policy.trainable():
            if ".lora_B." in name:
                weight.copy_(0.02 * torch.randn(weight.shape, generator=generator))
    save_checkpoint(Path(directory) / "adapters", policy)
    return str(Path(directory) / "adapters")


def sample(policy: Policy, step: int) -> tuple[list[Group], float]:
    """The groups of one step, and seconds."""
    task = make_task(ArithmeticConfig(kind="arithmetic", kinds=("product",), digits=(2, 2)))
    problems = task.problems("train")[:GROUPS]
    actors, draws = Actors.of(policy, task.template, Unjudged()), Draws(0, Purpose.TRAIN, step)
    began = time.perf_counter()
    scored = sample_and_score(actors, problems, GROUP_SIZE, SamplingConfig(max_tokens=TOKENS), draws)
    return [one.group for one in scored], time.perf_counter() - began


def apart(groups: list[Group], trainer: Policy) -> torch.Tensor:
    """Trainer - sampler of every token, nats."""
    read = per_token(groups, lambda packed: trainer.token_logprobs(packed).logprobs, 0, trainer.device)
    pairs = zip(groups, read, strict=True)
    return torch.cat([
        torch.from_numpy(found - completion.sampling_logprobs)
        for group, arrays in pairs
        for completion, found in zip(group.completions, arrays, strict=True)
    ])  # fmt: skip


def main() -> None:
    """Print distances, and the time of sampling beside that of a plain model."""
    quiet_transformers()
    with tempfile.TemporaryDirectory() as directory:
        path = sys.argv[1] if len(sys.argv) > 1 else random_adapters(directory)
        adapted = load_policy(ModelConfig(path=path, device="cpu"))
        merged = start_policy(ModelConfig(path=path, device="cpu"), None, seed=0)
    print(describe())
    for name, sampler in (("unmerged", adapted), ("merged", merged)):
        found = torch.cat([apart(sample(sampler, step)[0], adapted) for step in range(2)])
        print(
            f"sampled {name:9s} {len(found):,} tokens   largest {found.abs().max():.1e}   mean {found.mean():+.1e} nats"
        )
    seconds: dict[str, list[float]] = {"adapted": [], "plain": []}
    for step in range(2, 2 + REPEATS):  # in turns
        for name, sampler in (("adapted", adapted), ("plain", merged)):
            groups, took = sample(sampler, step)
            seconds[name].append(took / sum(c.num_tokens for group in groups for c in group.completions))
    ratio = statistics.median(a / b for a, b in zip(seconds["adapted"], seconds["plain"], strict=True))
    print(f"sampling, adapted / plain: {ratio:.2f} (time for each token, median of {REPEATS} pairs)")


if __name__ == "__main__":
    main()

"""Show that the peak memory of the chunked head, forward and backward, does not grow with tokens × vocabulary.

    python lab/benchmarks/head_memory.py
    python lab/benchmarks/head_memory.py --vocabulary 151936 --hidden 64 --tokens 256 1024 4096 --plain

Each line is a process of its own: hidden states, head weight and targets are made first, then the log-probabilities of
the targets are computed and their sum differentiated, and the growth of resident memory to its peak is printed. It
contains the gradient of the weight (vocabulary × hidden), which both ways need, and warm-up of torch's own buffers.

The last column is what the plain way, log_softmax of all logits at once, holds at its peak: logits, their log_softmax
and the gradient of one of them, fp32. `--plain` measures that too (it needs as much memory as it says).
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence

import torch
from machine import describe, forget_peak, peak_bytes, resident_bytes

from groupwise.algorithms.logprobs import token_logprobs


def growth(way: str, tokens: int, vocabulary: int, hidden: int) -> int:
    """Bytes by which the resident memory of this process grows at its peak in one forward and backward."""
    states = torch.randn(tokens, hidden, requires_grad=True)
    weight = torch.randn(vocabulary, hidden).mul_(0.02).requires_grad_()
    targets = torch.randint(vocabulary, (tokens,))
    forget_peak()
    before = resident_bytes()
    logprobs = (
        plain(states, weight, targets) if way == "plain" else token_logprobs(states, weight, None, targets).logprobs
    )
    logprobs.sum().backward()
    return peak_bytes() - before


def plain(states: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The log-probabilities by way of all logits."""
    return torch.log_softmax(states @ weight.T, -1).gather(1, targets[:, None])[:, 0]


def predicted(tokens: int, vocabulary: int) -> int:
    """Bytes of three fp32 tensors (tokens, vocabulary): logits, log_softmax, gradient."""
    return 3 * 4 * tokens * vocabulary


def measure(way: str, tokens: int, options: argparse.Namespace) -> float:
    """MB of `growth`, in a process of its own."""
    sizes = [str(tokens), str(options.vocabulary), str(options.hidden)]
    command = [sys.executable, __file__, "--one", way, *sizes]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return int(done.stdout) / 1e6


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=151936)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--tokens", type=int, nargs="+", default=[256, 512, 1024, 2048, 4096])
    parser.add_argument("--plain", action="store_true", help="measure the plain way as well")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        way, *sizes = options.one
        print(growth(way, *map(int, sizes)))
        return
    print(f"vocabulary {options.vocabulary}, hidden {options.hidden}, fp32; peak growth in MB")
    print("tokens   chunked" + ("     plain" if options.plain else "") + "   plain, predicted", flush=True)
    for tokens in options.tokens:
        measured = [measure(way, tokens, options) for way in ("chunked", "plain")[: 1 + options.plain]]
        cells = "".join(f"{value:>10.0f}" for value in measured)
        print(f"{tokens:>6}{cells}{predicted(tokens, options.vocabulary) / 1e6:>19.0f}", flush=True)
    print(describe())


if __name__ == "__main__":
    main()

"""Measure decoding and training on a GPU against what the card can do, and against transformers' `generate`.

    python lab/benchmarks/gpu.py                              needs a CUDA device
    python lab/benchmarks/gpu.py --live 1 64 512 --tokens 512
    python lab/benchmarks/gpu.py --device cpu --tiny          only tries the script out; its figures mean nothing

The model has the shape of Qwen2.5-0.5B and random weights, kept in fp32 (of 7B: kept in bf16, for decoding alone);
products are computed in bf16. Completions
have no end token, so all have the requested length. Nothing here is measured where there is no GPU: without one the
script ends with a sentence and exit status 2.

Decoding: completions live at one time; tokens per second with CUDA graphs and without, from the time of a whole
`generate` less that of one that ends after the first token (prompts and set-up); and the share of the card's memory
bandwidth that the faster way uses. Counted are the bytes that a step must read: every weight once in bf16, the keys and
values of each prompt once and of each completion once, at its mean length. The bandwidth is that of a large copy, read
and written, measured just before. `MB` is the growth of the memory in use at its peak, from before the first call.

transformers: time of its `generate` over ours, both with prefill, in turns on the same prompts and lengths; its model
is in bf16 with `sdpa` attention, and each prompt is in the batch once per completion, as TRL does it.

Training: forward, backward and AdamW on groups of completions with their prompt; MFU is 6N operations per completion
token, and per prompt token, where N is the layers alone, over the time and the rate of a large bf16 product, measured
just before.
"""

import argparse
import copy
import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from machine import describe
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, PreTrainedModel
from workload import Parameters, count_parameters

from groupwise.models import fused
from groupwise.models.config import ModelConfig
from groupwise.models.loading import quiet_transformers
from groupwise.models.new_model import byte_tokenizer
from groupwise.models.packed import Sequences, pack
from groupwise.models.policy import Policy, make_policy
from groupwise.randomness import key
from groupwise.rollout.cuda_graphs import release
from groupwise.rollout.engine import Request
from groupwise.rollout.in_process import generate
from groupwise.rollout.sampling import SamplingConfig

FULL = {
    "vocab_size": 151936,
    "hidden_size": 896,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "intermediate_size": 4864,
}
LARGE = {
    "vocab_size": 152064,
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
}
TINY = FULL | {"vocab_size": 300, "hidden_size": 56, "num_hidden_layers": 2, "intermediate_size": 64}
BF16 = 2
"""Bytes of a number."""


@dataclass(frozen=True)
class Decoding:
    """Completions sampled at one time; lists hold one value per repeat."""

    live: int
    with_graphs: list[float]
    """Tokens per second; empty without CUDA."""
    without_graphs: list[float]
    bandwidth_share: float
    """Of the faster way."""
    memory: dict[str, int]
    """Growth in bytes by way."""
    ratios: list[float]
    """Time of transformers over ours."""


@dataclass(frozen=True)
class Training:
    """Steps on the same groups."""

    completion_tokens: int
    prompt_tokens: int
    seconds: list[float]
    mfu: float
    memory: int


@dataclass(frozen=True)
class Bench:
    """A policy, the same weights for transformers, and the work."""

    policy: Policy
    peer: PreTrainedModel
    options: argparse.Namespace
    parameters: Parameters

    @property
    def device(self) -> torch.device:
        return self.policy.device

    def prompts(self, count: int) -> np.ndarray:
        """Random prompts (count, prompt tokens)."""
        vocabulary = self.peer.config.vocab_size
        return np.random.default_rng(0).integers(2, vocabulary, (count, self.options.prompt))

    def groups(self, live: int) -> tuple[int, int]:
        """Prompts and completions per prompt."""
        size = min(live, self.options.group)
        return live // size, size


def make_bench(options: argparse.Namespace) -> Bench:
    """Make the model for both sides."""
    tokenizer = byte_tokenizer()
    sizes = TINY if options.tiny else LARGE if options.size == "7B" else FULL
    config = AutoConfig.for_model(
        "qwen2", **sizes, max_position_embeddings=32768, tie_word_embeddings=True, eos_token_id=tokenizer.eos_token_id
    )
    torch.manual_seed(0)
    is_large = sizes is LARGE
    dtype = torch.bfloat16 if is_large else torch.float32
    model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    peer = copy.deepcopy(model).to(options.device, torch.bfloat16).eval()
    model_config = ModelConfig(
        device=options.device,
        compute_dtype="bfloat16",
        weights_dtype="bfloat16" if is_large else "float32",
    )
    policy = dataclasses.replace(make_policy(model, tokenizer, model_config), stop_ids=frozenset())
    return Bench(policy, peer, options, count_parameters(model))


def timed(work: Callable[[], object], device: torch.device) -> float:
    """Seconds until the device has done the work."""
    _wait(device)
    start = time.perf_counter()
    work()
    _wait(device)
    return time.perf_counter() - start


def memory_growth(work: Callable[[], object], device: torch.device) -> int:
    """Bytes in use at the peak of some work, less those before; 0 without CUDA."""
    if device.type != "cuda":
        work()
        return 0
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    work()
    return torch.cuda.max_memory_allocated(device) - before


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def bandwidth(device: torch.device, size: int) -> float:
    """Bytes per second that a copy of this many bytes reads and writes; the fastest of ten."""
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / min(timed(lambda: target.copy_(source), device) for _ in range(10))


def product_rate(device: torch.device, size: int) -> float:
    """Operations per second of a bf16 product of two square matrices; the fastest of ten."""
    left, right = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    return 2 * size**3 / min(timed(lambda: left @ right, device) for _ in range(10))


def sample(bench: Bench, live: int, graphs: bool, max_tokens: int) -> None:
    """Our `generate`."""
    count, size = bench.groups(live)
    requests = [
        Request(tuple(prompt), tuple(key("gpu", i, j) for j in range(size)))
        for i, prompt in enumerate(bench.prompts(count).tolist())
    ]
    config = SamplingConfig(max_tokens=max_tokens, max_live_completions=live, cuda_graphs=graphs)
    sampled = generate(bench.policy, requests, config)
    assert all(len(one.token_ids) == max_tokens for group in sampled for one in group)


@torch.inference_mode()
def sample_with_transformers(bench: Bench, live: int) -> None:
    """Its `generate` on the same prompts and lengths."""
    count, size = bench.groups(live)
    ids = torch.from_numpy(bench.prompts(count)).to(bench.device).repeat_interleave(size, 0)
    tokens = bench.options.tokens
    config = GenerationConfig(
        do_sample=True, top_k=0, top_p=1.0, max_new_tokens=tokens, min_new_tokens=tokens, eos_token_id=None
    )
    config.pad_token_id = 0
    out = bench.peer.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
    assert out.shape[1] == bench.options.prompt + tokens


def bytes_per_step(bench: Bench, live: int) -> float:
    """Return the bytes that a decode step must read: weights, and keys and values of prompts and completions."""
    config = bench.peer.config
    width = config.hidden_size // config.num_attention_heads
    per_token = 2 * config.num_hidden_layers * config.num_key_value_heads * width * BF16
    count, _ = bench.groups(live)
    return bench.parameters.total * BF16 + per_token * (count * bench.options.prompt + live * bench.options.tokens / 2)


def decoding(bench: Bench, live: int, bytes_per_second: float) -> Decoding:
    """Measure one number of live completions."""
    tokens = bench.options.tokens
    ways = {"graphs": True, "plain": False} if bench.device.type == "cuda" else {"plain": False}
    memory, rates, ratios = {}, {way: [] for way in ("graphs", "plain")}, []
    for way, graphs in ways.items():  # the first call records graphs and warms up
        release(bench.policy)
        memory[way] = memory_growth(lambda graphs=graphs: sample(bench, live, graphs, tokens), bench.device)
    memory["transformers"] = memory_growth(lambda: sample_with_transformers(bench, live), bench.device)
    sample(bench, live, True, tokens)
    for _ in range(bench.options.repeats):
        whole = {}
        for way, graphs in ways.items():
            whole[way] = timed(lambda graphs=graphs: sample(bench, live, graphs, tokens), bench.device)
            first = timed(lambda graphs=graphs: sample(bench, live, graphs, 1), bench.device)
            rates[way].append(live * (tokens - 1) / (whole[way] - first))
        ratios.append(timed(lambda: sample_with_transformers(bench, live), bench.device) / min(whole.values()))
    fastest = max(statistics.median(values) for values in rates.values() if values)
    share = bytes_per_step(bench, live) * fastest / live / bytes_per_second
    release(bench.policy)
    return Decoding(live, rates["graphs"], rates["plain"], share, memory, ratios)


def training(bench: Bench, product_rate: float) -> Training:
    """Measure forward, backward and AdamW."""
    options, policy = bench.options, bench.policy
    prompts = bench.prompts(options.train_groups)
    completions = np.random.default_rng(1).integers(2, bench.peer.config.vocab_size, (options.group, options.tokens))
    row = pack([Sequences(prompt, list(completions)) for prompt in prompts], policy.device)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=1e-6)

    def step() -> None:
        (-policy.token_logprobs(row).logprobs.mean()).backward()
        optimizer.step()
        optimizer.zero_grad()

    memory = memory_growth(lambda: (step(), step()), bench.device)  # the first makes the optimizer's state
    seconds = [timed(step, bench.device) for _ in range(options.repeats)]
    trained, read = len(prompts) * completions.size, prompts.size
    work = 6 * (trained * bench.parameters.total + read * bench.parameters.body)
    return Training(trained, read, seconds, work / statistics.median(seconds) / product_rate, memory)


def table(results: Sequence[Decoding]) -> str:
    """One line per number of live completions."""
    head = ["live", "tokens/s graphs", "plain", "of bandwidth", "transformers / ours", "MB graphs", "plain", "transf."]
    lines = [head, *(_cells(result) for result in results)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def _cells(result: Decoding) -> list[str]:
    rates = (result.with_graphs, result.without_graphs)
    least, most = min(result.ratios), max(result.ratios)
    memory = (result.memory.get(way) for way in ("graphs", "plain", "transformers"))
    return [
        str(result.live),
        *(f"{statistics.median(values):.0f}" if values else "-" for values in rates),
        f"{result.bandwidth_share:.0%}",
        f"{statistics.median(result.ratios):.2f} [{least:.2f}..{most:.2f}]",
        *(f"{size / 1e6:.0f}" if size else "-" for size in memory),
    ]


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a tiny model, to try the script out")
    parser.add_argument("--size", choices=["0.5B", "7B"], default="0.5B", help="shape of the model")
    parser.add_argument("--blocks", action="store_true", help="attention in blocks, as without a fused kernel")
    parser.add_argument("--live", type=int, nargs="+", default=[1, 16, 64, 256], help="completions at one time")
    parser.add_argument("--group", type=int, default=16, help="completions per prompt")
    parser.add_argument("--prompt", type=int, default=256, help="tokens of a prompt")
    parser.add_argument("--tokens", type=int, default=256, help="tokens of a completion")
    parser.add_argument("--train-groups", type=int, default=2, help="groups in a training step")
    parser.add_argument("--repeats", type=int, default=5, help="measured runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured to this file")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    options = parse(arguments)
    if options.device == "cpu" and not options.tiny:
        _refuse("On a CPU this benchmark only tries itself out: add --tiny (grpo_step.py measures CPUs).")
    if options.device == "cuda" and not torch.cuda.is_available():
        _refuse("No CUDA device is here, so nothing was measured; --device cpu --tiny only tries the script out.")
    quiet_transformers()
    if options.blocks:
        fused.KERNELS.clear()
    bench = make_bench(options)
    size = 1 << (20 if options.tiny else 30)
    bytes_per_second = bandwidth(bench.device, size)
    results = [decoding(bench, live, bytes_per_second) for live in options.live]
    rate = product_rate(bench.device, 256 if options.tiny else 8192)
    trained = None if options.size == "7B" else training(bench, rate)
    card = torch.cuda.get_device_name(bench.device) if options.device == "cuda" else "no card"
    print(
        f"{bench.parameters.total / 1e6:.0f} M parameters, prompts of {options.prompt}, completions of {options.tokens}"
    )
    print(f"{table(results)}\n")
    if trained:
        print(
            f"training on {trained.completion_tokens} completion and {trained.prompt_tokens} prompt tokens: "
            f"{statistics.median(trained.seconds):.3f} s, MFU {trained.mfu:.0%}, {trained.memory / 1e6:.0f} MB"
        )
    print(f"{card}: {bytes_per_second / 1e9:.0f} GB/s, {rate / 1e12:.1f} TFLOP/s in bf16; {describe()}")
    if options.json:
        rates = {"bytes_per_second": bytes_per_second, "product_rate": rate}
        found = {"card": card, "machine": describe(), **rates, "training": asdict(trained) if trained else None}
        found["decoding"] = [asdict(result) for result in results]
        options.json.write_text(json.dumps(found, indent=1) + "\n")


def _refuse(sentence: str) -> None:
    print(sentence, file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()

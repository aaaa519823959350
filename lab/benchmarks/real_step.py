"""Time a real model: a GRPO step beside TRL's, and sampling beside transformers, llama.cpp and vLLM, in turns.

    python lab/benchmarks/real_step.py MODEL                                   all parts
    python lab/benchmarks/real_step.py MODEL --part step --repeats 3           needs TRL
    python lab/benchmarks/real_step.py MODEL --part sample --live 1 8 32 128 --llama-cpp FILE.gguf --vllm URL

MODEL is a directory, a name of the hub, or a GGUF file. A step is 4 prompts × 8 completions of 26 to 64 tokens, the
rest as in `grpo_step.py`, both sides in bf16 (TRL by autocast, its weights in fp32; ours by `--dtype`, its weights by
`--weights`). Sampling: as many prompts of 32 tokens as are live, 64 tokens each, no end before. `static`: transformers
with a static cache. llama.cpp needs the wheel `xllamacpp` and reads its own file; vLLM is a server of the same model.
Examples: what it is worth to compute tokens once that all prompts begin with (a context of 1,120 tokens or more).
Begun: the same for the gradient of fine-tuning, 16 rows of 60 tokens of their own and 25 that are learnt.
Shares are of the rate of bf16 products at the shape in hand: M = live rows for sampling, 2,048 for training.
Nothing else may run beside it.
"""

import argparse
import json
import statistics
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from unittest import mock

import torch
from machine import describe
from sides import Ours, TrlSettings, forced_lengths, train_trl
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from workload import Shape, StepPlan, Workload, count_parameters, necessary_work

from groupwise.models import packed
from groupwise.models.config import ModelConfig
from groupwise.models.loading import quiet_transformers
from groupwise.models.located import locate
from groupwise.models.policy import Policy, load_policy
from groupwise.rollout import in_process
from groupwise.rollout.engine import Request
from groupwise.rollout.in_process import generate
from groupwise.rollout.sampling import SamplingConfig
from groupwise.trainers.documents import Example
from groupwise.trainers.sft import sft_gradient

PROMPT, TOKENS = 32, 64
SHAPE = Shape("real", 0, 0, 0, 0, 0, num_prompts=4, prompt_tokens=PROMPT, max_tokens=TOKENS, group_size=8, repeats=3)
SENTENCE = "a cook has some eggs and gives two of them to each of her friends so how many are left for the cake"
WORDS = SENTENCE.split()


@dataclass(frozen=True)
class RealWorkload(Workload):
    """The same work with a model from a directory, and prompts of words."""

    path: str = ""

    @cached_property
    def tokenizer(self) -> Any:
        return AutoTokenizer.from_pretrained(self.path)

    def model(self, attention: str) -> PreTrainedModel:
        return AutoModelForCausalLM.from_pretrained(self.path, dtype=torch.float32, attn_implementation=attention)

    def with_prompts(self, num_prompts: int) -> "RealWorkload":
        return replace(self, shape=replace(self.shape, num_prompts=min(self.shape.num_prompts, num_prompts)))

    def plan(self, step: int) -> StepPlan:
        planned = super().plan(step)
        prompts = tuple(" ".join(WORDS[ord(letter) % len(WORDS)] for letter in text) for text in planned.prompts)
        return replace(planned, prompts=prompts)


def product_rate(rows: int, width: int = 2048) -> float:
    """Operations a second of bf16 products of `rows` rows, the fastest of twenty."""
    left, right = (torch.randn(n, width).bfloat16() for n in (rows, 2 * width))
    seconds = []
    for _ in range(20):
        start = time.perf_counter()
        left @ right.T
        seconds.append(time.perf_counter() - start)
    return 2 * rows * width * 2 * width / min(seconds)


def step(path: str, options: argparse.Namespace) -> None:
    """Print the times of steps, ours and TRL's in turns."""
    workload = RealWorkload(SHAPE, path=path)
    ours = Ours(workload, ModelConfig(path=path, compute_dtype=options.dtype, weights_dtype=options.weights))
    parameters, rate, ratios = count_parameters(ours.policy.model), product_rate(2048), list[float]()

    def take_turn(number: int, trl: Any = None) -> None:
        seconds = ours.step(number)
        share = necessary_work(workload.plan(number), parameters) / seconds.total / rate
        line = f"step {number}: ours {seconds.total:.1f} s (sampling {seconds.generate:.1f}), {share:.0%} of products"
        if trl:
            line += f"; TRL {trl.total:.1f} s (sampling {trl.generate:.1f}); {trl.total / seconds.total:.2f} ×"
            ratios.extend([trl.total / seconds.total] if number else [])
        print(line, flush=True)

    if options.ours_only:
        for number in range(options.repeats + 1):
            take_turn(number)
        return
    settings = TrlSettings(options.trl_micro_batch, bf16=True)
    train_trl(workload, options.repeats + 1, settings, after_step=take_turn)
    ours.check_trained()
    print(f"TRL over ours: {statistics.median(ratios):.2f} × [{min(ratios):.2f}, {max(ratios):.2f}]; TRL: {settings}")


def ours_at(policy: Policy, prompts: Sequence[Sequence[int]]) -> Callable[[], None]:
    """Return a run of our engine on these prompts."""
    keys = range(1, len(prompts) + 1)
    requests = [Request(tuple(prompt), (key,)) for prompt, key in zip(prompts, keys, strict=True)]
    sampling = SamplingConfig(max_tokens=TOKENS, max_live_completions=len(prompts))

    def run() -> None:
        with forced_lengths(dict.fromkeys(keys, TOKENS), policy.tokenizer.eos_token_id):
            assert (
                sum(len(one.token_ids) for group in generate(policy, requests, sampling) for one in group)
                == len(keys) * TOKENS
            )

    return run


def theirs_at(model: PreTrainedModel, prompts: Sequence[Sequence[int]], cache: str | None) -> Callable[[], None]:
    """Return a run of transformers' `generate`."""
    ids = torch.tensor(prompts)
    how = {
        "do_sample": True,
        "min_new_tokens": TOKENS,
        "max_new_tokens": TOKENS,
        "top_k": 0,
        "cache_implementation": cache,
    }

    def run() -> None:
        with torch.inference_mode():
            assert model.generate(ids, attention_mask=torch.ones_like(ids), **how).shape[1] == PROMPT + TOKENS

    return run


def served_at(url: str, body: dict[str, Any], prompts: Sequence[Sequence[int]]) -> Callable[[], None]:
    """Return a run of llama.cpp's server or vLLM's, which is asked for all completions at once."""

    def ask(prompt: Sequence[int]) -> None:
        data = json.dumps({**body, "prompt": list(prompt)}).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as answer:
            said = json.load(answer)
        sampled = said["usage"]["completion_tokens"] if "usage" in said else said["tokens_predicted"]
        assert sampled == TOKENS, said

    def run() -> None:
        with ThreadPoolExecutor(len(prompts)) as pool:
            list(pool.map(ask, prompts))

    return run


@contextmanager
def llama_cpp(file: str, live: int) -> Iterator[str]:
    """Serve a GGUF file with as many slots as completions are live; gives the address."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.n_parallel, params.verbosity = file, live, -1
    params.n_ctx = live * 2 * (PROMPT + TOKENS)
    params.cpuparams.n_threads = torch.get_num_threads()
    server = xllamacpp.Server(params)
    yield f"{server.listening_address}/completion"
    del server


def sample(path: str, options: argparse.Namespace) -> None:
    """Print tokens a second of each engine, in turns."""
    policy = load_policy(ModelConfig(path=path, compute_dtype=options.dtype, weights_dtype=options.weights))
    model = AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, options.dtype)).eval()
    words = policy.tokenizer(SENTENCE * 8, add_special_tokens=False).input_ids
    parameters = count_parameters(model)
    for live in options.live:
        prompts = [words[i % 64 : i % 64 + PROMPT] for i in range(live)]
        runs = {"ours": ours_at(policy, prompts), "transformers": theirs_at(model, prompts, None)}
        runs["static"] = theirs_at(model, prompts, "static")
        with ExitStack() as stack:
            if options.llama_cpp:
                url = stack.enter_context(llama_cpp(options.llama_cpp, live))
                runs["llama.cpp"] = served_at(
                    url, {"n_predict": TOKENS, "ignore_eos": True, "cache_prompt": False}, prompts
                )
            if options.vllm:
                body = {"model": options.vllm_model or path, "max_tokens": TOKENS, "ignore_eos": True}
                body |= {"temperature": 1.0, "top_p": 1.0, "top_k": 0}  # not those of its generation_config.json
                runs["vLLM"] = served_at(f"{options.vllm}/v1/completions", body, prompts)
            rates: dict[str, list[float]] = {name: [] for name in runs}
            for turn in range(options.repeats + 1):  # the first one warms up
                for name, run in runs.items():
                    start = time.perf_counter()
                    run()
                    if turn:
                        rates[name].append(live * TOKENS / (time.perf_counter() - start))
        share = 2 * parameters.total * statistics.median(rates["ours"]) / product_rate(live)
        told = [
            f"{name} {statistics.median(each):.0f} [{min(each):.0f}, {max(each):.0f}]" for name, each in rates.items()
        ]
        ratios = [
            f"{statistics.median(a / b for a, b in zip(rates['ours'], rates[name], strict=True)):.2f} × {name}"
            for name in rates if name != "ours"
        ]  # fmt: skip
        print(
            f"{live} live, tokens/s: {', '.join(told)}; ours is {', '.join(ratios)}; {share:.0%} of products",
            flush=True,
        )


def examples(path: str, options: argparse.Namespace) -> None:
    """Print processor seconds of 32 short answers behind the same 1,024 tokens, computed once and for each."""
    policy = load_policy(ModelConfig(path=path, compute_dtype=options.dtype, weights_dtype=options.weights))
    words = policy.tokenizer(SENTENCE * 80, add_special_tokens=False).input_ids
    requests = [Request((*words[:1024], *words[i : i + 64]), (i + 1,)) for i in range(32)]
    sampling = SamplingConfig(max_tokens=32, max_live_completions=16)
    for turn in range(options.repeats):
        seconds = []
        for shared in (in_process.shared_tokens, lambda requests: 0):
            with mock.patch.object(in_process, "shared_tokens", shared):
                start = time.process_time()
                generate(policy, requests, sampling)
                seconds.append(time.process_time() - start)
        print(f"examples {turn}: {seconds[0]:.1f} s once, {seconds[1]:.1f} s for each", flush=True)


def begun(path: str, options: argparse.Namespace) -> None:
    """Print processor seconds of a gradient of rows that begin alike: what they share computed for each, and once."""
    policy = load_policy(ModelConfig(path=path, compute_dtype=options.dtype, weights_dtype=options.weights))
    words = policy.tokenizer(SENTENCE * 80, add_special_tokens=False).input_ids
    for length in (32, 64, 200, 1000):
        own = [words[i : i + 86] for i in range(1, 17)]
        rows = [Example([*words[-length:], i, *ids[:60]], ids[60:85]) for i, ids in enumerate(own, 5)]
        for turn in range(options.repeats):
            seconds = []
            for fewest in (10**9, packed.MIN_SHARED):
                with mock.patch.object(packed, "MIN_SHARED", fewest):
                    start = time.process_time()
                    sft_gradient(policy, rows, 0)
                    seconds.append(time.process_time() - start)
            each, once = seconds
            print(f"begun {length}, {turn}: {each:.1f} s for each, {once:.1f} s once, {each / once:.2f} ×", flush=True)


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--part", choices=["step", "sample", "examples", "begun", "all"], default="all")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--dtype", default="bfloat16", help="of our products, and of transformers' model when it samples"
    )
    parser.add_argument("--weights", default="float32", help="of our weights: float32 or bfloat16")
    parser.add_argument("--ours-only", action="store_true", help="steps without TRL")
    parser.add_argument("--trl-micro-batch", type=int, default=8, help="completions in a forward of TRL's")
    parser.add_argument("--live", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--llama-cpp", metavar="FILE", help="a GGUF file of the same model")
    parser.add_argument("--vllm", metavar="URL", help="a server of the same model")
    parser.add_argument("--vllm-model", metavar="NAME", help="its name there")
    options = parser.parse_args()
    quiet_transformers()
    print(describe())
    path = str(locate(options.model).weights)
    for name, part in (("step", step), ("sample", sample), ("examples", examples), ("begun", begun)):
        if options.part in (name, "all"):
            part(path, options)


if __name__ == "__main__":
    main()

"""Sampling with calculator calls against sampling without, on the same text.

    python lab/benchmarks/tools.py --rows 64 --tokens 96 --repeats 5

Every completion writes the same script, a call of the calculator every few tokens: in one arm the results are drawn
like the rest, in the other the calculator puts them in. So both arms decode the same tokens in the same batches, and
what differs is the work of looking for calls, running them and putting results in. Runs of both arms alternate, and
time is processor time, so that other programs on the machine count little; the ratio is that of each pair, with
Student's 95 % interval.
"""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from groupwise.algorithms.statistics import mean_over_seeds
from groupwise.models.config import ModelConfig
from groupwise.models.policy import Policy, load_policy
from groupwise.randomness import key
from groupwise.rollout import in_process
from groupwise.rollout.engine import Request
from groupwise.rollout.sampling import Drawn, SamplingConfig, draw
from groupwise.rollout.tools.calculator import CalculatorConfig

SCRIPT = "Then <<45×77=3465>> and so on. "


@contextmanager
def scripted(policy: Policy, text: str) -> Iterator[None]:
    """Tokens are drawn as always, and then replaced by those of the script."""
    ids = torch.tensor(policy.tokenizer(text, add_special_tokens=False)["input_ids"])
    at = 0

    def drawn(logits: torch.Tensor, uniforms: torch.Tensor, config: SamplingConfig) -> Drawn:
        nonlocal at
        result, at = draw(logits, uniforms, config), at + 1
        return result._replace(tokens=ids[(at - 1) % len(ids)].expand_as(result.tokens))

    in_process.draw = drawn  # type: ignore[assignment]
    try:
        yield
    finally:
        in_process.draw = draw


def run(policy: Policy, rows: int, tokens: int, with_tool: bool) -> tuple[float, int, int]:
    """(seconds of processor time, tokens in completions, calls) of one `generate`."""
    ids = policy.tokenizer("What is 45 × 77?")["input_ids"]
    put_in, script = (len(policy.tokenizer(text)["input_ids"]) for text in ("3465>>", SCRIPT))
    num_calls = tokens // script
    tools = {"calculator": CalculatorConfig(max_calls=num_calls)} if with_tool else {}
    sampled = tokens - (put_in * num_calls if with_tool else 0)
    config = SamplingConfig(max_tokens=sampled).model_copy(update={"tools": tools})
    request = Request(tuple(ids), tuple(key("benchmark", row) for row in range(rows)))
    with scripted(policy, SCRIPT):
        began = time.process_time()
        [completions] = in_process.generate(policy, [request], config)
        seconds = time.process_time() - began
    return seconds, sum(len(one.token_ids) for one in completions), sum(len(one.calls) for one in completions)


def main(arguments: list[str] | None = None) -> None:
    """Print tokens per second of processor time of both arms and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="base")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args(arguments)
    policy = load_policy(ModelConfig(path=options.model))
    tokens = options.tokens - options.tokens % len(policy.tokenizer(SCRIPT)["input_ids"])
    rates: dict[bool, list[float]] = {False: [], True: []}
    for repeat in range(options.repeats + 1):
        for with_tool in (False, True):
            seconds, count, calls = run(policy, options.rows, tokens, with_tool)
            if repeat:  # the first of each warms up
                rates[with_tool].append(count / seconds)
            print(f"{'calculator' if with_tool else 'plain':10} {count} tokens, {calls} calls, {seconds:.3f} s")
    pairs = zip(rates[False], rates[True], strict=True)
    ratio = mean_over_seeds([tool / plain for plain, tool in pairs])
    print(f"with calls {ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}] of plain, over {options.repeats} pairs")


if __name__ == "__main__":
    main()

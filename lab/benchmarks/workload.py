"""The work that both sides of the step benchmark do: shapes, prompts, completion lengths, rewards, the starting model.

A random model would end its completions at random, so lengths are planned: both sides draw from the model's own
distribution, but the stop token comes exactly at the planned length. Rewards are a function of the places of prompt and
completion. So both sides decode, judge and train the same numbers of tokens in every step.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from groupwise.models.new_model import byte_tokenizer

LETTERS = np.array(list("abcdefghijklmnopqrstuvwxyz"))


@dataclass(frozen=True)
class Shape:
    """A model and a batch."""

    name: str
    width: int
    layers: int
    intermediate: int
    heads: int
    kv_heads: int
    num_prompts: int
    prompt_tokens: int
    max_tokens: int
    """Longest completion; lengths are uniform between 0.4 of it and all of it, so their mean is 0.7 of it."""
    vocabulary: int = 0
    """0: that of the byte tokenizer."""
    group_size: int = 16
    silent_every: int = 0
    """Every how many groups one earns equal rewards and so has no signal. 0: none."""
    repeats: int = 5
    """Measured steps."""
    tuning_prompts: int = 16
    """Prompts per step where TRL's micro-batches are compared."""

    @property
    def rows(self) -> int:
        """Completions per step."""
        return self.num_prompts * self.group_size


_SMALL = {"width": 192, "layers": 4, "intermediate": 576, "heads": 4, "kv_heads": 2}
_LARGE = {"width": 512, "layers": 8, "intermediate": 1536, "heads": 8, "kv_heads": 4, "vocabulary": 32000}
_LONG: dict[str, Any] = {"repeats": 1, "tuning_prompts": 1}
_TINY = {"width": 32, "layers": 2, "intermediate": 64, "heads": 2, "kv_heads": 1}

SHAPES: dict[str, Shape] = {
    "a": Shape("a", **_SMALL, num_prompts=16, prompt_tokens=16, max_tokens=64),
    "b": Shape("b", **_SMALL, num_prompts=8, prompt_tokens=256, max_tokens=64, repeats=3),
    "c": Shape("c", **_SMALL, num_prompts=16, prompt_tokens=16, max_tokens=64, silent_every=2),
    "d": Shape("d", **_LARGE, num_prompts=8, prompt_tokens=256, max_tokens=32, repeats=1, tuning_prompts=2),
    "e": Shape(
        "e", **_SMALL, num_prompts=4, prompt_tokens=16, max_tokens=2048, group_size=8, repeats=1, tuning_prompts=1
    ),
    "f": Shape(
        "f", **_SMALL, num_prompts=1, prompt_tokens=16, max_tokens=8192, group_size=8, repeats=1, tuning_prompts=1
    ),
    "g": Shape(
        "g", **_LARGE, num_prompts=2, prompt_tokens=16, max_tokens=1024, group_size=8, repeats=1, tuning_prompts=1
    ),
    "tiny": Shape(
        "tiny", **_TINY, num_prompts=2, prompt_tokens=8, max_tokens=8, group_size=4, silent_every=2, repeats=2
    ),
}
"""By name; `tiny` only tries the benchmark out."""


@dataclass(frozen=True)
class StepPlan:
    """The work of one step; arrays are (prompts, completions)."""

    prompts: tuple[str, ...]
    lengths: NDArray[np.int64]
    rewards: NDArray[np.float64]


@dataclass(frozen=True)
class Workload:
    """A shape with everything that follows from it."""

    shape: Shape
    seed: int = 0

    def with_prompts(self, num_prompts: int) -> "Workload":
        """The same with at most this many prompts per step."""
        return Workload(replace(self.shape, num_prompts=min(self.shape.num_prompts, num_prompts)), self.seed)

    @cached_property
    def tokenizer(self) -> Any:
        """One token per byte."""
        return byte_tokenizer()

    def model(self, attention: str) -> PreTrainedModel:
        """The starting model; always the same weights."""
        shape = self.shape
        config = AutoConfig.for_model(
            "qwen3",
            vocab_size=shape.vocabulary or len(self.tokenizer),
            hidden_size=shape.width,
            num_hidden_layers=shape.layers,
            intermediate_size=shape.intermediate,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.kv_heads,
            head_dim=shape.width // shape.heads,
            max_position_embeddings=max(1024, shape.prompt_tokens + shape.max_tokens),
            tie_word_embeddings=True,
            eos_token_id=self.tokenizer.eos_token_id,
            pad_token_id=self.tokenizer.pad_token_id,
            bos_token_id=None,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=attention)

    def plan(self, step: int) -> StepPlan:
        """Return the work of a step; steps differ in prompts and lengths."""
        shape, random = self.shape, np.random.default_rng((self.seed, step))
        letters = LETTERS[random.integers(len(LETTERS), size=(shape.num_prompts, shape.prompt_tokens))]
        prompt, sample = np.indices((shape.num_prompts, shape.group_size))
        silent = (prompt + 1) % shape.silent_every == 0 if shape.silent_every else np.zeros_like(prompt, bool)
        low = round(0.4 * shape.max_tokens)
        return StepPlan(
            prompts=tuple("".join(row) for row in letters),
            lengths=random.integers(low, shape.max_tokens + 1, size=prompt.shape),
            rewards=np.where(~silent & ((prompt + sample) % 3 == 0), 1.0, 0.0),
        )


@dataclass(frozen=True)
class Parameters:
    """Numbers of parameters: `body` are the layers, `head` the one matrix that embeds and predicts (tied)."""

    body: int
    head: int

    @property
    def total(self) -> int:
        return self.body + self.head


def count_parameters(model: PreTrainedModel) -> Parameters:
    """Count once each, the tied matrix as the head."""
    head = model.get_output_embeddings().weight.numel()
    return Parameters(sum(parameter.numel() for parameter in model.parameters()) - head, head)


def necessary_work(plan: StepPlan, parameters: Parameters) -> float:
    """Floating point operations that a step cannot do without, as products with weights.

    2N per decoded token; 6N per trained token, in groups with signal only; each prompt once per group, 2N for prefill
    and, with signal, 6N for training. N is all parameters with the tied embedding counted once, as the head; looking
    an embedding up costs nothing, and no head is needed within a prompt, so there N is the layers alone. Products of
    attention (queries with keys, weights with values) and the optimizer are not counted. A completion's last token
    counts in full, although it is predicted but never read.
    """
    has_signal = plan.rewards.min(1) < plan.rewards.max(1)
    prompt_tokens = np.array([len(prompt) for prompt in plan.prompts])
    decoded, trained = plan.lengths.sum(), plan.lengths[has_signal].sum()
    prefilled, trained_prompt = prompt_tokens.sum(), prompt_tokens[has_signal].sum()
    return float(
        (2 * decoded + 6 * trained) * parameters.total + (2 * prefilled + 6 * trained_prompt) * parameters.body
    )

"""A policy: a transformers causal language model, its tokenizer, and the packed forward that all stages share."""

import logging
import timeit
import warnings
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from groupwise.algorithms.logprobs import TokenLogprobs, token_logprobs
from groupwise.artifacts import SHIPPED, ModelRef
from groupwise.config import Section
from groupwise.errors import ModelError, UnsupportedModelError
from groupwise.models import attention
from groupwise.models.backbone import Backbone
from groupwise.models.packed import Pack, Sequences, pack

SLOW = 1.5
"""A processor that takes so many times as long for a product in bf16 as in fp32 has no instructions for it."""


class ModelConfig(Section):
    """Which model, and how it computes."""

    path: ModelRef = SHIPPED
    """`base` for the model shipped with the package, a local Hugging Face directory, or a hub name."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto` takes a GPU when there is one."""
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the matrix products, in sampling and in training alike. Weights and log-probabilities stay fp32.
    `bfloat16` is for GPUs and for processors with instructions for it; where it is slower, a warning says so."""
    num_threads: int = Field(0, ge=0)
    """CPU threads; 0 leaves the number to torch. Sums may round differently with another number."""


@dataclass(frozen=True, slots=True)
class Policy(Backbone):
    """A model ready to sample from and to train."""

    @property
    def head(self) -> tuple[Tensor, Tensor | None]:
        """Weight (V, d) and bias (V,) of the output layer."""
        layer = self.model.get_output_embeddings()
        return layer.weight, getattr(layer, "bias", None)

    def completion_states(self, packed: Pack) -> Tensor:
        """(M, d) hidden states that predict the completion tokens of a pack, with gradient."""
        with self.precision():
            return self.hidden_at(packed, packed.head_positions)

    def logprobs_of(self, states: Tensor, targets: Tensor, temperature: float = 1.0) -> TokenLogprobs:
        """Log-probability and entropy of the targets (M,) that the states predict."""
        weight, bias = self.head
        dtype = self.compute_dtype
        head = (weight.to(dtype), None if bias is None else bias.to(dtype))
        return token_logprobs(states.to(dtype), *head, targets, temperature)

    def token_logprobs(self, packed: Pack, temperature: float = 1.0) -> TokenLogprobs:
        """Log-probability and entropy of every completion token of a pack, with gradient."""
        return self.logprobs_of(self.completion_states(packed), packed.targets, temperature)


def shipped_path() -> Path:
    """Directory of the base model inside the package."""
    return Path(str(resources.files("groupwise") / "base_model"))


def resolve(path: str) -> str:
    """The directory or hub name that a model path means."""
    return str(shipped_path()) if path == SHIPPED else path


def load_policy(config: ModelConfig) -> Policy:
    """Load a model directory or hub name.

    Raises:
        ModelError: it is missing, damaged or without an end token.
        UnsupportedModelError: it computes attention in a way we do not.
    """
    model, tokenizer, lost = read_pretrained(AutoModelForCausalLM, config)
    if lost:
        raise damaged(config.path, lost)
    if "ForSequenceClassification" in str(model.config.architectures):
        raise ModelError(f"{config.path!r} is a reward model or another classifier; a language model is needed")
    return make_policy(model, tokenizer, config)


def read_pretrained(kind: Any, config: ModelConfig, **options: Any) -> tuple[PreTrainedModel, Any, list[str]]:
    """Read a directory or hub name as this kind of model: the model, its tokenizer, the weights that are not there.

    Raises:
        ModelError: it is missing or cannot be read.
    """
    path = resolve(config.path)
    try:
        model, report = kind.from_pretrained(
            path, dtype=torch.float32, attn_implementation=attention.NAME, output_loading_info=True, **options
        )
        tokenizer = AutoTokenizer.from_pretrained(path)
    except Exception as error:
        raise ModelError(f"the model {config.path!r} cannot be loaded: {_why(path, error)}") from error
    return model, tokenizer, sorted([*report["missing_keys"], *(str(key) for key in report["mismatched_keys"])])


def damaged(path: str, lost: list[str]) -> ModelError:
    """What is said of a model without all of its weights."""
    return ModelError(f"the model {path!r} is damaged: weights {lost[:3]} are missing or of another shape")


def _why(path: str, error: Exception) -> str:
    if not Path(path).exists():
        return f"there is no such directory, and no hub answers for it ({type(error).__name__})"
    if not (Path(path) / "config.json").exists():
        return f"{path} has no config.json, so it is not a Hugging Face model directory"
    return str(error).split("\n")[0]


def make_policy(model: PreTrainedModel, tokenizer: Any, config: ModelConfig | None = None) -> Policy:
    """Check a model and its tokenizer, and move them to their device."""
    config = config or ModelConfig()
    to_device(model, config)
    policy = Policy(model, tokenizer, _stop_ids(model, tokenizer), getattr(torch, config.compute_dtype))
    _check_forward(policy)
    return policy


def to_device(model: PreTrainedModel, config: ModelConfig) -> None:
    """Refuse what the packed forward cannot compute, and move the model to its device."""
    if config.num_threads:
        torch.set_num_threads(config.num_threads)
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ModelError("model.device = cuda, but torch finds no CUDA device here; allowed are auto and cpu")
    device = config.device if config.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and config.compute_dtype == "bfloat16":
        _warn_if_slow(bfloat16_cost())
    _refuse_unsupported(model)
    model.set_attn_implementation(attention.NAME)
    model.to(device)  # type: ignore[arg-type]
    model.eval()


def _warn_if_slow(times: float) -> None:
    if times > SLOW:
        warnings.warn(
            f"compute_dtype = bfloat16: on this processor a matrix product takes {times:.1f} times as long as in "
            "float32; model.compute_dtype = float32 is faster here",
            stacklevel=2,
        )


@cache
def bfloat16_cost() -> float:
    """How many times as long as in fp32 a matrix product takes in bf16 on this processor; the best of three of each."""
    seconds = []
    for dtype in (torch.float32, torch.bfloat16):
        matrix = torch.ones(256, 256, dtype=dtype)
        seconds.append(min(timeit.repeat(partial(torch.mm, matrix, matrix), repeat=3, number=1)))
    return seconds[1] / seconds[0]


def _stop_ids(model: PreTrainedModel, tokenizer: Any) -> frozenset[int]:
    ids = getattr(model.generation_config, "eos_token_id", None) or model.config.get_text_config().eos_token_id
    found = {*(ids if isinstance(ids, list) else [ids]), tokenizer.eos_token_id} - {None}
    if tokenizer.eos_token_id is None:
        raise ModelError("the tokenizer has no end-of-sequence token (eos_token): completions could never stop")
    vocabulary = model.get_output_embeddings().weight.shape[0]
    if outside := [int(token) for token in found if not 0 <= token < vocabulary]:
        raise ModelError(f"end-of-sequence ids {outside} are outside the model's vocabulary of {vocabulary}")
    return frozenset(int(token) for token in found)


def _refuse_unsupported(model: PreTrainedModel) -> None:
    """Refuse by name, from the configuration, what the packed forward would compute wrongly."""
    config = model.config.get_text_config()
    name = type(model).__name__
    if sliding := sorted(set(getattr(config, "layer_types", None) or []) - {"full_attention"}):
        raise UnsupportedModelError(f"{name} has layers of type {', '.join(sliding)}; only full_attention is supported")
    uses_window = getattr(config, "use_sliding_window", True) and getattr(config, "sliding_window", None) is not None
    if uses_window:
        raise UnsupportedModelError(
            f"{name} uses sliding-window attention (window {config.sliding_window}): not supported"
        )
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        if getattr(config, key, None) is not None:
            raise UnsupportedModelError(f"{name} soft-caps its logits ({key}={getattr(config, key)}): not supported")
    if not getattr(model, "_supports_attention_backend", False):
        raise UnsupportedModelError(f"{name} does not dispatch through transformers' attention interface")


@torch.no_grad()
def _check_forward(policy: Policy) -> None:
    """Compare with transformers' own eager forward, each sequence alone, so that nothing is computed wrongly."""
    model = policy.model
    vocabulary = model.get_output_embeddings().weight.shape[0]
    drawn = [[(7 * i + 3 * k + 1) % vocabulary for i in range(length)] for k, length in enumerate((4, 4, 2, 2, 3, 4))]
    groups = [Sequences(drawn[0], drawn[1:3]), Sequences(drawn[3], drawn[4:])]  # all of unequal lengths
    packed = pack(groups, policy.device)
    with policy.precision():
        ours = model.get_output_embeddings()(policy.completion_states(packed))
        model.set_attn_implementation("eager")
        theirs = torch.cat([_eager_logits(policy, group) for group in groups])
        model.set_attn_implementation(attention.NAME)
    difference = (ours.float() - theirs).abs().max().item()
    allowed = (1e-3 if policy.compute_dtype is torch.float32 else 0.25) * max(1.0, theirs.abs().max().item())
    if not difference <= allowed:
        raise UnsupportedModelError(
            f"{type(model).__name__}: the packed forward differs from transformers' eager forward by {difference:.2g} "
            f"(allowed {allowed:.2g}), so this architecture is not supported"
        )


def _eager_logits(policy: Policy, group: Sequences) -> Tensor:
    """(M, V) logits in fp32 that predict the group's M completion tokens, each completion computed alone."""
    rows = [torch.tensor([[*group.prompt, *completion]], device=policy.device) for completion in group.completions]
    logits = [policy.model(row, use_cache=False).logits[0, len(group.prompt) - 1 : -1] for row in rows]
    return torch.cat(logits).float()


class NewModel(Section):
    """A model with random weights."""

    architecture: Literal["qwen2", "qwen3", "llama", "mistral"] = "qwen3"
    """Architecture name of transformers."""
    hidden_size: int = Field(192, ge=2)
    """Width d of the residual stream."""
    num_hidden_layers: int = Field(4, ge=1)
    """Number of blocks."""
    num_attention_heads: int = Field(4, ge=1)
    """Query heads."""
    num_key_value_heads: int = Field(2, ge=1)
    """Key and value heads; fewer than query heads is grouped-query attention."""
    intermediate_size: int = Field(512, ge=1)
    """Width of the gated MLP."""
    context_length: int = Field(1024, ge=1)
    """Most positions."""
    tie_word_embeddings: bool = True
    """Use one matrix for the embedding and the head."""
    seed: int = 0
    """Seed of the initial weights."""

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.hidden_size % (2 * self.num_attention_heads):
            raise ValueError(
                f"hidden_size = {self.hidden_size} must be a multiple of 2 × num_attention_heads = "
                f"{2 * self.num_attention_heads}: each head has an even width for its rotary positions"
            )
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads = {self.num_attention_heads} must be a multiple of num_key_value_heads = "
                f"{self.num_key_value_heads}"
            )
        return self


def new_policy(config: NewModel, tokenizer: Any, model_config: ModelConfig | None = None) -> Policy:
    """A policy with random weights for this tokenizer."""
    architecture = AutoConfig.for_model(
        config.architecture,
        vocab_size=len(tokenizer),
        hidden_size=config.hidden_size,
        num_hidden_layers=config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads,
        num_key_value_heads=config.num_key_value_heads,
        head_dim=config.hidden_size // config.num_attention_heads,
        intermediate_size=config.intermediate_size,
        max_position_embeddings=config.context_length,
        tie_word_embeddings=config.tie_word_embeddings,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        sliding_window=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return make_policy(AutoModelForCausalLM.from_config(architecture, dtype=torch.float32), tokenizer, model_config)


def quiet_transformers() -> None:
    """Keep transformers' progress bars and notices out of our display; errors still raise."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    logging.getLogger("transformers").setLevel(logging.ERROR)

"""Memory that a recipe will need, part by part, from the model's configuration alone: no weight is loaded.

The peak is the larger of two phases: sampling holds weights, optimizer moments, keys and values; training holds
weights, moments, gradients, activations of one micro-batch and a chunk of logits. Summed gradients are fp32, and so are
moments of all optimizers but that of 8 bits. With adapters (fp32, counted on every linear layer), reference and critic
share the policy's frozen weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from groupwise.algorithms.logprobs import GRADIENTS, MAX_LOGITS
from groupwise.errors import ConfigError
from groupwise.models.activations import FP32, activation_bytes, are_dropped, available_memory, layer_bytes
from groupwise.models.cores import WAITING
from groupwise.models.loading import compute_dtype, device_of
from groupwise.models.packed import micro_batch_tokens
from groupwise.models.rounded import num_twice
from groupwise.models.rows import refuse_bfloat16
from groupwise.models.size import ModelSize, adapter_weights, language_model_size, reward_model_size
from groupwise.ranks.group import refuse_offload
from groupwise.rollout.vllm.config import VllmConfig
from groupwise.trainers import trainer_of
from groupwise.trainers.grpo import GrpoRecipe
from groupwise.trainers.rl_recipe import RlRecipe
from groupwise.training.gradient import num_micro_batches_at_once

HEAD_COPIES = 3 + GRADIENTS  # chunks of logits alive in the backward: three of one chunk, and the slopes of several
HELD = 0.35
"""Share of the activations that an allocator on a processor holds beside them, in pieces between them that fit nothing:
0.15 to 0.75 was measured. Checkpointed layers give it back as they go."""
LARGEST_HELD = 1 << 25
"""Bytes of the largest block that the C library takes from memory that it holds; larger ones come from the system, and
go back to it at once (M_MMAP_THRESHOLD of glibc, as far as it moves by itself)."""
CONVERTED = "weights as products take them"
MIB = 2**20


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Predicted bytes by part."""

    weights: Mapping[str, int]  # always held: policy, optimizer, reference, reward models, critic and its optimizer
    sampling: Mapping[str, int]
    training: Mapping[str, int]
    checkpointing: bool  # True if layers are recomputed in the backward of the largest micro-batch
    offloaded: Mapping[str, int] = field(default_factory=dict)
    """Bytes in the processor's memory, where the rest is on a card."""

    @property
    def peak(self) -> int:
        return sum(self.weights.values()) + max(sum(phase.values()) for phase in (self.sampling, self.training))


def plan(recipe: RlRecipe, prompt_tokens: int = 64) -> MemoryPlan:
    """Return the memory of a recipe's step, for prompts of this many tokens. Raises ModelError."""
    size = language_model_size(recipe.model.path)
    count, text = size.total, size.config.get_text_config()
    of_weight = torch.finfo(getattr(torch, recipe.model.weights_dtype)).bits // 8
    adapters = adapter_weights(recipe.model.path, recipe.lora) if recipe.lora else None
    learnt, learnt_beside = (adapters, adapters) if adapters is not None else (size.total, size.body)
    weights = {"policy": of_weight * count}
    if recipe.lora:
        weights["adapters"] = FP32 * learnt
    in_layers = learnt if recipe.lora else learnt - size.outside
    weights["optimizer"] = _moments(recipe.optimizer.kind, learnt, in_layers)
    rounded = of_weight != FP32 and not recipe.lora  # adapters stay fp32, and what is never trained has no master
    if rounded:
        weights["masters"] = FP32 * count
    training = {"gradients": FP32 * learnt}
    if recipe.loss.kl_coef > 0 and not recipe.lora:  # else it is the policy without its adapters
        weights["reference"] = of_weight * count
    beside = trainer_of(recipe).trained_beside(recipe)
    for name in beside:
        copy = FP32 * learnt_beside if recipe.lora else of_weight * count
        weights |= {name: copy, f"{name}'s optimizer": _moments(recipe.optimizer.kind, learnt_beside, in_layers)}
        if rounded:
            weights[f"{name}'s masters"] = FP32 * size.body
        training[f"{name}'s gradients"] = FP32 * learnt_beside
    for name, part in recipe.reward_models.items():
        weights[f"reward model {name}"] = of_weight * reward_model_size(part.path)
    if isinstance(recipe, GrpoRecipe) and recipe.step_rewards.path:
        judge = recipe.step_rewards  # an implicit one has a reference, too
        judges = [judge.path, judge.reference]
        step_rewards = (
            sum(language_model_size(path).total for path in judges)
            if judge.reference
            else reward_model_size(judge.path)
        )
        weights["process reward model"] = of_weight * step_rewards
    width = torch.finfo(getattr(torch, compute_dtype(recipe.model, size.total))).bits // 8
    device = torch.device(device_of(recipe.model))
    longest = prompt_tokens + recipe.sampling.max_tokens  # one that is larger than a micro-batch stands alone
    of_step = recipe.batch.prompts_per_step * (prompt_tokens + recipe.batch.group_size * recipe.sampling.max_tokens)
    tokens = min(max(micro_batch_tokens(recipe.loss.tokens_per_micro_batch, device), longest), of_step)
    num_weights = learnt + len(beside) * learnt_beside
    num_threads = recipe.model.num_threads or torch.get_num_threads()
    at_most = num_threads if of_step > tokens else 1  # all in one micro-batch has nothing beside it
    at_once = num_micro_batches_at_once(num_weights, at_most, device, num_threads)
    if at_once > 1:
        training["micro-batches' own gradients"] = (at_once + WAITING) * (of_weight if rounded else FP32) * num_weights
    available = available_memory(device) - sum(weights.values()) - sum(training.values())
    adapted = recipe.lora is not None
    kept = at_once * activation_bytes(text, width, tokens, checkpointed=False, adapted=adapted)
    checkpointing = are_dropped(recipe.model.activation_checkpointing, kept, available)
    each = activation_bytes(text, width, tokens, checkpointed=checkpointing, adapted=adapted)
    activations = each * (1 + len(beside)) * at_once
    head_rows = min(max(1, MAX_LOGITS[device.type] // int(text.vocab_size)), tokens)  # whose logits exist at one time
    training |= {
        "activations": activations,
        "their gradients": layer_bytes(text, width, tokens, adapted=adapted) * at_once // 2,  # of one layer at a time
        "head": HEAD_COPIES * FP32 * text.vocab_size * head_rows * at_once,
    }
    embedding = int(text.vocab_size) * int(text.hidden_size)
    matrices = count if text.tie_word_embeddings else count - embedding
    narrow = {CONVERTED: width * matrices} if width < FP32 else {}
    converted = narrow if width < of_weight else {}
    ordered = converted or (narrow if num_twice(width * matrices, device) else {})
    if not recipe.lora:
        training |= {"gradient of the largest weight": FP32 * embedding, **converted}
    by_servers = isinstance(recipe.engine, VllmConfig)
    live = min(recipe.sampling.max_live_completions, recipe.batch.prompts_per_step * recipe.batch.group_size)
    positions = recipe.batch.prompts_per_step * prompt_tokens + live * recipe.sampling.max_tokens  # each prompt once
    sampling = {} if by_servers else {"keys and values": int(size.cached(width) * positions), **ordered}
    if isinstance(recipe.engine, VllmConfig):
        if servers := recipe.engine.launch:
            of_theirs = torch.finfo(getattr(torch, recipe.engine.dtype)).bits // 8
            head = int(text.vocab_size) * int(text.hidden_size) if text.tie_word_embeddings else 0
            weights["servers' weights"] = servers * of_theirs * (size.total + head)
            weights["servers' keys and values"] = int(servers * recipe.engine.kv_cache_gib * 2**30)
        sampling |= {REHEARSAL: of_weight * count} if recipe.engine.rehearse else {}
    if device.type == "cpu" and not checkpointing:
        cache = sampling.get("keys and values", 0)  # every layer has a block of keys and one of values
        held = cache if cache <= 2 * text.num_hidden_layers * LARGEST_HELD else 0
        training["freed, but held"] = int(HELD * activations) + held
    return MemoryPlan(weights, sampling, training, checkpointing)


def _moments(kind: str, learnt: int, in_layers: int) -> int:
    """Bytes of an optimizer's running numbers: two a weight, of fp32 or, with scales, of 8 bits; Muon's one."""
    if kind == "adamw_8bit":
        return 2 * learnt + 2 * FP32 * learnt // 256
    return FP32 * (2 * learnt - in_layers if kind == "muon" else 2 * learnt)


REHEARSAL = "policy's bits, while servers rehearse"

WHOLE = ("reward model ", "process reward model", "servers' ")  # beginnings of the names of parts that no rank shares
OF_ACTIVATIONS = "their gradients"
GATHERED = "gathered weights"  # while a rank samples or publishes; and, fewer, while it trains


def plan_of_rank(recipe: RlRecipe, prompt_tokens: int = 64, ranks: int = 1) -> MemoryPlan:
    """The memory of the first of some ranks, which has the largest share; of the only process where there is one."""
    refuse_offload(recipe.ranks, ranks)
    if ranks == 1:
        return plan(recipe, prompt_tokens)
    refuse_bfloat16(recipe.model.weights_dtype == "bfloat16")
    if ranks > recipe.batch.prompts_per_step:
        raise ConfigError(
            f"{ranks} ranks are more than {recipe.algorithm}.prompts_per_step = {recipe.batch.prompts_per_step}: every "
            "rank samples at least one problem of a step"
        )
    shares = recipe.ranks.partial_sums or ranks
    alone = plan(_share_of(recipe, prompt_tokens, shares), prompt_tokens)
    size = language_model_size(recipe.model.path)
    whole = {name: part for name, part in alone.weights.items() if name.startswith(WHOLE)}
    weights = {name: _rows(size, ranks, part) for name, part in alone.weights.items() if name not in whole}
    gradients = {name for name in alone.training if name.endswith("gradients") and name != OF_ACTIVATIONS}
    largest = FP32 * max(size.outside, size.layer)
    if recipe.lora:  # every layer has as many adapters
        largest = alone.training["gradients"] // size.num_layers
    training = {
        name: _rows(size, ranks, part) if name in gradients else part for name, part in alone.training.items()
    } | {GATHERED: FP32 * (size.outside + 2 * size.layer), "gradients on their way": 2 * largest}
    if shares > ranks:
        training["gradients not yet added up"] = alone.training["gradients"]
    shared = {name: _rows(size, ranks, part) if name == REHEARSAL else part for name, part in alone.sampling.items()}
    sampling = {GATHERED: FP32 * size.total, **shared}  # to sample here, or for the servers
    planned = replace(alone, weights=weights | whole, sampling=sampling, training=training)
    if not recipe.ranks.offload or device_of(recipe.model) == "cpu":
        return planned
    for_servers = {GATHERED, REHEARSAL} if isinstance(recipe.engine, VllmConfig) else set()
    names = (set(weights), for_servers, gradients)  # of what stays, of sampling, of training
    phases = list(zip((planned.weights, planned.sampling, planned.training), names, strict=True))
    weights, sampling, training = (
        {n: part for n, part in phase.items() if n not in offloaded} for phase, offloaded in phases
    )
    moved = {name: part for phase, offloaded in phases for name, part in phase.items() if name in offloaded}
    return replace(planned, weights=weights, sampling=sampling, training=training, offloaded=moved)


def _share_of(recipe: RlRecipe, prompt_tokens: int, shares: int) -> RlRecipe:
    """The recipe of which one process would sample a share, and train micro-batches of a rank's size."""
    batch, tokens = recipe.batch, recipe.sampling.max_tokens
    share = batch.model_copy(update={"prompts_per_step": -(-batch.prompts_per_step // shares)})
    of_step = batch.prompts_per_step * (prompt_tokens + batch.group_size * tokens)
    device = torch.device(device_of(recipe.model))
    budget = min(micro_batch_tokens(recipe.loss.tokens_per_micro_batch, device), -(-of_step // shares))
    section = next(name for name in type(recipe).model_fields if getattr(recipe, name) is batch)
    changed: dict[str, Any] = {
        section: share,
        "loss": recipe.loss.model_copy(update={"tokens_per_micro_batch": budget}),
        "model": recipe.model.model_copy(update={"num_threads": 1}),
    }
    return recipe.model_copy(update=changed)


def _rows(size: ModelSize, ranks: int, part: int) -> int:
    """A rank's share of something that is as large as some copies of the model."""
    return round(part * size.rows(ranks) / size.total)

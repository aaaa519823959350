"""How much memory one of several ranks will need (`ranks.sharding`), from the model's configuration alone.

What stays are a rank's rows of every weight, moment and gradient. On top of that:

    sampling   all weights, gathered once
    training   weights that stand in no layer, gathered until the backward has used them, and those of two layers: the
               one that computes, and the next
               two copies of the gradient of the largest group while it is added up: what goes to the others, and what
               came from them
               the whole gradient, where a rank computes several micro-batches before the ranks add up theirs

With `ranks.offload` the rows lie in the processor's memory, and so does what is gathered for servers; what is gathered
to compute with is on the card. Where ranks compute on processors, that is one memory and all stays where it is.

A rank samples its share of the problems, and its micro-batches hold no more than its portion of a step's tokens.
Models that pay a part of the reward are whole on every rank.
"""

from dataclasses import replace
from typing import Any

import torch

from groupwise.checks.memory import REHEARSAL, MemoryPlan, plan
from groupwise.errors import ConfigError
from groupwise.models.activations import FP32
from groupwise.models.loading import device_of
from groupwise.models.packed import micro_batch_tokens
from groupwise.models.rows import refuse_bfloat16
from groupwise.models.size import ModelSize, language_model_size
from groupwise.ranks.group import refuse_offload
from groupwise.rollout.vllm.config import VllmConfig
from groupwise.trainers.rl_recipe import RlRecipe

WHOLE = ("reward model ", "process reward model", "servers' ")
"""Beginnings of the names of parts that no rank shares."""
OF_ACTIVATIONS = "their gradients"
GATHERED = "gathered weights"
"""While a rank samples or publishes; and, fewer, while it trains."""


def plan_of_rank(recipe: RlRecipe, prompt_tokens: int = 64, ranks: int = 1) -> MemoryPlan:
    """The memory of the first of some ranks, which has the largest share; of the only process where there is one.

    Raises:
        ModelError: the model's configuration cannot be read.
        ConfigError: ranks, or their number, do not go with the recipe.
    """
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
    training = {
        name: _rows(size, ranks, part) if name in gradients else part for name, part in alone.training.items()
    } | {
        GATHERED: FP32 * (size.outside + 2 * size.layer),
        "gradients on their way": 2 * _largest_gradient(recipe, size, alone.training["gradients"]),
    }
    if shares > ranks:
        training["gradients not yet added up"] = alone.training["gradients"]
    own = {name: _rows(size, ranks, part) if name == REHEARSAL else part for name, part in alone.sampling.items()}
    sampling = {GATHERED: FP32 * size.total, **own}  # to sample here, or for the servers
    found = replace(alone, weights=weights | whole, sampling=sampling, training=training)
    if not recipe.ranks.offload or device_of(recipe.model) == "cpu":
        return found
    for_servers = {GATHERED, REHEARSAL} if isinstance(recipe.engine, VllmConfig) else set()
    return _offloaded(found, (set(weights), for_servers, gradients))


def _offloaded(found: MemoryPlan, names: tuple[set[str], set[str], set[str]]) -> MemoryPlan:
    """The same with parts of these names in the processor's memory: of what stays, of sampling, of training."""
    phases = list(zip((found.weights, found.sampling, found.training), names, strict=True))
    weights, sampling, training = ({n: part for n, part in phase.items() if n not in own} for phase, own in phases)
    moved = {name: part for phase, own in phases for name, part in phase.items() if name in own}
    return replace(found, weights=weights, sampling=sampling, training=training, offloaded=moved)


def _share_of(recipe: RlRecipe, prompt_tokens: int, shares: int) -> RlRecipe:
    """The recipe of which one process would sample a share, and train micro-batches of a rank's size."""
    batch, tokens = recipe.batch, recipe.sampling.max_tokens
    own = batch.model_copy(update={"prompts_per_step": -(-batch.prompts_per_step // shares)})
    of_step = batch.prompts_per_step * (prompt_tokens + batch.group_size * tokens)
    device = torch.device(device_of(recipe.model))
    budget = min(micro_batch_tokens(recipe.loss.tokens_per_micro_batch, device), -(-of_step // shares))
    section = next(name for name in type(recipe).model_fields if getattr(recipe, name) is batch)
    changed: dict[str, Any] = {
        section: own,
        "loss": recipe.loss.model_copy(update={"tokens_per_micro_batch": budget}),
        "model": recipe.model.model_copy(update={"num_threads": 1}),
    }
    return recipe.model_copy(update=changed)


def _largest_gradient(recipe: RlRecipe, size: ModelSize, whole: int) -> int:
    """Bytes of the largest gradient that is added up at one time; of adapters, every layer has as many."""
    return whole // size.num_layers if recipe.lora else FP32 * max(size.outside, size.layer)


def _rows(size: ModelSize, ranks: int, part: int) -> int:
    """A rank's share of something that is as large as some copies of the model."""
    return round(part * size.rows(ranks) / size.total)

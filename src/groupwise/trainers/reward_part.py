"""A reward model's score as a part of the reward: beside the verifier, or in place of it with `correct_reward = 0`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field

from groupwise.config import Section
from groupwise.errors import ModelError
from groupwise.models.packed import Sequences
from groupwise.models.policy import ModelConfig
from groupwise.models.reward_model import RewardModel, load_reward_model
from groupwise.rollout.collect import encode_prompt
from groupwise.tasks.base import Template
from groupwise.training.micro_batches import micro_batches
from groupwise.types import Group, ScoredGroup, Verdict
from groupwise.verifiers.extraction import after_thinking

PART = "reward_model"
"""Name of the part, and of the measure, which is the score as the model gave it."""


class RewardModelPartConfig(Section):
    """A reward model, and what its score earns."""

    path: str
    """Directory of a reward model (a run of `algorithm = "reward_model"`), or a hub name."""
    weight: float = Field(1.0, ge=0, allow_inf_nan=False)
    """What a score of 1 earns. 0: measured, not paid."""
    clip: float = Field(5.0, gt=0, allow_inf_nan=False)
    """Scores are cut to -clip .. clip before they earn; what has no answer to see counts as -clip."""
    see: Literal["completion", "answer"] = "completion"
    """`completion`: the model reads all of it. `answer`: only what stands after `</think>`, so that the reasoning is
    left free (DeepSeek-R1, arXiv:2501.12948, section 2.3.4: helpfulness)."""
    tokens_per_micro_batch: int = Field(16384, ge=1)
    """Most tokens in one forward."""


def load_part(config: RewardModelPartConfig | None, model: ModelConfig) -> RewardModel | None:
    """The frozen reward model of a recipe, if it has one; it computes as the policy does."""
    return load_reward_model(model.model_copy(update={"path": config.path})).freeze() if config else None


def with_reward_model_part(
    scored: Sequence[ScoredGroup],
    reward_model: RewardModel | None,
    config: RewardModelPartConfig | None,
    template: Template,
) -> list[ScoredGroup]:
    """Add the reward part weight · clip(score) to every verdict, where the recipe has a reward model."""
    if reward_model is None or config is None:
        return list(scored)
    scores = iter(_scores([one.group for one in scored], reward_model, config, template))
    return [
        replace(one, verdicts=tuple(_with_part(verdict, next(scores), config) for verdict in one.verdicts))
        for one in scored
    ]


def _with_part(verdict: Verdict, score: float | None, config: RewardModelPartConfig) -> Verdict:
    if not verdict.outcome.judged:
        return verdict
    measures = {} if score is None else {PART: score}
    earned = config.weight * (-config.clip if score is None else min(max(score, -config.clip), config.clip))
    return replace(verdict, parts={**verdict.parts, PART: earned}, measures={**verdict.measures, **measures})


@torch.no_grad()
def _scores(
    groups: Sequence[Group], model: RewardModel, config: RewardModelPartConfig, template: Template
) -> list[float | None]:
    """Score of every completion of the groups, in order; None where there is nothing to see."""
    seen = [[_seen(group, completion.text, config.see) for completion in group.completions] for group in groups]
    sequences = [_sequences(group, texts, model, config, template) for group, texts in zip(groups, seen, strict=True)]
    some = [one for one in sequences if one.completions]
    sizes = [len(one.prompt) + sum(map(len, one.completions)) for one in some]
    found = [
        score
        for chunk in micro_batches(sizes, config.tokens_per_micro_batch)
        for score in model.scores([some[i] for i in chunk]).tolist()
    ]
    scores = iter(found)
    return [None if text is None else next(scores) for texts in seen for text in texts]


def _seen(group: Group, text: str, see: Literal["completion", "answer"]) -> str | None:
    return text if see == "completion" else (after_thinking(group.prompt.prefill + text) or "").strip() or None


def _sequences(
    group: Group, texts: Sequence[str | None], model: RewardModel, config: RewardModelPartConfig, template: Template
) -> Sequences:
    """Prompt and texts as the reward model's own tokenizer writes them; what the answer follows is not shown."""
    shown = template if config.see == "completion" else template.model_copy(update={"prefill": ""})
    prompt = encode_prompt(model, shown, group.prompt.problem).token_ids
    encoded = [model.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts if text is not None]
    completions = [[*ids, model.tokenizer.eos_token_id] for ids in encoded]
    longest = len(prompt) + max(map(len, completions), default=0)
    if longest > model.context_length:
        raise ModelError(
            f"the reward model {config.path!r} reads {model.context_length} tokens, but a completion of problem "
            f"{group.prompt.problem.id} has {longest} with its prompt: allow fewer in sampling.max_tokens"
        )
    return Sequences(prompt, completions)

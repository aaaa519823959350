"""Scores of reward models as parts of the reward: beside the verifier, or in place of it with `correct_reward = 0`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import torch

from groupwise.errors import ModelError
from groupwise.models.config import ModelConfig
from groupwise.models.packed import Sequences
from groupwise.models.reward_model import RewardModel, load_reward_model
from groupwise.rollout.prompts import encode_prompt
from groupwise.tasks.base import Template
from groupwise.trainers.reward_part_config import RewardModelConfigs, RewardModelPartConfig
from groupwise.training.micro_batches import micro_batches
from groupwise.types import FinishReason, Group, Outcome, ScoredGroup, Verdict
from groupwise.verifiers.extraction import after_thinking


def load_reward_models(configs: RewardModelConfigs, model: ModelConfig) -> dict[str, RewardModel]:
    """The frozen reward models of a recipe; they compute as the policy does."""
    return {name: load_reward_model(model.at(config.path)).freeze() for name, config in configs.items()}


def with_reward_model_parts(
    scored: Sequence[ScoredGroup],
    models: Mapping[str, RewardModel],
    configs: RewardModelConfigs,
    template: Template,
    step: int,
) -> list[ScoredGroup]:
    """Add a part weight · clip(score) of every reward model to the verdicts for which it counts in this step."""
    found = list(scored)
    for name, config in configs.items():
        if step >= config.first_step:
            found = _with_part(found, name, models[name], config, template)
    return found


def _with_part(
    scored: Sequence[ScoredGroup], name: str, model: RewardModel, config: RewardModelPartConfig, template: Template
) -> list[ScoredGroup]:
    places = [[i for i, verdict in enumerate(one.verdicts) if _counts(config, one, verdict)] for one in scored]
    texts = [[_seen(one.group, i, config.see) for i in where] for one, where in zip(scored, places, strict=True)]
    scores = _scores([one.group for one in scored], texts, model, config, template)
    found = []
    for one, where, of_group in zip(scored, places, scores, strict=True):
        verdicts = list(one.verdicts)
        for i, score in zip(where, of_group, strict=True):
            verdicts[i] = _earned(verdicts[i], name, score, config)
        found.append(replace(one, verdicts=tuple(verdicts)))
    return found


def _counts(config: RewardModelPartConfig, scored: ScoredGroup, verdict: Verdict) -> bool:
    is_meant = config.problems == "all" or scored.group.prompt.problem.open_ended
    is_open = config.gate == "always" or verdict.outcome is Outcome.CORRECT
    return verdict.outcome.judged and is_meant and is_open


def _earned(verdict: Verdict, name: str, score: float | None, config: RewardModelPartConfig) -> Verdict:
    # scores at the bound are told apart no more: how many there are is shown
    measures = {} if score is None else {name: score, f"cut/{name}": float(abs(score) > config.clip)}
    part = config.weight * (-config.clip if score is None else min(max(score, -config.clip), config.clip))
    return replace(verdict, parts={**verdict.parts, name: part}, measures={**verdict.measures, **measures})


@torch.no_grad()
def _scores(
    groups: Sequence[Group],
    texts: Sequence[Sequence[str | None]],
    model: RewardModel,
    config: RewardModelPartConfig,
    template: Template,
) -> list[list[float | None]]:
    """Score of every text of the groups; None where there is nothing to see."""
    pairs = [(group, [text for text in one if text is not None]) for group, one in zip(groups, texts, strict=True)]
    some = [_sequences(group, shown, model, config, template) for group, shown in pairs if shown]
    sizes = [len(one.prompt) + sum(map(len, one.completions)) for one in some]
    found = iter(
        [
            score
            for chunk in micro_batches(sizes, config.tokens_per_micro_batch)
            for score in model.scores([some[i] for i in chunk]).tolist()
        ]
    )
    return [[None if text is None else next(found) for text in one] for one in texts]


def _seen(group: Group, place: int, see: Literal["completion", "answer"]) -> str | None:
    completion = group.completions[place]
    if completion.finish_reason is FinishReason.LENGTH:  # its end, where the score is read, was never sampled
        return None
    text = completion.text
    return text if see == "completion" else (after_thinking(group.prompt.prefill + text) or "").strip() or None


def _sequences(
    group: Group, texts: Sequence[str], model: RewardModel, config: RewardModelPartConfig, template: Template
) -> Sequences:
    """Prompt and texts as the reward model's own tokenizer writes them; what the answer follows is not shown."""
    shown = template if config.see == "completion" else template.model_copy(update={"prefill": ""})
    prompt = encode_prompt(model, shown, group.prompt.problem).token_ids
    encoded = [model.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    completions = [[*ids, model.tokenizer.eos_token_id] for ids in encoded]
    longest = len(prompt) + max(map(len, completions))
    if longest > model.context_length:
        raise ModelError(
            f"the reward model {config.path!r} reads {model.context_length} tokens, but a completion of problem "
            f"{group.prompt.problem.id} has {longest} with its prompt: allow fewer in sampling.max_tokens"
        )
    return Sequences(prompt, completions)

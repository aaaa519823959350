"""Scores of reward models as parts of the reward: beside the verifier, or in place of it with `correct_reward = 0`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from pydantic import Field

from groupwise.config import Section
from groupwise.config.schema import RewardModelRef
from groupwise.errors import ConfigError
from groupwise.models.config import ModelConfig
from groupwise.models.packed import Sequences
from groupwise.models.prompts import arguments_read, encode_prompt, ended
from groupwise.models.reward_model import RewardModel, load_reward_model, score_completions
from groupwise.tasks.base import Template
from groupwise.types import FinishReason, Group, Outcome, Problem, ScoredGroup
from groupwise.verifiers.base import RESERVED, VerifierConfig
from groupwise.verifiers.extraction import after_thinking


class RewardModelPartConfig(Section):
    """A reward model, and what its score earns and where."""

    path: RewardModelRef
    """Directory of a reward model (a run of `algorithm = "reward_model"`), or a hub name."""
    weight: float = Field(1.0, ge=0, allow_inf_nan=False)
    """Reward of a score of 1. 0: measured, not paid."""
    clip: float = Field(5.0, gt=0, allow_inf_nan=False)
    """Scores are cut to -clip .. clip before they earn. What has no answer to see, or ran into the token limit, counts
    as -clip: a score is read at the end token, and behind a text that was cut off it would pay for rambling on. Scores
    beyond the bound earn the same, so a bound that many reach teaches nothing; every step shows their share."""
    see: Literal["completion", "answer"] = "completion"
    """`completion`: the model reads all of it. `answer`: only what stands after `</think>`, so that the reasoning is
    left free (DeepSeek-R1, arXiv:2501.12948, section 2.3.4: harmlessness sees all, helpfulness the answer)."""
    problems: Literal["all", "open_ended"] = "all"
    """For which problems it counts; `open_ended`: those that no rule can judge (DeepSeek-R1: rules for reasoning,
    reward models for the rest)."""
    gate: Literal["always", "correct"] = "always"
    """`always`: added whatever the verifier said (DeepSeek-R1). `correct`: only where it said correct; weight · clip
    must be below what that earns, or a correct answer with a low score would earn less than a wrong one."""
    first_step: int = Field(0, ge=0)
    """It counts from this step on (DeepSeek-R1: in the last 400 of 1,700 steps, because policies learn to fool it)."""


RewardModelConfigs = Mapping[str, RewardModelPartConfig]
"""By name; the part has this name, and so has the measure, which is the score as the model gave it."""


def check_reward_models(configs: RewardModelConfigs, verifier: VerifierConfig, num_steps: int) -> None:
    """Check that a recipe's reward models agree with its verifier and its length; raises ValueError."""
    taken = sorted({*RESERVED, "format", *verifier.parts})
    for name, config in configs.items():
        if name in taken:
            raise ValueError(f"reward_models.{name}: the names {', '.join(taken)} are taken; any other is allowed")
        if config.first_step >= num_steps:
            raise ValueError(
                f"reward_models.{name}.first_step = {config.first_step} is never reached with run.num_steps = "
                f"{num_steps}; at most {num_steps - 1} is allowed"
            )
        if config.gate == "correct" and config.weight and config.weight * config.clip >= verifier.correct_reward:
            raise ValueError(
                f"reward_models.{name}.weight · clip = {config.weight * config.clip:g}, gated by a correct answer, "
                "would let one with a low score earn less than a wrong answer; allowed is less than "
                f"verifier.correct_reward = {verifier.correct_reward:g}"
            )
        if verifier.cap_wrong is not None and config.weight and config.gate == "always":
            raise ValueError(
                f"verifier.cap_wrong = {verifier.cap_wrong:g} bounds what an answer that is not correct earns, but "
                f'reward_models.{name} is paid after it; allowed with a cap is gate = "correct" or weight = 0'
            )


def check_problems(configs: RewardModelConfigs, problems: Sequence[Problem]) -> None:
    """Check that there are problems for which each reward model counts; raises ConfigError."""
    waiting = [name for name, config in configs.items() if config.problems == "open_ended"]
    if waiting and not any(problem.open_ended for problem in problems):
        raise ConfigError(
            f'reward_models.{waiting[0]}.problems = "open_ended", but none of the {len(problems)} training problems is '
            'open-ended; allowed for this task is "all"'
        )


def load_reward_models(configs: RewardModelConfigs, model: ModelConfig) -> dict[str, RewardModel]:
    """Load the frozen reward models of a recipe; they compute as the policy does."""
    return {name: load_reward_model(model.at(config.path)).freeze() for name, config in configs.items()}


def with_reward_model_parts(
    scored: Sequence[ScoredGroup],
    models: Mapping[str, RewardModel],
    configs: RewardModelConfigs,
    template: Template,
    step: int,
) -> list[ScoredGroup]:
    """Add a part weight · clip(score) of every reward model to the verdicts for which it counts in this step."""
    rescored = list(scored)
    for name, config in configs.items():
        if step >= config.first_step:
            rescored = _with_part(rescored, name, models[name], config, template)
    return rescored


def _with_part(
    scored: Sequence[ScoredGroup], name: str, model: RewardModel, config: RewardModelPartConfig, template: Template
) -> list[ScoredGroup]:
    indices = []
    for group in scored:
        is_meant = config.problems == "all" or group.group.prompt.problem.open_ended
        outcomes = [verdict.outcome for verdict in group.verdicts]
        paid = [o.judged if config.gate == "always" else o is Outcome.CORRECT for o in outcomes]
        indices.append([i for i, is_paid in enumerate(paid) if is_meant and is_paid])
    texts = [[_visible(group.group, i, config.see) for i in at] for group, at in zip(scored, indices, strict=True)]
    scores = _scores([group.group for group in scored], texts, model, config, template)
    rescored = []
    for group, at, group_scores in zip(scored, indices, scores, strict=True):
        verdicts = list(group.verdicts)
        for i, score in zip(at, group_scores, strict=True):
            # scores beyond the bound all count the same, so their share is reported
            measures = {} if score is None else {name: score, f"cut/{name}": float(abs(score) > config.clip)}
            part = config.weight * (-config.clip if score is None else min(max(score, -config.clip), config.clip))
            parts = {**verdicts[i].parts, name: part}
            verdicts[i] = replace(verdicts[i], parts=parts, measures={**verdicts[i].measures, **measures})
        rescored.append(replace(group, verdicts=tuple(verdicts)))
    return rescored


def _scores(
    groups: Sequence[Group],
    texts: Sequence[Sequence[str | None]],
    model: RewardModel,
    config: RewardModelPartConfig,
    template: Template,
) -> list[list[float | None]]:
    visible = [[text for text in group_texts if text is not None] for group_texts in texts]
    asked = [(group, seen) for group, seen in zip(groups, visible, strict=True) if seen]
    sequences = [_sequences(group, seen, model, config, template) for group, seen in asked]
    names = [f"a completion of problem {group.prompt.problem.id}" for group, _ in asked]
    scores = iter(score_completions(model, config.path, sequences, names))
    return [[None if text is None else next(scores) for text in group_texts] for group_texts in texts]


def _visible(group: Group, index: int, see: Literal["completion", "answer"]) -> str | None:
    completion = group.completions[index]
    if completion.finish_reason is FinishReason.LENGTH:  # its end, where the score is read, was never sampled
        return None
    text = completion.text
    return text if see == "completion" else (after_thinking(group.prompt.prefill + text) or "").strip() or None


def _sequences(
    group: Group, texts: Sequence[str], model: RewardModel, config: RewardModelPartConfig, template: Template
) -> Sequences:
    # its own chat template may read less, and open no thinking
    own = template.model_copy(update={"arguments": arguments_read(model.tokenizer, template)})
    problem, asked = group.prompt.problem, group.prompt.text
    if problem.environment and problem.question.strip() not in asked:
        raise ConfigError(
            f"the reward model {config.path!r} would read {problem.question!r:.120} before the completions of problem "
            f"{problem.id}, whose environment began with {asked!r:.120}; allowed are environments that ask the "
            "problem's question"
        )
    prompt = encode_prompt(model, own, problem, prefill=config.see == "completion")
    if config.see == "completion" and prompt.prefill != group.prompt.prefill:
        prompt = encode_prompt(model, own, problem, prefill=False)
        texts = [group.prompt.prefill + text for text in texts]
    encoded = [model.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    return Sequences(prompt.token_ids, [ended(model, ids) for ids in encoded])

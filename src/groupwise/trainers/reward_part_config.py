"""What a recipe may set under `[reward_models.NAME]`, and what contradicts the rest of it."""

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from groupwise.artifacts import RewardModelRef
from groupwise.config import Section
from groupwise.errors import ConfigError
from groupwise.types import Problem
from groupwise.verifiers.base import VerifierConfig
from groupwise.verifiers.parts import RESERVED


class RewardModelPartConfig(Section):
    """A reward model, and what its score earns and where."""

    path: RewardModelRef
    """Directory of a reward model (a run of `algorithm = "reward_model"`), or a hub name."""
    weight: float = Field(1.0, ge=0, allow_inf_nan=False)
    """What a score of 1 earns. 0: measured, not paid."""
    clip: float = Field(5.0, gt=0, allow_inf_nan=False)
    """Scores are cut to -clip .. clip before they earn. What has no answer to see, or ran into the token limit, counts
    as -clip: a score is read at the end token, and behind a text that was cut off it would pay for going on. Scores
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
    tokens_per_micro_batch: int = Field(16384, ge=1)
    """Most tokens in one forward."""


RewardModelConfigs = Mapping[str, RewardModelPartConfig]
"""By name; the part has this name, and so has the measure, which is the score as the model gave it."""


def check_reward_models(configs: RewardModelConfigs, verifier: VerifierConfig, num_steps: int) -> None:
    """Whether the reward models of a recipe agree with its verifier and its length.

    Raises:
        ValueError: a name is taken, a first step is never reached, or the verifier's cap would be passed by.
    """
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
    """Whether there are problems for which each reward model counts.

    Raises:
        ConfigError: one waits for open-ended problems, and there are none.
    """
    waiting = [name for name, config in configs.items() if config.problems == "open_ended"]
    if waiting and not any(problem.open_ended for problem in problems):
        raise ConfigError(
            f'reward_models.{waiting[0]}.problems = "open_ended", but none of the {len(problems)} training problems is '
            'open-ended; allowed for this task is "all"'
        )

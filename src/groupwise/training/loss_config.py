"""What can be set about the policy loss, and the objective it amounts to."""

from collections.abc import Collection
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from groupwise.algorithms.aggregation import AGGREGATIONS
from groupwise.algorithms.kl import KL_ESTIMATORS
from groupwise.algorithms.objective import Objective
from groupwise.algorithms.policy_losses import POLICY_LOSSES, Bounds
from groupwise.config import Section


class CorrectionConfig(Section):
    """Importance correction for completions whose sampler is not exactly the policy (another engine or precision)."""

    bound: Literal["none", "truncate", "mask"] = "none"
    """What happens to weights π_old/μ above the cap: cut down to it, or to 0 (IcePop). `none`: no weights; sampler and
    trainer must then agree within `max_logprob_difference`."""
    level: Literal["token", "sequence"] = "token"
    """One weight per token (biased, calm) or per completion (right, noisy)."""
    cap: float = Field(2.0, gt=0)
    """Largest weight (TRL 1.16: 3)."""


class LossConfig(Section):
    """The policy loss."""

    policy_loss: str = "clipped_ratio"
    """`clipped_ratio` (PPO, GRPO, DAPO), `reinforce`, `sequence_ratio` (GSPO), `clipped_weight` (CISPO) or `soft_gate`
    (SAPO)."""
    clip_low: float = Field(0.2, ge=0, le=1)
    """ε_low: the ratio π/π_old may fall to 1 - ε_low before its gradient stops (PPO and GRPO: 0.2; GSPO: 3e-4; CISPO:
    1, no bound)."""
    clip_high: float = Field(0.2, ge=0)
    """ε_high: the ratio may rise to 1 + ε_high (GRPO: 0.2; DAPO's clip-higher: 0.28; GSPO: 4e-4)."""
    dual_clip: float = Field(0.0, ge=0)
    """c > 1 bounds the loss of negative advantages at c times the advantage (Ye et al. 2020: 3); 0: off."""
    tau_pos: float = Field(1.0, gt=0)
    """Sharpness of `soft_gate` where the advantage is positive (SAPO: 1.0)."""
    tau_neg: float = Field(1.05, gt=0)
    """Sharpness of `soft_gate` where the advantage is negative (SAPO: 1.05)."""
    aggregation: str = "constant"
    """How tokens are averaged: `constant` (Dr. GRPO), `token` (DAPO) or `sequence` (GRPO)."""
    kl_coef: float = Field(0.0, ge=0)
    """Weight β of the estimate of KL(π ‖ reference); 0 loads no reference (DeepSeekMath: 0.04, R1: 0.001)."""
    kl_estimator: str = "k3"
    """`k1`, `k2` or `k3` (GRPO). `groupwise oracle` shows what each one's gradient is."""
    kl_in: Literal["loss", "reward"] = "loss"
    """`loss`: a term of every token. `reward`: taken off the completion's reward (PPO: off each token's)."""
    kl_corrected: bool = False
    """Multiply the term in the loss by π/π_old, whose gradient then counts too (DeepSeek-V3.2)."""
    entropy_coef: float = Field(0.0, ge=0)
    """Weight of an entropy bonus."""
    truncated: Literal["keep", "mask"] = "keep"
    """`mask` leaves completions that ran into the token limit out of loss and denominator (DAPO's overlong
    filtering); their rewards still count in the group's statistics."""
    correction: CorrectionConfig = CorrectionConfig()
    """For samples from another engine."""
    mini_batches: int = Field(1, ge=1)
    """Optimizer updates per step: the groups are cut into this many parts. 1 is strictly on-policy."""
    epochs: int = Field(1, ge=1)
    """Passes over the step's groups."""
    tokens_per_micro_batch: int = Field(4096, ge=1)
    """Most tokens in one forward and backward; changes memory and speed, never the result beyond rounding. 4096 suits
    a processor's caches; a GPU wants more."""
    max_logprob_difference: float = Field(0.0, ge=0)
    """Training stops when a sampled token's log-probability differs by more than this between sampler and trainer;
    0 means 0.5 in bf16, no bound where `correction` is on, and in fp32 1e-4, which one in 1,000 tokens of a micro-batch
    may pass by up to ten times: there rounding grows on its way through the layers."""

    @field_validator("policy_loss", "aggregation", "kl_estimator")
    @classmethod
    def _known(cls, name: str, info: ValidationInfo) -> str:
        tables: dict[str, Collection[str]] = {
            "policy_loss": POLICY_LOSSES,
            "aggregation": AGGREGATIONS,
            "kl_estimator": KL_ESTIMATORS,
        }
        allowed = tables[str(info.field_name)]
        if name not in allowed:
            raise ValueError(f"allowed are {', '.join(allowed)}")
        return name

    @model_validator(mode="after")
    def _fits(self) -> "LossConfig":
        if 0 < self.dual_clip <= 1:
            raise ValueError(f"dual_clip = {self.dual_clip}: allowed are 0 (off) and numbers above 1")
        if self.policy_loss == "reinforce" and self.num_updates > 1:
            raise ValueError(
                f"policy_loss = 'reinforce' has no ratio, so it is right for one update per step only; mini_batches = "
                f"{self.mini_batches} and epochs = {self.epochs} make {self.num_updates}"
            )
        if self.kl_coef and self.kl_in == "loss" and self.kl_estimator == "k1" and not self.kl_corrected:
            raise ValueError(
                "kl_estimator = 'k1' in the loss has a gradient whose expectation is 0, so it would only add noise; "
                "allowed are k2 and k3, k1 with kl_corrected = true, and k1 with kl_in = 'reward'"
            )
        if self.kl_in == "reward" and self.kl_corrected:
            raise ValueError("kl_corrected = true belongs to a term in the loss, but kl_in = 'reward'")
        return self

    @property
    def num_updates(self) -> int:
        """Optimizer updates per step."""
        return self.mini_batches * self.epochs

    @property
    def objective(self) -> Objective:
        """The loss of one token."""
        return Objective(
            policy_loss=self.policy_loss,
            bounds=Bounds(self.clip_low, self.clip_high, self.dual_clip, self.tau_pos, self.tau_neg),
            kl_coef=self.kl_coef if self.kl_in == "loss" else 0.0,
            kl_estimator=self.kl_estimator,
            kl_corrected=self.kl_corrected,
            entropy_coef=self.entropy_coef,
        )

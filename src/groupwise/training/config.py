"""Settings of every trainer's run, and of the policy loss."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from groupwise.algorithms.kl import KL_ESTIMATORS
from groupwise.algorithms.objective import AGGREGATIONS, Objective
from groupwise.algorithms.policy_losses import POLICY_LOSSES, ClippedRatio, PolicyLoss
from groupwise.config import Changes, ReadIf, Section, parse
from groupwise.config.schema import PlaceRef, one_of
from groupwise.ranks import RanksConfig
from groupwise.runs.sinks import SinkSections

Aggregation = Annotated[str, one_of(AGGREGATIONS)]
KlEstimator = Annotated[str, one_of(KL_ESTIMATORS)]
WITH_KL = ReadIf(lambda loss: loss.kl_coef > 0, "kl_coef above 0")
_WITH_KL_TERM = ReadIf(lambda loss: loss.kl_coef > 0 and loss.kl_in == "loss", "kl_coef above 0 and kl_in = 'loss'")
_WITH_WEIGHTS = ReadIf(lambda correction: correction.bound != "none", "a bound other than 'none'")


class CorrectionConfig(Section):
    """Importance correction for completions whose sampler is not exactly the policy (another engine or precision)."""

    bound: Literal["none", "truncate", "mask"] = "none"
    """Treatment of weights π_old/μ above the cap: cut down to it, or to 0 (IcePop). `none`: no weights; sampler and
    trainer must then agree within `max_logprob_difference`."""
    level: Annotated[Literal["token", "sequence"], _WITH_WEIGHTS] = "token"
    """One weight per token (biased, calm) or per completion (right, noisy)."""
    cap: Annotated[float, _WITH_WEIGHTS] = Field(2.0, gt=0)
    """Largest weight (TRL 1.16: 3)."""


class LossConfig(Section):
    """The policy loss."""

    policy: Annotated[PolicyLoss, POLICY_LOSSES] = ClippedRatio(kind="clipped_ratio")
    """The policy loss and its dials: `clipped_ratio` (PPO, GRPO, DAPO), `sequence_ratio` (GSPO) and others
    (docs/algorithms.md)."""
    aggregation: Aggregation = "constant"
    """Average over tokens: `constant` (Dr. GRPO), `token` (DAPO) or `sequence` (GRPO)."""
    kl_coef: float = Field(0.0, ge=0)
    """Weight β of the estimate of KL(π ‖ reference); 0 loads no reference (DeepSeekMath: 0.04, R1: 0.001)."""
    kl_estimator: Annotated[KlEstimator, WITH_KL] = "k3"
    """`k1`, `k2` or `k3` (GRPO). `groupwise oracle` shows what each one's gradient is."""
    kl_in: Annotated[Literal["loss", "reward"], WITH_KL] = "loss"
    """`loss`: a term of every token. `reward`: taken off the completion's reward (PPO: off each token's)."""
    kl_corrected: Annotated[bool, _WITH_KL_TERM] = False
    """Multiply the term in the loss by π/π_old, whose gradient then counts too (DeepSeek-V3.2)."""
    entropy_coef: float = Field(0.0, ge=0)
    """Weight of an entropy bonus."""
    truncated: Literal["keep", "mask"] = "keep"
    """`mask` leaves completions that ran into the token limit out of loss and denominator (DAPO's overlong
    filtering); their rewards still count in the group's statistics."""
    void_turns: Literal["keep", "drop"] = "keep"
    """`drop` leaves completions out of loss and denominator whose last turn, behind the last result of a tool, has
    neither an answer nor a call (SimpleTIR, arXiv:2509.02479); their rewards still count in the group's statistics."""
    correction: CorrectionConfig = CorrectionConfig()
    """For samples from another engine."""
    mini_batches: int = Field(1, ge=1)
    """Optimizer updates per step: the groups are cut into this many parts. 1 is strictly on-policy."""
    epochs: int = Field(1, ge=1)
    """Passes over the step's groups."""
    tokens_per_micro_batch: int = Field(0, ge=0)
    """Most tokens in one forward and backward; changes memory and speed, never the result beyond rounding. 0: what
    suits the device: 1024 on a processor, whose caches hold that and whose cores get one each; 16384 on a GPU; half of
    it at least beside tokens that all prompts begin with."""
    max_logprob_difference: float | None = Field(None, gt=0)
    """Training stops when any token's log-probability differs by more than this (nats) between sampler and trainer in a
    step's first update. Not given, and without `correction`: in fp32 one token in 100 may differ by more than 1e-4,
    none by more than 1e-3, and the mean difference, with its sign, by no more than 2e-6 and 1e-3 over the number of
    tokens; in bf16 0.5, 3, and 1e-2 and 3 over that number. Below temperature 1 all are divided by it."""

    @model_validator(mode="after")
    def _fits(self) -> "LossConfig":
        if self.policy.on_policy_only and self.num_updates > 1:
            raise ValueError(
                f"policy.kind = '{self.policy.kind}' is right for one update per step only, before the weights move; "
                f"mini_batches = {self.mini_batches} and epochs = {self.epochs} make {self.num_updates}"
            )
        if self.kl_coef and self.kl_in == "loss" and self.kl_estimator == "k1" and not self.kl_corrected:
            raise ValueError(
                "kl_estimator = 'k1' in the loss has a gradient whose expectation is 0, so it would only add noise; "
                "allowed are k2 and k3, k1 with kl_corrected = true, and k1 with kl_in = 'reward'"
            )
        return self

    @property
    def num_updates(self) -> int:
        return self.mini_batches * self.epochs

    @property
    def objective(self) -> Objective:
        return Objective(
            policy_loss=self.policy,
            kl_coef=self.kl_coef if self.kl_in == "loss" else 0.0,
            kl_estimator=self.kl_estimator,
            kl_corrected=self.kl_corrected,
            entropy_coef=self.entropy_coef,
        )


class RunConfig(Section):
    """Directory, length and seed of a run."""

    directory: PlaceRef
    """Run directory; the same command resumes an interrupted run in it."""
    seed: int = 0
    """Seed of every random draw of the run."""
    num_steps: int = Field(ge=1)
    """Steps to do."""
    checkpoint_every: int = Field(20, ge=1)
    """Steps between two checkpoints; what came after the last one is done again on a resume."""
    keep_checkpoints: int = Field(2, ge=1)
    """Newest checkpoints to keep; the best by dev and the last are always kept."""


class Recipe(Section):
    """Base of every trainer's recipe."""

    algorithm: str
    """The trainer that runs this recipe: a built-in name, or `file.py:NAME` for your own."""
    run: RunConfig
    """Directory, length and seed."""
    ranks: RanksConfig = RanksConfig()
    """Several processes that train one model together."""
    sinks: SinkSections = Field(default_factory=dict, exclude=True)
    """Services that show the run's metrics, too, each under a name of your choice. They do not change the run, and it
    does not record them."""

    def with_changes(self, changes: Changes) -> Self:
        """Return a copy with other values, checked as a whole; the recipe itself stays as it is.

        Args:
            changes: values by dotted key, for example `{"grpo.group_size": 8}`, or `a.b=c` texts.

        Raises:
            ConfigError: a key is unknown, or a value is not allowed beside the others.
        """
        values = self.model_dump(mode="json", exclude_none=True)
        sinks = {name: sink.model_dump(mode="json", exclude_none=True) for name, sink in self.sinks.items()}
        return parse(type(self), {**values, "sinks": sinks}, changes)

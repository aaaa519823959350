"""Published algorithms as settings of a recipe."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from groupwise.oracle.setting import Setting
from groupwise.training.loss_config import LossConfig


class Published(NamedTuple):
    """An algorithm and the recipe keys that make it; what is not named keeps its default."""

    source: str
    keys: Mapping[str, Any]
    note: str = ""

    @property
    def is_grpo(self) -> bool:
        """Whether the group's trainer runs it, so that its whole setting can be gone through."""
        return "algorithm" not in self.keys


_SURROGATE = {"loss.policy_loss": "clipped_ratio", "loss.clip_low": 0.2, "loss.clip_high": 0.2}

PUBLISHED: dict[str, Published] = {
    "REINFORCE": Published(
        "Williams 1992",
        {"grpo.advantage": "batch_mean", "loss.policy_loss": "reinforce", "loss.aggregation": "constant"},
        "`none` instead of `batch_mean` drops the baseline",
    ),
    "RLOO": Published(
        "arXiv:2402.14740",
        {"grpo.advantage": "leave_one_out", "loss.policy_loss": "reinforce", "loss.aggregation": "constant",
         "loss.kl_in": "reward", "loss.kl_estimator": "k1"},
        "`loss.kl_coef` as wanted",
    ),
    "GRPO": Published(
        "arXiv:2402.03300",
        {"grpo.advantage": "group_normalised", **_SURROGATE, "loss.aggregation": "sequence", "loss.kl_coef": 0.04,
         "loss.kl_estimator": "k3", "loss.kl_in": "loss"},
        "with process supervision: `grpo.advantage = \"process\"`",
    ),
    "Dr. GRPO": Published(
        "arXiv:2503.20783", {"grpo.advantage": "group_mean", **_SURROGATE, "loss.aggregation": "constant"},
        "these are the defaults",
    ),
    "DAPO": Published(
        "arXiv:2503.14476",
        {"grpo.advantage": "group_normalised", **_SURROGATE, "loss.clip_high": 0.28, "loss.aggregation": "token",
         "loss.truncated": "mask", "grpo.refill_rounds": 3},
        "clip-higher, token loss, overlong filtering and dynamic sampling can each be had alone; soft overlong "
        "punishment, instead of filtering, is the reward part `overlong`",
    ),
    "GSPO": Published(
        "arXiv:2507.18071",
        {"grpo.advantage": "group_normalised", "loss.policy_loss": "sequence_ratio", "loss.clip_low": 3e-4,
         "loss.clip_high": 4e-4, "loss.aggregation": "sequence"},
    ),
    "CISPO": Published(
        "arXiv:2506.13585",
        {"grpo.advantage": "group_normalised", "loss.policy_loss": "clipped_weight", "loss.clip_low": 1.0,
         "loss.clip_high": 0.28, "loss.aggregation": "token"},
        "the paper tunes `clip_high` and does not print it",
    ),
    "SAPO": Published(
        "arXiv:2511.20347",
        {"grpo.advantage": "group_normalised", "loss.policy_loss": "soft_gate", "loss.tau_pos": 1.0,
         "loss.tau_neg": 1.05, "loss.aggregation": "sequence"},
    ),
    "Lite PPO": Published(
        "arXiv:2508.08221", {"grpo.advantage": "batch_std", **_SURROGATE, "loss.aggregation": "token"}
    ),
    "REINFORCE++": Published(
        "arXiv:2501.03262",
        {"grpo.advantage": "batch_normalised", **_SURROGATE, "loss.aggregation": "token", "loss.kl_in": "reward",
         "loss.kl_estimator": "k1"},
        "`loss.kl_coef` as wanted; `grpo.group_size = 1` is allowed; with `batch_std` nearly the variant with baseline",
    ),
    "MaxRL": Published(
        "arXiv:2602.02710",
        {"grpo.advantage": "divided_by_mean", "loss.policy_loss": "reinforce", "loss.aggregation": "constant"},
        "aims at E[log p], not at E[p], so its bias against ∇J is meant",
    ),
    "GDPO": Published(
        "arXiv:2601.05242", {"grpo.advantage": "parts_normalised", **_SURROGATE, "loss.aggregation": "sequence"},
        "for rewards of several parts (`verifier.parts`)",
    ),
    "PPO": Published(
        "arXiv:1707.06347",
        {"algorithm": "ppo", "ppo.gamma": 1.0, "ppo.lam": 0.95, "ppo.whiten": True, "critic.coef": 0.1,
         "critic.clip": 0.2, **_SURROGATE, "loss.aggregation": "token", "loss.kl_in": "reward",
         "loss.kl_estimator": "k1", "loss.mini_batches": 2, "loss.epochs": 2},
        "with a critic; InstructGPT's form; `loss.kl_coef` as wanted; the oracle's section `critic`",
    ),
}  # fmt: skip


def as_setting(published: Published, group_size: int) -> Setting:
    """What the oracle goes through; KL terms are no part of it."""
    own = {name.removeprefix("loss."): value for name, value in published.keys.items() if name.startswith("loss.")}
    loss = LossConfig(**own)
    return Setting(
        group_size,
        published.keys["grpo.advantage"],
        policy_loss=loss.policy_loss,
        bounds=loss.objective.bounds,
        aggregation=loss.aggregation,
        truncated=loss.truncated,
        dead_groups="other" if published.keys.get("grpo.refill_rounds") else "keep",
    )

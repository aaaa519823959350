"""AdamW, AdamW of 8 bits and Muon, with warm-up, decay and gradient clipping.

Weights in bf16 have fp32 master copies here (Micikevicius et al. 2018, arXiv:1710.03740, section 3.1): bf16 has 8 bits
of precision, so an update smaller than about 1/256 of a weight would be rounded away. The gradient of a micro-batch
comes in bf16; it is added up over micro-batches, clipped and used in fp32.
"""

import math
import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from groupwise.config import ReadIf, Section
from groupwise.errors import CheckpointError, ConfigError, InvariantError
from groupwise.models.cores import Sharing
from groupwise.ranks.group import RANKS
from groupwise.ranks.sharding import clip_by_norm, own_rows, settle, sharded_like, whole_tensor

FALLS = ReadIf(lambda optimizer: optimizer.schedule in ("linear", "cosine"), "a schedule that falls: linear or cosine")

DROPS = ReadIf(lambda optimizer: optimizer.schedule == "steps", 'schedule = "steps"')


class OptimizerConfig(Section):
    """The optimizer and its schedule."""

    kind: Literal["adamw", "adamw_8bit", "muon"] = "adamw"
    """`adamw`: Loshchilov and Hutter, arXiv:1711.05101. `adamw_8bit`: its moments in 8 bits, a quarter of the memory
    (Dettmers et al., arXiv:2110.02861; the library bitsandbytes, extra `8bit`). `muon`: matrices of the layers step
    along their orthogonalised momentum (Jordan 2024; `torch.optim.Muon`), scaled so that `lr` and `weight_decay` are
    those of AdamW (Liu et al., arXiv:2502.16982, eq. 4); embeddings, head, stacks of experts and vectors have AdamW."""
    lr: float = Field(1e-6, ge=0)
    """Peak learning rate. 1e-6 is DeepSeekMath's for a 7 B model; the shipped 1.7 M model wants some 1e-4."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.95)
    """Decay of AdamW's running mean and running square of the gradient."""
    eps: float = Field(1e-8, ge=0)
    """Added to the root of the running square."""
    weight_decay: float = Field(0.0, ge=0)
    """Decoupled decay of matrices; vectors (norms, biases) are never decayed."""
    warmup_steps: int = Field(0, ge=0)
    """Steps over which the rate rises linearly from 0."""
    schedule: Literal["constant", "linear", "cosine", "steps"] = "constant"
    """Fall of the rate from the end of warm-up to the last step; `steps`: it stays, and drops at `drops`."""
    drops: Annotated[tuple[tuple[float, float], ...], DROPS] = ((0.8, 0.316), (0.9, 0.1))
    """Pairs: from this share of all steps on, the rate is this share of `lr` (default: DeepSeekMath, arXiv:2402.03300,
    2.2.1)."""
    final_lr_share: Annotated[float, Field(ge=0, le=1), FALLS] = 0.0
    """Share of `lr` that the schedule falls to; the step after the last would reach it."""
    max_grad_norm: float = Field(1.0, ge=0)
    """The gradient's norm over all parameters is cut to this; 0 switches clipping off."""

    @model_validator(mode="after")
    def _drops_in_order(self) -> Self:
        places = [place for place, _ in self.drops]
        if places != sorted(set(places)) or not all(0 <= part <= 1 for drop in self.drops for part in drop):
            raise ValueError(
                f"drops = {list(self.drops)}: allowed are pairs of shares from 0 to 1, the first ones rising"
            )
        return self


_OF_LAYER = re.compile(r"\.\d+\.")
"""Part of the name of a layer's weight: `model.layers.0.`, `transformer.h.0.`."""


class Optimizer:
    """Optimizer and schedule as one object: `update(step)` is one optimizer step."""

    def __init__(
        self,
        weights: Iterable[tuple[str, Tensor]],
        config: OptimizerConfig,
        num_steps: int,
        critic: Iterable[tuple[str, Tensor]] = (),
        critic_lr: float = 0.0,
    ) -> None:
        self.config = config
        self.num_steps = num_steps
        """Steps in the whole run; the schedule ends there."""
        self.updates_done = 0
        """Updates so far: the policy's version."""
        copies = [[(name, weight, _master(weight)) for name, weight in named] for named in (weights, critic)]
        self._rounded = {id(master): weight for part in copies for _, weight, master in part if master is not weight}
        """The bf16 weight of each master, by the master's id."""
        of_policy, of_critic = ([master for _, _, master in part] for part in copies)
        self._parts = [of_policy, of_critic] if of_critic else [of_policy]
        """Policy, then the critic if there is one; each is clipped by its own norm."""
        groups, orthogonal = [], []
        for part, lr in zip(copies, (config.lr, critic_lr), strict=True):
            rate = {"lr": lr, "peak": lr}
            of_layers, matrices, vectors = list[Tensor](), list[Tensor](), list[Tensor]()
            for name, _, master in part:
                if master.ndim < 2 or name.endswith("bias"):  # experts' biases are one weight
                    vectors.append(master)
                else:
                    is_orthogonal = config.kind == "muon" and master.ndim == 2 and _OF_LAYER.search(name)
                    (of_layers if is_orthogonal else matrices).append(master)
            groups.append({"params": matrices, "weight_decay": config.weight_decay, **rate})
            groups.append({"params": vectors, "weight_decay": 0.0, **rate})
            orthogonal.append({"params": of_layers, "weight_decay": config.weight_decay, **rate})
        self.optimizers = _optimizers(config, *([g for g in made if g["params"]] for made in (groups, orthogonal)))

    def update(self, step: int) -> float:
        """Clip, step, clear, at the rate of this step; returns the policy gradient's norm before clipping.

        Raises:
            InvariantError: the gradient is not finite; the weights are left as they were.
        """
        with Sharing():
            for _, master in self._masters():
                weight = self._rounded[id(master)]
                master.grad, weight.grad = weight.grad, None
            settle()
            limit = self.config.max_grad_norm or math.inf
            if RANKS.are_sums_fixed:
                norms = [clip_by_norm(parameters, limit) for parameters in self._parts]
            else:
                norms = [clip_grad_norm_(parameters, limit, foreach=True).item() for parameters in self._parts]
            if not all(math.isfinite(norm) for norm in norms):
                whose = "gradient" if len(norms) == 1 else "policy's and the critic's gradient"
                raise InvariantError(
                    f"the norm of the {whose} is {', '.join(map(str, norms))} at update {self.updates_done}; the "
                    "weights are unchanged"
                )
            share = learning_rate_share(self.config, step, self.num_steps)
            for group in self._groups():
                group["lr"] = group["peak"] * share
            self._step()
            with torch.no_grad():
                for _, master in self._masters():
                    self._rounded[id(master)].copy_(master)
            for parameter in self._changed():
                parameter.grad = None
            self.updates_done += 1
            return norms[0]

    def _step(self) -> None:
        """Take a step; where sums are fixed, in fp64 for weights that ranks may cut within a block."""
        apart = []
        if RANKS.are_sums_fixed:
            for group in self._groups():
                # such weights have rows that are no multiple of a block
                ragged = [weight for weight in group["params"] if math.prod(weight.shape[1:]) % BLOCK]
                apart += [(weight, weight.grad, group) for weight in ragged]
        for weight, _, _ in apart:
            weight.grad = None
        for optimizer in self.optimizers:
            optimizer.step()
        for weight, gradient, group in apart:
            if gradient is not None:
                _step_in_double(weight, gradient, group, self.optimizers[0].state[weight])

    def _groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]  # loading makes them anew

    def _changed(self) -> list[Tensor]:
        return [parameter for group in self._groups() for parameter in group["params"]]

    def _masters(self) -> list[tuple[int, Tensor]]:
        return [(index, each) for index, each in enumerate(self._changed()) if id(each) in self._rounded]

    def lr(self, step: int) -> float:
        return self.config.lr * learning_rate_share(self.config, step, self.num_steps)

    def state(self) -> dict[str, Tensor]:
        """Return running moments, and masters where there are any, by parameter index, for a checkpoint."""
        states = {parameter: state for optimizer in self.optimizers for parameter, state in optimizer.state.items()}
        return {
            f"{index}.{name}": whole_tensor(torch.as_tensor(value))
            for index, parameter in enumerate(self._changed())
            for name, value in states.get(parameter, {}).items()
        } | {f"{index}.{MASTER}": master.detach() for index, master in self._masters()}

    def load_state(self, tensors: dict[str, Tensor], updates_done: int) -> None:
        """Restore what `state` gave.

        Raises:
            CheckpointError: the masters are missing, superfluous, or do not round to the model's weights.
        """
        self._load_masters({key: tensor for key, tensor in tensors.items() if key.endswith(f".{MASTER}")})
        states: dict[int, dict[str, Any]] = {}
        changed, first = self._changed(), 0
        for key, tensor in tensors.items():
            index, name = key.split(".", 1)
            if name != MASTER:
                # bitsandbytes counts its steps by a Python number
                value = tensor.item() if tensor.dtype is torch.int64 else sharded_like(tensor, changed[int(index)])
                states.setdefault(int(index), {})[name] = value
        for optimizer in self.optimizers:
            size = sum(len(group["params"]) for group in optimizer.param_groups)
            of_it = {index - first: states[index] for index in states if first <= index < first + size}
            optimizer.load_state_dict({"state": of_it, "param_groups": optimizer.state_dict()["param_groups"]})
            first += size
        self.updates_done = updates_done

    @torch.no_grad()
    def _load_masters(self, saved: dict[str, Tensor]) -> None:
        masters = {f"{index}.{MASTER}": master for index, master in self._masters()}
        if saved.keys() != masters.keys():
            raise CheckpointError(
                f"the checkpoint has fp32 masters of {len(saved)} weights, and {len(masters)} are in bf16 here: "
                "model.weights_dtype must be what it was"
            )
        for key, master in masters.items():
            if not torch.equal(saved[key].to(master.device, torch.bfloat16), self._rounded[id(master)]):
                raise CheckpointError(f"the checkpoint's master {key} does not round to the model's weight")
            master.copy_(saved[key])


def _optimizers(
    config: OptimizerConfig, groups: list[dict[str, Any]], orthogonal: list[dict[str, Any]]
) -> list[torch.optim.Optimizer]:
    """Return AdamW for some groups and Muon for the others.

    Raises:
        ConfigError: the kind needs whole matrices and there are ranks, or bitsandbytes is absent.
    """
    if config.kind != "adamw" and (RANKS.size > 1 or RANKS.are_sums_fixed):
        raise ConfigError(
            f'optimizer.kind = "{config.kind}" works on whole matrices in one process: with ranks, "adamw"'
        )
    settings: dict[str, Any] = {"lr": config.lr, "betas": config.betas, "eps": config.eps}
    made: list[torch.optim.Optimizer] = []
    if config.kind == "adamw_8bit":
        try:
            from bitsandbytes.optim import AdamW8bit
        except ImportError as error:
            raise ConfigError(
                'optimizer.kind = "adamw_8bit" needs bitsandbytes: pip install "groupwise[8bit]"'
            ) from error
        made.append(_in_pieces(AdamW8bit)(groups, **settings))
    elif groups:
        made.append(torch.optim.AdamW(groups, fused=True, **settings))
    if orthogonal:
        made.append(torch.optim.Muon(orthogonal, lr=config.lr, adjust_lr_fn="match_rms_adamw"))
    return made


PIECE = 1 << 22  # Weights; a multiple of the 256 that bitsandbytes gives one scale


def _in_pieces(kind: Any) -> Any:
    """Return AdamW of 8 bits that steps large weights in pieces: on a processor it makes five fp32 copies of each."""

    class InPieces(kind):  # type: ignore[misc]
        def update_step(self, group: Any, p: Any, gindex: int, pindex: int) -> None:
            state = self.state[p]
            if state["state1"].dtype is not torch.uint8 or p.numel() <= PIECE:
                super().update_step(group, p, gindex, pindex)
                return
            parts = [tensor.view(-1).split(PIECE) for tensor in (p.data, p.grad, state["state1"], state["state2"])]
            scales = [state[name].split(PIECE // 256) for name in ("absmax1", "absmax2")]
            for weight, gradient, *moments in zip(*parts, *scales, strict=True):
                piece = torch.nn.Parameter(weight)
                piece.grad = gradient
                own = zip(("state1", "state2", "absmax1", "absmax2"), moments, strict=True)
                self.state[piece] = {**state, **dict(own)}
                super().update_step(group, piece, gindex, pindex)
                steps = self.state.pop(piece)["step"]
            state["step"] = steps

    return InPieces


BLOCK = 16
"""Numbers that a processor's kernel takes at a time; the rest at a tensor's end it rounds in another way."""


@torch.no_grad()
def _step_in_double(weight: Tensor, gradient: Tensor, group: dict[str, Any], state: dict[str, Tensor]) -> None:
    """AdamW (Loshchilov and Hutter 2019, algorithm 2) in fp64, rounded once: the same bits wherever a number lies."""
    if not state:
        state |= {
            "step": torch.zeros(()), "exp_avg": torch.zeros_like(weight), "exp_avg_sq": torch.zeros_like(weight),
        }  # fmt: skip
    state["step"] += 1
    updates, (first, second) = state["step"].item(), group["betas"]
    rows = [own_rows(tensor) for tensor in (weight, gradient, state["exp_avg"], state["exp_avg_sq"])]
    w, g, m, v = (tensor.double() for tensor in rows)
    m = first * m + (1 - first) * g
    v = second * v + (1 - second) * g * g
    w = w * (1 - group["lr"] * group["weight_decay"])
    denominator = (v / (1 - second**updates)).sqrt() + group["eps"]
    w = w - group["lr"] * (m / (1 - first**updates)) / denominator
    for tensor, value in ((rows[0], w), (rows[2], m), (rows[3], v)):
        tensor.copy_(value)


MASTER = "master"


def _master(weight: Tensor) -> Tensor:
    """The fp32 copy that updates change, where a weight is in bf16; else the weight itself."""
    if weight.dtype is not torch.bfloat16:
        return weight
    weight.grad_dtype = torch.float32
    return torch.nn.Parameter(weight.detach().float())


def learning_rate_share(config: OptimizerConfig, step: int, num_steps: int) -> float:
    """Return the share of the peak rate at a step (0-based): linear warm-up, then the schedule down."""
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    if config.schedule == "steps":
        return next((share for place, share in reversed(config.drops) if step >= place * num_steps), 1.0)
    progress = min(1.0, (step - config.warmup_steps) / max(1, num_steps - config.warmup_steps))
    shape = {"constant": 1.0, "linear": 1 - progress, "cosine": (1 + math.cos(math.pi * progress)) / 2}[config.schedule]
    return 1.0 if config.schedule == "constant" else config.final_lr_share + (1 - config.final_lr_share) * shape

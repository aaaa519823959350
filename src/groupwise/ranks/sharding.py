"""Weights that lie on all ranks in shares: PyTorch's FSDP2 (`fully_shard`), every layer a unit, all else in the root's.

Every rank has its rows of every weight, of its gradient and of the optimizer's moments. A forward or backward gathers
the weights of one layer at a time; all ranks have to take part, so all of them run as many. Gradients are sums, not
means: their denominator is that of all ranks already.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn

from groupwise.ranks.group import RANKS, added

_roots: "WeakSet[nn.Module]" = WeakSet()  # Root modules whose weights are trained in shares


def shard(root: nn.Module, layers: Sequence[nn.Module], entries: Sequence[str], device: torch.device) -> None:
    """Leave this rank its rows of all weights of a module.

    Args:
        root: entered by its `forward` and by the methods named `entries` alone.
        layers: computed one after the other; their weights are gathered when they are.
        entries: methods of the root that compute with its weights.
        device: where it computes.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(device.type, (RANKS.size,))
    is_trained = any(weight.requires_grad for weight in root.parameters())
    # memory that is pinned is what a card copies from while it computes
    place = CPUOffloadPolicy(pin_memory=device.type == "cuda") if RANKS.offloads else OffloadPolicy()
    for layer in layers:
        fully_shard(layer, mesh=mesh, offload_policy=place)
    # a backward follows at once on the forward of what is trained, so the root's own weights stay until then
    fully_shard(root, mesh=mesh, reshard_after_forward=not is_trained, offload_policy=place)
    for entry in entries:
        register_fsdp_forward_method(root, entry)
    for unit in _units(root):
        unit.set_gradient_divide_factor(1.0)
        unit.set_force_sum_reduction_for_comms(True)
        unit.set_custom_reduce_scatter(_tree_sum())
    if is_trained:
        _roots.add(root)


def materialise(root: nn.Module, device: torch.device) -> None:
    """Give memory to this rank's rows of weights that have none yet, without setting it."""
    place = torch.device("cpu") if RANKS.offloads else device

    def given(tensor: Tensor) -> Tensor:
        return torch.empty_like(tensor, device=place) if tensor.is_meta else tensor

    for module in root.modules():
        if any(weight.is_meta for weight in module.parameters(recurse=False)):
            module._apply(given, recurse=False)


def _units(root: nn.Module) -> list[Any]:
    from torch.distributed.fsdp import FSDPModule

    return [module for module in root.modules() if isinstance(module, FSDPModule)]


def _tree_sum() -> Any:
    """A reduce-scatter that adds the ranks' gradients pairwise, as `added` says.

    Every rank gets the parts that are its own from all the others and adds them itself: the same amount of traffic as
    the library's, whose order of addition depends on the backend, the size and the number of ranks.
    """
    import torch.distributed as dist
    from torch.distributed.fsdp._fully_shard._fsdp_api import ReduceScatter

    class TreeSum(ReduceScatter):
        def allocate(self, size: Any, *, dtype: torch.dtype, device: torch.device) -> Tensor:
            return torch.empty(*size, dtype=dtype, device=device)

        def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, *how: Any, **named: Any) -> None:
            parts = torch.empty_like(input_tensor)
            dist.all_to_all_single(parts, input_tensor, group=group)
            output_tensor.copy_(added(parts.view(RANKS.size, -1).unbind(0)).view_as(output_tensor))

    return TreeSum()


@contextmanager
def whole(root: nn.Module) -> Iterator[None]:
    """Hold all weights of a module whole on every rank, which may then run any number of forwards. Not nested."""
    units = _units(root)
    for unit in units:
        unit.set_reshard_after_forward(False, recurse=False)
        unit.unshard()
    try:
        yield
    finally:
        for unit in units:
            unit.reshard()
            unit.set_reshard_after_forward(unit is not root or root not in _roots, recurse=False)


def reduce_gradients(now: bool) -> None:
    """Let the next backward add up the ranks' gradients, or leave them to a later one."""
    for root in _roots:
        root.set_requires_gradient_sync(now)  # type: ignore[operator]


def settle(*roots: nn.Module) -> None:
    """Release what a forward gathered, of these modules or of all that are trained: this rank keeps its rows alone.

    A forward without a backward leaves the root's own weights whole, and they would stay so when the rows change.
    """
    if RANKS.size == 1:
        return
    for root in roots or _roots:
        for unit in _units(root):
            unit.reshard()


def own_rows(tensor: Tensor) -> Tensor:
    """Return this rank's rows of a tensor, sharing its memory; all of one that is not sharded."""
    rows: Tensor = tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]
    return rows


def whole_tensor(tensor: Tensor) -> Tensor:
    """Return all of a tensor. Every rank has to ask for it."""
    full: Tensor = tensor.full_tensor() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]
    return full


def sharded_like(tensor: Tensor, weight: Tensor) -> Tensor:
    """Return this rank's rows of a whole tensor, as those of a weight lie here."""
    if not is_sharded(weight) or tensor.shape != weight.shape:
        return tensor
    rows = torch.empty_like(weight.detach(), dtype=tensor.dtype)  # where the weight's rows are, offloaded or not
    first, ours = first_row(rows), own_rows(rows)
    ours.copy_(tensor[first : first + len(ours)])
    return rows


def first_row(weight: Tensor) -> int:
    """Return the index of this rank's first row of a weight; its rows follow one another."""
    return RANKS.rank * -(-len(weight) // RANKS.size) if is_sharded(weight) else 0


def is_sharded(tensor: Tensor) -> bool:
    """Tell whether this rank has only some rows of a tensor."""
    if RANKS.size == 1:
        return False
    from torch.distributed.tensor import DTensor

    return isinstance(tensor, DTensor)


@torch.no_grad()
def clip_by_norm(weights: Sequence[Tensor], limit: float) -> float:
    """Scale gradients so that their norm over all weights and ranks is at most `limit`; return the norm before.

    The squares are added up in fp64 and the norm is rounded to fp32, so that it does not depend on how the gradient is
    divided among ranks.
    """
    gradients = [own_rows(weight.grad) for weight in weights if weight.grad is not None]
    squares = [torch.linalg.vector_norm(gradient, dtype=torch.float64).square() for gradient in gradients]
    squared = torch.stack(squares) if squares else torch.zeros(0, dtype=torch.float64)
    norm = RANKS.total(squared).sum().sqrt().float()
    if norm.isfinite():
        torch._foreach_mul_(gradients, (limit / (norm + 1e-6)).clamp(max=1.0))
    return norm.item()

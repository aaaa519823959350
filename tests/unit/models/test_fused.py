"""The fused kernel of CUDA, which computes all sequences in one call, is the kernel of processors and the blocks."""

from typing import Any

import pytest
import torch
from test_packed import attended, ragged
from torch import Tensor

from groupwise.models import fused, packed
from groupwise.models.attention import Scoring
from groupwise.models.packed import pack


class Slowly:
    """The operations that CUDA has for many sequences at once, as their documentation says, query by query."""

    @staticmethod
    def seen(first: Any, last: Any, most: int, most_seen: int, dropout: float, is_causal: bool, *_: Any) -> Any:
        """Every query with the keys that it sees."""
        assert first.dtype == last.dtype == torch.int32
        assert (most, most_seen, dropout) == (int(first.diff().max()), int(last.diff().max()), 0)
        for begin, end, start, stop in torch.stack((first[:-1], first[1:], last[:-1], last[1:]), 1).tolist():
            for place in range(end - begin):
                yield begin + place, slice(start, start + place + 1 if is_causal else stop)

    @staticmethod
    def forward(query: Tensor, key: Tensor, value: Tensor, *rest: Any, scale: float) -> tuple[Tensor, ...]:
        assert rest[-1] is False  # no mask is asked for
        rep, out, log_sum = query.shape[1] // key.shape[1], torch.empty_like(query), query.new_empty(query.shape[:2])
        for at, keys in Slowly.seen(*rest):
            for head in range(query.shape[1]):
                scores = scale * key[keys, head // rep] @ query[at, head]
                log_sum[at, head] = scores.logsumexp(0)
                out[at, head] = scores.softmax(0) @ value[keys, head // rep]
        return out, log_sum.t().contiguous(), torch.empty(0), torch.empty(0), torch.empty(0)

    @staticmethod
    def backward(
        grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, log_sum: Tensor, *rest: Any, scale: float
    ) -> tuple[Tensor, ...]:
        assert log_sum.is_contiguous()
        assert torch.are_deterministic_algorithms_enabled()
        rep, found = query.shape[1] // key.shape[1], [torch.zeros_like(tensor) for tensor in (query, key, value)]
        for at, keys in Slowly.seen(*rest):
            for head in range(query.shape[1]):
                of, asked = head // rep, query[at, head]
                p = (scale * key[keys, of] @ asked - log_sum[head, at]).exp()
                on_scores = p * (value[keys, of] @ grad[at, head] - grad[at, head] @ out[at, head])
                found[0][at, head] += scale * on_scores @ key[keys, of]
                found[1][keys, of] += scale * on_scores[:, None] * asked
                found[2][keys, of] += p[:, None] * grad[at, head]
        return tuple(found)


@pytest.mark.parametrize("shared", [0, 6])
@pytest.mark.parametrize("how", [Scoring(0.3), Scoring(0.3, window=3), Scoring(0.3, sinks=torch.tensor([0.3, -1.0]))])
def test_all_sequences_in_one_call_are_what_they_are_one_by_one(
    monkeypatch: pytest.MonkeyPatch, how: Scoring, shared: int
) -> None:
    monkeypatch.setattr(packed, "MIN_SHARED", 1)
    batch, widths = pack(ragged(shared=shared)), (8, 8, 8)
    one_by_one = attended(batch, torch.float32, widths, 2, how)
    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", Slowly.forward)
    monkeypatch.setattr(torch.ops.aten, "_flash_attention_backward", Slowly.backward)
    monkeypatch.setattr(fused.AtOnce, "fits", lambda *_: True)
    monkeypatch.setattr(fused, "KERNELS", {"cpu": fused.AtOnce()})
    torch.set_deterministic_debug_mode("warn")
    for ours, theirs in zip(attended(batch, torch.float32, widths, 2, how), one_by_one, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
    assert torch.get_deterministic_debug_mode() == 1  # as it was
    torch.set_deterministic_debug_mode("default")


@pytest.mark.parametrize(("age", "dtype", "width", "fits"), [
    ((7, 5), torch.bfloat16, 64, False), ((8, 0), torch.bfloat16, 256, True), ((9, 0), torch.float32, 64, False),
    ((9, 0), torch.bfloat16, 60, False), ((9, 0), torch.float16, 264, False),
])  # fmt: skip
def test_what_the_kernel_of_cuda_computes(
    monkeypatch: pytest.MonkeyPatch, age: tuple[int, int], dtype: torch.dtype, width: int, fits: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: age)
    assert fused.AtOnce().fits(torch.zeros(1, dtype=dtype), width) is fits


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("how", [Scoring(0.3), Scoring(0.3, window=100), Scoring(0.3, sinks=torch.tensor([0.3, -1.0]))])
def test_the_kernel_of_cuda_is_the_blocks(monkeypatch: pytest.MonkeyPatch, how: Scoring, heads: int) -> None:
    shapes = [(130, [300, 513, 40]), (1, [700]), (9, [1, 2])]
    batch, widths = pack(ragged(shapes, shared=20), "cuda"), (64, 64, 64)
    how = Scoring(how.scale, how.window, None if how.sinks is None else how.sinks.cuda())
    found, again = (attended(batch, torch.bfloat16, widths, heads, how) for _ in range(2))
    for ours, theirs in zip(found, again, strict=True):
        assert torch.equal(ours, theirs)
    monkeypatch.setattr(fused, "KERNELS", {})
    exact = attended(batch, torch.float32, widths, heads, how)
    for ours, theirs in zip(found, exact, strict=True):
        assert (ours.float() - theirs).norm() <= 0.01 * theirs.norm()

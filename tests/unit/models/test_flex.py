"""FlexAttention, in its eager form: values and gradients are those of our attention; its mask, pair by pair."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from groupwise.errors import ModelError
from groupwise.models.attention import Scoring
from groupwise.models.config import ModelConfig
from groupwise.models.flex import BLOCK, FlexLayout, block_mask, eager_form, mask_bytes, set_flex, visible_pairs
from groupwise.models.packed import Sequences, pack
from groupwise.models.policy import Policy, load_policy

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # torch warns of its eager form, and of its own tracing

ROWS = [
    [(5, [4, 1, 7]), (1, [3]), (9, [2, 2])],
    [(130, [150, 1, 70]), (1, [90])],
    [(140, [60, 7, 130]), (3, [1])],
]


@pytest.fixture(autouse=True)
def eagerly() -> Iterator[None]:
    with eager_form():
        yield


def sequences(row: list[tuple[int, list[int]]]) -> list[Sequences]:
    draw = np.random.default_rng(0).integers
    return [Sequences(draw(2, 258, prompt), [draw(2, 258, n) for n in lengths]) for prompt, lengths in row]


def slow_mask(shapes: tuple[tuple[int, ...], ...]) -> torch.Tensor:
    """(N, N) by the words: a token sees its prompt and its own sequence, up to itself."""
    tokens = [(g, part) for g, shape in enumerate(shapes) for part, n in enumerate(shape) for _ in range(n)]
    seen = [
        [k <= q and tokens[k][0] == tokens[q][0] and tokens[k][1] in (0, tokens[q][1]) for k in range(len(tokens))]
        for q in range(len(tokens))
    ]
    return torch.tensor(seen)


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_values_and_gradients_are_ours(row: list[tuple[int, list[int]]], kv_heads: int) -> None:
    packed = pack(sequences(row))
    num_tokens, draw = packed.input_ids.shape[1], torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(num_tokens, h, 16, generator=draw).requires_grad_() for h in (4, kv_heads, kv_heads))
    grad = torch.randn(num_tokens, 4, 16, generator=draw)
    found = []
    for layout in (packed.layout, FlexLayout(block_mask(packed.shapes, torch.device("cpu")))):
        out = layout.attend(0, q, k, v, Scoring(0.3))
        found.append((out, *torch.autograd.grad(out, (q, k, v), grad)))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("row", ROWS)
def test_pairs_of_blocks_are_counted_and_no_other_block_is_computed(row: list[tuple[int, list[int]]]) -> None:
    shapes = pack(sequences(row)).shapes
    dense = slow_mask(shapes)
    blocks = -(-len(dense) // BLOCK)
    padded = torch.zeros(blocks * BLOCK, blocks * BLOCK, dtype=torch.long)
    padded[: len(dense), : len(dense)] = dense
    counts = padded.view(blocks, BLOCK, blocks, BLOCK).sum((1, 3))
    assert (torch.from_numpy(visible_pairs(shapes)) == counts).all()
    assert (block_mask(shapes, torch.device("cpu")).to_dense()[0, 0].bool() == (counts > 0)).all()


def test_a_shared_prompt_leaves_blocks_out() -> None:
    shapes = ((256, 256, 256),)  # blocks of 128: causal 6 × 7 / 2; two completions do not see each other: 2 × 2 fewer
    visible = visible_pairs(shapes) > 0
    assert visible.sum() == 21 - 4
    mask = block_mask(shapes, torch.device("cpu"))
    assert mask.full_kv_num_blocks is not None
    assert int((mask.kv_num_blocks + mask.full_kv_num_blocks).sum()) == 17
    assert int(mask.kv_num_blocks.sum()) == 6  # the diagonal; all others are seen whole


def test_a_models_gradients_are_ours(tiny_policy: Callable[..., Policy]) -> None:
    policy = tiny_policy(head_dim=16)
    packed, found = pack(sequences(ROWS[0])), []
    for chosen in (False, True):
        set_flex(policy.model, chosen)
        policy.model.zero_grad(set_to_none=True)
        logprobs = policy.token_logprobs(packed).logprobs
        logprobs.square().mean().backward()
        found.append([logprobs, *(weight.grad for _, weight in policy.trainable())])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=1e-4)


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without CUDA")
def test_without_cuda_the_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupwise.models.flex._eager_is_permitted", False)
    with pytest.raises(ModelError, match=r'attention = "flex" is compiled for CUDA.*"packed"'):
        load_policy(ModelConfig(attention="flex"))


def test_the_mask_takes_what_is_planned() -> None:
    shapes = ((256, 256, 200),)
    mask = block_mask(shapes, torch.device("cpu"))
    lists = [
        part
        for part in (
            mask.kv_indices, mask.full_kv_indices, mask.q_indices, mask.full_q_indices,
            mask.kv_num_blocks, mask.full_kv_num_blocks, mask.q_num_blocks, mask.full_q_num_blocks,
        )
        if part is not None
    ]  # fmt: skip
    of_tokens = 2 * 4 * 768  # 712 tokens, filled up to 6 blocks
    assert mask_bytes(712) == sum(part.nbytes for part in lists) + of_tokens

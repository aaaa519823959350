"""The packed forward computes what transformers computes on separate, padded sequences: values and every gradient."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from groupwise.errors import UnsupportedModelError
from groupwise.models import attention, fused, packed
from groupwise.models.attention import Scoring
from groupwise.models.packed import Pack, Sequences, pack
from groupwise.models.policy import Policy

TOLERANCE = 1e-5
SHAPES = [(5, [4, 1, 7]), (1, [3]), (9, [2, 2]), (3, [1, 1]), (6, [1]), (2, [8, 3, 5, 6]), (4, [5, 9, 1])]
"""Prompt length and completion lengths of each group: ragged, single, and of one token."""


@pytest.fixture
def in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The layout of devices without a fused kernel."""
    monkeypatch.setattr(fused, "KERNELS", {})


@pytest.fixture(params=["fused", "in blocks"])
def either_layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "in blocks":
        monkeypatch.setattr(fused, "KERNELS", {})


def blocks(batch: Pack) -> Any:
    lengths = tuple(run.length for run in sorted(batch.layout.runs))  # type: ignore[attr-defined]
    return attention.in_blocks(lengths, batch.input_ids.device, attention.MAX_SCORES).blocks


def ragged(shapes: list[tuple[int, list[int]]] = SHAPES, seed: int = 0, shared: int = 0) -> list[Sequences]:
    draw = np.random.default_rng(seed).integers
    begin = draw(2, 258, shared) if shared else np.zeros(0, np.int64)
    return [
        Sequences(np.append(begin, draw(2, 258, prompt)), [draw(2, 258, length) for length in completions])
        for prompt, completions in shapes
    ]


@pytest.fixture(params=[0, 6])
def begun(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(packed, "MIN_SHARED", 1)
    return int(request.param)


def pairs(sequences: list[Sequences]) -> list[tuple[list[int], list[int]]]:
    return [(list(s.prompt), list(completion)) for s in sequences for completion in s.completions]


def random_like(tensor: Tensor, seed: int) -> Tensor:
    return torch.randn(tensor.shape, generator=torch.Generator().manual_seed(seed)).to(tensor.device)


def gradients(policy: Policy, sequences: list[Sequences], temperature: float = 1.0) -> tuple[Any, dict[str, Tensor]]:
    """Logprobs and entropies of the packed forward, and the gradient of a random weighting of both."""
    policy.model.zero_grad(set_to_none=True)
    out = policy.token_logprobs(pack(sequences, policy.device), temperature)
    (random_like(out.logprobs, 1) @ out.logprobs + random_like(out.entropy, 2) @ out.entropy).div(
        len(out.logprobs)
    ).backward()
    return out, {name: parameter.grad for name, parameter in policy.model.named_parameters()}


def assert_equals_separate(
    policy: Policy, sequences: list[Sequences], eager_logprobs: Any, temperature: float = 1.0
) -> None:
    out, ours = gradients(policy, sequences, temperature)
    model, logprobs, entropy = eager_logprobs(policy, pairs(sequences), temperature)
    torch.testing.assert_close(out.logprobs.double(), logprobs, atol=TOLERANCE, rtol=1e-6)  # fp32's digits
    torch.testing.assert_close(out.entropy.double(), entropy, atol=TOLERANCE, rtol=0)
    loss = random_like(out.logprobs, 1).double() @ logprobs + random_like(out.entropy, 2).double() @ entropy
    loss.div(len(logprobs)).backward()
    theirs = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(
            ours[name].double(), theirs[name], atol=TOLERANCE, rtol=TOLERANCE, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("kv_heads", [4, 2, 1], ids=["multi-head", "grouped-query", "multi-query"])
@pytest.mark.parametrize("architecture", ["qwen2", "qwen3", "llama", "mistral"])
def test_values_and_gradients_equal_separate_padded_sequences(
    tiny_policy: Callable[..., Policy], eager_logprobs: Any, device: str, architecture: str, kv_heads: int, tied: bool
) -> None:
    policy = tiny_policy(architecture, device=device, num_key_value_heads=kv_heads, tie_word_embeddings=tied)
    assert_equals_separate(policy, ragged(), eager_logprobs)
    for name, parameter in policy.model.named_parameters():
        assert parameter.grad.abs().max() > 1e-4, f"{name} has no gradient worth comparing"


def test_logits_equal_separate_padded_sequences(
    tiny_policy: Callable[..., Policy], eager_logits: Any, device: str
) -> None:
    policy, sequences = tiny_policy(device=device), ragged()
    batch = pack(sequences, device)
    hidden = policy.hidden(batch.input_ids, batch.position_ids, batch.layout)[batch.head_positions]
    ours = policy.next_logits(hidden)
    _, logits = eager_logits(policy, [[*prompt, *completion] for prompt, completion in pairs(sequences)])
    theirs = [row[len(p) - 1 : len(p) - 1 + len(c)] for row, (p, c) in zip(logits, pairs(sequences), strict=True)]
    torch.testing.assert_close(ours.double(), torch.cat(theirs), atol=TOLERANCE, rtol=TOLERANCE)


def test_temperature_divides_the_logits(
    tiny_policy: Callable[..., Policy], eager_logprobs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "TOLERANCE", 3 * TOLERANCE)  # what divides logits by 0.6 divides their error too
    assert_equals_separate(tiny_policy(), ragged(), eager_logprobs, temperature=0.6)


def test_a_head_with_bias_is_computed(tiny_policy: Callable[..., Policy], eager_logprobs: Any) -> None:
    policy = tiny_policy("qwen2", tie_word_embeddings=False)
    head = policy.model.get_output_embeddings()
    head.bias = torch.nn.Parameter(torch.randn(head.weight.shape[0], generator=torch.Generator().manual_seed(3)))
    assert_equals_separate(policy, ragged(), eager_logprobs)


@pytest.mark.parametrize(
    "shapes", [[(1, [1])], [(1, [1, 1, 1])], [(7, [6])] * 3, [(4, [5, 5]), (4, [5, 5])], [(40, [1, 30])]]
)
def test_edge_shapes(
    tiny_policy: Callable[..., Policy], eager_logprobs: Any, either_layout: None, shapes: Any, begun: int
) -> None:
    assert_equals_separate(tiny_policy(num_hidden_layers=1), ragged(shapes, shared=begun), eager_logprobs)


@pytest.mark.parametrize("max_scores", [1, 40, 300])
def test_the_cut_into_blocks_does_not_change_the_result(
    tiny_policy: Callable[..., Policy],
    eager_logprobs: Any,
    in_blocks: None,
    monkeypatch: pytest.MonkeyPatch,
    max_scores: int,
) -> None:
    whole = len(blocks(pack(ragged())))
    monkeypatch.setattr(attention, "MAX_SCORES", max_scores)
    assert len(blocks(pack(ragged()))) > whole
    assert_equals_separate(tiny_policy(), ragged(), eager_logprobs)


@pytest.mark.parametrize("tile", [1, 3])
def test_the_cut_into_tiles_does_not_change_the_result(
    tiny_policy: Callable[..., Policy], eager_logprobs: Any, in_blocks: None, monkeypatch: pytest.MonkeyPatch, tile: int
) -> None:
    monkeypatch.setattr(attention, "TILE", tile)
    assert max(len(list(block.tiles())) for block in blocks(pack(ragged()))) > 2
    assert_equals_separate(tiny_policy(), ragged(), eager_logprobs)


def test_the_order_of_threads_cannot_change_a_gradient(tiny_policy: Callable[..., Policy], in_any_order: Any) -> None:
    """The last token of a prompt predicts the first of every completion: their gradients meet there."""
    policy, batch = tiny_policy(), pack(ragged())
    assert len(torch.unique(batch.head_positions)) < len(batch.head_positions)
    states = policy.completion_states(batch)
    assert in_any_order(states.sum()) == set()
    assert in_any_order(states[torch.tensor([0, 0])].sum()) == {"IndexBackward0"}  # it would be seen


def test_tiles_cover_every_row_once_and_are_few() -> None:
    for length in (1, 47, 48, 49, 400, 5000):
        tiles = list(attention.Blocks(torch.zeros(1, length, dtype=torch.long), None).tiles())
        assert [row for start, stop in tiles for row in range(start, stop)] == list(range(length))
        assert len(tiles) <= attention.MOST_TILES


def test_no_token_is_computed_twice_or_padded(begun: int) -> None:
    batch = pack(ragged(shared=begun))
    prompts = begun + sum(prompt for prompt, _ in SHAPES)
    read = sum(length - 1 for _, completions in SHAPES for length in completions)
    assert batch.input_ids.shape == batch.position_ids.shape == (1, prompts + read)
    assert len(batch.targets) == len(batch.head_positions) == sum(sum(completions) for _, completions in SHAPES)


@pytest.mark.parametrize("sequences", [Sequences([], [[1]]), Sequences([1], [[2], []])])
@pytest.mark.parametrize("others", [[], [Sequences([5] * 40, [[1]])]])
def test_empty_prompts_and_completions_are_refused(sequences: Sequences, others: list[Sequences]) -> None:
    with pytest.raises(ValueError, match="empty prompt or completion"):
        pack([*others, sequences])


@pytest.mark.parametrize(("prompts", "expected"), [
    ([], 0), ([[7] * 90], 0), ([[7] * 90] * 2, 89), ([[7] * 17] * 2, 16), ([[7] * 16] * 2, 0), ([[7] * 90, []], 0),
    ([[7] * 90, [7] * 33, [7] * 90], 32), ([[7] * 40 + [1, 2], [7] * 40 + [1, 3]], 41), ([[7] * 90, [8] * 90], 0),
    ([[7] * 90, [7] * 15 + [1] * 9], 0),
])  # fmt: skip
def test_what_all_prompts_begin_with_is_computed_once_and_each_keeps_its_last_token(
    prompts: list[list[int]], expected: int
) -> None:
    assert packed.num_shared(prompts) == packed.num_shared([np.array(prompt) for prompt in prompts]) == expected


RAGGED = [(3, [2, 3]), (2, [3]), (1, [2, 4]), (4, [1, 1])]


def inputs(batch: Pack, widths: tuple[int, int, int], kv_heads: int, dtype: torch.dtype) -> list[Tensor]:
    """Random queries of two heads, keys and values for a pack."""
    generator = torch.Generator().manual_seed(0)
    heads, size = (2, kv_heads, kv_heads), batch.input_ids.shape[1]
    return [
        torch.randn(size, number, width, dtype=dtype, generator=generator).requires_grad_()
        for number, width in zip(heads, widths, strict=True)
    ]


@pytest.mark.parametrize(("max_scores", "tile"), [(1 << 20, 48), (30, 48), (1 << 20, 2)])
@pytest.mark.parametrize("kv_heads", [1, 2])
def test_attention_gradients_equal_finite_differences(
    in_blocks: None, monkeypatch: pytest.MonkeyPatch, kv_heads: int, max_scores: int, tile: int
) -> None:
    monkeypatch.setattr(attention, "MAX_SCORES", max_scores)
    monkeypatch.setattr(attention, "TILE", tile)
    batch = pack(ragged(RAGGED))
    # the scores are fp32 by design, so the step is large and the tolerance that of fp32
    assert torch.autograd.gradcheck(
        lambda *tensors: batch.layout.attend(0, *tensors, Scoring(0.7)),
        inputs(batch, (3, 3, 3), kv_heads, torch.float64),
        eps=3e-3, atol=2e-4, rtol=1e-3,
    )  # fmt: skip


@pytest.mark.parametrize("widths", [(3, 3, 3), (2, 2, 5), (5, 5, 2)], ids=["one width", "wide values", "wide keys"])
@pytest.mark.parametrize("kv_heads", [1, 2])
def test_fused_attention_gradients_equal_finite_differences(kv_heads: int, widths: tuple[int, int, int]) -> None:
    batch = pack(ragged(RAGGED))
    assert torch.autograd.gradcheck(
        lambda *tensors: batch.layout.attend(0, *tensors, Scoring(0.7)), inputs(batch, widths, kv_heads, torch.float64)
    )


def test_a_long_group_is_the_same_fused_and_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    sequences = ragged([(130, [300, 513, 40]), (1, [700])])  # longer than the kernel's own blocks
    results = []
    for kernels in ({"cpu": fused.OneByOne()}, dict[str, fused.Kernel]()):
        monkeypatch.setattr(fused, "KERNELS", kernels)
        results.append(attended(pack(sequences), torch.float32, (16, 16, 16), 1, Scoring(0.25)))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)


def attended(batch: Pack, dtype: torch.dtype, widths: tuple[int, int, int], heads: int, how: Scoring) -> list[Tensor]:
    """Output and gradients of inputs that depend on the pack alone."""
    tensors = [t.to(batch.input_ids.device, dtype).detach() for t in inputs(batch, widths, heads, torch.float32)]
    out = batch.layout.attend(0, *[tensor.requires_grad_() for tensor in tensors], how)
    return [out, *torch.autograd.grad((out * random_like(out, 1)).sum(), tensors)]


def plain_attention(
    sequences: list[Sequences], query: Tensor, key: Tensor, value: Tensor, scoring: Scoring, shared: int = 0
) -> Tensor:
    """Token by token, straight from what a pack means."""
    out = torch.zeros_like(query)
    rep = query.shape[1] // key.shape[1]
    at, root = shared, list(range(shared))
    first = [(list[int](), root)]
    for one in sequences:
        prompt = list(range(at, at + len(one.prompt) - shared))
        at += len(prompt)
        runs, first = [*first, (root, prompt)], []
        for completion in one.completions:
            runs.append((root + prompt, list(range(at, at + len(completion) - 1))))
            at += len(completion) - 1
        for before, run in runs:
            for place, token in enumerate(run):
                seen = (before + run[: place + 1])[-(scoring.window or 0) :]
                for head in range(query.shape[1]):
                    scores = key[seen, head // rep] @ query[token, head] * scoring.scale
                    if scoring.cap:
                        scores = scoring.cap * torch.tanh(scores / scoring.cap)
                    if scoring.sinks is not None:
                        scores = torch.cat((scores, scoring.sinks[head : head + 1]))
                    weights = scores.softmax(0)[: len(seen)]
                    out[token, head] = weights @ value[seen, head // rep]
    return out


@pytest.mark.parametrize("cap", [None, 0.8])
@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("window", [None, 1, 2, 3, 4, 5, 7, 10, 16, 17, 100])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_attention_equals_a_plain_loop(
    either_layout: None, kv_heads: int, window: int | None, sinks: bool, cap: float | None, begun: int
) -> None:
    sequences = ragged([*SHAPES, (9, [12, 1, 20]), (14, [3, 6])], shared=begun)
    batch = pack(sequences)
    size = batch.input_ids.shape[1]
    generator = torch.Generator().manual_seed(1)
    query, key, value = (torch.randn(size, n, 5, generator=generator) for n in (4, kv_heads, kv_heads))
    tensors = [tensor.requires_grad_() for tensor in (query, key, value)]
    sink = torch.randn(4, generator=generator).requires_grad_()
    scoring = Scoring(0.5, window, sink if sinks else None, cap)
    results = []
    plain = plain_attention(sequences, query, key, value, scoring, begun)
    for out in (batch.layout.attend(0, query, key, value, scoring), plain):
        wanted = [*tensors, sink] if sinks else tensors
        results.append([out, *torch.autograd.grad((out * random_like(out, 1)).sum(), wanted)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, atol=TOLERANCE, rtol=TOLERANCE)


def test_a_window_costs_no_more_scores_than_it_holds() -> None:
    runs = [packed._Run(0, 1000), packed._Run(1000, 300), packed._Run(1300, 300)]
    prefixes = [fused.Prefix(slice(1000, 1600), slice(0, 1000))]
    row = packed.PackedLayout(tuple(runs), tuple(prefixes))
    pieces, parts = packed._in_window(row, 50)
    seen = sum(length * (length + 1) // 2 for _, length in pieces)
    for part in parts:
        queries, keys = (piece.stop - piece.start for piece in (part.tokens, part.prompt))
        seen += queries * (queries + 1) // 2 if part.is_corner else queries * keys
    prompt = 50 * 51 // 2 + 950 * 50  # the first tokens of a prompt have less before them
    assert seen == prompt + 600 * 50


@pytest.mark.parametrize("window", [1, 4, 8])
def test_models_with_windows_equal_separate_padded_sequences(
    tiny_policy: Callable[..., Policy],
    eager_logprobs: Any,
    with_windows: tuple[str, dict[str, Any]],
    window: int,
    begun: int,
) -> None:
    architecture, changes = with_windows
    policy = tiny_policy(architecture, sliding_window=window, **changes)
    assert policy.model.config.sliding_window == window
    assert_equals_separate(policy, ragged(shared=begun), eager_logprobs)


def test_other_layers_equal_separate_sequences(
    tiny_policy: Callable[..., Policy],
    eager_logprobs: Any,
    other_layers: tuple[str, dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    begun: int,
) -> None:
    architecture, changes = other_layers
    monkeypatch.setitem(globals(), "TOLERANCE", 10 * TOLERANCE)  # states are summed up in fp32 in transformers, too
    assert_equals_separate(tiny_policy(architecture, **changes), ragged(shared=begun), eager_logprobs)


UNSUPPORTED = [
    pytest.param("llama4_text", {}, "chunked_attention", id="llama4"),
    pytest.param("minimax", {"num_local_experts": 4}, "cannot be kept while sampling", id="a cache of its own"),
    pytest.param(
        "mamba2",
        {"state_size": 8, "num_heads": 8, "n_groups": 1},
        "differs from transformers' eager forward",
        id="a cache by another name",
    ),
]


@pytest.mark.parametrize(("architecture", "changes", "feature"), UNSUPPORTED)
def test_unsupported_attention_is_refused_by_name(
    tiny_policy: Callable[..., Policy], architecture: str, changes: dict[str, Any], feature: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=feature) as caught:
        tiny_policy(architecture, **changes)
    assert "ForCausalLM" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_attention_dropout_is_refused_while_training(tiny_policy: Callable[..., Policy]) -> None:
    policy = tiny_policy(attention_dropout=0.1)
    policy.model.train()
    with pytest.raises(UnsupportedModelError, match=r"dropout 0\.1"):
        policy.token_logprobs(pack(ragged()))


def test_a_call_without_layout_is_refused(tiny_policy: Callable[..., Policy]) -> None:
    with pytest.raises(UnsupportedModelError, match="layout"):
        tiny_policy().model(torch.tensor([[1, 2, 3]]), use_cache=False)


def test_bf16_stays_near_fp32(tiny_policy: Callable[..., Policy], device: str) -> None:
    exact = tiny_policy(device=device).token_logprobs(pack(ragged(), device))
    coarse = tiny_policy(device=device, compute_dtype="bfloat16").token_logprobs(pack(ragged(), device))
    assert coarse.logprobs.dtype is coarse.entropy.dtype is torch.float32
    assert 0 < (coarse.logprobs - exact.logprobs).abs().max() < 0.5

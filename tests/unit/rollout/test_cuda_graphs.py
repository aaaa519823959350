"""Recorded decode steps sample what plain ones do.

Without a GPU, a list of operations stands in for the graph: like a graph it is what one run did, with every number and
address in it fixed. What only CUDA can show is marked `gpu`.
"""

import dataclasses
import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from groupwise.models.checkpoint import save_checkpoint
from groupwise.models.config import LoraConfig, ModelConfig
from groupwise.models.packed import Sequences, pack
from groupwise.models.policy import Policy, start_policy
from groupwise.randomness import key
from groupwise.rollout import cuda_graphs, in_process
from groupwise.rollout.cuda_graphs import Work, graph_decoder
from groupwise.rollout.decode import Decoder, KvCache, PlainDecoder, Shape, Step, prefill
from groupwise.rollout.engine import Request, Sampled
from groupwise.rollout.in_process import generate
from groupwise.rollout.sampling import SamplingConfig

CONFIG = SamplingConfig(max_tokens=12)
SIZES = ((5, 4), (1, 3), (9, 1), (5, 6))


class Recording(TorchDispatchMode):
    """Operations as they run, with the tensors they run on; refuses what would wait for a device."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[Any, Any, Any, list[Tensor]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        results = tree_leaves(out)
        if not all(isinstance(result, Tensor) for result in results):
            raise RuntimeError(f"{func} waits for the device")
        self.operations.append((func, args, kwargs or {}, results))
        return out

    def run(self) -> None:
        """Do everything again; results go where they went."""
        for func, args, kwargs, results in self.operations:
            for old, new in zip(results, tree_leaves(func(*args, **kwargs)), strict=True):
                if new.data_ptr() != old.data_ptr():
                    old.copy_(new)


class Recorder:
    """Stands in for CudaRecorder; counts."""

    def __init__(self) -> None:
        self.recordings: list[Recording] = []

    @property
    def count(self) -> int:
        return len(self.recordings)

    def __call__(self, work: Work) -> Work:
        work()
        with Recording() as recording:
            out = work()
        self.recordings.append(recording)

        def replay() -> Tensor:
            recording.run()
            return out

        return replay


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Lets `graph_decoder` record without CUDA, with small buckets so that they change within 12 tokens."""
    monkeypatch.setattr(cuda_graphs, "SHORTEST_SUFFIX", 3)
    monkeypatch.setattr(cuda_graphs, "_DECODERS", weakref.WeakKeyDictionary())
    recorder = Recorder()
    monkeypatch.setattr(cuda_graphs, "CudaRecorder", lambda device: recorder)
    return recorder


def recorded(policy: Policy, requests: list[Request], config: SamplingConfig, **options: Any) -> list[list[Sampled]]:
    """`generate` with recorded steps, whatever the device."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(in_process, "_decoder", lambda policy, largest, config: graph_decoder(policy, largest))
        return generate(policy, requests, config, **options)


def requests(sizes: tuple[tuple[int, int], ...] = SIZES, name: str = "graphs") -> list[Request]:
    """Requests by prompt length and number of completions."""
    generator = np.random.default_rng(0)
    return [
        Request(tuple(generator.integers(2, 258, length).tolist()), tuple(key(name, r, s) for s in range(count)))
        for r, (length, count) in enumerate(sizes)
    ]


def stopping(policy: Policy) -> Policy:
    """The same policy with so many stop tokens that completions end at all lengths."""
    return dataclasses.replace(policy, stop_ids=frozenset(range(1, 26)))


def assert_same(left: list[list[Sampled]], right: list[list[Sampled]], atol: float) -> None:
    for a, b in zip((s for group in left for s in group), (s for group in right for s in group), strict=True):
        assert a.token_ids.tolist() == b.token_ids.tolist()
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=atol)
        np.testing.assert_allclose(a.entropy, b.entropy, atol=atol)


def update(policy: Policy) -> None:
    """A step of an optimizer: weights change where they are."""
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.3)
    packed = pack([Sequences([5, 6, 7], [[8, 9], [10, 11, 12]])], policy.device)
    policy.token_logprobs(packed).logprobs.sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def hidden_states(policy: Policy, decoder: Decoder, num_steps: int = 6) -> list[Tensor]:
    """Hidden states of fixed tokens, six completions of three prompts, one tensor per step."""
    prompts, slots = [[5, 6, 7, 8], [9], [10, 11, 12, 13, 14, 15, 16]], np.array([0, 2, 0, 1, 2, 2])
    lengths = np.array([len(prompt) for prompt in prompts])
    tokens = np.random.default_rng(1).integers(2, 258, (num_steps, 6))
    steps = (Step(row, np.full(6, i), slots, lengths[slots]) for i, row in enumerate(tokens))
    with decoder.rounded:
        prefill(policy, decoder.cache, prompts, np.arange(3))
        return [decoder.hidden(policy, step).clone() for step in steps]


@pytest.mark.parametrize(
    ("architecture", "kv_heads", "window"),
    [("qwen2", 4, None), ("qwen3", 2, None), ("llama", 1, None), ("mistral", 2, None), ("gemma3_text", 2, 3)],
)
def test_recorded_steps_sample_what_plain_ones_do(
    tiny_policy: Callable[..., Policy], recorder: Recorder, architecture: str, kv_heads: int, window: int | None
) -> None:
    policy = stopping(tiny_policy(architecture, num_key_value_heads=kv_heads, sliding_window=window))
    found, expected = recorded(policy, requests(), CONFIG), generate(policy, requests(), CONFIG)
    assert_same(found, expected, atol=2e-5)
    assert len({len(s.token_ids) for group in expected for s in group}) > 2  # rows left at different times
    shapes = cuda_graphs._DECODERS[policy.identity].steps
    assert len({shape.rows for shape in shapes}) > 1
    assert len({shape.suffix for shape in shapes}) > 3
    assert recorder.count == len(shapes)


@pytest.mark.parametrize("max_rows", [1, 2, 5])
def test_waiting_completions_take_the_places_of_finished_ones(
    tiny_policy: Callable[..., Policy], recorder: Recorder, max_rows: int
) -> None:
    policy = stopping(tiny_policy())
    few = CONFIG.model_copy(update={"max_live_completions": max_rows})
    assert_same(recorded(policy, requests(), few), generate(policy, requests(), CONFIG), atol=2e-5)


def test_a_completion_does_not_depend_on_its_bucket(tiny_policy: Callable[..., Policy], recorder: Recorder) -> None:
    policy = stopping(tiny_policy())
    together = recorded(policy, requests(), CONFIG)
    wide = CONFIG.model_copy(update={"max_tokens": 20})
    for request, (other, *_) in zip(requests(), together, strict=True):
        ((one,),) = recorded(policy, [Request(request.token_ids, request.keys[:1])], wide)
        length = len(other.token_ids)
        assert one.token_ids[:length].tolist() == other.token_ids.tolist()
        np.testing.assert_allclose(one.logprobs[:length], other.logprobs, atol=2e-5)


def test_a_second_call_replays_what_the_first_recorded(tiny_policy: Callable[..., Policy], recorder: Recorder) -> None:
    policy = stopping(tiny_policy())
    recorded(policy, requests(), CONFIG)
    count = recorder.count
    assert_same(recorded(policy, requests(), CONFIG), generate(policy, requests(), CONFIG), atol=2e-5)
    assert recorder.count == count > 0
    other = requests(((4, 4), (2, 3), (8, 1), (3, 6)), name="other")
    assert_same(recorded(policy, other, CONFIG), generate(policy, other, CONFIG), atol=2e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_updated_in_place_are_used_without_recording_anew(
    tiny_policy: Callable[..., Policy], recorder: Recorder, dtype: str
) -> None:
    policy = tiny_policy("qwen2", compute_dtype=dtype)
    atol = 1e-5 if dtype == "float32" else 0.05
    largest = Shape(6, 3, 3, 7, 6)
    before = _both(policy, largest, atol)
    count = recorder.count
    update(policy)
    after = _both(policy, largest, atol)
    assert recorder.count == count > 0
    assert (after - before).abs().max() > 20 * atol


def test_adapters_updated_in_place_are_used_without_recording_anew(
    tiny_policy: Callable[..., Policy], recorder: Recorder, tmp_path: Path
) -> None:
    save_checkpoint(tmp_path / "model", tiny_policy())
    config = ModelConfig(path=str(tmp_path / "model"), device="cpu", compute_dtype="bfloat16")
    policy, largest = start_policy(config, LoraConfig(rank=2), 0), Shape(6, 3, 3, 7, 6)
    before = _both(policy, largest, 0.05)
    count = recorder.count
    torch._foreach_add_([weight.detach() for _, weight in policy.trainable()], 0.3)
    after = _both(policy, largest, 0.05)
    assert recorder.count == count > 0
    assert (after - before).abs().max() > 1
    torch.testing.assert_close(_both(policy.base(), largest, 0.05), before, atol=0.05, rtol=0.05)  # s B A is 0 at first


@torch.inference_mode()
def _both(policy: Policy, largest: Shape, atol: float) -> Tensor:
    """The same hidden states from recorded and from plain steps."""
    with policy.precision(), graph_decoder(policy, largest) as decoder:
        found = torch.cat(hidden_states(policy, decoder))
        expected = torch.cat(hidden_states(policy, PlainDecoder(KvCache(largest))))
    torch.testing.assert_close(found, expected, atol=atol, rtol=atol)
    return found.float()


def test_in_bfloat16_no_weight_is_converted_in_a_recorded_step(
    tiny_policy: Callable[..., Policy], recorder: Recorder
) -> None:
    policy = tiny_policy("qwen2", compute_dtype="bfloat16")
    _both(policy, Shape(6, 3, 3, 7, 6), atol=0.05)
    weights = {weight.data_ptr() for name, weight in policy.model.named_parameters() if "_proj" in name}
    read = [x for r in recorder.recordings for _, args, _, _ in r.operations for x in tree_leaves(args)]
    assert read
    assert not any(isinstance(x, Tensor) and x.data_ptr() in weights for x in read)


def test_weights_at_other_addresses_are_recorded_anew(tiny_policy: Callable[..., Policy], recorder: Recorder) -> None:
    policy = stopping(tiny_policy())
    recorded(policy, requests(), CONFIG)
    count = recorder.count
    for parameter in policy.model.parameters():
        parameter.data = 0.9 * parameter.data
    assert_same(recorded(policy, requests(), CONFIG), generate(policy, requests(), CONFIG), atol=2e-5)
    assert recorder.count > count


def test_the_cache_grows_once_and_serves_smaller_calls(tiny_policy: Callable[..., Policy], recorder: Recorder) -> None:
    policy = stopping(tiny_policy())
    small, large = requests(((3, 2),)), requests(((20, 3), (2, 9)))
    recorded(policy, small, CONFIG)
    first = cuda_graphs._DECODERS[policy.identity].cache
    assert_same(recorded(policy, large, CONFIG), generate(policy, large, CONFIG), atol=2e-5)
    grown = cuda_graphs._DECODERS[policy.identity].cache
    assert grown is not first
    assert_same(recorded(policy, small, CONFIG), generate(policy, small, CONFIG), atol=2e-5)
    assert cuda_graphs._DECODERS[policy.identity].cache is grown


def test_two_models_have_their_own(tiny_policy: Callable[..., Policy], recorder: Recorder) -> None:
    first, second = stopping(tiny_policy()), stopping(tiny_policy(seed=1))
    for policy in (first, second, first):
        assert_same(recorded(policy, requests(), CONFIG), generate(policy, requests(), CONFIG), atol=2e-5)
    assert cuda_graphs._DECODERS[first.identity] is not cuda_graphs._DECODERS[second.identity]


def test_the_graph_longest_unused_goes_first(
    tiny_policy: Callable[..., Policy], recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_graphs, "MAX_GRAPHS", 2)
    policy = stopping(tiny_policy())
    assert_same(recorded(policy, requests(), CONFIG), generate(policy, requests(), CONFIG), atol=2e-5)
    assert len(cuda_graphs._DECODERS[policy.identity].steps) == 2
    assert recorder.count > 5


def test_a_call_within_a_call_gets_a_decoder_of_its_own(tiny_policy: Callable[..., Policy], recorder: Recorder) -> None:
    policy = stopping(tiny_policy())
    inner = []

    def again(request: int, group: list[Sampled]) -> None:
        inner.append(recorded(policy, requests(), CONFIG))

    outer = recorded(policy, requests(), CONFIG, on_finished=again)
    expected = generate(policy, requests(), CONFIG)
    assert len(inner) == len(SIZES)
    for one in (outer, *inner):
        assert_same(one, expected, atol=2e-5)


def test_after_an_error_a_decoder_is_not_used_again(tiny_policy: Callable[..., Policy], recorder: Recorder) -> None:
    policy = stopping(tiny_policy())

    def fail(request: int, group: list[Sampled]) -> None:
        raise KeyError(request)

    with pytest.raises(KeyError):
        recorded(policy, requests(), CONFIG, on_finished=fail)
    assert policy.identity not in cuda_graphs._DECODERS


def test_a_decoder_goes_with_its_model(tiny_policy: Callable[..., Policy], recorder: Recorder) -> None:
    policy = tiny_policy()

    def forget(work: Work) -> Work:
        out = work()
        return lambda: out

    with torch.inference_mode(), graph_decoder(policy, Shape(6, 3, 3, 7, 6)) as decoder:
        decoder.record = forget
        hidden_states(policy, decoder)
    alive = weakref.ref(policy.identity)
    del policy
    gc.collect()
    assert alive() is None
    assert len(cuda_graphs._DECODERS) == 0


def test_without_cuda_nothing_is_recorded(tiny_policy: Callable[..., Policy], recorder: Recorder) -> None:
    policy = tiny_policy()
    assert CONFIG.cuda_graphs
    generate(policy, requests(), CONFIG)
    assert recorder.count == 0
    assert policy.identity not in cuda_graphs._DECODERS


@pytest.fixture
def cuda() -> Iterator[None]:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    yield
    cuda_graphs._DECODERS.clear()


def plain(config: SamplingConfig) -> SamplingConfig:
    return config.model_copy(update={"cuda_graphs": False})


@pytest.mark.gpu
@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("max_rows", [256, 3])
@pytest.mark.parametrize("architecture", ["qwen2", "qwen3", "llama", "mistral"])
def test_graphs_sample_what_plain_steps_do(
    tiny_policy: Callable[..., Policy], architecture: str, max_rows: int
) -> None:
    policy = stopping(tiny_policy(architecture, device="cuda"))
    config = CONFIG.model_copy(update={"max_live_completions": max_rows})
    for _ in range(2):  # recorded, then replayed alone
        found = generate(policy, requests(), config)
        assert_same(found, generate(policy, requests(), plain(config)), atol=1e-4)
    assert cuda_graphs._DECODERS[policy.identity].steps


@pytest.mark.gpu
@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize(("dtype", "atol"), [("float32", 1e-4), ("bfloat16", 0.1)])
def test_graphs_use_the_weights_of_the_last_update(tiny_policy: Callable[..., Policy], dtype: str, atol: float) -> None:
    policy = tiny_policy("qwen2", device="cuda", compute_dtype=dtype)
    largest = Shape(6, 3, 3, 7, 6)
    before = _both(policy, largest, atol)
    steps = dict(cuda_graphs._DECODERS[policy.identity].steps)
    update(policy)
    after = _both(policy, largest, atol)
    assert cuda_graphs._DECODERS[policy.identity].steps == steps  # nothing was recorded anew
    assert (after - before).abs().max() > 5 * atol


@pytest.mark.gpu
@pytest.mark.usefixtures("cuda")
def test_graphs_of_two_models_do_not_meet(tiny_policy: Callable[..., Policy]) -> None:
    first, second = (stopping(tiny_policy(device="cuda", seed=seed)) for seed in (0, 1))
    for policy in (first, second, first, second):
        assert_same(generate(policy, requests(), CONFIG), generate(policy, requests(), plain(CONFIG)), atol=1e-4)

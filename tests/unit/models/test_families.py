"""Every family of layers through whole runs: full steps and adapters, replay, checkpoints that load again, export."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from groupwise.config import parse
from groupwise.errors import ModelError, UnsupportedModelError
from groupwise.models.adapters import is_adapter
from groupwise.models.checkpoint import save_checkpoint
from groupwise.models.config import LoraConfig, ModelConfig
from groupwise.models.export import export
from groupwise.models.new_model import NewModel, new_policy
from groupwise.models.packed import Sequences, pack
from groupwise.models.policy import Policy, load_policy, make_policy, start_policy
from groupwise.ranks.group import RANKS
from groupwise.rollout.pieces import Written
from groupwise.runs.directory import RunDirectory
from groupwise.trainers import TRAINERS
from groupwise.trainers.replay import replay

LINEAR = {
    "lfm2": ["q_proj", "in_proj", "w1"],
    "qwen3_next": ["q_proj", "in_proj_qkvz"],
    "qwen3_5_text": ["q_proj", "in_proj_qkv", "up_proj"],
    "falcon_h1": ["q_proj", "in_proj", "up_proj"],
}
"""Layers that adapters go to, where not the attention's alone."""


def run(model: Path, directory: Path, lora: dict[str, Any] | None, num_steps: int = 2) -> Any:
    """Train on a reward that no random model is sure of: a completion of an even number of letters."""
    (directory.parent / "rewards.py").write_text(
        "def reward(completion):\n    return float(len(completion) % 2 == 0)\n"
    )
    values = {
        "algorithm": "grpo",
        "run": {"directory": str(directory), "num_steps": num_steps, "checkpoint_every": 1},
        "model": {"path": str(model), "device": "cpu", "num_threads": 1},
        "task": {"kind": "arithmetic", "num_problems": 12, "num_eval_problems": 2},
        "verifier": {"kind": f"{directory.parent / 'rewards.py'}:reward"},
        "sampling": {"max_tokens": 9},
        "grpo": {"prompts_per_step": 3, "group_size": 4},
        "optimizer": {"lr": 1e-2},
        "evaluation": {"every": 9, "num_problems": 2, "num_samples": 1, "test_problems": 0},
    } | ({"lora": lora} if lora else {})
    trainer = TRAINERS.find("grpo")
    return trainer.run(parse(trainer.recipe, values), False, lambda report: None)


def logprobs(path: Path | Policy) -> torch.Tensor:
    policy = path if isinstance(path, Policy) else load_policy(ModelConfig(path=str(path), device="cpu"))
    return policy.token_logprobs(pack([Sequences([5, 6, 7], [[8, 9, 1], [10, 1]])])).logprobs.detach()


@pytest.mark.filterwarnings("ignore:.*reference answers")  # they are not what is rewarded
@pytest.mark.parametrize("adapters", [False, True], ids=["whole", "adapters"])
def test_a_run_learns_is_replayed_and_loads_again(
    tiny_policy: Callable[..., Policy], other_layers: tuple[str, dict[str, Any]], adapters: bool, tmp_path: Path
) -> None:
    architecture, changes = other_layers
    before = tiny_policy(architecture, **changes)
    save_checkpoint(tmp_path / "model", before)
    assert torch.equal(logprobs(tmp_path / "model"), logprobs(before))
    lora = {"rank": 2, "alpha": 16, "targets": LINEAR.get(architecture, ["q_proj", "v_proj"])} if adapters else None
    session = run(tmp_path / "model", tmp_path / "run", lora)
    records = RunDirectory(tmp_path / "run")
    lines = [json.loads(line) for line in records.metrics.path.read_text().splitlines()]
    steps = [line for line in lines if line.get("kind") == "step"]
    assert all(line["logprob_difference"] < 1e-4 and line["grad_norm"] > 0 for line in steps)
    has_experts = "num_experts" in changes
    for line in steps:  # 4 experts, 2 of them chosen: at most twice an even load, and log 4 nats
        assert (1 < line["expert_load"] <= 2) is (0 < line["router_entropy"] < 1.3863) is has_experts
    old, trained = dict(before.state()), session.policy.trainable()
    moved = {name for name, weight in trained if name not in old or not torch.equal(weight, old[name])}
    assert moved == {name for name, _ in trained}
    assert all(is_adapter(name) for name in moved) is adapters
    problem = next(line for line in records.ledger.lines() if line.get("step") == 1 and "problems" in line)
    assert replay(tmp_path / "run", 1, problem["problems"][0][0], 2).identical
    assert torch.equal(logprobs(records.checkpoint(2)), logprobs(session.policy))
    export(tmp_path / "run", tmp_path / "plain")
    torch.testing.assert_close(logprobs(tmp_path / "plain"), logprobs(session.policy), atol=1e-5, rtol=0)


def test_layers_with_a_state_are_refused_among_ranks(
    make_model: Callable[..., Any], tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RANKS, "size", 2)
    model = make_model("lfm2", layer_types=["conv", "full_attention"])
    with pytest.raises(UnsupportedModelError, match="it trains in one process"):
        make_policy(model, tokenizer, ModelConfig(device="cpu"))


@pytest.mark.parametrize(
    ("architecture", "targets", "sentence"),
    [
        ("qwen3_moe", "all-linear", "weights that are no linear layers, such as layers.0.mlp.experts.gate_up_proj"),
        ("qwen3_moe", ["gate_up_proj"], "'gate_up_proj' is one weight of 4 × 48 × 32, not a linear layer; allowed are"),
        ("mixtral", ["experts"], "'experts' is a MixtralExperts, not a linear layer; allowed are q_proj"),
        ("mixtral", ["gate"], "'gate' is a MixtralTopKRouter, not a linear layer"),
        ("lfm2", ["conv.conv"], "'conv.conv' is a Conv1d, not a linear layer"),
    ],
)
def test_what_adapters_cannot_take_is_named(
    tiny_policy: Callable[..., Policy], tmp_path: Path, architecture: str, targets: Any, sentence: str
) -> None:
    experts = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
    changes = {"layer_types": ["conv", "full_attention"]} if architecture == "lfm2" else experts
    save_checkpoint(tmp_path / "model", tiny_policy(architecture, **changes))
    lora = LoraConfig.model_validate({"rank": 2, "targets": targets})
    with pytest.raises(ModelError, match=sentence.replace(".", r"\.")):
        start_policy(ModelConfig(path=str(tmp_path / "model"), device="cpu"), lora, 0)


ADDED = ("<think>", "</think>", "<|over|>")


def whole(tokenizer: Tokenizer, **special: str) -> PreTrainedTokenizerFast:
    tokenizer.add_special_tokens(["<|over|>"])
    tokenizer.add_tokens([AddedToken(name, normalized=False) for name in ADDED[:2]])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **special)


def byte_level() -> PreTrainedTokenizerFast:
    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "Ġt", "he", "Ġthe"]
    merges = [("Ġ", "t"), ("h", "e"), ("Ġt", "he")]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return whole(tokenizer, eos_token="<|over|>")


def byte_fallback() -> PreTrainedTokenizerFast:
    """As sentencepiece has it: a space before every text, and bytes for what is not in the vocabulary."""
    tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "t", "h", "e", "he", "▁t", "▁the"]
    merges = [("h", "e"), ("▁", "t"), ("▁t", "he")]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0),
    ])  # fmt: skip
    return whole(tokenizer, eos_token="<|over|>", unk_token="<unk>")


TOKENIZERS = {"byte level": byte_level(), "byte fallback": byte_fallback()}
WORDS = st.sampled_from([*ADDED, "the", " ", "  ", "\n", "ab", "é", "数学", "🙂", "👩‍👩‍👧", "e\u0301"])


def read(tokenizer: Any, ids: Sequence[int]) -> str:
    written = Written(tokenizer)
    return "".join(written.add(ids[: n + 1], n + 1 == len(ids)) for n in range(len(ids)))


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=st.lists(WORDS, max_size=8).map("".join) | st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
def test_pieces_of_a_text_make_the_text(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    ids = tokenizer(text, add_special_tokens=False).input_ids
    assert read(tokenizer, ids) == tokenizer.decode(ids)
    # sentencepiece writes a space behind every added token, too
    spaces = {} if name == "byte level" else {ord(" "): None}
    assert tokenizer.decode(ids).translate(spaces) == text.translate(spaces)


@pytest.mark.parametrize("name", TOKENIZERS)
@given(draws=st.lists(st.integers(0, 1 << 16), min_size=1, max_size=12))
def test_pieces_of_any_tokens_make_their_text(name: str, draws: list[int]) -> None:
    tokenizer = TOKENIZERS[name]
    ids = [draw % len(tokenizer) for draw in draws]
    text, pieces = tokenizer.decode(ids), read(tokenizer, ids)
    # bytes that are no text make sentencepiece take back the bytes before them: then the whole stands there again
    assert pieces == text or (name == "byte fallback" and pieces.endswith(f"\n{text}"))


def test_half_a_character_waits_for_its_other_bytes() -> None:
    tokenizer = TOKENIZERS["byte level"]
    written, ids = Written(tokenizer), tokenizer("é🙂").input_ids
    assert [written.add(ids[: n + 1]) for n in range(len(ids))] == ["", "é", "", "", "", "🙂"]
    assert Written(tokenizer).add(ids[:1], is_end=True) == "\ufffd"


def test_stop_texts_of_the_generation_config_are_stop_tokens_or_said() -> None:
    tokenizer = TOKENIZERS["byte level"]
    shape = NewModel(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, context_length=64
    )
    model: Any = new_policy(shape, tokenizer).model
    model.generation_config.stop_strings = ["</think>", "Question:"]
    with pytest.warns(UserWarning, match=r"stops at the texts \['Question:'\].*sampling.stop"):
        policy = make_policy(model, tokenizer)
    assert policy.stop_ids == {tokenizer.convert_tokens_to_ids(name) for name in ("<|over|>", "</think>")}

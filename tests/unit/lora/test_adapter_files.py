"""Adapters on disk are peft's own, exports are transformers' own, and what does not fit is refused in a sentence."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from groupwise.errors import ConfigError, GroupwiseError, ModelError
from groupwise.models.adapters import adapted, is_adapter
from groupwise.models.checkpoint import save_checkpoint, write_plain
from groupwise.models.config import LoraConfig, ModelConfig
from groupwise.models.packed import Sequences, pack
from groupwise.models.policy import Policy, load_policy, start_policy
from groupwise.models.reward_model import load_reward_model, start_reward_model
from groupwise.models.size import adapter_weights, language_model_size
from groupwise.models.steps import check_reads, mark_reads

# what peft itself calls when it wraps a model
pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
ROWS = [Sequences([5, 6, 7], [[8, 9, 1], [10, 1]])]
SEQUENCES = [[5, 6, 7, 8, 9, 1], [5, 6, 7, 10, 1]]
Start = Callable[..., Policy]


def at(path: Any, **config: Any) -> ModelConfig:
    return ModelConfig.model_validate({"path": str(path), "device": "cpu", **config})


def logprobs(policy: Policy) -> Tensor:
    return policy.token_logprobs(pack(ROWS)).logprobs.detach()


@torch.no_grad()
def their_logprobs(model: Any) -> Tensor:
    """Of the same completions, computed by a model of transformers or peft."""
    found = []
    for ids in SEQUENCES:
        steps = model.eval()(torch.tensor([ids]), use_cache=False).logits[0].log_softmax(-1)
        found += [steps[i - 1, ids[i]] for i in range(3, len(ids))]
    return torch.stack(found)


@pytest.fixture
def saved(base: str, start: Start, tmp_path: Path) -> Path:
    """A checkpoint of adapters that have learnt."""
    save_checkpoint(tmp_path / "adapters", start(base, learnt=True))
    return tmp_path / "adapters"


def test_plain_peft_and_the_export_in_plain_transformers_say_the_same(base: str, saved: Path, tmp_path: Path) -> None:
    from peft import PeftModel

    ours = logprobs(load_policy(at(saved)))
    theirs = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), saved)
    torch.testing.assert_close(their_logprobs(theirs), ours, atol=1e-5, rtol=0)
    (tmp_path / "plain").mkdir()
    write_plain(saved, tmp_path / "plain")
    assert not (tmp_path / "plain" / "adapter_config.json").exists()
    plain, report = AutoModelForCausalLM.from_pretrained(tmp_path / "plain", output_loading_info=True)
    assert not any(report.values())
    torch.testing.assert_close(their_logprobs(plain), ours, atol=1e-5, rtol=0)
    expected = dict(theirs.merge_and_unload().named_parameters())
    for name, weight in plain.named_parameters():
        torch.testing.assert_close(weight, expected[name], atol=1e-6, rtol=1e-6)
    assert (logprobs(load_policy(at(base))) - ours).abs().max() > 0.1
    for name, weight in load_policy(at(saved)).plain_state():  # what a server that is no part of this gets
        assert torch.equal(weight, plain.get_parameter(name)), name
    names = set(load_file(tmp_path / "plain" / "model.safetensors"))
    assert names == set(load_file(Path(base) / "model.safetensors"))  # a tied head once


def test_adapters_that_peft_trained_load_here(base: str, tmp_path: Path) -> None:
    from peft import LoraConfig as PeftConfig
    from peft import get_peft_model

    config = PeftConfig(r=2, lora_alpha=7, target_modules=["v_proj", "o_proj"], lora_dropout=0.1, use_rslora=True)
    theirs = get_peft_model(AutoModelForCausalLM.from_pretrained(base), config).eval()
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            if "lora_B" in name:
                weight.normal_(0, 0.2, generator=torch.Generator().manual_seed(len(name)))
    theirs.save_pretrained(tmp_path / "theirs")
    policy = load_policy(at(tmp_path / "theirs"))
    torch.testing.assert_close(logprobs(policy), their_logprobs(theirs), atol=1e-5, rtol=0)


@pytest.mark.parametrize("began", ["pissa", "olora", "pissa_niter_4"])
def test_adapters_that_began_as_a_part_of_the_weights(
    base: str, tmp_path: Path, as_rank: Callable[[int, int], Any], began: Any
) -> None:
    """They stand on the rest, which has to be found again; among ranks it could not be, and by chance it would not."""
    from peft import LoraConfig as PeftConfig
    from peft import get_peft_model

    config = PeftConfig(r=2, lora_alpha=7, target_modules=["v_proj"], init_lora_weights=began)
    theirs = get_peft_model(AutoModelForCausalLM.from_pretrained(base), config).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    if "niter" in began:
        with pytest.raises(ModelError, match="= 'pissa_niter_4', as a part of the weights that is found from random"):
            load_policy(at(tmp_path / "theirs"))
        return
    torch.testing.assert_close(
        logprobs(load_policy(at(tmp_path / "theirs"))), their_logprobs(theirs), atol=1e-5, rtol=0
    )
    with as_rank(2, 1), pytest.raises(ModelError, match=rf"= '{began}', .* that ranks have not read .*, and one"):
        load_policy(at(tmp_path / "theirs"), in_rows=True)


def test_a_checkpoint_is_the_same_policy_and_the_same_bytes(
    base: str, saved: Path, start: Start, tmp_path: Path
) -> None:
    policy, again = start(base, learnt=True), load_policy(at(saved))
    assert again.fingerprint() == policy.fingerprint()
    assert torch.equal(logprobs(again), logprobs(policy))
    assert again.stop_ids == policy.stop_ids
    assert {path.name for path in saved.iterdir()} == {
        "adapter_config.json", "adapter_model.safetensors", "adapter_base.json", "manifest.json", "tokenizer.json",
        "tokenizer_config.json",
    }  # fmt: skip
    again.save(tmp_path / "again")
    for name in ("adapter_config.json", "adapter_model.safetensors", "adapter_base.json"):
        assert (tmp_path / "again" / name).read_bytes() == (saved / name).read_bytes()
    facts = json.loads((saved / "adapter_config.json").read_text())
    assert (facts["r"], facts["lora_alpha"], facts["lora_dropout"], facts["peft_type"]) == (4, 8, 0.0, "LORA")
    assert facts["target_modules"] == sorted(facts["target_modules"])
    assert facts["base_model_name_or_path"] == base


def test_adapters_go_on_or_become_a_whole_model(saved: Path, start: Start) -> None:
    going_on, whole = start(str(saved)), start_policy(at(saved), None, seed=0)
    assert going_on.fingerprint() == load_policy(at(saved)).fingerprint()
    assert all(is_adapter(name) for name, _ in going_on.trainable())
    assert not adapted(whole.model)
    assert len(whole.trainable()) == len(list(whole.model.parameters()))
    torch.testing.assert_close(logprobs(whole), logprobs(going_on), atol=1e-5, rtol=0)


def test_a_reward_models_score_is_kept_with_its_adapters(base: str, tmp_path: Path) -> None:
    from peft import PeftModel

    model = start_reward_model(at(base), LoraConfig(rank=2), seed=3)
    trained = {name for name, _ in model.trainable()}
    assert {name for name in trained if not is_adapter(name)} == {"score.weight"}
    with torch.no_grad():
        for weight in (weight for _, weight in model.trainable()):
            weight.normal_(0, 0.3, generator=torch.Generator().manual_seed(weight.numel()))
    mark_reads(model, chat=True)
    save_checkpoint(tmp_path / "saved", model)
    expected = model.scores(ROWS).detach()
    again = load_reward_model(at(tmp_path / "saved"))
    with pytest.raises(ModelError, match="it learnt from prompts that a chat template wrote"):
        check_reads(again, chat=False, name="it")
    assert again.fingerprint() == model.fingerprint()
    assert torch.equal(again.scores(ROWS), expected)
    plain = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1, pad_token_id=0)
    theirs = PeftModel.from_pretrained(plain, tmp_path / "saved").eval()
    with torch.no_grad():
        scores = torch.cat([theirs(torch.tensor([ids])).logits[:, 0] for ids in SEQUENCES])
    torch.testing.assert_close(scores, expected, atol=1e-5, rtol=1e-5)
    (tmp_path / "plain").mkdir()
    write_plain(tmp_path / "saved", tmp_path / "plain")
    torch.testing.assert_close(load_reward_model(at(tmp_path / "plain")).scores(ROWS), expected, atol=1e-5, rtol=1e-5)
    with pytest.raises(ModelError, match="is a reward model"):
        load_policy(at(tmp_path / "saved"))


def test_a_reward_model_may_start_from_a_policys_adapters(saved: Path) -> None:
    with pytest.raises(ModelError, match="not a reward model"):
        load_reward_model(at(saved))
    ours = start_reward_model(at(saved), LoraConfig(rank=4, alpha=8), seed=0)
    assert ours.head.weight.abs().max() == 0
    policy = load_policy(at(saved))
    packed = pack(ROWS)
    assert torch.equal(ours.root.states(packed), policy.completion_states(packed))
    assert {name for name, _ in ours.trainable() if not is_adapter(name)} == {"score.weight"}


TARGETS = {
    "lm_head": "'lm_head' is the head, which is not adapted; allowed are q_proj, k_proj",
    "embed_tokens": "'embed_tokens' is the embedding, which is not adapted",
    "mlp": "'mlp' is a Qwen3MLP, not a linear layer",
    "q_proy": "'q_proy' is no layer of Qwen3ForCausalLM; did you mean 'q_proj'",
    "xyz": "'xyz' is no layer of Qwen3ForCausalLM; allowed are q_proj, k_proj, v_proj, o_proj, gate_proj",
    "layers.7.self_attn.q_proj": "is no layer of Qwen3ForCausalLM",
}


@pytest.mark.parametrize("target", TARGETS)
def test_targets_that_cannot_be_adapted_are_named(base: str, start: Start, target: str) -> None:
    with pytest.raises(ModelError, match=r"lora\.targets") as found:
        start(base, {"targets": ["q_proj", target]})
    assert TARGETS[target] in str(found.value)
    assert "\n" not in str(found.value)


def test_one_layer_alone_may_be_named(base: str, start: Start) -> None:
    policy = start(base, {"targets": ["layers.1.self_attn.q_proj"]})
    assert list(adapted(policy.model)) == ["model.layers.1.self_attn.q_proj"]


def test_a_rank_larger_than_a_layer_is_refused(base: str, start: Start) -> None:
    with pytest.raises(ModelError, match=r"lora.rank = 17 is more than model.layers.0.self_attn.k_proj has.*16 × 32"):
        start(base, {"rank": 17})
    assert start(base, {"rank": 16}).trainable()


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"dropout": 0.05}, "unknown key"),
        ({"rank": 0}, "greater than or equal to 1"),
        ({"alpha": -1}, "greater than 0"),
        ({"targets": "linear"}, "allowed are 'all-linear' and a list"),
        ({"targets": []}, "allowed are 'all-linear' and a list"),
        ({"targets": ["q_proj", "q_proj"]}, "different names"),
        ({"targets": [3]}, "allowed are 'all-linear' and a list"),
        ({"targest": ["q_proj"]}, "did you mean 'targets'"),
    ],
)
def test_settings_that_are_refused(values: dict[str, Any], says: str) -> None:
    from groupwise.trainers import load_recipe

    recipe = {"algorithm": "grpo", "run": {"directory": "unused", "num_steps": 1}, "task": {"kind": "arithmetic"}}
    with pytest.raises(ConfigError, match="lora") as found:
        load_recipe({**recipe, "lora": values})
    assert says in str(found.value)


def test_adapters_go_on_with_their_own_settings_only(saved: Path, start: Start) -> None:
    for lora, says in (
        ({"rank": 2}, "lora.rank = 2, and theirs is 4"),
        ({"alpha": 9}, "lora.alpha = 9, and theirs is 8"),
        ({"targets": ["q_proj"]}, "lora.targets = ('q_proj',), and they adapt down_proj, gate_proj"),
    ):
        with pytest.raises(ConfigError, match="cannot be trained further as the recipe says") as found:
            start(str(saved), lora)
        assert says in str(found.value)


def change(path: Path, **facts: Any) -> None:
    file = path / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **facts}))


def spoil_weights(path: Path, spoil: Callable[[dict[str, Tensor]], Any]) -> None:
    weights = load_file(path / "adapter_model.safetensors")
    spoil(weights)
    save_file(weights, path / "adapter_model.safetensors", metadata={"format": "pt"})


NAME = "base_model.model.model.layers.0.mlp.up_proj.lora_A.weight"
SPOILT: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no weights": (lambda path: (path / "adapter_model.safetensors").unlink(), "there is no adapter_model.safetensors"),
    "half a file": (
        lambda path: (path / "adapter_model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}"),
        "cannot be read",
    ),
    "one missing": (lambda path: spoil_weights(path, lambda w: w.pop(NAME)), "are damaged: weights ['model.layers.0"),
    "one too many": (
        lambda path: spoil_weights(path, lambda w: w.update({f"{NAME}x": torch.ones(1)})), "are damaged: weights",
    ),
    "another shape": (lambda path: spoil_weights(path, lambda w: w.update({NAME: w[NAME][:2].clone()})), "are damaged"),
    "half a record": (lambda path: (path / "adapter_base.json").write_text('{"w'), "base.json cannot be read"),
    "no JSON": (lambda path: (path / "adapter_config.json").write_text("{"), "cannot be read"),
    "no base": (lambda path: change(path, base_model_name_or_path=None), "does not name the model"),
    "a base that is gone": (
        lambda path: change(path, base_model_name_or_path=str(path / "gone")), "stand on a model that is not there",
    ),
    "another kind": (lambda path: change(path, peft_type="IA3"), "holds adapters of type IA3; allowed is LORA"),
    "with biases": (lambda path: change(path, bias="lora_only"), "bias = 'lora_only' is not supported"),
    "whole layers": (lambda path: change(path, modules_to_save=["lm_head"]), "modules_to_save = ['lm_head'] is not"),
    "another revision": (lambda path: change(path, revision="v2"), "revision = 'v2' is not supported"),
    "DoRA": (lambda path: change(path, use_dora=True), "a kind that is not supported"),
}  # fmt: skip


@pytest.mark.parametrize("fault", SPOILT)
def test_spoilt_adapters_are_named(saved: Path, fault: str) -> None:
    spoil, says = SPOILT[fault]
    spoil(saved)
    with pytest.raises(GroupwiseError) as found:
        load_policy(at(saved))
    assert says in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")
def test_adapters_on_the_head_are_named(saved: Path) -> None:
    change(saved, target_modules=["q_proj", "lm_head"])
    with pytest.raises(ModelError, match=r"lm_head has adapters of .* not supported \(Linear, on the head\)"):
        load_policy(at(saved))


def test_adapters_on_other_weights_are_refused(base: str, saved: Path, tmp_path: Path) -> None:
    """Same shapes, another model: without a check it would answer, and wrongly."""
    shutil.copytree(base, tmp_path / "other")
    weights = load_file(tmp_path / "other" / "model.safetensors")
    name = "model.layers.1.mlp.down_proj.weight"
    weights[name].view(torch.int32)[3, 5] ^= 1
    save_file(weights, tmp_path / "other" / "model.safetensors", metadata={"format": "pt"})
    change(saved, base_model_name_or_path=str(tmp_path / "other"))
    with pytest.raises(ModelError, match="were trained on other weights"):
        load_policy(at(saved))


def test_adapters_on_adapters_are_refused(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "second")
    change(tmp_path / "second", base_model_name_or_path=str(saved))
    with pytest.raises(ModelError, match="stand on other adapters"):
        load_policy(at(tmp_path / "second"))


def test_a_missing_library_is_one_sentence(
    base: str, saved: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    for load in (lambda: start(base), lambda: load_policy(at(saved))):
        with pytest.raises(ConfigError, match=r"^LoRA needs the library `peft`: pip install 'groupwise\[lora\]'$"):
            load()
    assert load_policy(at(base)).trainable()  # who has no adapters needs none of it


def test_sizes_without_loading_a_weight(base: str, saved: Path, start: Start) -> None:
    policy = start(base)
    count = sum(weight.numel() for _, weight in policy.trainable())
    lora = LoraConfig(rank=4, alpha=8)
    assert adapter_weights(base, lora) == adapter_weights(str(saved), lora) == count
    assert language_model_size(str(saved)).total == policy.num_parameters - count

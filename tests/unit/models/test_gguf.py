"""GGUF files in and out, on small random models; the weights against `gguf`, which is llama.cpp's own code."""

import json
import shutil
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from groupwise.config.schema import SHIPPED, resolve
from groupwise.errors import CheckpointError, ModelError
from groupwise.models.config import ModelConfig
from groupwise.models.gguf import GGUF, SOURCE, read_gguf
from groupwise.models.gguf_keys import SPLITS, frequency_factors, scaling_of, tokenizer_of
from groupwise.models.gguf_write import write_gguf
from groupwise.models.located import locate
from groupwise.models.policy import load_policy
from groupwise.runs.atomic import Hold

SIZES = {
    "hidden_size": 64, "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "intermediate_size": 96, "max_position_embeddings": 128, "vocab_size": 300, "eos_token_id": 1, "pad_token_id": 0,
    "bos_token_id": 2,
}  # fmt: skip
TEMPLATE = "{% for m in messages %}<|turn|>{{ m['content'] }}<|over|>\n{% endfor %}"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "groupwise-gguf"


def byte_tokenizer(template: str | None = TEMPLATE) -> PreTrainedTokenizerFast:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = ["<pad>", "<end>", "<begin>", *letters, "Ġt", "he", "Ġthe"]
    merges = [("Ġ", "t"), ("h", "e"), ("Ġt", "he")]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False),
    ])  # fmt: skip
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<pad>", "<end>", "<begin>", "<|turn|>", "<|over|>"])
    tokenizer.add_tokens(["<think>"])
    special = {"pad_token": "<pad>", "eos_token": "<end>", "bos_token": "<begin>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template, **special)


def saved(folder: Path, kind: str, **options: object) -> Path:
    torch.manual_seed(0)
    windows = {"sliding_window": 8, "query_pre_attn_scalar": 32, "rope_theta": 1e6} if kind == "gemma3_text" else {}
    config = AutoConfig.for_model(kind, **SIZES | windows | options)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("norm.weight"):
                weight.add_(torch.randn_like(weight) / 10)  # else a shift that is left out would not be seen
    model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3", "gemma3_text"])
def test_a_model_comes_back_as_it_was(tmp_path: Path, kind: str, tied: bool) -> None:
    before = saved(tmp_path / "before", kind, tie_word_embeddings=tied, sliding_window=None if kind == "mistral" else 8)
    write_gguf(before, tmp_path / "model.gguf", "f32")
    after = read_gguf(str(tmp_path / "model.gguf"))
    old, new = load_file(before / "model.safetensors"), load_file(after / "model.safetensors")
    assert old.keys() == new.keys()
    shifted = 1e-6 if kind == "gemma3_text" else 0  # norms are kept as 1 + weight
    for name, weight in old.items():
        torch.testing.assert_close(new[name], weight, rtol=0, atol=shifted if "norm" in name else 0)
    ids = torch.arange(3, 43)[None]
    logits = [AutoModelForCausalLM.from_pretrained(folder)(ids).logits for folder in (before, after)]
    torch.testing.assert_close(logits[1], logits[0], rtol=1e-5, atol=1e-5)
    tokenizers = [AutoTokenizer.from_pretrained(folder) for folder in (before, after)]
    text = "the 12 thes\r\n  <think>é数<|over|>"
    assert tokenizers[0](text).input_ids == tokenizers[1](text).input_ids
    assert tokenizers[1].decode(tokenizers[1](text).input_ids) == text


YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "rope"),
    [
        ("qwen2", {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}),
        ("qwen3", YARN),
        ("llama", YARN | {"beta_fast": 24.0, "beta_slow": 2.0}),
        ("llama", LLAMA3),
    ],
)
def test_scaled_positions_come_back(tmp_path: Path, kind: str, rope: dict[str, float]) -> None:
    before = saved(tmp_path / "before", kind, rope_parameters=rope, head_dim=64)
    write_gguf(before, tmp_path / "model.gguf", "f32")
    after = read_gguf(str(tmp_path / "model.gguf"))
    assert AutoConfig.from_pretrained(after).rope_parameters == rope
    ids = torch.arange(3, 113)[None]
    logits = [AutoModelForCausalLM.from_pretrained(folder)(ids).logits for folder in (before, after)]
    torch.testing.assert_close(logits[1], logits[0], rtol=1e-5, atol=1e-5)


def test_factors_of_llama_3_by_hand() -> None:
    # wavelengths 2π θ^(2i/d) up to 8192 / 4 keep their frequency, those beyond 8192 / 1 have an eighth of it
    config = AutoConfig.for_model("llama", **SIZES | {"head_dim": 64, "rope_parameters": LLAMA3})
    factors = frequency_factors(config)
    wavelengths = 2 * np.pi * 5e5 ** (np.arange(0, 64, 2) / 64)
    assert np.allclose(factors[wavelengths < 2048], 1)
    assert np.allclose(factors[wavelengths > 8192], 8)
    between = (wavelengths > 2048) & (wavelengths < 8192)
    smooth = (8192 / wavelengths[between] - 1) / 3
    assert between.sum() > 1
    assert np.allclose(1 / factors[between], (1 - smooth) / 8 + smooth, rtol=1e-5)


@pytest.mark.parametrize("precision", ["f16", "q8_0"])
def test_weights_are_those_of_ggufs_own_dequantisation(tmp_path: Path, precision: str) -> None:
    before = saved(tmp_path / "before", "qwen3", intermediate_size=80)  # rows of 80 are no whole blocks of 32
    write_gguf(before, tmp_path / "model.gguf", precision)  # type: ignore[arg-type]
    new = load_file(read_gguf(str(tmp_path / "model.gguf")) / "model.safetensors")
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "model.gguf").tensors}
    up, down = tensors["blk.3.ffn_up.weight"], tensors["blk.3.ffn_down.weight"]
    assert (up.tensor_type.name.lower(), down.tensor_type.name) == (precision, "F16")
    for tensor, name in ((up, "up_proj"), (down, "down_proj")):
        expected = gguf.dequantize(tensor.data, tensor.tensor_type)
        assert np.array_equal(new[f"model.layers.3.mlp.{name}.weight"].numpy(), expected)


def test_rows_of_llamas_queries_stand_in_pairs(tmp_path: Path) -> None:
    # llama.cpp turns neighbouring rows, transformers row i with row i + d / 2, so it keeps rows 0 2 1 3 of a head of 4
    sizes = {"head_dim": 4, "num_attention_heads": 1, "num_key_value_heads": 1, "hidden_size": 64}
    before = saved(tmp_path / "before", "llama", **sizes)
    write_gguf(before, tmp_path / "model.gguf", "f32")
    tensors = {tensor.name: tensor.data for tensor in gguf.GGUFReader(tmp_path / "model.gguf").tensors}
    query = load_file(before / "model.safetensors")["model.layers.0.self_attn.q_proj.weight"].numpy()
    assert np.array_equal(tensors["blk.0.attn_q.weight"], query[[0, 2, 1, 3]])
    value = load_file(before / "model.safetensors")["model.layers.0.self_attn.v_proj.weight"].numpy()
    assert np.array_equal(tensors["blk.0.attn_v.weight"], value)


def test_a_completion_ends_at_the_files_ends_and_at_the_templates(tmp_path: Path) -> None:
    write_gguf(saved(tmp_path / "before", "qwen3"), tmp_path / "model.gguf", "f32")
    directory = read_gguf(str(tmp_path / "model.gguf"))
    over = AutoTokenizer.from_pretrained(directory).convert_tokens_to_ids("<|over|>")
    assert json.loads((directory / "generation_config.json").read_text())["eos_token_id"] == sorted({1, over})
    assert load_policy(ModelConfig(path=str(tmp_path / "model.gguf"))).stop_ids == {1, over}


def test_the_ends_of_a_model_go_into_a_file_and_no_more_than_fit(tmp_path: Path) -> None:
    before = saved(tmp_path / "before", "qwen3")
    (before / "chat_template.jinja").unlink()
    (before / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 7, 5]}))
    write_gguf(before, tmp_path / "model.gguf", "f32")
    assert load_policy(ModelConfig(path=str(tmp_path / "model.gguf"))).stop_ids == {1, 5, 7}
    (before / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 7, 5, 8]}))
    with pytest.raises(ModelError, match=r"it ends at \[5, 7, 8\] beside eos; allowed are 2"):
        write_gguf(before, tmp_path / "model.gguf", "f32")


def test_a_file_in_the_directory_it_was_made_of_reads_and_ends_as_that_does(tmp_path: Path) -> None:
    before = saved(tmp_path / "before", "qwen3")
    several = byte_tokenizer()
    several.chat_template = {"default": TEMPLATE, "short": TEMPLATE[:-20] + "{% endfor %}"}
    several.save_pretrained(before)
    (before / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 7]}))
    for place in (tmp_path / "model.gguf", before / "model.gguf"):
        write_gguf(before, place, "f32")
        policy = load_policy(ModelConfig(path=str(place)))
        assert policy.tokenizer.chat_template == several.chat_template
        assert {1, 7} <= policy.stop_ids
    (before / "chat_template.jinja").write_text("another")
    assert locate(str(before / "model.gguf")).weights != locate(str(tmp_path / "model.gguf")).weights
    assert load_policy(ModelConfig(path=str(before / "model.gguf"))).tokenizer.chat_template["default"] == "another"
    for file in ("tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        (before / file).unlink()
    shutil.rmtree(before / "additional_chat_templates")  # beside nothing but a vocabulary the file says the rest
    policy = load_policy(ModelConfig(path=str(before / "model.gguf")))
    assert (policy.tokenizer.eos_token, policy.tokenizer.chat_template["default"]) == ("<end>", TEMPLATE)


def test_the_file_is_read_once_and_says_what_it_is(tmp_path: Path, cache: Path) -> None:
    write_gguf(saved(tmp_path / "before", "qwen2"), tmp_path / "model.gguf", "q8_0")
    directory = read_gguf(str(tmp_path / "model.gguf"))
    changed = (directory / "config.json").stat().st_mtime_ns
    assert read_gguf(str(tmp_path / "model.gguf")) == directory
    assert (directory / "config.json").stat().st_mtime_ns == changed
    assert json.loads((directory / SOURCE).read_text())["general.name"] == "model"
    assert AutoTokenizer.from_pretrained(directory).chat_template == TEMPLATE
    other = saved(tmp_path / "other", "qwen2", rms_norm_eps=1e-3)
    write_gguf(other, tmp_path / "model.gguf", "q8_0")
    assert read_gguf(str(tmp_path / "model.gguf")) != directory  # another file by its content


def test_what_another_process_writes_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_gguf(saved(tmp_path / "before", "qwen2"), tmp_path / "model.gguf", "f32")
    refusals = iter([CheckpointError("another process works there")] * 2)

    def hold(*where: object) -> Hold:
        if refusal := next(refusals, None):
            raise refusal
        return Hold(*where)  # type: ignore[arg-type]

    monkeypatch.setattr("groupwise.models.gguf.Hold", hold)
    assert (read_gguf(str(tmp_path / "model.gguf")) / "config.json").is_file()
    assert next(refusals, None) is None


def test_what_stands_beside_the_file_comes_first(tmp_path: Path) -> None:
    before = saved(tmp_path / "before", "llama", tie_word_embeddings=False)
    write_gguf(before, tmp_path / "model.gguf", "f32")
    config = json.loads((before / "config.json").read_text()) | {"tie_word_embeddings": True, "rms_norm_eps": 0.5}
    (tmp_path / "config.json").write_text(json.dumps(config))
    directory = read_gguf(str(tmp_path / "model.gguf"))
    assert json.loads((directory / "config.json").read_text())["rms_norm_eps"] == 0.5
    weights = load_file(directory / "model.safetensors")  # the head for both, as config.json asks
    assert "lm_head.weight" not in weights
    head = load_file(before / "model.safetensors")["lm_head.weight"]
    assert torch.equal(weights["model.embed_tokens.weight"], head)


def rewritten(source: Path, target: Path, change: str) -> None:
    """Copy a GGUF file with one change."""
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, "granite" if change == "architecture" else architecture)
    for name, field in reader.fields.items():
        value = field.contents()
        if name.startswith("GGUF.") or name in ("general.architecture", f"{architecture}.{change}"):
            continue
        if change == "pre" and name == "tokenizer.ggml.pre":
            value = "of another model"
        if change == "merges" and name == "tokenizer.ggml.merges":
            value = ["of another"]
        kind = field.types[0]
        writer.add_key_value(name, value, kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    if change in ("yarn", "longrope", "attn_factor"):
        writer.add_string(f"{architecture}.rope.scaling.type", "longrope" if change == "longrope" else "yarn")
    if change == "attn_factor":
        writer.add_float32(f"{architecture}.rope.scaling.factor", 4.0)
        writer.add_float32(f"{architecture}.rope.scaling.attn_factor", 2.0)
    if change == "parts":
        writer.add_uint16("split.count", 2)
    for tensor in reader.tensors:
        if change != tensor.name:
            data = np.full_like(tensor.data, np.nan) if change == "nan" else np.array(tensor.data)
            writer.add_tensor(tensor.name, data[:-1] if change == "shape" and data.ndim == 2 else data)
    if change == "rope_freqs":
        writer.add_tensor("rope_freqs.weight", np.linspace(1, 2, 16, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("architecture", "has the architecture 'granite'; allowed are llama, qwen2, qwen3, gemma3"),
        ("embedding_length", "lacks the key llama.embedding_length"),
        ("blk.2.ffn_up.weight", "has no tensor blk.2.ffn_up.weight"),
        ("rope_freqs", "has a rope_freqs.weight that is not of Llama 3's scaling"),
        ("longrope", "scales positions by 'longrope'"),
        ("yarn", "lacks the key llama.rope.scaling.factor"),
        ("attn_factor", "has rope.scaling.attn_factor = 2, which is not supported"),
        ("merges", "holds what cannot be used"),
        ("pre", "tokenizer.ggml.pre = 'of another model'"),
        ("parts", "is one of several parts"),
        ("shape", "its keys ask for"),
        ("nan", "numbers that are not finite"),
    ],
)
def test_what_would_be_lost_is_refused(tmp_path: Path, cache: Path, change: str, sentence: str) -> None:
    write_gguf(saved(tmp_path / "before", "llama"), tmp_path / "model.gguf", "f32")
    rewritten(tmp_path / "model.gguf", tmp_path / "changed.gguf", change)
    with pytest.raises(ModelError, match=sentence.replace(".", r"\.")):
        read_gguf(str(tmp_path / "changed.gguf"))
    assert not cache.exists() or not [folder for folder in cache.iterdir() if not folder.name.startswith(".")]


@pytest.mark.parametrize(
    ("pre", "changes", "begins"),
    [
        ("llama-bpe", {}, True),  # as files of Llama 3 are, in llama.cpp too
        ("llama-bpe", {"add_bos_token": False}, False),
        ("smollm", {}, False),
        ("smollm", {"add_bos_token": True}, True),
        ("smollm", {"add_bos_token": True, "bos_token_id": None}, None),
    ],
)
def test_a_text_begins_as_in_llama_cpp(pre: str, changes: dict[str, object], begins: bool | None) -> None:
    facts = {"model": "gpt2", "pre": pre, "tokens": ["<s>", "a"], "token_type": [3, 1], "merges": [], "bos_token_id": 0}
    keys = {f"tokenizer.ggml.{name}": v for name, v in (facts | changes).items() if v is not None}
    file = GGUF(Path("model.gguf"), {}, keys)
    if begins is None:
        with pytest.raises(ModelError, match="adds a bos token to every text and lacks the key"):
            tokenizer_of(file)
    else:
        assert tokenizer_of(file)("a").input_ids == [0] * begins + [1]


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, cache: Path) -> None:
    write_gguf(saved(tmp_path / "before", "qwen2"), tmp_path / "model.gguf", "f32")
    cache.parent.write_text("no directory")
    with pytest.raises(CheckpointError, match=r"groupwise-gguf.* cannot be written"):
        read_gguf(str(tmp_path / "model.gguf"))


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a model" * 99, None])
def test_a_file_that_is_cut_or_something_else_is_named(tmp_path: Path, content: bytes | None) -> None:
    write_gguf(saved(tmp_path / "before", "llama"), tmp_path / "model.gguf", "f32")
    whole = (tmp_path / "model.gguf").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[: len(whole) // 2] if content is None else content)
    with pytest.raises(ModelError, match=r"cut\.gguf is not a whole GGUF file"):
        read_gguf(str(tmp_path / "cut.gguf"))


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("none.gguf", "there is no file 'none.gguf'"),
        ("package:no_such_package", "there is no Python package 'no_such_package' here"),
        ("package:json", "one GGUF file is needed in the package; there are: none"),
    ],
)
def test_a_place_without_a_file_is_named(path: str, sentence: str) -> None:
    with pytest.raises(ModelError, match=sentence):
        locate(path)


def test_a_file_inside_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "models_in_a_package"
    folder.mkdir()
    (folder / "__init__.py").touch()
    write_gguf(saved(tmp_path / "before", "qwen3"), folder / "a.gguf", "q8_0")
    monkeypatch.syspath_prepend(str(tmp_path))
    directory = locate("package:models_in_a_package").weights
    (folder / "b.gguf").write_bytes((folder / "a.gguf").read_bytes())
    with pytest.raises(ModelError, match=r"package:models_in_a_package/a\.gguf, package:models_in_a_package/b\.gguf"):
        locate("package:models_in_a_package")
    assert locate("package:models_in_a_package/a.gguf").weights == directory


def test_the_shipped_model_and_its_alphabet(tmp_path: Path) -> None:
    shipped = Path(resolve(SHIPPED))
    write_gguf(shipped, tmp_path / "model.gguf", "f32")
    directory = read_gguf(str(tmp_path / "model.gguf"))
    before, after = (AutoTokenizer.from_pretrained(folder) for folder in (shipped, directory))
    text = "<think>3 * (4 + 5) = 27</think> \\boxed{27} 数"
    assert after(text).input_ids == before(text).input_ids
    old, new = load_file(shipped / "model.safetensors"), load_file(directory / "model.safetensors")
    assert all(torch.equal(old[name].float(), new[name]) for name in old)


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        ("qwen2", {"use_sliding_window": True, "max_window_layers": 0, "sliding_window": 8}, "no attention windows"),
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "dynamic"),
        (
            "qwen2",
            {"rope_parameters": YARN | {"attention_factor": 1.5}},
            "there is no key for its scaling of positions",
        ),
        ("qwen3", {"rope_parameters": LLAMA3}, "'llama3'; allowed are default, linear, yarn"),
        ("llama", {"rope_parameters": LLAMA3 | {"low_freq_factor": 2.0}}, "there is no key for its scaling"),
        ("mistral", {"sliding_window": 8}, "no attention windows"),
        ("llama", {"hidden_act": "gelu"}, "no key for its hidden_act = 'gelu'; allowed is 'silu'"),
        ("gemma3_text", {"query_pre_attn_scalar": 16}, "no key for its query_pre_attn_scalar = 16; allowed is 32"),
        ("phi", {}, "its model type is 'phi'; allowed are llama"),
        ("gemma3_text", {"attention_bias": True}, "has tensors that no parameter takes: blk.0.attn_k.bias"),
    ],
)
def test_a_model_without_a_form_in_gguf_is_refused(
    tmp_path: Path, kind: str, options: dict[str, object], sentence: str
) -> None:
    before = saved(tmp_path / "before", kind, **options)
    with pytest.raises(ModelError, match=sentence):
        write_gguf(before, tmp_path / "model.gguf", "f32")
    assert not [file for file in tmp_path.iterdir() if file.name != "before"]


@pytest.mark.parametrize(
    ("part", "value", "sentence"),
    [
        ("pre_tokenizer", {"type": "Digits", "individual_digits": False}, "has no name here for the way its tokenizer"),
        ("pre_tokenizer", None, "has no name here for the way its tokenizer cuts texts"),
        ("model", {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 0}, "no form for its tokenizer, Unigram"),
        ("added_tokens", 4, "its tokenizer reads 'a <|over|> a' as"),  # it takes the space behind it
        ("normalizer", {"type": "Lowercase"}, "its tokenizer reads 'What is 60 x 64\\?\\\\n' as"),
    ],
)
def test_a_tokenizer_that_llama_cpp_reads_otherwise_is_refused(
    tmp_path: Path, part: str, value: object, sentence: str
) -> None:
    before = saved(tmp_path / "before", "llama")
    tokenizer = json.loads((before / "tokenizer.json").read_text())
    if isinstance(value, int):
        tokenizer[part][value]["rstrip"] = True
    else:
        tokenizer[part] = value
    (before / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ModelError, match=sentence.replace("|", r"\|")):
        write_gguf(before, tmp_path / "model.gguf", "f32")
    assert set(SPLITS) >= {"gpt-2", "smollm", "qwen2", "llama-bpe"}


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_number_too_large_for_the_precision_and_a_padding_outside_of_the_vocabulary(tmp_path: Path) -> None:
    before = saved(tmp_path / "before", "llama", vocab_size=265)
    weights = load_file(before / "model.safetensors")
    weights["model.layers.0.mlp.up_proj.weight"][0, 0] = 1e5
    save_file(weights, before / "model.safetensors", metadata={"format": "pt"})
    padded = byte_tokenizer()
    padded.add_special_tokens({"pad_token": "<padding>"})
    padded.save_pretrained(before)
    with pytest.raises(ModelError, match=r"numbers that are not finite, in blk\.0\.ffn_up\.weight"):
        write_gguf(before, tmp_path / "model.gguf", "f16")
    write_gguf(before, tmp_path / "model.gguf", "f32")
    assert load_policy(ModelConfig(path=str(tmp_path / "model.gguf"))).tokenizer.pad_token is None


def test_a_factor_of_positions_without_a_kind_is_linear_as_in_llama_cpp(tmp_path: Path) -> None:
    keys = {"general.architecture": "llama", "llama.rope.scale_linear": 4.0}
    assert scaling_of(GGUF(tmp_path, {}, keys)) == {"rope_type": "linear", "factor": 4.0}
    assert scaling_of(GGUF(tmp_path, {}, keys | {"llama.rope.scaling.factor": 2.0}))["factor"] == 2.0
    assert scaling_of(GGUF(tmp_path, {}, keys | {"llama.rope.scaling.type": "none"})) == {}


def test_a_head_apart_from_the_embedding_is_kept_apart(tmp_path: Path) -> None:
    write_gguf(saved(tmp_path / "before", "llama", tie_word_embeddings=False), tmp_path / "model.gguf", "f32")
    assert GGUF.open(tmp_path / "model.gguf").config().tie_word_embeddings is False
    write_gguf(saved(tmp_path / "tied", "llama", tie_word_embeddings=True), tmp_path / "tied.gguf", "f32")
    assert GGUF.open(tmp_path / "tied.gguf").config().tie_word_embeddings is True

"""Every rank reads its rows alone: together they are the model that one process reads, whatever its files look like."""

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from groupwise.errors import ConfigError, InvariantError, ModelError
from groupwise.models import loading
from groupwise.models import rows as module
from groupwise.models.activations import layers_of
from groupwise.models.config import LoraConfig, ModelConfig
from groupwise.models.policy import Policy, load_policy, start_policy
from groupwise.models.reward_model import start_reward_model
from groupwise.models.rows import INDEX, SINGLE, fill
from groupwise.models.sharded import ENTRIES
from groupwise.ranks.group import RANKS
from groupwise.ranks.sharding import own_rows, shard

AsRank = Callable[[int, int], AbstractContextManager[None]]
LLAMA3 = {
    "rope_parameters": {
        "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
}  # fmt: skip
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "tied": ("qwen3", {}),
    "untied": ("qwen3", {"tie_word_embeddings": False}),
    "biases": ("qwen2", {}),
    "stretched positions": ("llama", LLAMA3),
}


def one_file(saved: Path) -> None:
    """As transformers wrote it."""


def several_files(saved: Path) -> None:
    """What `save_pretrained` makes of a large model: files, and an index."""
    tensors = load_file(saved / SINGLE)
    names = sorted(tensors)
    parts = {f"model-0000{i + 1}-of-00003.safetensors": names[i::3] for i in range(3)}
    for file, own in parts.items():
        save_file({name: tensors[name] for name in own}, saved / file, metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": {name: file for file, own in parts.items() for name in own}}
    (saved / INDEX).write_text(json.dumps(index))
    (saved / SINGLE).unlink()


def rewritten(saved: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    save_file(change(load_file(saved / SINGLE)), saved / SINGLE, metadata={"format": "pt"})


def body_alone(saved: Path) -> None:
    """Without the name of the whole model before the weights, as models without a head are saved."""
    rewritten(saved, lambda tensors: {name.removeprefix("model."): tensor for name, tensor in tensors.items()})


def in_bfloat16(saved: Path) -> None:
    rewritten(saved, lambda tensors: {name: tensor.bfloat16() for name, tensor in tensors.items()})


def with_its_head(saved: Path) -> None:
    """A tied head written twice, as some do."""
    head = "lm_head.weight"
    rewritten(saved, lambda tensors: {head: tensors["model.embed_tokens.weight"].clone()} | tensors)


def by_its_head_alone(saved: Path) -> None:
    """A tied matrix under the head's name."""

    def change(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        tensors["lm_head.weight"] = tensors.pop("model.embed_tokens.weight")
        return tensors

    rewritten(saved, change)


FORMS = {
    "tied": (one_file, several_files, body_alone, in_bfloat16, with_its_head, by_its_head_alone),
    "untied": (one_file, several_files, in_bfloat16),
    "biases": (one_file,),
    "stretched positions": (one_file,),
}


@pytest.fixture
def save(tiny_policy: Callable[..., Policy], tmp_path: Path) -> Callable[[str], Path]:
    def make(name: str) -> Path:
        architecture, changes = MODELS[name]
        tiny_policy(architecture, **changes).save(tmp_path / "model")
        return tmp_path / "model"

    return make


@pytest.fixture
def agreeing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other ranks have what this one has."""
    monkeypatch.setattr(RANKS, "to_all", lambda own: [own] * RANKS.size)


def rows_of(config: ModelConfig, start: Callable[..., Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """This rank's rows of all weights by name, and all buffers."""
    loaded = start(config, in_rows=True)
    assert loaded.unread is not None
    model = loaded.model
    assert any(weight.is_meta for weight in model.parameters())
    shard(loaded.root, layers_of(model), [entry for entry in ENTRIES if hasattr(loaded.root, entry)], loaded.device)
    fill(loaded.root, model, loaded.unread)
    return {name: own_rows(weight.detach()) for name, weight in model.named_parameters()}, dict(model.named_buffers())


@pytest.mark.parametrize(
    ("name", "form"),
    [pytest.param(name, form, id=f"{name}, {form.__name__}") for name, forms in FORMS.items() for form in forms],
)
def test_the_rows_of_all_ranks_are_the_model_that_one_process_reads(
    name: str, form: Callable[[Path], None], save: Callable[[str], Path], as_rank: AsRank, agreeing: None
) -> None:
    config = ModelConfig(path=str(save(name)), device="cpu")
    form(Path(config.path))
    whole = load_policy(config)
    sizes = (2, 3, 64) if form is one_file else (2,)  # vectors of 8 have no row on most of 64
    for size in sizes:
        found = []
        for rank in range(size) if size < 64 else (0, 1, 63):
            with as_rank(size, rank):
                found.append(rows_of(config, load_policy))
        assert found[0][0].keys() == dict(whole.state()).keys()
        for weight_name, weight in whole.state():
            if size < 64:
                assert torch.equal(torch.cat([rows[weight_name] for rows, _ in found]), weight), weight_name
            else:
                own = -(-len(weight) // size)
                for rank, (rows, _) in zip((0, 1, 63), found, strict=True):
                    assert torch.equal(rows[weight_name], weight[rank * own : (rank + 1) * own]), weight_name
        for _, buffers in found:
            assert buffers.keys() == dict(whole.model.named_buffers()).keys()
            for buffer_name, buffer in whole.model.named_buffers():
                assert torch.equal(buffers[buffer_name], buffer), buffer_name


def test_what_it_says_of_itself_is_what_one_process_reads(save: Callable[[str], Path], as_rank: AsRank) -> None:
    config = ModelConfig(path=str(save("tied")), device="cpu")
    whole = load_policy(config)
    with as_rank(2, 1):
        part = load_policy(config, in_rows=True)
    assert part.model.config.to_dict() == whole.model.config.to_dict()
    assert part.model.generation_config.to_dict() == whole.model.generation_config.to_dict()
    assert (part.stop_ids, part.device, part.model.training) == (whole.stop_ids, whole.device, False)
    assert [(n, w.requires_grad) for n, w in part.trainable()] == [(n, w.requires_grad) for n, w in whole.trainable()]


def test_one_process_and_whoever_does_not_ask_read_all(save: Callable[[str], Path], as_rank: AsRank) -> None:
    path = save("tied")
    assert load_policy(ModelConfig(path=str(path), device="cpu"), in_rows=True).unread is None
    with as_rank(2, 1):
        whole = load_policy(ModelConfig(path=str(path), device="cpu"))
    assert whole.unread is None
    assert not any(weight.is_meta for weight in whole.model.parameters())


def test_a_new_score_is_zero_and_one_that_is_there_is_read(
    save: Callable[[str], Path], tmp_path: Path, as_rank: AsRank, agreeing: None
) -> None:
    language = ModelConfig(path=str(save("untied")), device="cpu")
    with as_rank(2, 0):
        rows, _ = rows_of(language, start_reward_model)
    assert torch.equal(rows["score.weight"], torch.zeros(1, 32))
    whole = start_reward_model(language)
    torch.nn.init.ones_(whole.head.weight)
    whole.save(tmp_path / "scores")
    with as_rank(2, 0):
        rows, _ = rows_of(language.at(tmp_path / "scores"), start_reward_model)
    assert torch.equal(rows["score.weight"], torch.ones(1, 32))


@pytest.fixture
def in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Path]:
    """in_the_cache(saved) -> the snapshot of `someone/tiny` in a hub's cache, with what was saved; no network."""
    from huggingface_hub import constants

    cache = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    def put(saved: Path) -> Path:
        folder, commit = cache / "models--someone--tiny", "5f" * 20
        snapshot = folder / "snapshots" / commit
        for path in (folder / "blobs", folder / "refs", snapshot):
            path.mkdir(parents=True)
        (folder / "refs" / "main").write_text(commit)
        for file in saved.iterdir():
            blob = sha256(file.read_bytes()).hexdigest()
            file.rename(folder / "blobs" / blob)
            (snapshot / file.name).symlink_to(Path("../../blobs") / blob)
        return snapshot

    return put


@pytest.mark.parametrize("form", [one_file, several_files])
def test_a_model_of_the_hubs_cache_is_read_in_rows_by_its_name_and_by_its_snapshot(
    form: Callable[[Path], None], save: Callable[[str], Path], in_the_cache: Callable[[Path], Path],
    as_rank: AsRank, agreeing: None,
) -> None:  # fmt: skip
    """Weights there are links to files whose names are hashes."""
    saved = save("untied")
    form(saved)
    whole = dict(load_policy(saved).state())
    snapshot = in_the_cache(saved)
    for path in ("someone/tiny", str(snapshot)):
        found = []
        for rank in range(2):
            with as_rank(2, rank):
                found.append(rows_of(ModelConfig(path=path, device="cpu"), load_policy)[0])
        assert found[0].keys() == whole.keys()
        for name, weight in whole.items():
            assert torch.equal(torch.cat([rows[name] for rows in found]), weight), name


def test_a_file_that_the_hubs_cache_lacks_is_named(
    save: Callable[[str], Path], in_the_cache: Callable[[Path], Path], as_rank: AsRank
) -> None:
    """Its download was interrupted: the link is there, or not even that."""
    saved, lost = save("tied"), "model-00002-of-00003.safetensors"
    several_files(saved)
    snapshot = in_the_cache(saved)
    (snapshot / lost).resolve().unlink()
    for path in ("someone/tiny", str(snapshot)):
        with as_rank(2, 1), pytest.raises(ModelError, match=lost):
            load_policy(ModelConfig(path=path, device="cpu"), in_rows=True)


NORM = "model.layers.1.input_layernorm.weight"


def lose(saved: Path) -> None:
    rewritten(saved, lambda tensors: {name: tensor for name, tensor in tensors.items() if name != NORM})


def cut(saved: Path) -> None:
    rewritten(saved, lambda tensors: {name: t[:5].clone() if name == NORM else t for name, t in tensors.items()})


def lose_a_file(saved: Path) -> None:
    several_files(saved)
    (saved / "model-00002-of-00003.safetensors").unlink()


def damage(saved: Path) -> None:
    (saved / SINGLE).write_bytes((saved / SINGLE).read_bytes()[:-100])


def another_head(saved: Path) -> None:
    head = "lm_head.weight"
    rewritten(saved, lambda tensors: {head: tensors["model.embed_tokens.weight"] + 1} | tensors)


def no_files(saved: Path) -> None:
    shutil.rmtree(saved)
    saved.mkdir()


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lose, rf"is damaged: weights \['{NORM}'\] are missing"),
        (cut, rf"model\.safetensors holds {NORM} as \[5\], and the model wants \[32\]"),
        (lose_a_file, r"index\.json names model-00002-of-00003\.safetensors, which is not there"),
        (damage, r"model\.safetensors cannot be read: "),
        (another_head, r"one matrix for model\.embed_tokens\.weight and lm_head\.weight, and its files hold two that"),
        (no_files, r"has no config\.json"),
    ],
)
def test_files_that_are_not_as_they_should_be_are_named(
    harm: Callable[[Path], None], said: str, save: Callable[[str], Path], as_rank: AsRank, agreeing: None
) -> None:
    path = save("tied")
    harm(path)
    with as_rank(2, 1), pytest.raises(ModelError, match=said):
        rows_of(ModelConfig(path=str(path), device="cpu"), load_policy)


def test_ranks_that_see_other_files_of_one_name_are_stopped(
    save: Callable[[str], Path], as_rank: AsRank, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, said = save("tied"), []
    monkeypatch.setattr(RANKS, "to_all", lambda own: said.append(own) or said[:])
    config = ModelConfig(path=str(path), device="cpu")
    with as_rank(2, 0):
        rows_of(config, load_policy)
    rewritten(path, lambda tensors: {n: t + 1e-3 if n == NORM else t for n, t in tensors.items()})
    with as_rank(2, 1), pytest.raises(InvariantError, match="do not agree about the files that they read"):
        rows_of(config, load_policy)


def test_weights_in_bfloat16_are_for_one_process(save: Callable[[str], Path], as_rank: AsRank) -> None:
    config = ModelConfig(path=str(save("tied")), device="cpu", compute_dtype="bfloat16", weights_dtype="bfloat16")
    with as_rank(2, 1), pytest.raises(ConfigError, match='weights_dtype = "bfloat16" is for one process'):
        load_policy(config, in_rows=True)


def bin_files(saved: Path) -> None:
    torch.save(load_file(saved / SINGLE), saved / "pytorch_model.bin")
    (saved / SINGLE).unlink()


@pytest.mark.parametrize("why", ["it has no safetensors files", "its files hold weights in another form"])
def test_a_model_that_cannot_be_read_in_rows_is_read_whole_and_named(
    why: str, save: Callable[[str], Path], as_rank: AsRank, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save("tied")
    whole = load_policy(path)
    if why.startswith("its files"):
        from transformers import conversion_mapping

        monkeypatch.setattr(conversion_mapping, "get_model_conversion_mapping", lambda model, **named: [object()])
    else:
        bin_files(path)
    with as_rank(2, 0), pytest.warns(UserWarning, match=f"every rank reads the whole model .*, because {why}"):
        read = load_policy(ModelConfig(path=str(path), device="cpu"), in_rows=True)
    assert read.unread is None
    assert read.fingerprint() == whole.fingerprint()


def test_a_buffer_of_which_nobody_says_what_is_in_it_is_named(
    save: Callable[[str], Path], as_rank: AsRank, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, plain = save("tied"), module._built

    def with_a_buffer(*asked: Any) -> Any:
        model = plain(*asked)
        model.model.norm.register_buffer("unknown", torch.zeros(3, device="meta"), persistent=False)
        return model

    monkeypatch.setattr(module, "_built", with_a_buffer)
    with as_rank(2, 1), pytest.raises(ModelError, match=r"say what is in model\.norm\.unknown"):
        load_policy(ModelConfig(path=str(path), device="cpu"), in_rows=True)


LORA = LoraConfig(rank=2)


def trained_adapters(config: ModelConfig, path: Path) -> Policy:
    """A model with adapters that differ from new ones, saved at a path."""
    adapted = start_policy(config, LORA, seed=3)
    with torch.no_grad():
        for _, weight in adapted.trainable():
            weight.add_(torch.arange(weight.numel()).view(weight.shape) * 1e-3)
    adapted.save(path)
    return adapted


@pytest.mark.parametrize("start", ["new", "to go on with", "to add", "to use"])
def test_adapters_beside_rows_are_those_of_one_process(
    start: str, save: Callable[[str], Path], tmp_path: Path, as_rank: AsRank, agreeing: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    base = ModelConfig(path=str(save("untied")), device="cpu")
    config = base if start == "new" else base.at(tmp_path / "adapters")
    known = trained_adapters(base, tmp_path / "adapters").adapters
    assert known is not None
    monkeypatch.setattr(loading, "fingerprint", lambda named: (list(named), known.base_fingerprint)[1])
    lora = None if start == "to add" else LORA
    load: Any = load_policy if start == "to use" else partial(start_policy, lora=lora, seed=3)
    whole = load(config)
    found = []
    for rank in range(3):
        with as_rank(3, rank):
            found.append(rows_of(config, load)[0])
            assert [name for name, _ in load(config, in_rows=True).trainable()] == [n for n, _ in whole.trainable()]
    assert found[0].keys() == dict(whole.state()).keys()
    for name, weight in whole.state():
        assert torch.equal(torch.cat([rows[name] for rows in found]), weight), name
    plain = dict(load_policy(base).state())
    changed = [name for name, weight in whole.state() if name in plain and not torch.equal(weight, plain[name])]
    assert bool(changed) == (start == "to add")


def test_adapters_on_rows_of_other_weights_are_refused(
    save: Callable[[str], Path], tmp_path: Path, as_rank: AsRank, agreeing: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = ModelConfig(path=str(save("untied")), device="cpu")
    trained_adapters(base, tmp_path / "adapters")
    monkeypatch.setattr(loading, "fingerprint", lambda named: "another")
    with as_rank(2, 0), pytest.raises(ModelError, match=r"were trained on other weights: .* has another"):
        rows_of(base.at(tmp_path / "adapters"), partial(start_policy, lora=LORA, seed=0))

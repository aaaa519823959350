"""Models in GGUF files, the format of llama.cpp, read into Hugging Face directories.

A file is read once: weights dequantised to fp32, configuration and tokenizer rebuilt from its keys, into a directory of
the Hugging Face cache that is named by the file's hash. Every tensor of the file fills a parameter and every parameter
is filled, or the file is refused. A `config.json`, `generation_config.json` or `tokenizer.json` beside the file comes
before what its keys say.
"""

import hashlib
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedTokenizerFast

from groupwise.errors import CheckpointError, ConfigError, GroupwiseError, ModelError
from groupwise.models.gguf_keys import FREQUENCIES, SPECIAL, check_factors, filled, scaling_of, stop_ids, tokenizer_of
from groupwise.runs.atomic import Hold, new_directory, translated_disk_errors, write_file
from groupwise.runs.progress import counted

SOURCE = "gguf.json"
"""File of a directory that was read from a GGUF file: its name, hash, `general.*` keys and types of weights."""
SHARD = 1 << 28  # Bytes of weights in one file of a directory; what is converted while loading is let go file by file
ALIGNMENT = 64  # Bytes at whose multiples torch's own tensors begin
SETTLED_NS = 10**10  # Age from which on a file's time of change tells it from what it was
VERSION = 4  # Of the directories; a change of their content raises it
BESIDE = ("config.json", "generation_config.json", "*token*.json", "chat_template.jinja", "additional_chat_templates/*")
"""Files of a Hugging Face directory, as `groupwise export` writes it, that decide what is made of a file in it."""

ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3": "gemma3_text"}
"""Architectures of GGUF files, and their model types in transformers."""


def read_gguf(path: str) -> Path:
    """Return the Hugging Face directory of a GGUF file; it is written when the file is met for the first time.

    Args:
        path: a file, or `owner/repository:file.gguf` on the hub.

    Raises:
        ModelError: there is no such file, it is damaged, or it holds something that would be lost.
        ConfigError: the package `gguf` is not installed.
    """
    from huggingface_hub.constants import HF_HOME

    file = _find(path)
    given = sorted(beside for pattern in BESIDE for beside in file.parent.glob(pattern) if beside.is_file())
    digest = hashlib.sha256(f"{VERSION}".encode())
    for source in (file, *given):
        digest.update(_hash(source, Path(HF_HOME) / "groupwise-gguf" / "hashes"))
    target = Path(HF_HOME) / "groupwise-gguf" / f"{file.stem}-{digest.hexdigest()[:16]}"
    with translated_disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    while not target.is_dir():
        try:
            hold = Hold(target.with_name(f".{target.name}"), "model.path")
        except CheckpointError:  # another process writes it
            if not os.access(target.parent, os.W_OK):
                raise
            time.sleep(0.2)
            continue
        with hold:
            if not target.is_dir():
                with new_directory(target) as directory:
                    try:
                        GGUF.open(file).write(directory, given)
                    except (GroupwiseError, OSError):
                        raise
                    except Exception as error:  # of the libraries that are given what the keys say
                        why = f"{type(error).__name__}: {error}"
                        raise ModelError(f"{file} holds what cannot be used ({why})") from error
    return target


def _hash(file: Path, folder: Path) -> bytes:
    """Return the SHA-256 of a file; of a large one that has not changed since it was read, as it was noted."""
    facts = file.stat()
    known = f"{file.resolve()} {facts.st_size} {facts.st_mtime_ns} {facts.st_ino}"
    note = folder / hashlib.sha256(known.encode()).hexdigest()[:32]
    with suppress(OSError, ValueError):
        if len(noted := bytes.fromhex(note.read_text())) == hashlib.sha256().digest_size:
            return noted
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").digest()
    if time.time_ns() - facts.st_mtime_ns > SETTLED_NS:  # one that still changes may do so within a tick of its clock
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            write_file(note, digest.hex().encode())
    return digest


def _find(path: str) -> Path:
    repository, colon, file_name = path.rpartition(":")
    if colon and repository.count("/") == 1 and not Path(path).exists():
        from huggingface_hub import hf_hub_download

        try:
            return Path(hf_hub_download(repository, file_name))
        except Exception as error:  # of the name, the connection, or what the hub answered
            raise ModelError(f"{path!r} cannot be fetched from the hub ({type(error).__name__}: {error})") from None
    if not Path(path).is_file():
        raise ModelError(f"there is no file {path!r}")
    return Path(path)


@dataclass(frozen=True)
class GGUF:
    """An open GGUF file."""

    file: Path
    tensors: Mapping[str, Any]
    keys: Mapping[str, Any]

    @classmethod
    def open(cls, file: Path) -> "GGUF":
        try:
            from gguf import GGUFReader
        except ImportError:
            raise ConfigError(f"reading {file.name} needs the package gguf: pip install groupwise[gguf]") from None
        try:
            reader = GGUFReader(file)
            keys = {name: field.contents() for name, field in reader.fields.items()}
        except Exception as error:  # the reader checks little, so a broken file ends in any of them
            raise ModelError(f"{file} is not a whole GGUF file ({type(error).__name__}: {error})") from None
        gguf = cls(file, {tensor.name: tensor for tensor in reader.tensors}, keys)
        if gguf.architecture not in ARCHITECTURES:
            gguf.refuse(f"has the architecture {gguf.architecture!r}; allowed are {', '.join(ARCHITECTURES)}")
        if keys.get("split.count", 1) > 1:
            gguf.refuse("is one of several parts; join them with llama-gguf-split --merge")
        return gguf

    def refuse(self, why: str) -> NoReturn:
        raise ModelError(f"{self.file} {why}")

    @cached_property
    def architecture(self) -> str:
        return str(self.keys.get("general.architecture"))

    def number(self, name: str, default: Any = None) -> Any:
        """Return the value of an architecture's key, or of the first of a list with a value for every layer."""
        value = self.keys.get(f"{self.architecture}.{name}", default)
        if value is None:
            self.refuse(f"lacks the key {self.architecture}.{name}")
        if isinstance(value, list):
            if len(set(value)) != 1:
                self.refuse(f"has different {self.architecture}.{name} by layer, {value[:4]}, which is not supported")
            return value[0]
        return value

    def write(self, directory: Path, given: list[Path]) -> None:
        """Write the model as a Hugging Face directory; files that are `given` replace what the keys say."""
        folder, names = self.file.parent, [file.name for file in given]
        config = AutoConfig.from_pretrained(folder) if "config.json" in names else self.config()
        if "tokenizer.json" in names:
            tokenizer = filled(self, PreTrainedTokenizerFast.from_pretrained(folder))
        else:
            tokenizer = tokenizer_of(self)
        tokenizer.save_pretrained(directory)
        generation = {"eos_token_id": stop_ids(self, tokenizer), "pad_token_id": tokenizer.pad_token_id}
        if "generation_config.json" in names:
            generation |= json.loads((folder / "generation_config.json").read_text())
        (directory / "generation_config.json").write_text(json.dumps(generation, indent=1))
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        self._write_weights(model, directory)
        config.architectures, config.dtype = [type(model).__name__], "float32"
        config.save_pretrained(directory)
        (directory / SOURCE).write_text(json.dumps(self.source(), indent=1, ensure_ascii=False, default=str))

    def source(self) -> dict[str, Any]:
        """Return what the file says of itself; a score is of this file, whatever its name says."""
        types = [tensor.tensor_type.name for tensor in self.tensors.values()]
        general = {name: value for name, value in self.keys.items() if name.startswith("general.")}
        return {"file": str(self.file), "types": {name: types.count(name) for name in dict.fromkeys(types)}} | general

    def config(self) -> PreTrainedConfig:
        heads, width, layers = (
            self.number(name) for name in ("attention.head_count", "embedding_length", "block_count")
        )
        head_dim = self.number("attention.key_length", self.number("rope.dimension_count", width // heads))
        rope = {"rope_type": "default", "rope_theta": self.number("rope.freq_base", 10_000.0)}
        if self.number("rope.dimension_count", head_dim) != head_dim:
            self.refuse("turns a part of each head by its position (rope.dimension_count), which is not supported")
        rope |= scaling_of(self)
        token = {f"{name}_token_id": self.keys.get(f"tokenizer.ggml.{key}_token_id") for name, key in SPECIAL.items()}
        values: dict[str, Any] = {
            "vocab_size": int(self._tensor("token_embd.weight").shape[1]),
            "hidden_size": width,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": self.number("attention.head_count_kv", heads),
            "head_dim": head_dim,
            "intermediate_size": self.number("feed_forward_length"),
            "max_position_embeddings": self.number("context_length"),
            "rms_norm_eps": self.number("attention.layer_norm_rms_epsilon"),
            "rope_parameters": rope,
            "tie_word_embeddings": "output.weight" not in self.tensors,
            **{name: value for name, value in token.items() if name != "unk_token_id"},
        }
        if self.architecture in ("llama", "qwen3"):
            values["attention_bias"] = "blk.0.attn_q.bias" in self.tensors
        if self.architecture == "gemma3":
            window, period = self.number("attention.sliding_window"), self.number("attention.sliding_window_pattern", 6)
            local = self.number("rope.freq_base_swa", 10_000.0)
            values |= {
                "sliding_window": window,
                "layer_types": ["sliding_attention" if (i + 1) % period else "full_attention" for i in range(layers)],
                "rope_parameters": {
                    "full_attention": rope,
                    "sliding_attention": {"rope_type": "default", "rope_theta": local},
                },
                # the largest of the family, of 62 layers, scales scores by its width (llama.cpp, src/models/gemma3)
                "query_pre_attn_scalar": width // heads if layers == 62 else head_dim,
                "final_logit_softcapping": self.keys.get("gemma3.final_logit_softcapping"),
            }
        config = AutoConfig.for_model(ARCHITECTURES[self.architecture], **values)
        check_factors(self, config)
        return config

    def _tensor(self, name: str) -> Any:
        if name not in self.tensors:
            self.refuse(f"has no tensor {name}")
        return self.tensors[name]

    def weights(self, model: Any) -> Iterator[tuple[str, Any]]:
        """Yield the name of every parameter of a model with its tensor of the file; a mismatch is refused."""
        import gguf

        kind = gguf.MODEL_ARCH[self.architecture.upper()]
        names = gguf.get_tensor_name_map(kind, model.config.num_hidden_layers)
        unused = dict(self.tensors)
        shapes = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
        for name, shape in shapes.items():
            known = names.get_name(name, try_suffixes=(".weight", ".bias"))
            tensor = self._tensor(known or name)
            if tuple(map(int, reversed(tensor.shape))) != shape:
                self.refuse(f"has {known} of shape {tuple(reversed(tensor.shape))}; its keys ask for {shape}")
            unused.pop(tensor.name)
            yield name, tensor
        if model.config.rope_parameters.get("rope_type") == "llama3":
            unused.pop(FREQUENCIES, None)
        if model.config.tie_word_embeddings:  # by a config.json beside the file
            unused.pop("output.weight", None)
        if unused:
            self.refuse(
                f"has tensors that no parameter takes: {', '.join(list(unused)[:3])}; put the model's config.json "
                "beside it, if that has a place for them"
            )

    def _write_weights(self, model: Any, directory: Path) -> None:
        plan: list[list[tuple[str, Any]]] = [[]]
        size = 0
        for name, tensor in self.weights(model):
            if plan[-1] and size + 4 * int(tensor.n_elements) > SHARD:
                plan, size = [*plan, []], 0
            plan[-1].append((name, tensor))
            size += 4 * int(tensor.n_elements)
        index: dict[str, str] = {}
        done = 0
        for number, shard in enumerate(plan, 1):
            file = f"model-{number:05}-of-{len(plan):05}.safetensors" if len(plan) > 1 else "model.safetensors"
            tensors = counted(f"reading {self.file.name}", shard, len(self.tensors), done)
            # a safetensors file of fp32 weights, which begin where torch's own would in memory, written one by one
            header, at = dict[str, Any]({"__metadata__": {"format": "pt"}}), 0
            for name, tensor in shard:
                shape = [int(n) for n in reversed(tensor.shape)]
                end = at + 4 * math.prod(shape)
                header[name], at = {"dtype": "F32", "shape": shape, "data_offsets": [at, end]}, end
                index[name] = file
            text = json.dumps(header).encode()
            text += b" " * (-(8 + len(text)) % ALIGNMENT)  # so that they can be read where they lie, without a copy
            with (directory / file).open("wb") as stream:
                stream.write(len(text).to_bytes(8, "little") + text)
                for name, tensor in tensors:
                    stream.write(self.weight(name, tensor, model.config).numpy().data)
            done += len(shard)
        if len(plan) > 1:
            record = {"metadata": {}, "weight_map": index}
            (directory / "model.safetensors.index.json").write_text(json.dumps(record, indent=1))

    def weight(self, name: str, tensor: Any, config: PreTrainedConfig) -> Tensor:
        """Return a parameter in fp32: a tensor dequantised, in the order of rows and with the norms of transformers."""
        import gguf

        if tensor.name == "token_embd.weight" and config.tie_word_embeddings:
            tensor = self.tensors.get("output.weight", tensor)  # the finer of the two, where the file has both
        value = np.array(gguf.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        if self.architecture == "llama" and (heads := rotated_heads(name, config)):
            value = value.reshape(heads, -1, 2, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)
        if self.architecture == "gemma3" and name.endswith("norm.weight"):
            value -= 1
        if not np.isfinite(value).all():
            self.refuse(f"holds numbers that are not finite, in {tensor.name}")
        return torch.from_numpy(np.ascontiguousarray(value))


def rotated_heads(name: str, config: PreTrainedConfig) -> int:
    """Return the number of heads of a query or key projection, whose rows llama.cpp keeps in pairs; else 0."""
    counts: dict[str, int] = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    return counts.get(name.split(".")[-2], 0)

"""llama.cpp as a second computation, through the wheel `xllamacpp`: tokens, templates, log-probabilities.

Its quantised products round activations, so both read a copy of the file with weights in fp16. Its keys and values are
fp16, too.
"""

import json
import shutil
import unicodedata
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
import pytest
import torch
from tokenizers import normalizers

from groupwise.models.config import ModelConfig
from groupwise.models.loading import PROBES
from groupwise.models.packed import Sequences, pack
from groupwise.models.policy import Policy, load_policy

pytestmark = pytest.mark.real
SHORT, LONG = 0.02, 0.3
"""Largest differences of log-probabilities of 32 tokens of prompt, and of 1,010; without Gemma's window it is 2.8."""


class Both(NamedTuple):
    policy: Policy
    server: Any

    def ask(self, path: str, **body: Any) -> Any:
        data, header = json.dumps(body).encode(), {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.server.listening_address}{path}", data, header)
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.loads(answer.read())


def in_fp16(source: Path, target: Path) -> None:
    """Copy a GGUF file with all matrices in fp16."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", "general.file_type"):
            kind = field.types[0]
            inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), kind, inner)
    writer.add_file_type(1)
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, values.astype(np.float32 if values.ndim == 1 else np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def both(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    xllamacpp = pytest.importorskip("xllamacpp", reason="needs pip install xllamacpp")
    copy = tmp_path_factory.mktemp("fp16") / "model.gguf"
    in_fp16(file, copy)
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.warmup = str(copy), 2048, 1, False
    params.verbosity = -1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("huggingface_hub.constants.HF_HOME", str(copy.parent))
        yield Both(
            load_policy(ModelConfig(path=str(copy), device="cpu", compute_dtype="float32")), xllamacpp.Server(params)
        )
    shutil.rmtree(copy.parent)  # gigabytes


def largest_difference(both: Both, ids: Sequence[int]) -> float:
    """The largest difference of the five likeliest tokens' log-probabilities behind a prompt."""
    body = {"prompt": list(ids), "n_predict": 1, "n_probs": 5, "temperature": 0.0, "cache_prompt": False}
    answer = both.ask("/completion", **body)["completion_probabilities"][0]["top_logprobs"]
    with torch.no_grad():
        states = both.policy.completion_states(pack([Sequences(ids, [[0]])]))
        logprobs = both.policy.next_logits(states)[0].log_softmax(-1)
    assert len(answer) == 5
    return max(abs(token["logprob"] - logprobs[token["id"]].item()) for token in answer)


@pytest.mark.parametrize(("num_tokens", "allowed"), [(32, SHORT), (1010, LONG)])
def test_log_probabilities_agree(both: Both, text: str, num_tokens: int, allowed: float) -> None:
    ids = both.policy.tokenizer(text).input_ids
    found = [largest_difference(both, ids[start : start + num_tokens]) for start in (0, 100, 200)]
    print(f"{num_tokens} tokens: largest differences {[round(value, 4) for value in found]}")
    assert max(found) <= allowed


def test_tokens_agree(both: Both) -> None:
    tokenizer = both.policy.tokenizer
    # llama.cpp composes no characters, as Qwen's normaliser does: it reads alike what is composed before
    composes = isinstance(tokenizer.backend_tokenizer.normalizer, normalizers.NFC)
    assert composes == both.policy.model.config.model_type.startswith("qwen")
    for text in (*PROBES, *tokenizer.all_special_tokens):
        composed = unicodedata.normalize("NFC", text) if composes else text
        for special in (True, False):
            theirs, theirs_composed = (
                both.ask("/tokenize", content=each, add_special=special, parse_special=True)["tokens"]
                for each in (text, composed)
            )
            ours = tokenizer(text, add_special_tokens=special).input_ids
            assert ours == theirs_composed, text
            assert (ours == theirs) == (text == composed), text


def test_templates_agree(both: Both) -> None:
    tokenizer = both.policy.tokenizer
    if not tokenizer.chat_template:
        pytest.skip("a base model without a template")
    turns = [("user", "What is 3 + 4?"), ("assistant", "7"), ("user", " and\n\n5? ")]
    messages = [{"role": role, "content": content} for role, content in turns]
    for asked in (messages[:1], messages, [{"role": "system", "content": "Be brief."}, *messages]):
        ours = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
        assert both.ask("/apply-template", messages=asked)["prompt"] == ours

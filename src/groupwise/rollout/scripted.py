"""The scripted engine: completions from a file, with the policy's log-probabilities, for tests and dry runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import torch

from groupwise.config.schema import DataRef
from groupwise.errors import ConfigError, DataError
from groupwise.models.packed import Sequences, pack
from groupwise.models.policy import Policy
from groupwise.rollout.engine import NO_TOOLS, EngineConfig, OnFinished, Request, Sampled
from groupwise.rollout.sampling import SamplingConfig
from groupwise.runs.jsonl import read_jsonl
from groupwise.types import FinishReason

Script = Mapping[str, Sequence[str]]
"""By prompt, the texts of its completions, without the end token."""


class ScriptedConfig(EngineConfig):
    """A file of completions."""

    continues: ClassVar[bool] = False
    path: DataRef
    """JSON lines, each `{"prompt": text, "completions": [text, ...]}`: a prompt as the model reads it, and at least as
    many completions as are requested. The end token is added; what passes `sampling.max_tokens` is cut off."""


class ScriptedEngine:
    """Gives prepared completions, in their order."""

    Config: ClassVar[type[EngineConfig]] = ScriptedConfig

    def __init__(self, config: ScriptedConfig, policy: Policy) -> None:
        self.policy, self.version = policy, 0
        self._script: Script = read_script(Path(config.path))

    @classmethod
    def of(cls, script: Script, policy: Policy) -> Self:
        engine = cls.__new__(cls)
        engine.policy, engine.version, engine._script = policy, 0, script
        return engine

    def generate(self, requests: Sequence[Request], sampling: SamplingConfig, on_finished: OnFinished) -> None:
        if sampling.tools:
            raise ConfigError(NO_TOOLS.format(kind="scripted", tools=", ".join(sampling.tools)))
        with self.policy.whole():
            for index, request in enumerate(requests):
                on_finished(index, self._completions(request, sampling))

    def _completions(self, request: Request, sampling: SamplingConfig) -> list[Sampled]:
        if request.pause is not None or request.begun:
            raise ConfigError(
                "the scripted engine gives whole completions: a search, or sampling.stop, needs "
                "engine.kind = in_process"
            )
        prompt = self.policy.tokenizer.decode(list(request.token_ids))
        texts = self._script.get(prompt, ())
        if len(texts) < len(request.keys):
            raise ConfigError(
                f"the script has {len(texts)} completions of the prompt {prompt!r}; {len(request.keys)} are needed"
            )
        asked = self.policy.tokenizer(list(texts[: len(request.keys)]), add_special_tokens=False)["input_ids"]
        ids = [[*own, self.policy.tokenizer.eos_token_id][: sampling.max_tokens] for own in asked]
        return self._sampled(request, ids, sampling.temperature)

    def publish(self, policy: Policy, version: int) -> None:
        self.policy, self.version = policy, version

    @torch.no_grad()
    def _sampled(self, request: Request, completions: Sequence[Sequence[int]], temperature: float) -> list[Sampled]:
        packed = pack([Sequences(request.token_ids, completions)], self.policy.device)
        computed = self.policy.token_logprobs(packed, temperature or 1.0)
        scale, stops = np.float32(1 if temperature else 0), self.policy.stop_ids
        ends = np.cumsum([len(ids) for ids in completions])[:-1]
        logprobs, entropy = (
            np.split(scale * values.cpu().numpy(), ends) for values in (computed.logprobs, computed.entropy)
        )
        reasons = [FinishReason.STOP if ids[-1] in stops else FinishReason.LENGTH for ids in completions]
        return [
            Sampled(np.array(ids, np.int64), np.minimum(row_logprobs, 0), row_entropy, reason)
            for ids, row_logprobs, row_entropy, reason in zip(completions, logprobs, entropy, reasons, strict=True)
        ]


def read_script(path: Path) -> Script:
    """Read a script; a DataError names the file, the line and what is wrong with it."""
    script: dict[str, list[str]] = {}
    for record in read_jsonl(path):
        prompt, texts = (record.fields.get(name) for name in ("prompt", "completions"))
        if not isinstance(prompt, str) or not isinstance(texts, list) or not all(isinstance(t, str) for t in texts):
            raise DataError(f"{record.place} needs `prompt`, a text, and `completions`, a list of texts")
        script.setdefault(prompt, []).extend(texts)
    return script

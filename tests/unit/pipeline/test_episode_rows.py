"""Rejection sampling of episodes: right ones become rows, which are learnt as they were sampled."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from groupwise.config import parse
from groupwise.models.config import ModelConfig
from groupwise.models.policy import Policy, load_policy
from groupwise.pipeline.base import Workplace
from groupwise.pipeline.cold_start import ColdStartConfig
from groupwise.pipeline.directory import StageDirectory
from groupwise.pipeline.rejection_sampling import RejectionConfig, RejectionSampling
from groupwise.rollout.engine import Request, Sampled
from groupwise.rollout.sample_and_score import Actors
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.scripted import ScriptedEngine
from groupwise.runs.rollouts import read_columns
from groupwise.trainers.sft import PairsData, encode, read_examples

CHAT = """{%- for m in messages %}{{ '[' + m.role + ']' + m.content + '<|end|>' }}{% endfor %}
{%- if add_generation_prompt %}{{ '[assistant]' }}{% endif %}"""
TASK = {"kind": "episodes", "num_problems": 3, "environment": {"kind": "guess", "highest": 4, "num_workers": 1}}
ASKED = {"model": {"device": "cpu"}, "sampling": {"max_tokens": 40}, "seed": 0}


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy(ModelConfig(device="cpu"))


class Upwards(ScriptedEngine):
    """The first sample says 1, 2, 3, ...; the others never end a turn."""

    def _completions(self, request: Request, sampling: SamplingConfig) -> list[Sampled]:
        begin = len(request.token_ids) - request.begun
        text = self.policy.tokenizer.decode(request.token_ids[begin:])
        number = max(text.count("\n"), text.count("[assistant]"))  # one in each reply
        vocabulary = self.policy.tokenizer.get_vocab()
        ids = [
            [vocabulary[str(number + 1)], 1],
            *[[vocabulary["9"]] * request.room(sampling)] * (len(request.keys) - 1),
        ]
        return self._sampled(request, ids, sampling.temperature)


@pytest.mark.parametrize("chat", [False, True])
def test_right_episodes_are_learnt_as_they_were_sampled(
    policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chat: bool
) -> None:
    def scripted(policy_: Policy, template: Any, verifier: Any, engine: Any) -> Actors:
        return Actors(policy, Upwards.of({}, policy), template, verifier)

    monkeypatch.setattr(policy.tokenizer, "chat_template", CHAT if chat else None)
    monkeypatch.setattr(Actors, "of", scripted)
    task = TASK | {"template": {"chat": chat}}
    settings = parse(RejectionConfig, {**ASKED, "task": task, "path": "base", "num_samples": 2})
    work = Workplace(StageDirectory(tmp_path), lambda recipe: None)  # type: ignore[arg-type,return-value]
    made = RejectionSampling("rejection", "rejection_sampling", settings).run(settings, work)
    assert made.statistics["dropped"] == {"not correct": 3}
    rows = [json.loads(line) for line in made.output.read_text().splitlines()]
    assert len(rows) == 3
    assert all(row["sample"] == 0 and row["pieces"][-1] == [row["reference"], True] for row in rows)
    [sampled] = [read_columns(path, ["problem", "sample", "prompt_token_ids", "token_ids", "sampled"]).to_pylist()
                 for path in (tmp_path / "samples").glob("*.parquet")]  # fmt: skip
    of = {row["problem"]: row for row in sampled if row["sample"] == 0}
    examples: Sequence[Any] = encode(
        policy, read_examples(PairsData(path=str(made.output)), str(made.output)), "completion"
    )
    for row, example in zip(rows, examples, strict=True):
        record = of[row["problem"]]
        assert example.prompt == record["prompt_token_ids"]
        assert example.completion == record["token_ids"]
        assert example.mask.tolist() == (record["sampled"] or [True] * len(example.completion))
    assert not np.concatenate([example.mask for example in examples]).all()


def test_stages_of_single_answers_refuse_episodes() -> None:
    source = {"sources": {"a": {"path": "base"}}}
    with pytest.raises(ValidationError, match="the stages 'play' and 'rejection_sampling'"):
        ColdStartConfig.model_validate({**ASKED, **source, "task": TASK})
    with pytest.raises(ValidationError, match="chat = true: rows of data are plain text"):
        RejectionConfig.model_validate(
            {**ASKED, "path": "base", "task": {"kind": "arithmetic", "template": {"chat": True}}}
        )

"""Rejection sampling of episodes and of chat models: what is right becomes rows, learnt as it was sampled."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from groupwise.config import parse
from groupwise.models.policy import Policy
from groupwise.pipeline.base import Workplace
from groupwise.pipeline.cold_start import ColdStartConfig
from groupwise.pipeline.directory import StageDirectory
from groupwise.pipeline.rejection_sampling import RejectionConfig, RejectionSampling
from groupwise.rollout.engine import Request, Sampled
from groupwise.rollout.sample_and_score import Actors
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.scripted import ScriptedEngine
from groupwise.runs.rollouts import read_columns
from groupwise.tasks import TaskOptions, make_task
from groupwise.tasks.base import split_problems
from groupwise.trainers.sft import PairsData, encode, read_examples

CHAT = """{%- for m in messages %}{{ '[' + m.role + ']' + m.content + '<|end|>' }}{% endfor %}
{%- if add_generation_prompt %}{{ '[assistant]' }}{% endif %}"""
TASK = {"kind": "episodes", "num_problems": 3, "environment": {"kind": "guess", "highest": 4, "num_workers": 1}}
ASKED = {"model": {"device": "cpu"}, "sampling": {"max_tokens": 40}, "seed": 0}


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


@pytest.fixture
def learnt(policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """learnt(task, chat template, engine): the stage's dropped, and for each row it, its record and its example."""

    def run(task: dict[str, Any], chat: str | None, engine: Any) -> tuple[dict[str, int], list[Any]]:
        monkeypatch.setattr(policy.tokenizer, "chat_template", chat)
        monkeypatch.setattr(Actors, "of", lambda _, template, verifier, __: Actors(policy, engine, template, verifier))
        changes = {"task": task, "path": "base", "num_problems": 3, "num_samples": 2}
        settings = parse(RejectionConfig, ASKED | changes)
        work = Workplace(StageDirectory(tmp_path), lambda recipe: None)  # type: ignore[arg-type,return-value]
        made = RejectionSampling("rejection", "rejection_sampling", settings).run(settings, work)
        rows = [json.loads(line) for line in made.output.read_text().splitlines()]
        [samples] = (tmp_path / "samples").glob("*.parquet")
        columns = ["problem", "sample", "prompt_token_ids", "token_ids", "sampled"]
        records = {row["problem"]: row for row in read_columns(samples, columns).to_pylist() if row["sample"] == 0}
        examples = encode(policy, read_examples(PairsData(path=str(made.output)), str(made.output)), "completion")
        assert len(rows) == 3
        return made.statistics["dropped"], [
            (row, records[row["problem"]], example) for row, example in zip(rows, examples, strict=True)
        ]

    return run


@pytest.mark.parametrize("chat", [False, True])
def test_right_episodes_are_learnt_as_they_were_sampled(policy: Policy, learnt: Callable[..., Any], chat: bool) -> None:
    task = TASK | {"template": {"chat": chat}}
    dropped, found = learnt(task, CHAT if chat else None, Upwards.of({}, policy))
    assert dropped == {"not correct": 3}
    for row, record, example in found:
        assert (row["sample"], row["pieces"][-1]) == (0, [row["reference"], True])
        assert example.prompt == record["prompt_token_ids"]
        assert example.completion == record["token_ids"]
        assert example.mask.tolist() == (record["sampled"] or [True] * len(example.completion))
    assert not np.concatenate([example.mask for *_, example in found]).all()


def test_right_answers_of_a_chat_model_are_conversations(policy: Policy, learnt: Callable[..., Any]) -> None:
    template = {"chat": True, "system": "Sum.", "prompt": "{question}=", "prefill": "<think>"}
    template["arguments"] = {"mood": "dry"}  # fine-tuning renders with it, too
    task = {"kind": "arithmetic", "num_problems": 20, "template": template}
    problems = split_problems(make_task(TypeAdapter(TaskOptions).validate_python(task)), "train", None)[-3:]
    right = {problem.id: f"1</think>\\boxed{{{problem.reference}}}" for problem in problems}
    asked = "dry[system]Sum.<|end|>[user]{}=<|end|>[assistant]<think>"
    script = {asked.format(problem.question): [right[problem.id], right[problem.id] + " " * 60] for problem in problems}
    dropped, found = learnt(task, "{{ mood }}" + CHAT, ScriptedEngine.of(script, policy))
    assert dropped == {"cut off": 3}
    for row, record, example in found:
        assert [message["role"] for message in row["prompt"]] == ["system", "user"]
        assert row["completion"] == [{"role": "assistant", "content": "<think>" + right[row["problem"]]}]
        assert [*example.prompt, *example.completion] == [*record["prompt_token_ids"], *record["token_ids"]]
        assert example.mask.sum() == 1 + len(record["token_ids"])  # <think>, too, which it was begun with


def test_stages_of_single_answers_refuse_episodes() -> None:
    source = {"sources": {"a": {"path": "base"}}}
    with pytest.raises(ValidationError, match="the stages 'play' and 'rejection_sampling'"):
        ColdStartConfig.model_validate({**ASKED, **source, "task": TASK})
    with pytest.raises(ValidationError, match="chat = true: examples and summaries are plain text"):
        ColdStartConfig.model_validate({**ASKED, **source, "task": {"kind": "arithmetic", "template": {"chat": True}}})

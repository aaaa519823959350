import importlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from groupwise.errors import ModelError, VerifierError
from groupwise.models.checkpoint import save_checkpoint
from groupwise.models.config import ModelConfig
from groupwise.models.reward_model import load_reward_model, start_reward_model
from groupwise.pipeline.directory import write_rows
from groupwise.pipeline.rejection_sampling import GeneralData, ModelJudge, general_rows

module = importlib.import_module("groupwise.pipeline.rejection_sampling")
TASK = {"kind": "general", "num_problems": 40, "num_eval_problems": 4}


def rows_of(most: int = 100, seed: int = 0, **options: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    writer = {} if "file" in options else {"writer": "worlds/general.py:Hands"}
    tables = {"task": TASK, "num_problems": 20, "answers_per_problem": 2, **writer, **options}
    data = GeneralData.model_validate(tables)
    rows, statistics = general_rows(data, most, seed, ModelConfig(device="cpu"))
    return rows, statistics["general"]


@pytest.fixture
def longest(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[tuple[str, str]]]:
    """Reward models that like long texts; what they were shown."""
    shown: list[Sequence[tuple[str, str]]] = []

    class Model:
        def freeze(self) -> "Model":
            return self

    def scores(model: Any, path: str, told: Sequence[tuple[str, str, str]]) -> list[float]:
        shown.append([(prompt, text) for prompt, text, _ in told])
        return [float(len(text)) for _, text, _ in told]

    monkeypatch.setattr(module, "load_reward_model", lambda config: Model())
    monkeypatch.setattr(module, "_scores", scores)
    return shown


def test_unjudged_data_is_drawn_from_all_candidates() -> None:
    rows, statistics = rows_of()
    assert statistics == {"candidates": 40, "kept": 40, "taken": 40, "dropped": {}}
    assert all(row["source"] == "general" and row["judged_by"] == [] for row in rows)
    assert len({row["problem"] for row in rows}) == 20
    some, statistics = rows_of(most=7)
    assert (some, statistics["taken"], statistics["kept"]) == (rows[:7], 7, 40)
    assert rows_of(most=7, seed=1)[0] != some
    assert rows_of(most=0)[0] == []


def test_a_judge_keeps_the_best_share_by_score(longest: list[Any]) -> None:
    everything, _ = rows_of()
    rows, statistics = rows_of(reward_models={"long": {"path": "x", "keep": 0.25}})
    lengths = sorted((len(row["completion"]) for row in everything), reverse=True)
    assert sorted((len(row["completion"]) for row in rows), reverse=True) == lengths[:10]
    assert statistics["dropped"] == {"below the best 25% by long": 30}
    assert rows[0]["judged_by"] == ["long"]


def test_all_judges_must_agree(longest: list[Any]) -> None:
    a, b = {"a": {"path": "x", "keep": 0.5}}, {"b": {"path": "x", "see": "answer", "keep": 0.5}}
    (one, _), (other, _), (both, statistics) = (rows_of(reward_models=judges) for judges in (a, b, a | b))
    texts = [{row["completion"] for row in some} for some in (one, other, both)]
    assert texts[0] & texts[1] == texts[2]
    assert statistics["kept"] == 40 - sum(statistics["dropped"].values())


def test_prompts_and_pairs_of_ones_own(tmp_path: Path, longest: list[Any]) -> None:
    write_rows(tmp_path / "own.jsonl", [{"prompt": f"p{i}", "completion": "c" * (i + 1)} for i in range(8)])
    for see in ("completion", "answer"):  # answers of one's own need no reasoning
        judge = {"path": "x", "see": see, "keep": 0.5}
        rows, statistics = rows_of(file={"path": str(tmp_path / "own.jsonl")}, reward_models={"long": judge})
        assert statistics["candidates"] == 8
        assert sorted(row["prompt"] for row in rows) == ["p4", "p5", "p6", "p7"]
        assert {row["problem"].partition(":")[0] for row in rows} == {"own.jsonl"}  # and not where it lies


@pytest.mark.parametrize("prefill", ["", "<think>"])
def test_a_judge_of_answers_reads_them_after_the_question_alone(longest: list[Any], prefill: str) -> None:
    task = {**TASK, "template": {"prefill": prefill}}
    rows_of(task=task, reward_models={"a": {"path": "x", "see": "answer"}, "b": {"path": "x"}})
    answers, completions = longest
    assert len(answers) == len(completions) == 40
    assert answers == [
        (prompt.removesuffix(prefill), text.rpartition("</think>")[2].strip()) for prompt, text in completions
    ]
    assert all(prompt.endswith("\n") and text and "<think>" not in text for prompt, text in answers)


def test_a_judge_that_fails_stops_the_stage() -> None:
    nobody = {"url": "http://127.0.0.1:9/v1", "model": "m", "max_attempts": 1}
    with pytest.raises(VerifierError, match="the judge of general data failed on 40 of 40 answers; allowed are 2; for"):
        rows_of(judge=nobody)


def test_a_judge_of_rows_without_reference_is_not_asked_about_it() -> None:
    with pytest.raises(ValidationError, match=r"judge.prompt holds \{reference\}, which rows of a file do not have"):
        rows_of(file={"path": "own.jsonl"}, judge={"url": "http://127.0.0.1:9/v1", "model": "m"})


def test_what_the_prompt_begins_is_not_written_twice() -> None:
    rows, _ = rows_of(task={**TASK, "template": {"prefill": "<think>"}})
    assert all(row["prompt"].endswith("<think>") for row in rows)
    assert not any(row["completion"].startswith("<think>") for row in rows)


@pytest.fixture(scope="module")
def scorer(tiny_policy: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reward model with random weights."""
    folder = tmp_path_factory.mktemp("models")
    save_checkpoint(folder / "language", tiny_policy(max_position_embeddings=400))
    model = start_reward_model(ModelConfig(path=str(folder / "language"), device="cpu"))
    model.head.weight.data.normal_(generator=torch.Generator().manual_seed(0))
    save_checkpoint(folder / "reward", model)
    return folder / "reward"


def test_scores_of_a_real_model_do_not_depend_on_the_batch(scorer: Path) -> None:
    model = load_reward_model(ModelConfig(path=str(scorer), device="cpu")).freeze()
    pairs = [("short", "yes"), ("a much longer question than the other", "no, " * 9), ("等一下", "好"), ("a", "b")]
    told = [(*pair, "x") for pair in pairs]
    together = module._scores(model, "m", told)
    assert len(set(together)) == 4
    # a score is the sum of many terms that may cancel, so what rounding changes goes by the scores' own size
    rounding = 1e-5 * max(map(abs, together))
    assert module._scores(model, "m", told, budget=1) == pytest.approx(together, rel=0, abs=rounding)
    assert [module._scores(model, "m", [one])[0] for one in told] == pytest.approx(together, rel=0, abs=rounding)


def test_a_real_model_sorts_candidates(scorer: Path) -> None:
    rows, statistics = rows_of(reward_models={"real": {"path": str(scorer), "keep": 0.5}})
    assert statistics == {"candidates": 40, "kept": 20, "taken": 20, "dropped": {"below the best 50% by real": 20}}
    assert rows == rows_of(reward_models={"real": {"path": str(scorer), "keep": 0.5}})[0]


def test_a_share_is_a_share() -> None:
    for keep in (0, -0.1, 1.1):
        with pytest.raises(ValueError, match="keep"):
            ModelJudge(path="x", keep=keep)


def test_what_a_model_cannot_judge_is_named(scorer: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "own.jsonl", [{"prompt": "p", "completion": "c" * 400}])
    with pytest.raises(ModelError, match=r"reads 400 tokens, but the completion of own.jsonl:0 has 402"):
        rows_of(file={"path": str(tmp_path / "own.jsonl")}, reward_models={"real": {"path": str(scorer)}})
    model = start_reward_model(ModelConfig(path=str(scorer), device="cpu"))
    model.head.weight.data.fill_(math.nan)
    save_checkpoint(tmp_path / "damaged", model)
    with pytest.raises(ModelError, match="gives nan to the completion of general/"):
        rows_of(reward_models={"real": {"path": str(tmp_path / "damaged")}})

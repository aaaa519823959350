"""Recipes, models, data and directories that cannot be used: one sentence that names the fault."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from commands import RECIPE, refuse, run_process, settings, succeed, write_recipe
from safetensors.torch import load_file, save_file

from groupwise.config import recipe_names


@pytest.mark.filterwarnings("ignore:.* begins the section anew")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("model.pth=x", ["model.pth", "unknown key", "did you mean 'path'?"]),
        ("modle.path=x", ["modle", "unknown key", "did you mean 'model'?"]),
        ("task.digit=[2,2]", ["digit", "unknown key", "did you mean 'digits'?"]),
        ("loss.mini_batches=5", ["loss.mini_batches = 5", "grpo.prompts_per_step = 4", "at least one group"]),
        ("sampling.top_k=20", ["top_k = 20", "whole distribution", "evaluation only"]),
        ("sampling.temperature=0", ["temperature = 0", "teach nothing"]),
        ("run.num_steps=abc", ["run.num_steps = 'abc'", "integer"]),
        ("run.num_steps=0", ["run.num_steps = 0", "greater than or equal to 1"]),
        ("run=3", ["run = 3"]),
        ("run.seed.deep=3", ["run.seed: ", "integer"]),
        ("algorithm.deep=3", ["the change 'algorithm.deep=3': algorithm is a value, not a section"]),
        ("algorithm=ppo", ["grpo: unknown key; did you mean 'ppo'?"]),
        ("task.kind=sums", ["no task 'sums'", "arithmetic, code, coq_statements", "mixture"]),
        ("task.kinds=[\"power\"]", ["kinds", "'power'", "'product', 'sum', 'difference' or 'chain'"]),
        ("advantage.kind=best", ["there is no advantage 'best'", "group_mean, group_normalised"]),
        ("loss.aggregation=mean", ["aggregation = 'mean'", "constant, token, sequence"]),
        ("grpo.prompts_per_step=41", ["grpo.prompts_per_step = 41", "40 training problems"]),
        ("task.num_problems=100000", ["task.num_problems = 100000", "at most"]),
        ("task.template.gold={reference}", ["rejects the reference answer of arithmetic/", "fix the template"]),
        ("task.template.prompt=Answer!", ["{question}"]),
        ("run.seed", ["the change 'run.seed' must look like section.key=value"]),
        ("=3", ["the change '=3' must look like section.key=value"]),
    ],
)  # fmt: skip
def test_a_recipe_that_cannot_be_used_is_explained(tmp_path: Path, change: str, words: list[str]) -> None:
    sentence = refuse("train", write_recipe(tmp_path, tmp_path / "run"), "--set", change)
    assert all(word in sentence for word in words), sentence
    assert "{" not in sentence or "template" in change  # no table is printed
    assert not (tmp_path / "run").exists()


def test_a_recipe_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert "there is no recipe" in refuse("train", tmp_path / "missing.toml")
    recipe = write_recipe(tmp_path, tmp_path / "run", "algorithm = grpo")
    assert re.search(r"recipe\.toml is not a readable TOML file: .*line 1", refuse("train", recipe))
    recipe = write_recipe(tmp_path, tmp_path / "run", 'algorithm = "pppo"\n')
    assert "algorithm: there is no trainer 'pppo'; did you mean 'ppo'?" in refuse("train", recipe)
    assert "not a readable TOML file" in refuse("train", tmp_path)


def test_an_unknown_task_or_split_lists_the_known_ones() -> None:
    assert "no task 'sums'; known are arithmetic, code, coq_statements, " in refuse("eval", "base", "--task", "sums")
    assert "no task 'sums'; known are arithmetic" in refuse("sample", "base", "What?", "--task", "sums")
    assert "name the task (arithmetic" in refuse("eval", "base")
    sentence = refuse("eval", "base", "--task", "arithmetic", "--split", "validation")
    assert "split 'validation': allowed are train, dev, test" in sentence


def test_missing_weights_are_named(random_model: Path, tmp_path: Path) -> None:
    spoilt = Path(shutil.copytree(random_model, tmp_path / "spoilt"))
    tensors = load_file(spoilt / "model.safetensors")
    del tensors["model.layers.0.mlp.up_proj.weight"]
    save_file(tensors, spoilt / "model.safetensors", metadata={"format": "pt"})
    sentence = refuse("sample", spoilt, "What is 23 × 17?", "--task", "arithmetic", "--max-tokens", 8)
    assert "is damaged: weights ['model.layers.0.mlp.up_proj.weight'] are missing" in sentence


def test_a_prompt_longer_than_the_context_says_both_lengths(tmp_path: Path) -> None:
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "context_length": 32}
    succeed("init", tmp_path / "short", "--model", *settings(dict(shape)))
    question = "What is 23 × 17? " * 4
    sentence = refuse("sample", tmp_path / "short", question, "--task", "arithmetic", "--max-tokens", 8)
    tokens = len((question + "\n").encode())
    assert f"a prompt of {tokens} tokens" in sentence
    assert "context of 32 tokens" in sentence


JSONL = {"run.num_steps": 1, "grpo.prompts_per_step": 2, "grpo.group_size": 2, "evaluation.test_problems": 0}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (None, ["problems.jsonl cannot be read: No such file"]),
        ('{"question": "1 + 1?", "answer"', ["problems.jsonl, line 4", "is not JSON"]),
        ('["1 + 1?", "2"]', ["problems.jsonl, line 4", "is a JSON list", "object"]),
        ('{"question": "1 + 1?"}', ["problems.jsonl, line 4", "has no field 'answer'"]),
        ('{"question": "", "answer": "2"}', ["problems.jsonl, line 4", "question", "is empty"]),
        ('{"question": "1 + 1?", "answer": [2]}', ["problems.jsonl, line 4", "field 'answer' is [2]"]),
    ],
)
def test_a_missing_file_and_a_broken_line_by_its_number_are_named(
    tmp_path: Path, line: str | None, words: list[str]
) -> None:
    good = [json.dumps({"question": f"What is {n} + 1?", "answer": str(n + 1)}) for n in range(60)]
    if line is not None:
        (tmp_path / "problems.jsonl").write_text("\n".join([*good[:2], "", line, *good[2:]]))
    text = RECIPE[: RECIPE.index("[task]")] + f'[task]\nkind = "jsonl"\npath = "{tmp_path / "problems.jsonl"}"\n'
    sentence = refuse("train", write_recipe(tmp_path, tmp_path / "run", text), *settings(dict(JSONL)))
    assert all(word in sentence for word in words), sentence
    assert not (tmp_path / "run").exists()


def test_a_run_directory_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, tmp_path / "thesis")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("precious")
    assert "not a run directory" in refuse("train", recipe, "--set", f"run.directory={tmp_path}/thesis/chapter.txt")
    for restart in ([], ["--restart"]):
        assert "exists and is not a run directory" in refuse("train", recipe, *restart)
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "precious"


def test_a_mistake_found_while_loading_does_not_block_the_run_directory(without_report: None, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, tmp_path / "run")
    refuse("train", recipe, "--set", f"model.path={tmp_path / 'missing'}")
    short = ["run.num_steps=1", "evaluation.num_problems=1", "evaluation.test_problems=0"]
    assert "1 of 1 steps, finished" in succeed("train", recipe, *(word for each in short for word in ("--set", each)))


def test_a_mistake_in_a_recipe_answers_at_once() -> None:
    sentence = f"groupwise: there is no recipe missing.toml; Groupwise brings {', '.join(recipe_names())}\n"
    assert run_process("train", "missing.toml") == (2, False, sentence)


@pytest.mark.parametrize("change", ["model.num_threads=-1", "sft.sequences_per_step=0", "new_model.hidden_size=30"])
def test_values_that_cannot_be_are_refused(tmp_path: Path, change: str) -> None:
    data = '[new_model]\nhidden_size = 16\n\n[data]\nsource = "texts"\ntext = "worlds/diet.py:Diet"\n'
    text = f'algorithm = "sft"\n\n[run]\ndirectory = "DIRECTORY"\nnum_steps = 1\n\n{data}'
    sentence = refuse("train", write_recipe(tmp_path, tmp_path / "run", text), "--set", change)
    assert change.partition("=")[0].rpartition(".")[2] in sentence


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is at hand")
def test_a_gpu_that_is_not_there_is_said(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, tmp_path / "run")
    assert "cuda" in refuse("train", recipe, "--set", "model.device=cuda")

"""Continued pre-training: shares of tokens, documents cut without loss, and no attention from one to another."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diet import document
from groupwise.config import parse
from groupwise.errors import ConfigError, DataError
from groupwise.models.config import ModelConfig
from groupwise.models.new_model import NewModel, character_tokenizer, new_policy
from groupwise.models.policy import Policy, load_policy
from groupwise.randomness import key
from groupwise.trainers import load_recipe
from groupwise.trainers.documents import DocumentsData, Example, TextData, cut, document_batches, encoded, replayed
from groupwise.trainers.sft import SftRecipe, sft_gradient
from groupwise.training.config import RunConfig

LAST = "base/second-3.toml"
"""The recipe of the last part of the shipped base model's training."""


@pytest.fixture(scope="module")
def policy() -> Policy:
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = NewModel(**shape, intermediate_size=16, context_length=64)
    return new_policy(config, character_tokenizer("abcdefghij \n"), ModelConfig(device="cpu"))


def written(path: Path, texts: list[str]) -> str:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return str(path)


def batches(policy: Policy, size: int, steps: int, seed: int = 0, **parts: Any) -> Callable[[int], list[Example]]:
    data = parse(DocumentsData, {"parts": parts})
    return document_batches(policy, data, size, RunConfig(directory="", num_steps=steps, seed=seed))


def test_shares_are_shares_of_tokens(policy: Policy, tmp_path: Path) -> None:
    """Documents of one part are six times as long as the other's, and both have half of the tokens."""
    long, short = written(tmp_path / "a", ["a" * 59] * 5), written(tmp_path / "b", ["b" * 9] * 5)
    for shares, expected, near in (((2, 2), 0.5, 0.07), ((9, 1), 0.9, 0.03)):
        parts = {"long": {"share": shares[0], "path": long}, "short": {"share": shares[1], "path": short}}
        draw = batches(policy, 50, 40, **parts)
        lengths = np.array([len(e.prompt) + len(e.completion) for step in range(40) for e in draw(step)])
        assert set(lengths) == {60, 10}
        assert lengths[lengths == 60].sum() / lengths.sum() == pytest.approx(expected, abs=near)


def test_every_document_occurs_once_in_an_epoch_and_a_step_is_a_pure_function(policy: Policy, tmp_path: Path) -> None:
    texts = [letter * 3 for letter in "abcdefgh"]
    draw = batches(policy, 4, 4, one={"path": written(tmp_path / "a", texts)})
    seen = [tuple(e.prompt + e.completion) for step in range(4) for e in draw(step)]
    assert sorted(seen[:8]) == sorted(seen[8:]) == sorted(map(tuple, encoded(policy, texts)))
    assert seen[:8] != seen[8:]
    again = batches(policy, 4, 4, one={"path": str(tmp_path / "a")})
    assert [again(step) for step in (3, 1)] == [draw(step) for step in (3, 1)]
    other = batches(policy, 4, 4, seed=1, one={"path": str(tmp_path / "a")})
    assert [other(step) for step in range(4)] != [draw(step) for step in range(4)]


@given(st.integers(2, 200), st.integers(2, 70))
def test_a_cut_loses_nothing_and_leaves_no_single_token(length: int, limit: int) -> None:
    pieces = cut(list(range(length)), limit)
    assert [token for piece in pieces for token in piece] == list(range(length))
    sizes = [len(piece) for piece in pieces]
    assert max(sizes) <= limit
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 2 or limit == 2
    assert len(pieces) == -(-length // limit)


def test_long_documents_come_in_pieces(policy: Policy, tmp_path: Path) -> None:
    draw = batches(policy, 3, 1, one={"path": written(tmp_path / "a", ["ab" * 75])})
    pieces = sorted(len(e.prompt) + len(e.completion) for e in draw(0))
    assert pieces == [50, 50, 51]  # 150 characters and the end, in a context of 64


@pytest.mark.parametrize(("shared", "budget"), [(0, 0), (20, 0), (20, 60), (20, 1)])
def test_no_document_reads_another(policy: Policy, shared: int, budget: int) -> None:
    """The gradient of a packed step is that of the documents one by one, and changes of one leave the other's alone."""
    ids = [Example([5] * shared + e[:1], e[1:]) for e in encoded(policy, ["abcabc", "bbbbbbb", "cabac"])]

    def gradient(examples: list[Example]) -> tuple[float, list[torch.Tensor]]:
        loss = sft_gradient(policy, examples, budget).loss
        found = [weight.grad.clone() for _, weight in policy.trainable() if weight.grad is not None]
        for _, weight in policy.trainable():
            weight.grad = None
        return loss, found

    tokens = [len(e.completion) for e in ids]
    packed, together = gradient(ids)
    losses, alone = zip(*(gradient([one]) for one in ids), strict=True)
    assert packed == pytest.approx(np.average(losses, weights=tokens), rel=1e-5)
    for place, whole in enumerate(together):
        parts = sum(n * one[place] for n, one in zip(tokens, alone, strict=True)) / sum(tokens)
        torch.testing.assert_close(whole, parts, atol=1e-6, rtol=1e-4)


def test_unknown_characters_are_counted_and_their_documents_left_out(policy: Policy, tmp_path: Path) -> None:
    path = written(tmp_path / "a", ["abc", "aéc", "小"])
    with pytest.warns(UserWarning, match=r"data\.parts\.one: 2 of 3 documents have characters"):
        draw = batches(policy, 4, 1, one={"path": path})
    assert {tuple(e.completion) for e in draw(0)} == {tuple(encoded(policy, ["abc"])[0][1:])}
    with pytest.raises(DataError, match="each of its 1 documents has characters that the model does not know"):
        batches(policy, 4, 1, one={"path": written(tmp_path / "b", ["小"])})


def test_a_replay_that_the_model_cannot_read_whole_is_named(policy: Policy) -> None:
    with pytest.raises(DataError, match=r"parts\.one\.replay = '.*' writes a text with characters that the model does"):
        batches(policy, 4, 1, one={"replay": LAST})
    base = load_policy(ModelConfig(path="base"))
    base.model.config.max_position_embeddings = 20
    with pytest.raises(DataError, match=r"writes a text with \d+ tokens; .* of at most 20 tokens, its context"):
        batches(base, 4, 1, one={"replay": LAST})


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{broken", "line 1 is not JSON"),
        ('{"body": "x"}', "line 1 has no field 'text'"),
        ('{"text": ""}', "must be a non-empty string"),
        ("", "holds no documents"),
    ],
)
def test_broken_files_are_named(policy: Policy, tmp_path: Path, line: str, says: str) -> None:
    (tmp_path / "a").write_text(line)
    with pytest.raises(DataError, match=says):
        batches(policy, 1, 1, one={"path": str(tmp_path / "a")})


def test_contradictions_are_refused() -> None:
    recipe = {"run": {"directory": "x", "num_steps": 1}, "data": {"source": "documents", "parts": {"a": {"path": "f"}}}}
    with pytest.raises(ConfigError, match='documents have no prompt; allowed with them is "all"'):
        parse(SftRecipe, recipe)
    with pytest.raises(ConfigError, match="documents do not say which characters there are"):
        parse(SftRecipe, {**recipe, "sft": {"loss_on": "all"}, "new_model": {}})
    for part in ({}, {"path": "f", "replay": LAST}):
        with pytest.raises(ConfigError, match="exactly one of them must be set"):
            parse(DocumentsData, {"parts": {"a": part}})


def test_a_replay_has_the_mix_that_the_base_model_read_last() -> None:
    """Shares are counted over documents; the recipe's own training reads the same mix."""
    mix: Any = replayed(LAST)
    recipe = load_recipe(LAST)
    assert isinstance(recipe, SftRecipe)
    assert isinstance(recipe.data, TextData)
    assert recipe.data.text == mix
    documents = [document(7, place, mix) for place in range(2000)]
    assert [mix.text(7, place) for place in range(50)] == [tuple(one[:2]) for one in documents[:50]]
    kinds, ways = mix.kinds, mix.products
    for kind, weight in kinds.items():
        share = [one.kind for one in documents].count(kind) / len(documents)
        assert share == pytest.approx(weight / sum(kinds.values()), abs=0.03), kind
    products = [one.strategy for one in documents if one.kind == "product"]
    for way, weight in ways.items():
        assert products.count(way) / len(products) == pytest.approx(weight / sum(ways.values()), abs=0.07), way


def test_a_replay_is_read_as_documents() -> None:
    base = load_policy(ModelConfig(path="base"))
    tokens = [[*one.prompt, *one.completion] for one in batches(base, 6, 1, one={"replay": LAST})(0)]
    whole = [replayed(LAST).text(key(0, "replay", "one"), place) for place in range(6)]
    assert tokens == encoded(base, ["".join(text) for text in whole])

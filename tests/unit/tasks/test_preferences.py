"""Preference pairs from files and from tasks: what is read, what is held out, what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from groupwise.config import parse
from groupwise.errors import ConfigError, DataError
from groupwise.tasks.arithmetic import ArithmeticConfig
from groupwise.tasks.base import Template
from groupwise.tasks.preferences import Pair, PairsFile, TaskPairs, load_pairs
from groupwise.types import Problem

USER = {"role": "user", "content": "Hello?"}


def says(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def write(path: Path, *rows: Any) -> str:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows), "utf-8")
    return str(path)


def row(**fields: Any) -> dict[str, Any]:
    return {"prompt": "Hello?", "chosen": "Hi!", "rejected": "What."} | fields


def read(tmp_path: Path, *rows: Any, **config: Any) -> list[Pair]:
    return load_pairs(PairsFile(path=write(tmp_path / "pairs.jsonl", *rows), **{"held_out": 0.0, **config})).train


def test_text_is_read_as_it_stands(tmp_path: Path) -> None:
    assert read(tmp_path, row(margin=3), row(chosen=" Hi \n")) == [
        Pair("Hello?", "Hi!", "What."), Pair("Hello?", " Hi \n", "What."),
    ]  # fmt: skip


def test_fields_have_the_names_of_the_recipe(tmp_path: Path) -> None:
    named = {"prompt_field": "q", "chosen_field": "good", "rejected_field": "bad", "margin_field": "by"}
    assert read(tmp_path, {"q": "a", "good": "b", "bad": "c", "by": 2}, **named) == [Pair("a", "b", "c", 2.0)]
    (tmp_path / "pairs.csv").write_text("q,good,bad,by\na,b,c,2.5\n")
    assert load_pairs(PairsFile(path=f"{tmp_path}/pairs.csv", held_out=0.0, **named)).train == [
        Pair("a", "b", "c", 2.5)
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": [USER], "chosen": [says("Hi!")], "rejected": [says("What.")]},
        {"chosen": [USER, says("Hi!")], "rejected": [USER, says("What.")]},
        {"prompt": "Hello?", "chosen": [USER, says("Hi!")], "rejected": [USER, says("What.")]},
        {"prompt": [USER], "chosen": [USER, says("Hi!")], "rejected": [USER, says("What.")]},
    ],
    ids=["prompt of its own", "prompt within", "prompt within, and as text", "prompt within, and beside"],
)
def test_conversations_begin_with_their_prompt(tmp_path: Path, fields: dict[str, Any]) -> None:
    assert read(tmp_path, fields) == [Pair([USER], [says("Hi!")], [says("What.")])]


def test_the_prompt_is_all_that_the_conversations_share(tmp_path: Path) -> None:
    start = [{"role": "system", "content": "Be kind."}, USER, says("Hi!"), USER]
    [pair] = read(tmp_path, {"chosen": [*start, says("Again!")], "rejected": [*start, says("Go."), USER]})
    assert pair == Pair(start, [says("Again!")], [says("Go."), USER])
    [pair] = read(tmp_path, {"system": "Be kind.", "prompt": [USER], "chosen": [says("a")], "rejected": [says("b")]})
    assert pair == Pair(start[:2], [says("a")], [says("b")])


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("{", "line 2 is not JSON"),
        ({"prompt": "a", "chosen": "b"}, "line 2 has no field 'rejected'; its fields are prompt, chosen"),
        (row(prompt=""), "line 2: field 'prompt' is ''; text or a list of messages"),
        (row(chosen=7), "line 2: field 'chosen' is 7; text or a list of messages with role and content is needed"),
        (
            row(chosen=[{"role": "assistant"}]),
            "line 2: field 'chosen', message 1: its content is None; role and content as text",
        ),
        (row(system="Be kind."), "line 2: field 'system' would be read by nothing: write it into 'prompt'"),
        (
            {"chosen": "Yes.", "rejected": "Yet.", "chat_template_kwargs": {"a": 1}},
            "line 2: field 'chat_template_kwargs' would be read by nothing",
        ),
        (row(chosen="What."), "line 2: the chosen and the rejected completion are the same"),
        (row(chosen=[says("Hi!")]), "line 2: one completion is text, the other a list of messages"),
        (row(prompt=[USER]), "line 2: the prompt is a list of messages, the completions are text"),
        (
            {"chosen": [USER, says("a")], "rejected": [USER, says("a"), USER]},
            "line 2: after 2 shared messages nobody and",
        ),
        ({"chosen": [says("a")], "rejected": [says("b")]}, "line 2: after 0 shared messages"),
        ({"chosen": [USER, says("a")], "rejected": [USER, USER]}, "line 2: after 1 shared messages assistant and user"),
        (
            {"prompt": "Bye", "chosen": [USER, says("a")], "rejected": [USER, says("b")]},
            "line 2: field 'prompt' is in no message that both conversations share",
        ),
        (row(by="much"), "line 2: field 'by' is 'much'; a finite number"),
        (row(by=True), "line 2: field 'by' is True"),
        (row(by=float("nan")), "line 2: field 'by' is nan"),
        (row(), "line 2: field 'by' is None"),
    ],
)
def test_what_cannot_be_used_is_named_with_its_line(tmp_path: Path, bad: Any, said: str) -> None:
    with pytest.raises(DataError, match=rf"pairs\.jsonl, {said}"):
        read(tmp_path, row(by=1), bad, margin_field="by")


def test_the_held_out_share_is_chosen_by_the_prompt_alone(tmp_path: Path) -> None:
    rows = [row(prompt=f"{number}?", chosen=f"{k}") for number in range(400) for k in range(2)]
    paths = [write(tmp_path / name, *each) for name, each in (("a.jsonl", rows), ("b.jsonl", rows[::-1]))]
    first, again = (load_pairs(PairsFile(path=path, held_out=0.2)) for path in paths)
    prompts = {pair.prompt for pair in first.held_out}
    assert 50 < len(prompts) < 110
    assert not prompts & {pair.prompt for pair in first.train}
    assert len(first.train) + len(first.held_out) == 800
    assert prompts == {pair.prompt for pair in again.held_out}


def test_a_split_without_pairs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"held_out = 0\.5"):
        load_pairs(PairsFile(path=write(tmp_path / "a.jsonl", row(), row(chosen="Ho!")), held_out=0.5))


class Spoken(Template):
    def gold_answer(self, problem: Problem) -> str:
        return f"<think></think>It is {problem.reference}."


def test_pairs_of_a_task_differ_in_one_digit_of_the_result() -> None:
    task = ArithmeticConfig(
        kind="arithmetic", kinds=["product"], num_problems=50, num_eval_problems=9, template=Spoken(prefill="<think>")
    )
    found = load_pairs(TaskPairs(task=task))
    assert (len(found.train), len(found.held_out)) == (50, 9)
    assert not {pair.prompt for pair in found.train} & {pair.prompt for pair in found.held_out}
    for pair in (*found.train, *found.held_out):
        assert isinstance(pair.prompt, str)
        assert pair.prompt.endswith("<think>")
        assert isinstance(pair.chosen, str)
        assert pair.chosen.startswith("</think>It is ")
        differing = [(a, b) for a, b in zip(pair.chosen, pair.rejected, strict=True) if a != b]
        assert len(differing) == 1
        assert "".join(differing[0]).isdigit()
        assert differing[0][1] != "0"


def test_pairs_of_a_task_are_plain_text() -> None:
    values = {"source": "task", "task": {"kind": "arithmetic", "template": {"chat": True}}}
    with pytest.raises(ConfigError, match=r"task\.template\.chat = true"):
        parse(TaskPairs, values)

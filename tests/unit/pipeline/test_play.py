"""Episodes that a script plays, and how they are read to be learnt."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from groupwise.config import parse
from groupwise.errors import ConfigError, DataError
from groupwise.models.policy import Policy
from groupwise.pipeline.base import Workplace
from groupwise.pipeline.directory import StageDirectory
from groupwise.pipeline.play import Play, PlayConfig
from groupwise.rollout.calls import turn_of
from groupwise.rollout.dialogue import Dialogue
from groupwise.tasks import make_task
from groupwise.trainers.sft import PairsData, encode, read_examples


def played(path: Path, **changes: Any) -> list[dict[str, Any]]:
    task = {"kind": "episodes", "environment": {"kind": "guess", "highest": 7}, **changes.pop("task", {})}
    settings = parse(PlayConfig, {"task": task, "num_rows": 40, "seed": 0, **changes})
    path.mkdir()
    made = Play("play", "play", settings).run(settings, Workplace(StageDirectory(path), lambda recipe: None))  # type: ignore[arg-type,return-value]
    assert sum(made.statistics["outcomes"].values()) == 40
    return [json.loads(line) for line in made.output.read_text().splitlines()]


def test_perfect_and_random_play_are_mixed(tmp_path: Path) -> None:
    lengths = {share: [len(row["pieces"]) for row in played(tmp_path / str(share), random=share)] for share in (0, 1)}
    assert max(lengths[0]) == 6  # three turns, and what was said before each
    assert max(lengths[1]) > 6
    assert played(tmp_path / "again", random=1) == played(tmp_path / "and again", random=1)
    [[asked, is_learnt], *others] = played(tmp_path / "once", random=0)[0]["pieces"]
    assert (asked, is_learnt) == ("1 to 7\n", False)
    assert others[0] == ["4", True]
    assert {text for text, is_own in others if not is_own} <= {"<\n", ">\n"}


def test_a_script_thinks_aloud_before_perfect_moves_of_games_that_know_how(tmp_path: Path) -> None:
    nim = {"environment": {"kind": "nim"}}
    silent, aloud = (played(tmp_path / str(aloud), task=nim, random=0, aloud=aloud) for aloud in (False, True))
    for before, after in zip(silent, aloud, strict=True):
        for (text, is_own), (told, _) in zip(before["pieces"], after["pieces"], strict=True):
            assert re.fullmatch(r"<think>\d{3}</think>" * is_own + re.escape(text), told)
    assert "think" not in str(played(tmp_path / "random", task=nim, random=1, aloud=True))
    assert played(tmp_path / "guess", aloud=True) == played(tmp_path / "the same")


def test_calls_are_written_for_a_chat_template_or_as_text(tmp_path: Path) -> None:
    database: dict[str, Any] = {"kind": "database", "levels": ["count"]}
    row = played(tmp_path / "chat", task={"template": {"chat": True}, "environment": database}, random=0)[0]
    assert [message["role"] for message in row["messages"]] == ["user", *["assistant", "tool"] * 2, "assistant"]
    [call] = row["messages"][1]["tool_calls"]
    assert call["function"] == {"name": "query", "arguments": {"sql": "SELECT sql FROM sqlite_master"}}
    assert ([tool["function"]["name"] for tool in row["tools"]], row["calls"]) == (["query"], "auto")
    pieces = played(tmp_path / "text", task={"environment": database | {"calls": "hermes"}}, random=0)[0]["pieces"]
    assert [is_own for _, is_own in pieces] == [False, True] * 3
    assert turn_of("hermes", pieces[1][0], row["tools"]).calls[0].arguments == call["function"]["arguments"]
    with pytest.raises(ConfigError, match="calls = 'auto': without a chat template"):
        played(tmp_path / "refused", task={"environment": database}, random=0)


def test_rows_read_as_the_prompts_of_episodes(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        "".join(json.dumps({"question": f"Number {n}", "answer": str(n), "hint": "Hm"}) + "\n" for n in range(8))
    )
    template = {"prompt": "{data.hint}: {question}", "prefill": "I say "}
    task = {"problems": {"kind": "jsonl", "path": str(rows)}, "template": template}
    pieces = played(tmp_path / "text", task=task, random=0)[0]["pieces"]
    assert pieces[:2] == [["Hm: Number 7I say ", False], ["4", True]]
    assert all(text in ("Hm: <I say ", "Hm: >I say ") for text, is_own in pieces[2:] if not is_own)
    task["template"] = {**template, "chat": True, "system": "Play."}
    [system, asked, said, *_] = played(tmp_path / "chat", task=task, random=0)[0]["messages"]
    assert system == {"role": "system", "content": "Play."}
    assert asked == {"role": "user", "content": "Hm: Number 7"}
    assert said == {"role": "assistant", "content": "I say 4"}


def test_it_is_learnt_as_it_will_be_sampled(policy: Policy, tmp_path: Path) -> None:
    """Every piece is tokenised by itself, as an episode has it, and only the turns are learnt."""
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"pieces": [["1 to 7\n", False], ["4", True], ["<\n", False], ["2", True]]}) + "\n")
    [example] = encode(policy, read_examples(PairsData(path=str(path)), str(path)), "completion")
    task = make_task({"kind": "episodes", "environment": "guess"})
    problem = task.problems("train")[0]
    dialogue = Dialogue(policy, task.template, task.config.environment)  # type: ignore[attr-defined]
    glue = dialogue.glue(problem, [{"role": "user", "content": "<"}])
    four, two = (policy.tokenizer(digit, add_special_tokens=False)["input_ids"] for digit in "42")
    assert example.prompt == list(dialogue.prompt(problem, [{"role": "user", "content": "1 to 7"}]).token_ids)
    assert example.completion == [*four, 1, *glue, *two, 1]
    assert example.mask.tolist() == [True, True, *[False] * len(glue), True, True]


@pytest.mark.parametrize(
    "pieces", [[], [["a", True], ["b", True]], [["a", False]], [["a", False], ["b", "yes"]], [1, 2]]
)
def test_other_pieces_are_refused_by_name(tmp_path: Path, pieces: Any) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"pieces": pieces}) + "\n")
    with pytest.raises(DataError, match=r"rows.jsonl.* has the pieces .* the first with false"):
        read_examples(PairsData(path=str(path)), str(path))

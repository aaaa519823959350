"""Agents of two tools: a database that queries cannot change, and files that a shell changes in the sandbox."""

import asyncio
from statistics import fmean
from typing import Any, get_args

import pytest

from database import SCHEMA, Database
from groupwise.errors import SandboxError
from groupwise.randomness import Draw
from groupwise.tasks import make_task
from groupwise.tasks.environments.base import Reply, Turn
from groupwise.tasks.environments.tools import calling
from groupwise.tasks.episodes import Episodes, scripted
from groupwise.types import SPLITS, Problem
from shell import Level, Shell, goal

KINDS = ("database", "shell")


def agent(kind: str, num: int = 60, **settings: Any) -> Episodes:
    task = make_task({"kind": "episodes", "environment": {"kind": kind, **settings}, "num_problems": num})
    assert isinstance(task, Episodes)
    return task


def share_correct(kind: str, num: int, random: float) -> float:
    config, problems = agent(kind).config.environment, agent(kind).problems("train")
    scripts = [scripted(config, problem, i, random, Draw("x", i)) for i, problem in enumerate(problems[:num])]
    return fmean(script.replies[-1].outcome == "correct" for script in scripts if script)


@pytest.mark.parametrize("kind", KINDS)
def test_splits_have_no_question_in_common_and_stay(kind: str) -> None:
    splits = [agent(kind, 300).problems(split) for split in SPLITS]
    contents = [{(p.question, repr(p.data.get("tables"))) for p in split} for split in splits]
    assert [len(each) for each in contents] == [300, 200, 200]
    assert len(set.union(*contents)) == 700
    assert len({p.difficulty for p in splits[2]}) == 5
    assert [p.id for p in agent(kind, 300).problems("test")] == [p.id for p in splits[2]]
    assert {p.difficulty for p in agent(kind, levels=["count"]).problems("dev")} == {f"{kind}: count"}


@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize(("kind", "num", "most"), [("database", 60, 0.15), ("shell", 10, 0.1)])
def test_perfect_play_wins_and_random_play_does_not(kind: str, num: int, most: float) -> None:
    assert share_correct(kind, num, 0.0) == 1.0
    assert share_correct(kind, num, 1.0) <= most


def begun(kind: type[Database] | type[Shell], problem: Problem, seed: int = 0) -> Any:
    environment = kind(kind.Config(kind=kind.__name__.lower()))
    opening = environment.start(problem, seed)
    if not hasattr(opening, "messages"):
        asyncio.run(opening)
    return environment


def said(environment: Any, turn: Turn) -> Reply:
    reply: Reply = asyncio.run(environment.step(turn))
    return reply


def query(environment: Any, sql: str) -> str:
    return str(said(environment, calling("query", sql=sql)).messages[0]["content"])


TABLES = {"team": ["id", "name", "color"], "player": ["id", "age", "grade", "team_id"]}
PROBLEM = Problem("p", "How many?", "SELECT count(*) FROM player WHERE age > 50", data={"tables": TABLES})


def test_rows_come_from_the_seed_and_the_answer_from_them() -> None:
    first, again, other = (begun(Database, PROBLEM, seed) for seed in (1, 1, 2))
    everything = "SELECT * FROM player LIMIT 5"
    assert query(first, everything) == query(again, everything) != query(other, everything)
    assert query(first, SCHEMA) == "CREATE TABLE team(id, name, color)\nCREATE TABLE player(id, age, grade, team_id)"
    number = query(first, PROBLEM.reference)
    texts = {number: 1, f"They are \\boxed{{{number}.0}}, not 7": 1, f"{number}1": 0, "": 0, "nan": 0}
    for text, reward in texts.items():
        assert said(begun(Database, PROBLEM, 1), Turn(text)).reward == reward


@pytest.mark.parametrize(
    ("sql", "fault"),
    [
        ("DELETE FROM player", "not authorized"), ("INSERT INTO team VALUES (1, 2, 3)", "not authorized"),
        ("CREATE TABLE x(y)", "not authorized"), ("DROP TABLE team", "not authorized"),
        ("ATTACH 'x.db' AS x", "not authorized"), ("PRAGMA writable_schema = 1", "not authorized"),
        ("BEGIN", "not authorized"), ("VACUUM INTO 'x.db'", "authorization denied"),
        ("SELECT random()", "not authorized"), ("SELECT datetime('now')", "not authorized"),
        ("SELECT CURRENT_TIMESTAMP", "not authorized"), ("SELECT load_extension('x')", "not authorized"),
        ("SELECT sqlite_version()", "not authorized"), ("SELECT printf('%9999999d', 1)", "not authorized"),
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n", "interrupted"),
        ("SELECT count(*) FROM player a, player b, player c, player d, player e", "interrupted"),
        ("SELECT height FROM player", "no such column: height"), ("SELEC", 'near "SELEC": syntax error'),
        ("SELECT 1; SELECT 2", "one statement"), ("SELECT '\x00'", "null"), ("SELECT '\ud800'", "surrogates"),
        ("SELECT '" + "x" * 5000 + "'", "too large"), ("", "no rows"), ("SELECT 1 WHERE 0", "no rows"),
        ("SELECT NULL, 2.5", "NULL|2.5"), ("PRAGMA table_info(team)", "0|id||0|NULL|0\n1|name||0|NULL|0"),
        ("SELECT a.id FROM player a, player b", "2\n2\n... more rows"),
    ],
)  # fmt: skip
def test_queries_change_nothing_and_say_what_sqlite_says(sql: str, fault: str) -> None:
    environment = begun(Database, PROBLEM)
    changes = environment._base.total_changes
    before = query(environment, "SELECT * FROM player LIMIT 9")
    first = query(environment, sql)
    assert fault in first
    assert len(first) < 400
    assert query(environment, sql) == first
    assert query(environment, "SELECT * FROM player LIMIT 9") == before
    assert environment._base.total_changes == changes


def run(environment: Any, *commands: str) -> list[str]:
    replies = [said(environment, calling("run", command=command)) for command in commands]
    return [str(reply.messages[0]["content"]) for reply in replies]


@pytest.fixture
def shell(bubblewrap: None) -> Any:
    data = {"level": "collect", "word": "iris", "other": "jade", "suffix": "log", "number": 7}
    return lambda: begun(Shell, Problem("p", "Collect.", "true", data=data))


def test_files_are_carried_from_command_to_command(shell: Any) -> None:
    first, again = shell(), shell()
    commands = ["ls", "mkdir -p a/b empty && echo hello > a/b/c", "cat a/b/c; rm *.log", "ls -l . a", "cd a && ls"]
    assert run(first, *commands) == (told := run(again, *commands))
    assert told[1] == "ok"
    assert told[2] == "hello"
    assert ".log" in told[0]
    assert ".log" not in told[3]
    assert "empty" in told[3]
    assert told[4] == "b"
    assert "a/b/c" in said(first, Turn("done")).evidence


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("date", "date: not found"), ("/usr/bin/date", "/usr cannot be used here"), ("echo $$", "$$ cannot be"),
        ("cat ../../etc/passwd", "No such file"), ("cat /etc/passwd", "No such file"), ("true > /dev/null", "ok"),
        ("echo hi > /etc/x", "exit status 2"), ("kill -9 $PPID", "was killed"), ("exit 3", "exit status 3"),
        ("seq 1 200000 > big", "was killed (flooded)"), ("seq 1 200000", "1\n2\n3"), ("if", "Syntax error"),
        ("printf '\\377'", "\ufffd"), ("", "ok"), ("while :; do :; done", "CPU time limit"),
    ],
)  # fmt: skip
def test_commands_stay_in_the_sandbox(shell: Any, command: str, told: str) -> None:
    environment = shell()
    before, answer, after = run(environment, "ls", command, "ls")
    assert told in answer
    assert len(answer) < 4100
    assert before == after


def test_without_a_sandbox_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses() -> None:
        raise SandboxError("install bubblewrap")

    monkeypatch.setattr("shell._opened", refuses)
    with pytest.raises(SandboxError, match="install bubblewrap"):
        begun(Shell, agent("shell").problems("train")[0])


def test_goals_by_hand() -> None:
    files = {"a.log": b"iris 1\nfjord 2\n", "b.txt": b"jade 3\niris 0\n", "c.log": b"kelp 4\n"}
    goals = {level: goal(files, level, "iris", "jade", "log", 7) for level in get_args(Level)}
    assert goals["write"] == files | {"jade7.md": b"iris 7\n"}
    assert goals["move"] == {"jade7/a.log": files["a.log"], "b.txt": files["b.txt"], "jade7/c.log": files["c.log"]}
    assert goals["remove"] == {"c.log": files["c.log"]}
    assert goals["collect"] == files | {"jade7.md": b"iris 0\niris 1"}
    assert goals["count"] == files | {"jade7.md": b"3"}

"""Questions about a SQLite database in memory, which the model reads by queries that can change nothing.

    [task.environment]
    kind = "database"
    levels = ["count", "filter", "sum", "join", "group"]

The tables and the question are the problem's, the rows come from the seed, so no answer can be learnt by heart. The
model asks for the schema by a query, as for everything else, and reads SQLite's own errors. The answer is a number,
which our own query finds. A query may use no clock and no chance, and is interrupted after a number of steps, never of
seconds: so it always answers the same.
"""

import sqlite3
from collections.abc import Iterator
from itertools import count
from typing import Literal, get_args

from pydantic import Field

from groupwise.randomness import Draw, key
from groupwise.tasks.environments.base import EnvironmentConfig, Opening, Reply, Turn
from groupwise.tasks.environments.tools import Calling, CallingConfig, calling
from groupwise.types import Problem
from groupwise.verifiers.extraction import boxes, last_number

Level = Literal["count", "filter", "sum", "join", "group"]
SCHEMA = "SELECT sql FROM sqlite_master"
MOST_ROWS = 20
"""Most rows of a result; the text is cut by `max_reply_tokens`, too."""
MOST_STEPS = 200_000
"""Steps of SQLite's machine after which a query is interrupted."""
MOST_BYTES = 4_000
"""Most bytes of a query, of a text and of a row."""
_NAMES = (
    "abs avg coalesce count dense_rank first_value group_concat ifnull iif instr lag last_value lead length like lower "
    "ltrim max min nullif rank replace round row_number rtrim substr sum total trim typeof upper"
)
FUNCTIONS = frozenset(_NAMES.split())
"""Functions of SQL that a query may use: none of them reads a clock or draws at random."""
_PLACES = (
    ("author", "book"), ("team", "player"), ("farm", "animal"), ("city", "shop"), ("museum", "painting"),
    ("school", "pupil"), ("airline", "plane"), ("band", "song"), ("river", "bridge"), ("garden", "tree"),
)  # fmt: skip
_NUMBERS = ("price", "age", "size", "weight", "score", "stock", "height", "cost")
_KINDS = {
    "color": ("red", "green", "blue", "white"), "origin": ("Rome", "Oslo", "Lima", "Cairo"), "grade": tuple("ABCD"),
    "season": ("spring", "summer", "autumn", "winter"),
}  # fmt: skip


class DatabaseConfig(CallingConfig):
    """Dials of the questions."""

    levels: tuple[Level, ...] = Field(get_args(Level), min_length=1)
    """Kinds of questions, each as often: `count` rows, `filter` them, `sum` up, `join` two tables, `group` rows."""


class Database(Calling):
    """One tool, `query`; a turn without a call is the answer, and earns 1 where its number is right."""

    Config = DatabaseConfig
    config: DatabaseConfig
    in_order = True

    @classmethod
    def problems(cls, config: EnvironmentConfig) -> Iterator[Problem]:
        assert isinstance(config, DatabaseConfig)
        for index in count():
            draw, level = Draw("database", index), config.levels[index % len(config.levels)]
            parent, child = draw.choice(_PLACES)
            (number, other), (kind, parent_kind) = draw.shuffled(_NUMBERS)[:2], draw.shuffled(list(_KINDS))[:2]
            tables = {
                parent: ["id", *draw.shuffled(["name", parent_kind])],
                child: ["id", *draw.shuffled([number, other, kind, f"{parent}_id"])],
            }
            value, parent_value = draw.choice(_KINDS[kind]), draw.choice(_KINDS[parent_kind])
            bound, counted = draw.integer(20, 80), f"SELECT count(*) FROM {child}"
            question, sql = {
                "count": (f"How many {child}s are there?", counted),
                "filter": (
                    f"How many {child}s have {number} above {bound}?", f"{counted} WHERE {number} > {bound}"
                ),
                "sum": (
                    f"What is the total {number} of the {child}s with {kind} {value}?",
                    f"SELECT sum({number}) FROM {child} WHERE {kind} = '{value}'",
                ),
                "join": (
                    f"How many {child}s are there whose {parent} has {parent_kind} {parent_value}?",
                    f"{counted} JOIN {parent} ON {parent}_id = {parent}.id WHERE {parent_kind} = '{parent_value}'",
                ),
                "group": (
                    f"What is the largest total {number} of the {child}s of one {parent}?",
                    f"SELECT max(t) FROM (SELECT sum({number}) AS t FROM {child} GROUP BY {parent}_id)",
                ),
            }[level]  # fmt: skip
            of_all = key(question, repr(tables))  # so that splits have no problem in common
            yield Problem(f"database/{of_all:016x}", question, sql, f"database: {level}", data={"tables": tables})

    def start(self, problem: Problem, seed: int) -> Opening:
        draw, self._sql, self._asked, self._steps = Draw("rows", problem.id, seed), problem.reference, set[str](), 0
        self._base = sqlite3.connect(":memory:", check_same_thread=False, cached_statements=0)
        sizes = draw.integer(4, 6), draw.integer(8, 30)

        def value(column: str, row: int) -> int | str:
            if column == "id":
                return row + 1
            if column.endswith("_id"):
                return draw.integer(1, sizes[0])
            if values := _KINDS.get(column):
                return values[row] if row < len(values) else draw.choice(values)  # each is there
            return f"n{draw.integer(100, 999)}" if column == "name" else draw.integer(1, 99)

        for (table, columns), size in zip(problem.data["tables"].items(), sizes, strict=True):
            self._base.execute(f"CREATE TABLE {table}({', '.join(columns)})")
            rows = [[value(column, row) for column in columns] for row in range(size)]
            self._base.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", rows)
        self._base.commit()
        [[self._answer]] = self._base.execute(self._sql)
        self._base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_BYTES)
        self._base.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, MOST_BYTES)
        self._base.set_authorizer(_may)
        self._base.set_progress_handler(self._interrupts, 1000)
        return self.begun([self.query], [{"role": "user", "content": problem.question}])

    def query(self, sql: str) -> str:
        """Run one read-only query on the SQLite database. Its tables are in sqlite_master. The answer is a number.

        Args:
            sql: the query, for example SELECT sql FROM sqlite_master
        """
        self._asked.add(sql)
        self._steps = 0
        with_more = self._base.execute(sql).fetchmany(MOST_ROWS + 1)
        lines = ["|".join("NULL" if value is None else str(value) for value in row) for row in with_more[:MOST_ROWS]]
        return "\n".join([*lines, *["... more rows"] * (len(with_more) > MOST_ROWS)]) or "no rows"

    def _interrupts(self) -> bool:
        self._steps += 1000
        return self._steps > MOST_STEPS

    async def judged(self, text: str) -> Reply:
        said = (boxes(text) or last_number(text) or [""])[-1].replace(",", "").strip()
        try:
            is_right = float(said) == self._answer
        except ValueError:
            is_right = False
        evidence = f"{said!r:.40} for {self._answer}, by {self._sql}"
        return Reply(reward=float(is_right), done=True, outcome="correct" if is_right else "wrong", evidence=evidence)

    def close(self) -> None:
        self._base.close()

    def best(self) -> Turn:
        sql = next((sql for sql in (SCHEMA, self._sql) if sql not in self._asked), None)
        return calling("query", sql=sql) if sql else Turn(str(self._answer))

    def options(self) -> list[Turn]:
        queries = [SCHEMA, "SELECT name FROM sqlite_master", "SELECT count(*) FROM sqlite_master", "SELECT * FROM it"]
        return [*(calling("query", sql=sql) for sql in queries), *(Turn(str(number)) for number in range(4, 24, 5))]


def _may(action: int, first: str | None, second: str | None, *others: str | None) -> int:
    is_read = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE)
    is_known = action == sqlite3.SQLITE_FUNCTION and second in FUNCTIONS
    is_schema = action == sqlite3.SQLITE_PRAGMA and first in ("table_info", "table_list")
    return sqlite3.SQLITE_OK if is_read or is_known or is_schema else sqlite3.SQLITE_DENY

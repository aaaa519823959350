"""A table with named columns, as `Run` gives them: Arrow below, plain Python above."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Self

import pyarrow as pa

from groupwise.errors import ConfigError

SHOWN_ROWS = 20
"""Rows of a table that a notebook shows."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with named columns. Polars and DuckDB read it as it is, by Arrow's stream protocol."""

    arrow: pa.Table

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> Self:
        """The table of these rows; its columns are all of theirs, empty where a row has none."""
        names = list(dict.fromkeys(name for row in rows for name in row))
        return cls(pa.table({name: [row.get(name) for row in rows] for name in names}))

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in order."""
        return list(self.arrow.column_names)

    def __len__(self) -> int:
        return int(self.arrow.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows, one dictionary each."""
        return iter(self.arrow.to_pylist())

    def __getitem__(self, column: str) -> list[Any]:
        """The values of a column.

        Raises:
            KeyError: there is no such column; names those there are.
        """
        if column not in self.columns:
            raise KeyError(f"there is no column {column!r}; there are {', '.join(self.columns)}")
        values: list[Any] = self.arrow[column].to_pylist()
        return values

    def to_arrow(self) -> pa.Table:
        """As a `pyarrow.Table`."""
        return self.arrow

    def to_pandas(self) -> Any:
        """As a `pandas.DataFrame`.

        Raises:
            ConfigError: pandas is not installed.
        """
        try:
            return self.arrow.to_pandas()
        except ModuleNotFoundError:
            raise ConfigError(
                "to_pandas() needs pandas, which is not installed: `pip install pandas`, or use to_arrow()"
            ) from None

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.arrow.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"Table({len(self)} rows: {', '.join(self.columns)})"

    def _repr_html_(self) -> str:
        """The first rows, for a notebook; whatever a model wrote is text there, never markup."""
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        rows = self.arrow.slice(0, SHOWN_ROWS).to_pylist()
        body = "".join(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row.values())}</tr>" for row in rows)
        more = f"<p>{len(self) - len(rows)} more rows</p>" if len(self) > len(rows) else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
    return escape(text if len(text) <= 80 else f"{text[:79]}…")

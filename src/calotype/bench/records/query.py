"""Runs SQL over measurements in an in-memory DuckDB with two tables.

It accepts one SELECT at a time, without access to files or the network.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from calotype.bench.records.columns import COLUMNS, SAMPLE_COLUMNS, rows_of, samples_of
from calotype.bench.records.store import Stored
from calotype.core.errors import Problem, RequestError
from calotype.core.extras import MissingExtraError


@dataclass(frozen=True)
class Answer:
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def ask(sql: str, stored: Iterable[Stored]) -> Answer:
    """Return the result of one SELECT over `measurements` and `samples`."""
    duckdb = _duckdb()
    with duckdb.connect(":memory:") as connection:
        _validate_select(duckdb, sql)
        _fill(connection, list(stored))
        # Disable external access, and lock the configuration so that a query cannot enable it.
        connection.execute("SET temp_directory = ''")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        try:
            result = connection.execute(sql)
            return Answer(tuple(column[0] for column in result.description), result.fetchall())
        except duckdb.Error as error:
            raise RequestError([Problem("query", _one_line(error), sql)]) from None


def _duckdb() -> Any:
    try:
        import duckdb  # noqa: PLC0415 - an extra that only questions need
    except ImportError:
        raise MissingExtraError("duckdb", "query", "a query of records") from None
    return duckdb


def _validate_select(duckdb: Any, sql: str) -> None:
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise RequestError([Problem("query", _one_line(error), sql)]) from None
    if len(statements) != 1:
        rule = f"holds {len(statements)} statements; ask one SELECT at a time"
        raise RequestError([Problem("query", rule, sql)])
    kind = statements[0].type
    if kind != duckdb.StatementType.SELECT:
        rule = f"is a {kind.name} statement, and records are only read here; ask with SELECT"
        raise RequestError([Problem("query", rule, sql)])


def _fill(connection: Any, stored: list[Stored]) -> None:
    tables = {
        "measurements": ({column.name: column.type for column in COLUMNS}, [rows_of(one) for one in stored]),
        "samples": (
            {name: kind for name, (kind, _) in SAMPLE_COLUMNS.items()},
            [row for one in stored for row in samples_of(one)],
        ),
    }
    for name, (columns, rows) in tables.items():
        declared = ", ".join(f'"{column}" {kind}' for column, kind in columns.items())
        connection.execute(f"CREATE TABLE {name} ({declared})")
        if rows:
            # Insert by column, because DuckDB takes milliseconds for each single row.
            lists = ", ".join(f"unnest(?::{kind}[])" for kind in columns.values())
            values = [list(column) for column in zip(*rows, strict=True)]
            connection.execute(f"INSERT INTO {name} SELECT {lists}", values)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())

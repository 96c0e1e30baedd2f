"""Statements, and programs of several statements, that know nothing of connections.

A program is a generator: it yields statements, receives their rows, and returns its result. So the same program runs on
a pooled connection, on a blocking one, and on any connection of the caller's, asynchronous or not.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from taskharbor.model.safe_repr import shown

T = TypeVar("T")
VERSION = 1  # of the schema that this program was written for; see schema.py
_PLAIN = re.compile(r"[^?%:$\\]*").fullmatch
_SPECIAL = re.compile(r"[?%:$\\]")
Rows: TypeAlias = Sequence[Sequence[Any]]


class Statement(NamedTuple):
    """SQL with a `?` for each parameter, in order; no `?`, `%` or `:` stands for anything else in it."""

    sql: str
    parameters: tuple[Any, ...] = ()

    def __repr__(self) -> str:
        return shown(self, "sql")


Program: TypeAlias = Generator[Statement, Rows, T]


def quoted(name: str) -> str:
    """A name as SQL writes it, whatever characters it is made of.

    Characters that a library between us and the server might take for a parameter are written as escapes.

    >>> quoted("jobs"), quoted('a"b'), quoted("50%")
    ('"jobs"', '"a""b"', 'U&"50\\\\0025"')
    """
    if _PLAIN(name):
        return '"' + name.replace('"', '""') + '"'
    escaped = _SPECIAL.sub(lambda found: f"\\{ord(found.group()):04X}", name)
    return 'U&"' + escaped.replace('"', '""') + '"'


@functools.lru_cache(maxsize=256)
def numbered(sql: str) -> str:
    """The statement with PostgreSQL's own parameter marks.

    >>> numbered("select ? where ?")
    'select $1 where $2'
    """
    first, *others = sql.split("?")
    return first + "".join(f"${number}{text}" for number, text in enumerate(others, 1))


def array(values: Sequence[str]) -> str:
    """Texts as a JSON array: one parameter that every kind of connection can send."""
    return json.dumps(list(values))


def call(schema: str, function: str, *parameters: tuple[Any, str], columns: str) -> Statement:
    """A call of one of our functions that returns rows; each parameter comes with its type."""
    sql = f"select {columns} from {_call(schema, function, tuple([kind for _, kind in parameters]), VERSION)}"
    return Statement(sql, tuple([value for value, _ in parameters]))


def value(schema: str, function: str, *parameters: tuple[Any, str]) -> Statement:
    """A call of one of our functions that returns a single value."""
    sql = f"select {_call(schema, function, tuple([kind for _, kind in parameters]), VERSION)}"
    return Statement(sql, tuple([value for value, _ in parameters]))


@functools.lru_cache(maxsize=256)
def _call(schema: str, function: str, kinds: tuple[str, ...], version: int) -> str:
    return f"{quoted(schema)}.{function}_v{version}({', '.join(f'cast(? as {kind})' for kind in kinds)})"


def named(schema: str, function: str) -> str:
    """The name of one of our functions, as it is in the schema.

    >>> named("taskharbor", "state_of")
    '"taskharbor".state_of_v1'
    """
    return f"{quoted(schema)}.{function}_v{VERSION}"


def rows_of(statement: Statement) -> Program[Any]:
    """The program that returns the rows of one statement."""
    return (yield statement)

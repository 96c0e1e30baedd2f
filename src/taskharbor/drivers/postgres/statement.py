"""Statements, and programs of several statements, that know nothing of connections.

A program is a generator: it yields statements, receives their rows, and returns its result. So the same program runs on
a pooled connection, on a blocking one, and on any connection of the caller's, asynchronous or not. What waits around a
program is a coroutine: see `drivers.connections.at_once`.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from taskharbor.drivers.connections import Ask, Rows, asking, at_once
from taskharbor.model.safe_repr import shown

T = TypeVar("T")
VERSION = 1  # of the schema that this program was written for; see schema.py
_PLAIN = re.compile(r"[^?%:$\\]*").fullmatch
_SPECIAL = re.compile(r"[?%:$\\]")


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


def call(schema: str, function: str, *parameters: Any, columns: str = "") -> Statement:
    """A call of one of our functions, named with the types of its parameters. `columns`: of its rows, if it returns
    more than a single value."""
    return Statement(_call(schema, function, columns, VERSION), parameters)


@functools.lru_cache(maxsize=256)
def _call(schema: str, function: str, columns: str, version: int) -> str:
    name, _, kinds = function.removesuffix(")").partition("(")
    casts = ", ".join(f"cast(? as {kind})" for kind in kinds.split(", ") if kind)
    return f"select {f'{columns} from ' if columns else ''}{quoted(schema)}.{name}_v{version}({casts})"


def named(schema: str, function: str) -> str:
    """The name of one of our functions, as it is in the schema.

    >>> named("taskharbor", "state_of")
    '"taskharbor".state_of_v1'
    """
    return f"{quoted(schema)}.{function}_v{VERSION}"


def rows_of(statement: Statement) -> Program[Any]:
    """The program that returns the rows of one statement."""
    return (yield statement)


# Running them


async def drive(program: Program[T], ask: Ask, first: Statement | None = None) -> T:
    """Run a program's statements; `first` is the one that it has yielded already."""
    try:
        statement = next(program) if first is None else first
        while True:
            statement = program.send(await ask(statement.sql, statement.parameters))
    except StopIteration as stop:
        result: T = stop.value
        return result


def drive_sync(connection: Any, program: Program[T]) -> T:
    """Run a program's statements on a synchronous connection of any library."""
    return at_once(drive(program, asking(connection)))

"""How a call of the driver is made: a `Runner` (pool.py) runs a statement, or a program of several (statement.py).

The calls are written once, in reading.py, schedules.py, admin.py and driver.py. Their runner awaits on an event loop,
or blocks the calling thread (blocking.py, on_connection.py): there none of these coroutines ever suspends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from taskharbor.drivers.base import SqlDriver
from taskharbor.drivers.postgres.options import PostgresOptions
from taskharbor.drivers.postgres.pool import Runner
from taskharbor.drivers.postgres.statement import Program, Statement, call, named, quoted, rows_of

T = TypeVar("T")


class PostgresCalls(SqlDriver):
    """What the calls have in common."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self._schema = options.schema

    def _runner(self) -> Runner:
        raise NotImplementedError

    async def _run(self, make: Callable[[], Program[T]], *, transaction: bool = False) -> T:
        return await self._runner().run(make, transaction=transaction)

    async def _execute(self, sql: str, *parameters: Any) -> Any:
        """The rows of a statement."""
        return await self._runner().run(lambda: rows_of(Statement(sql, parameters)))

    async def _call(self, function: str, *parameters: Any, columns: str = "", repeat: bool = True) -> Any:
        """The rows of one of our functions: see `call` in statement.py."""
        statement = call(self._schema, function, *parameters, columns=columns)
        return await self._runner().run(lambda: rows_of(statement), repeat=repeat)

    async def _value(self, function: str, *parameters: Any) -> Any:
        """The value of a function that counts, or refuses what is done already: sent twice it would return something
        else, so it is not repeated."""
        return (await self._call(function, *parameters, repeat=False))[0][0]

    def _table(self, name: str) -> str:
        return f"{quoted(self._schema)}.{name}"

    def _function(self, name: str) -> str:
        return named(self._schema, name)

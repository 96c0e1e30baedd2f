"""What the Postgres driver's own transport saves: `python -m bench.postgres_transport [--calls N] [--rounds N]`.

The same statements on one connection, sent in four ways: by our connection (connection.py), by it with
rows that are loaded through psycopg's documented loaders, and by psycopg's cursors with and without preparing. What
counts is the processor time of this process for one call, the least of the rounds: the server's work is the same.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import psycopg
from psycopg.pq import Format

from bench.stores.places import OPEN
from taskharbor.drivers import JobRecord
from taskharbor.drivers.postgres import PostgresDriver
from taskharbor.drivers.postgres.connection import FastConnection
from taskharbor.drivers.postgres.records import RESERVED_COLUMNS
from taskharbor.drivers.postgres.statement import Statement, call

CALLS, ROUNDS = 500, 7
Ask = Callable[[Statement], Awaitable[Sequence[Any]]]


class DocumentedRows:
    """Rows through `AdaptersMap.get_loader`, in the place of psycopg's Transformer."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection
        self._result: Any = None

    def set_pgresult(self, result: Any) -> None:
        self._result = result

    def load_rows(self, first: int, last: int, make: Any) -> list[Any]:
        result, adapters = self._result, self._connection.adapters
        loads = []
        for column in range(result.nfields):
            loader = adapters.get_loader(result.ftype(column), Format.BINARY)
            assert loader is not None
            loads.append((column, loader(result.ftype(column), self._connection).load))
        return [
            make([None if (data := result.get_value(row, column)) is None else load(data) for column, load in loads])
            for row in range(first, last)
        ]


async def ways(address: str) -> dict[str, Ask]:
    """Each way to send a statement, on a connection of its own."""

    async def connect(threshold: int | None) -> psycopg.AsyncConnection[Any]:
        return await psycopg.AsyncConnection.connect(address, autocommit=True, prepare_threshold=threshold)

    def fast(connection: FastConnection) -> Ask:
        connection.prepares = True
        return lambda statement: connection.ask(statement.sql, statement.parameters)

    def cursor(connection: psycopg.AsyncConnection[Any]) -> Ask:
        async def ask(statement: Statement) -> Sequence[Any]:
            sql = statement.sql.replace("?", "%s").encode()
            return await (await connection.execute(sql, statement.parameters, binary=True)).fetchall()

        return ask

    documented = FastConnection(await connect(None))
    documented._rows = DocumentedRows(documented.for_psycopg())  # type: ignore[assignment]  # a stand-in
    return {
        "our connection": fast(FastConnection(await connect(None))),
        "  with documented loaders": fast(documented),
        "psycopg's cursors, prepared": cursor(await connect(3)),
        "psycopg's cursors, unprepared": cursor(await connect(None)),
    }


async def measure(address: str, calls: int, rounds: int) -> dict[str, dict[str, float]]:
    """Microseconds of processor time for one call, by way and statement."""
    driver = PostgresDriver(address)
    await driver.open()
    now = await driver.server_time()
    await driver.enqueue([JobRecord(id=f"job-{number}", type="t", payload=b"x" * 100) for number in range(10)], now)
    await driver.close()
    reserve = call(
        "taskharbor", "reserve_queue(text, bigint, bigint, integer, text, text, boolean)", "empty", 1, 2, 10, "", "a",
        True, columns=RESERVED_COLUMNS,
    )  # fmt: skip
    rows = f"select {RESERVED_COLUMNS.replace('rare', 'metadata')} from taskharbor.jobs where queue = ?"
    statements = {"a number": Statement("select ?::bigint", (1,)), "empty reserve": reserve}
    statements["ten jobs of 14 columns"] = Statement(rows, ("default",))
    found: dict[str, dict[str, float]] = {}
    for name, ask in (await ways(address)).items():
        for what, statement in statements.items():
            samples = []
            for _ in range(rounds):
                begun = time.process_time()
                for _ in range(calls):
                    await ask(statement)
                samples.append((time.process_time() - begun) / calls * 1e6)
            found.setdefault(name, {})[what] = min(samples)
    return found


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.postgres_transport", description=__doc__)
    parser.add_argument("--calls", type=int, default=CALLS, help="calls in one round")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds, of which the best counts")
    options = parser.parse_args()
    with OPEN["postgres"]() as places:
        place = places.new()
        try:
            found = asyncio.run(measure(place.address, options.calls, options.rounds))
        finally:
            place.close()
    for name, figures in found.items():
        print(f"{name:<32}" + "".join(f"{what}: {figure:6.0f} µs   " for what, figure in figures.items()))


if __name__ == "__main__":
    main()

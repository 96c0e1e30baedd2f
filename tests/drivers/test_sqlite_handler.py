"""What a handler may do on the connection of `ctx.transaction()`: whatever it does, its writes and its job's ack are
committed together or not at all, and only the worker ends the transaction."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from taskharbor import JobContext
from taskharbor.drivers.sqlite import SqliteDriver, database
from taskharbor.policy.retry import Fixed
from tests.worker.workbench import Bench, job

pytestmark = pytest.mark.lane("sqlite")

ENDS: dict[str, Callable[[Any], object]] = {
    "commit()": lambda connection: connection.commit(),
    "rollback()": lambda connection: connection.rollback(),
    "close()": lambda connection: connection.close(),
    "executescript()": lambda connection: connection.executescript("INSERT INTO orders VALUES (9)"),
    "a script of a cursor": lambda connection: connection.cursor().executescript("INSERT INTO orders VALUES (9)"),
    **{
        words: partial(lambda words, connection: connection.execute(words), words)
        for words in ("COMMIT", "END", "ROLLBACK", "BEGIN", "BEGIN IMMEDIATE", "commit; -- now")
    },
    "in many": lambda connection: connection.executemany("COMMIT", [()]),
    "an authorizer of its own": lambda connection: (connection.set_authorizer(None), connection.execute("COMMIT")),
}


def ran(tmp_path: Any, handler: Callable[[Any], object]) -> tuple[Any, list[int]]:
    """What became of a job whose handler does this with its connection, and the orders that are stored then."""

    async def live() -> tuple[Any, list[int]]:
        driver = SqliteDriver(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal")
        await driver.open()
        try:
            with sqlite3.connect(tmp_path / "jobs.db") as file:
                file.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, of INTEGER)")
            bench = Bench(driver)
            worker = bench.worker(retry=Fixed(0))

            def handle(ctx: JobContext) -> None:
                with ctx.transaction() as connection:
                    handler(connection)

            worker.register("t", handle)
            await bench.enqueue(job("j", max_attempts=1))
            await worker.arun(until_empty=True)
            rows = await driver.database.read(lambda session: session.all("SELECT id FROM orders ORDER BY id"))
            return await bench.info("j"), [id for (id,) in rows]
        finally:
            await driver.close()

    return asyncio.run(live())


@pytest.mark.parametrize("how", ENDS)
def test_a_handler_cannot_end_it_and_goes_on(tmp_path, how):
    def handler(connection):
        connection.execute("INSERT INTO orders (id) VALUES (1)")
        with pytest.raises(sqlite3.ProgrammingError, match="the transaction belongs to the job"):
            ENDS[how](connection)
        connection.execute("INSERT INTO orders (id) VALUES (2)")

    info, orders = ran(tmp_path, handler)
    assert (info.state, orders) == ("done", [1, 2])


@pytest.mark.parametrize("how", ENDS)
def test_what_cannot_be_ended_fails_the_job_with_its_words(tmp_path, how):
    def handler(connection):
        connection.execute("INSERT INTO orders (id) VALUES (1)")
        ENDS[how](connection)

    info, orders = ran(tmp_path, handler)
    assert (info.state, orders) == ("dlq", [])
    assert "the transaction belongs to the job" in info.job.last_error


def test_inner_transactions_are_savepoints(tmp_path):
    def handler(connection):
        connection.execute("INSERT INTO orders (id) VALUES (1)")
        with suppress(ValueError), connection:
            connection.execute("INSERT INTO orders (id) VALUES (2)")
            with connection:
                connection.execute("INSERT INTO orders (id) VALUES (3)")
            raise ValueError("inner")
        with connection:
            connection.execute("INSERT INTO orders (id) VALUES (4)")
            with suppress(sqlite3.IntegrityError), connection:
                connection.execute("INSERT INTO orders (id) VALUES (5)")
                connection.execute("INSERT INTO orders (id) VALUES (4)")

    info, orders = ran(tmp_path, handler)
    assert (info.state, orders) == ("done", [1, 4])


@pytest.mark.parametrize("foreign", [False, True])
def test_a_transaction_that_sqlite_rolled_back_itself_is_a_failure_with_its_text(tmp_path, foreign):
    """`OR ROLLBACK` ends the transaction behind the handler's back: what is written afterwards would be committed at
    once, and the ack after it apart from what was written before."""

    def handler(connection):
        connection.execute("INSERT INTO orders (id) VALUES (1)")
        cursor = connection.cursor(sqlite3.Cursor) if foreign else connection.cursor()
        with pytest.raises(sqlite3.IntegrityError):
            cursor.execute("INSERT OR ROLLBACK INTO orders (id) VALUES (1)")
        if not foreign:
            with pytest.raises(sqlite3.InterfaceError, match="has rolled back the whole transaction"):
                connection.execute("INSERT INTO orders (id) VALUES (2)")

    info, orders = ran(tmp_path, handler)
    assert (info.state, info.job.attempts, info.job.lost, orders) == ("dlq", 1, 0, [])
    assert "SQLite has rolled back the whole transaction" in info.job.last_error
    assert foreign or "UNIQUE constraint failed" in info.job.last_error


def test_a_commit_that_is_refused_is_a_failure_with_its_text(tmp_path, monkeypatch):
    """Some builds of SQLite check foreign keys by default, deferred ones at the commit."""
    connect = vars(database)["connect"]

    def checks_foreign_keys(*given: Any) -> Any:
        connection = connect(*given)
        connection.execute("PRAGMA foreign_keys = on")
        return connection

    monkeypatch.setattr(database, "connect", checks_foreign_keys)

    def handler(connection):
        connection.execute("CREATE TABLE of (id INTEGER REFERENCES orders (id) DEFERRABLE INITIALLY DEFERRED)")
        connection.execute("INSERT INTO of VALUES (7)")

    info, orders = ran(tmp_path, handler)
    assert (info.state, info.job.attempts, info.job.lost, orders) == ("dlq", 1, 0, [])
    assert info.job.last_error.startswith("IntegrityError: FOREIGN KEY constraint failed")

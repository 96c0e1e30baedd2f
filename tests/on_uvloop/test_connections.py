"""What the drivers' own connections may expect of a loop's timers and transports: only what asyncio documents."""

import asyncio
import contextlib
import functools
import os
import select
from collections.abc import Callable, Coroutine
from typing import Any

import psycopg
import pytest
import uvloop

from taskharbor.drivers.postgres import connection as of_postgres
from taskharbor.drivers.postgres.connection import FastConnection
from taskharbor.drivers.redis.connection import RespConnection
from tests.servers import postgres

SOON = 0.0001  # seconds; uvloop rounds them to milliseconds, and returns a handle that does not know its time
LATE = 60.0


class StandIn:
    """A transport whose server answers at once."""

    def __init__(self, connection: RespConnection) -> None:
        self._connection = connection

    def write(self, data: bytes) -> None:
        self._connection.data_received(b"+PONG\r\n")

    def abort(self) -> None: ...


def test_a_call_of_redis_after_one_with_little_time() -> None:
    async def story() -> None:
        connection = RespConnection(LATE)
        connection.connection_made(StandIn(connection))  # type: ignore[arg-type]  # it has the methods, not the class
        assert await connection.call([("PING",)], within=SOON) == [b"PONG"]
        assert await connection.call([("PING",)]) == [b"PONG"]
        await connection.disconnect()

    uvloop.run(story())


@functools.cache
def address() -> str:
    return postgres.shared().address(postgres.shared().store())


def answered(connection: FastConnection, asked: Coroutine[Any, Any, list[Any]]) -> list[Any]:
    """Receive the rows without a turn of the loop, in which timers would fire."""
    with contextlib.closing(asked):
        try:
            asked.send(None)
            while True:
                select.select([connection._pgconn.socket], [], [], LATE)
                connection._readable()
                if connection._waiter is None:
                    asked.send(None)
        except StopIteration as stop:
            rows: list[Any] = stop.value
            return rows


def test_a_call_of_postgres_after_one_with_little_time() -> None:
    async def story() -> None:
        connection = FastConnection(await psycopg.AsyncConnection.connect(address(), autocommit=True))
        loop = asyncio.get_running_loop()
        connection.until = loop.time() + SOON
        assert answered(connection, connection.ask("select 1")) == [(1,)]
        connection.until = loop.time() + LATE
        assert await connection.ask("select 2") == [(2,)]
        await connection.close()

    uvloop.run(story())


EACH_LOOP = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
Run = Callable[[Coroutine[Any, Any, None]], None]
FLUSH = b"H\0\0\0\4"  # a message of PostgreSQL's protocol that changes nothing


@EACH_LOOP
def test_the_last_words_of_postgres_come_with_an_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that has not read everything resets the connection. uvloop tells it once, and watches no longer."""
    monkeypatch.setattr(of_postgres, "LOOK_S", SOON)

    async def story() -> None:
        connection = FastConnection(await psycopg.AsyncConnection.connect(address(), autocommit=True))
        ((pid,),) = await connection.ask("select pg_backend_pid()")
        asked = asyncio.create_task(connection.ask("select pg_sleep(600)"))
        await asyncio.sleep(0)
        with psycopg.connect(address(), autocommit=True) as other:  # without a turn of the loop
            sleeps = f"select from pg_stat_activity where pid = {pid} and wait_event = 'PgSleep'"
            while other.execute(sleeps).fetchone() is None:
                pass
            os.write(connection._pgconn.socket, FLUSH)
            assert other.execute(f"select pg_terminate_backend({pid}, 60000)").fetchone() == (True,)
        with pytest.raises(psycopg.OperationalError):
            await asyncio.wait_for(asked, LATE / 4)
        await connection.close()

    run(story())


class Silent(asyncio.Protocol):
    """A server that accepts, and answers nothing."""


@EACH_LOOP
def test_a_deadline_that_comes_after_the_connection_is_lost(run: Run) -> None:
    """The call has failed already, and there is no socket left."""
    failures: list[str] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, failure: failures.append(str(failure)))
        server = await loop.create_server(Silent, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        transport, connection = await loop.create_connection(lambda: RespConnection(LATE), "127.0.0.1", port)
        transport.get_extra_info("socket")  # as a new connection does: uvloop keeps what it returns
        with contextlib.closing(connection.call([("PING",)])) as call:
            waiter = call.send(None)
            transport.abort()
            await asyncio.wait([waiter])
            connection._deadline = 0.0
            loop.call_soon(connection._check_deadline)
            await asyncio.sleep(0)
            with pytest.raises(Exception, match="the server closed the connection"):
                call.send(None)
        server.close()

    run(story())
    assert not failures

"""Replies of PostgreSQL that are lost: a reserve is asked again for its grants, a requeue is sent once."""

import asyncio
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest

from taskharbor.drivers import Ack, BackendUnavailable, JobRecord
from taskharbor.drivers.postgres import PostgresDriver
from tests.drivers.crash import lived
from tests.servers import postgres

pytestmark = pytest.mark.lane("postgres")


@pytest.fixture
def own():
    """A server of the test's own, to be killed."""
    server = postgres.Server()
    yield server
    server.stop()


def test_a_reply_that_was_lost():
    """A reserve whose connection dies after the commit is repeated with its tokens, and gets the same jobs."""
    address = postgres.shared().address(postgres.shared().store())

    async def scenario():
        from taskharbor.drivers.postgres.connection import FastConnection

        driver = PostgresDriver(address)
        await driver.open()
        now = await driver.server_time()
        await driver.enqueue([JobRecord(id=f"j{n}", type="t") for n in range(5)], now)
        real = FastConnection.ask
        lost: list[list[Any]] = []

        async def losing(connection, sql, parameters=()):
            rows = await real(connection, sql, parameters)
            if ".reserve_queue_v1(" in sql and not lost:
                lost.append(rows)
                await connection.close()
                from psycopg import OperationalError

                raise OperationalError("the connection is lost")
            return rows

        with mock.patch.object(FastConnection, "ask", losing):
            held = await driver.reserve(["default"], now, timedelta(seconds=60), 3)
        assert [item.job.id for item in held] == [row[0] for row in lost[0]] == ["j0", "j1", "j2"]
        assert {item.job.deliveries for item in held} == {1}
        assert await driver.settle([Ack(item.lease) for item in held], now) == [None] * 3
        await driver.close()

    lived(scenario)


def test_a_call_that_cannot_be_repeated_is_sent_once(own):
    """A requeue whose reply was lost is not sent again: it would return that the job is in the wrong state."""
    address = own.address(own.database())

    async def scenario():
        from psycopg import OperationalError

        from taskharbor.drivers.postgres.connection import FastConnection

        driver = PostgresDriver(address)
        await driver.open()
        now = await driver.server_time()
        await driver.enqueue([JobRecord(id="a", type="t")], now)
        assert await driver.cancel(["a"], now) == [None]
        real, sent = FastConnection.ask, []

        async def losing(connection, sql, parameters=()):
            rows = await real(connection, sql, parameters)
            if ".requeue_v1(" in sql:
                sent.append(rows)
                await connection.close()
                raise OperationalError("the connection is lost")
            return rows

        with mock.patch.object(FastConnection, "ask", losing), pytest.raises(BackendUnavailable):
            await driver.requeue(["a"], now)
        assert len(sent) == 1
        assert (await driver.inspect("a", now)).state == "ready"
        # A stale connection in the pool is found out before anything is sent.
        await asyncio.to_thread(own.kill)
        await asyncio.to_thread(own.start)
        assert await driver.cancel(["a"], now) == [None]
        await driver.close()

    lived(scenario)


def test_a_larger_call_that_names_a_done_job_does_not_store_it_again():
    """The cases send a done id alone, which is another function on the server."""
    address = postgres.shared().address(postgres.shared().store())

    async def scenario():
        driver = PostgresDriver(address)
        await driver.open()
        now = await driver.server_time()
        await driver.enqueue([JobRecord(id="a", type="t")], now)
        (held,) = await driver.reserve(["default"], now, timedelta(seconds=60), 1)
        assert await driver.settle([Ack(held.lease)], now) == [None]
        results = await driver.enqueue([JobRecord(id="a", type="t"), JobRecord(id="b", type="t")], now)
        assert [result.existed for result in results] == [True, False]
        assert await driver.counts(now) == {"default": {"done": 1, "ready": 1}}
        await driver.close()

    lived(scenario)

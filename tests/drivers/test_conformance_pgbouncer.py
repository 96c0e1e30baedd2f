"""The contract through pgbouncer in transaction mode: nothing depends on a session."""

import asyncio
import functools
from urllib.parse import quote

import pytest

from taskharbor.conformance import DriverCases, DriverMachine
from taskharbor.drivers import JobRecord
from taskharbor.drivers.postgres import PostgresDriver, wait
from tests import lanes
from tests.drivers import versions
from tests.drivers.test_conformance_postgres import damage, damage_field
from tests.servers import postgres


@functools.cache
def store() -> str:
    return postgres.shared().database()


@pytest.mark.lane("pgbouncer")
@pytest.mark.left_to("matrix", except_for=versions.brief)
class TestPgbouncer(DriverCases):
    def make_driver(self):
        server = postgres.shared()
        postgres.empty(server.address(store()))
        return PostgresDriver(f"{server.address(store(), server.pgbouncer())}?pgbouncer=1")

    def damage(self, driver, id, how):
        damage(postgres.shared().address(store()), id, how)

    def damage_field(self, driver, id, field, kind):
        return damage_field(postgres.shared().address(store()), id, field, kind)


@pytest.mark.lane("pgbouncer")
class TestPgbouncerMachine(DriverMachine):
    """The state machine too: each step may be another session of the server's."""

    machine_runs = lanes.figure(test=3, full=40)
    machine_shrinks = lanes.shrinks()

    def make_driver(self):
        server = postgres.shared()
        return PostgresDriver(f"{server.address(store(), server.pgbouncer())}?pgbouncer=1")

    def clean(self, driver):
        postgres.empty(postgres.shared().address(store()))


@pytest.mark.lane("pgbouncer")
@pytest.mark.parametrize("direct", [True, False])
def test_hints_arrive_over_a_direct_connection(direct, monkeypatch):
    """`listen_dsn` names the server itself: a hint arrives. Without it the driver polls, and finds the job too."""
    if direct:
        monkeypatch.setattr(wait, "POLL_S", 600.0)
        monkeypatch.setattr(wait, "LISTENING_S", 600.0)
        monkeypatch.setattr(wait, "SWEEP_S", 600.0)
    server, name = postgres.shared(), postgres.shared().database()
    dsn = f"{server.address(name, server.pgbouncer())}?pgbouncer=1"
    if direct:
        dsn += f"&listen_dsn={quote(server.address(name), safe='')}"

    async def scenario() -> None:
        one, two = PostgresDriver(dsn), PostgresDriver(dsn)
        async with asyncio.timeout(60):
            await one.open()
            await two.open()
            waiting = asyncio.create_task(one.wait(["default"], 600))
            while not await two._execute("select 1 from taskharbor.waiting"):
                await asyncio.sleep(0)
            await two.enqueue([JobRecord(id="a", type="t")], await two.server_time())
            assert await waiting is True
            assert one._hints is not None
            assert one._hints.is_listening is direct
        await one.close()
        await two.close()

    asyncio.run(scenario())

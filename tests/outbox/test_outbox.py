"""`connection=` on a harbor whose store is elsewhere: a row in that transaction, and the relay that carries it."""

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from taskharbor import Harbor, InvalidJob, WrongConnection
from taskharbor.drivers import JobRecord
from taskharbor.drivers.connections import ASYNCHRONOUS
from taskharbor.events import JobsRelayed, RelayRefused
from taskharbor.model.errors import BackendUnavailable
from taskharbor.outbox import rows
from taskharbor.testing import ManualClock
from tests.outbox.ways import SQLITE, address, emptied, every_way, opened


def declared(**options: Any) -> tuple[Harbor, Any]:
    harbor = Harbor("memory://", clock=ManualClock(), **options)

    @harbor.task(name="send", queue="mail")
    def send(n: int) -> None: ...

    return harbor, send


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(tmp_path / "app.db")) as made:
        Harbor("memory://").outbox.create(made)
        made.commit()
        yield made


def relayed(harbor: Harbor, tmp_path: Path) -> int:
    return harbor.outbox.relay(f"sqlite:///{tmp_path}/app.db", until_empty=True)


def payloads(harbor: Harbor) -> list[bytes]:
    return [info.job.payload for info in harbor.jobs()]


@contextlib.contextmanager
def off_the_loop() -> Iterator[None]:
    """A blocking call on the thread of a loop: synchronous connections stay on the thread that made them."""
    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)


@every_way
async def test_a_job_leaves_exactly_if_the_transaction_commits(way: str, tmp_path: Path) -> None:
    async with opened(way, tmp_path) as mine:
        harbor, send = declared()

        async def enqueue(n: int) -> Any:
            call = send.options(connection=mine.connection, delay=n)
            if mine.kind in ASYNCHRONOUS:
                return await call.aenqueue(n)
            with off_the_loop():
                return call.enqueue(n)

        with pytest.raises(TypeError, match=r"make an outbox there: harbor\.outbox\.create"):
            await enqueue(0)
        if mine.kind in ASYNCHRONOUS:
            await harbor.outbox.acreate(mine.connection)
        else:
            harbor.outbox.create(mine.connection)
        await mine.write("create table mine (n integer)")
        await mine.commit()
        kept = await enqueue(1)
        await mine.write("insert into mine values (1)")
        await mine.commit()
        await enqueue(2)
        await mine.rollback()
        also = await enqueue(3)
        await mine.commit()
        assert payloads_in(await jobs(harbor)) == []
        source = f"sqlite:///{tmp_path}/app.db" if way in SQLITE else address()
        assert await harbor.outbox.arelay(source, until_empty=True) == 2
        assert await harbor.outbox.arelay(source, until_empty=True) == 0
        found = await jobs(harbor)
        assert [info.job.id for info in found] == [kept.id, also.id]
        assert payloads_in(found) == [b'{"n":1}', b'{"n":3}']
        assert [info.job.run_at for info in found] == [harbor.clock.now() + timedelta(seconds=n) for n in (1, 3)]
        await harbor.aclose()


async def jobs(harbor: Harbor) -> list[Any]:
    return [info async for info in harbor.jobs()]


def payloads_in(found: list[Any]) -> list[bytes]:
    return [info.job.payload for info in found]


FACTORIES: dict[str, Callable[[str], Callable[[], Any]]] = {
    "psycopg": lambda address: lambda: psycopg.connect(address),
    "psycopg async": lambda address: lambda: psycopg.AsyncConnection.connect(address),
    "asyncpg": lambda address: lambda: asyncpg.connect(address),
    "Session": lambda address: (
        lambda: Session(sqlalchemy.create_engine(_for_sqlalchemy(address), poolclass=sqlalchemy.NullPool))
    ),
    "Connection": lambda address: (
        sqlalchemy.create_engine(_for_sqlalchemy(address), poolclass=sqlalchemy.NullPool).connect
    ),
    "AsyncConnection": lambda address: (
        create_async_engine(_for_sqlalchemy(address), poolclass=sqlalchemy.NullPool).connect
    ),
}


def _for_sqlalchemy(address: str) -> str:
    return address.replace("postgresql", "postgresql+psycopg")


@pytest.mark.parametrize("kind", FACTORIES)
async def test_a_relay_takes_connections_of_any_kind(kind: str) -> None:
    harbor, send = declared()
    source = emptied()
    with psycopg.connect(source) as mine:
        harbor.outbox.create(mine)
        mine.commit()
        for n in (1, 2):
            with off_the_loop():
                send.options(connection=mine).enqueue(n)
            mine.commit()
    assert await harbor.outbox.arelay(FACTORIES[kind](source), until_empty=True) == 2
    assert payloads_in(await jobs(harbor)) == [b'{"n":1}', b'{"n":2}']


def test_a_workflow_and_many_jobs_are_one_row_each(tmp_path: Path, database: sqlite3.Connection) -> None:
    harbor, send = declared()
    harbor.enqueue_many([send.options(connection=database).s(n) for n in range(3)])
    database.commit()
    assert database.execute("select jobs from taskharbor_outbox").fetchall() == [(3,)]
    assert relayed(harbor, tmp_path) == 3
    assert payloads(harbor) == [b'{"n":%d}' % n for n in range(3)]


def test_jobs_leave_in_the_order_of_their_rows_across_batches(
    tmp_path: Path, database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "BATCH_JOBS", 3)
    seen: list[Any] = []
    harbor, send = declared(observers=[seen.append])
    for n in range(10):
        send.options(connection=database).enqueue(n)
    database.commit()
    assert relayed(harbor, tmp_path) == 10
    assert [event.jobs for event in seen if isinstance(event, JobsRelayed)] == [3, 3, 3, 1]
    assert payloads(harbor) == [b'{"n":%d}' % n for n in range(10)]


def test_what_cannot_be_sent_is_set_aside_and_holds_up_nobody(
    tmp_path: Path, database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    harbor, send = declared(observers=[seen.append])
    for n in range(7):
        send.options(connection=database).enqueue(n)
    database.commit()
    strange = rows.encoded([JobRecord(id="x", type="send", depends_on=("unknown",))])
    database.execute("update taskharbor_outbox set records = ? where id = 3", (strange,))
    database.execute("update taskharbor_outbox set records = x'00c0ffee' where id = 5")
    database.execute("update taskharbor_outbox set records = x'920790' where id = 6")
    database.commit()
    assert relayed(harbor, tmp_path) == 7
    assert payloads(harbor) == [b'{"n":%d}' % n for n in (0, 1, 3, 6)]
    problems = dict(database.execute("select id, problem from taskharbor_outbox").fetchall())
    assert problems.keys() == {3, 5, 6}
    assert "x depends on unknown, which is not stored" in problems[3]
    assert problems[5] == "its records are damaged"
    assert problems[6] == "expected layout 1, got 7: it was written by another version"
    assert {(event.row, event.reason) for event in seen if isinstance(event, RelayRefused)} == set(problems.items())
    assert relayed(harbor, tmp_path) == 0
    # A person mends it.
    good = rows.encoded([JobRecord(id="x", type="send", queue="mail")])
    database.execute("update taskharbor_outbox set records = ?, problem = '' where id = 3", (good,))
    database.commit()
    assert relayed(harbor, tmp_path) == 1
    assert harbor.job("x").status() == "ready"


def test_a_job_that_no_store_takes_is_refused_where_it_is_enqueued(database: sqlite3.Connection) -> None:
    harbor, _ = declared()

    @harbor.task
    def note(text: str) -> None: ...

    with pytest.raises(InvalidJob, match="expected at most 1048576 bytes"):
        note.options(connection=database).enqueue("x" * 2**20)
    assert not database.execute("select 1 from taskharbor_outbox").fetchall()


def test_a_relay_that_was_ended_before_it_removed_its_rows_sends_them_again(
    tmp_path: Path, database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    harbor, send = declared()
    send.options(connection=database).enqueue(1)
    send.options(connection=database, idempotency_key="k").enqueue(2)
    database.commit()

    async def ended(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("taskharbor.outbox.relay.finish", ended)
        with pytest.raises(KeyboardInterrupt):
            relayed(harbor, tmp_path)
    assert len(payloads(harbor)) == 2
    assert relayed(harbor, tmp_path) == 2
    assert payloads(harbor) == [b'{"n":1}', b'{"n":2}']


def test_a_store_or_a_database_that_is_down_is_waited_for(
    tmp_path: Path, database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from taskharbor.outbox import relay

    harbor, send = declared()
    send.options(connection=database).enqueue(1)
    database.commit()
    failures = [BackendUnavailable("c4n4ry is away"), sqlite3.OperationalError("c4n4ry"), OSError("c4n4ry")]
    original, rests = relay.Relay._sent, list[float]()

    async def sent(self: Any, rows: Any) -> Any:
        if failures:
            raise failures.pop(0)
        return await original(self, rows)

    async def rest(seconds: float) -> None:
        rests.append(seconds)

    monkeypatch.setattr(relay.Relay, "_sent", sent)
    monkeypatch.setattr("asyncio.sleep", rest)
    with caplog.at_level(logging.WARNING, "taskharbor.outbox"):
        assert relayed(harbor, tmp_path) == 1
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert "jobs wait in it: BackendUnavailable: c4n4ry is away" in caplog.text
    assert "jobs leave it again" in caplog.text
    assert len(rests) == 3


def test_what_no_waiting_mends_is_raised(tmp_path: Path) -> None:
    harbor, _ = declared()
    with pytest.raises(TypeError, match=r"expected a DSN such as postgresql://…, or a function .* got Engine"):
        harbor.outbox.relay(sqlalchemy.create_engine("sqlite://"))  # type: ignore[arg-type]  # what is refused
    with pytest.raises(ValueError, match=r"expected postgresql://… or sqlite:///…, got redis://…@host/0"):
        harbor.outbox.relay("redis://ada:secret@host/0")
    with pytest.raises(TypeError, match="expected one of psycopg Connection"):
        harbor.outbox.relay(object)
    sqlite3.connect(tmp_path / "app.db").close()
    with pytest.raises(WrongConnection, match="has no table taskharbor_outbox"):
        relayed(harbor, tmp_path)


def test_a_row_that_waited_longer_than_records_are_kept_is_warned_of(
    tmp_path: Path, database: sqlite3.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    harbor, send = declared()
    send.options(connection=database).enqueue(1)
    database.commit()
    harbor.clock.advance(86_401)  # type: ignore[attr-defined]  # it is a ManualClock
    with caplog.at_level(logging.WARNING, "taskharbor.outbox"):
        assert relayed(harbor, tmp_path) == 1
    assert "raise the retention of the store" in caplog.text


def test_a_harbor_on_the_same_database_stores_directly(tmp_path: Path) -> None:
    harbor = Harbor(f"sqlite:///{tmp_path}/app.db")

    @harbor.task
    def send() -> None: ...

    with contextlib.closing(sqlite3.connect(tmp_path / "app.db")) as mine, harbor:
        harbor.outbox.create(mine)
        job = send.options(connection=mine).enqueue()
        mine.commit()
        assert job.status() == "ready"
        assert not mine.execute("select 1 from taskharbor_outbox").fetchall()


def test_a_harbor_on_another_sql_database_uses_the_outbox(tmp_path: Path, database: sqlite3.Connection) -> None:
    harbor = Harbor(f"sqlite:///{tmp_path}/jobs.db")

    @harbor.task
    def send() -> None: ...

    with harbor:
        job = send.options(connection=database).enqueue()
        database.commit()
        assert relayed(harbor, tmp_path) == 1
        assert job.status() == "ready"

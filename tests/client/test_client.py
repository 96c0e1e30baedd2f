"""The client: requests in, handles out, in both colours, through outages, and on the caller's connection."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskharbor import BackendUnavailable, Client, Harbor, InvalidJob, JobRequest, JsonCodec, State
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.events import Event, JobEnqueued
from taskharbor.model.clock import StoreClock
from taskharbor.model.job import JobRecord
from taskharbor.testing import Faults, ManualClock
from tests.client.tools import Sql, Waits, Watched

pytestmark = pytest.mark.usefixtures("each_way")


def record(client: Client, id: str) -> JobRecord:
    return asyncio.run(client._store.driver.sibling().inspect(id, client._store.clock.now())).job


def test_a_request_becomes_a_record() -> None:
    clock = ManualClock()
    with Client("memory://", clock=clock, default_queue="home") as client:
        at = datetime(2031, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
        handle = client.enqueue(
            JobRequest(
                type="email:send",
                payload={"to": "x"},
                queue="mail",
                run_at=at,
                timeout=30,
                max_attempts=3,
                idempotency_key="k",
                group="g",
                group_limit=2,
                priority=7,
                metadata={"a": "b"},
                id="my-id",
            )
        )
        assert (handle.id, handle.existed) == ("my-id", False)
        assert record(client, "my-id") == JobRecord(
            id="my-id",
            type="email:send",
            queue="mail",
            payload=b'{"to":"x"}',
            run_at=datetime(2031, 1, 1, 0, 0, 0, 1000, tzinfo=UTC),
            timeout=timedelta(seconds=30),
            max_attempts=3,
            idempotency_key="k",
            group="g",
            group_limit=2,
            priority=7,
            metadata={"a": "b"},
            created_at=clock.now(),
        )
        bare = record(client, client.enqueue(JobRequest(type="t")).id)
        assert (bare.queue, bare.payload, bare.max_attempts, bare.run_at) == ("home", b"{}", 0, None)
        delayed = record(client, client.enqueue(JobRequest(type="t", payload=[1], delay=timedelta(minutes=1))).id)
        assert (delayed.payload, delayed.run_at) == (b"[1]", clock.now() + timedelta(minutes=1))


@pytest.mark.parametrize(
    ("request_", "kind", "told"),
    [
        (JobRequest(type=""), InvalidJob, "type: expected 1 to 255"),
        (JobRequest(type="t", id="{}"), InvalidJob, "id: expected no control characters"),
        (JobRequest(type="t", payload=float("nan")), ValueError, r"t: payload: \$ is nan"),
        (JobRequest(type="t", payload={1: 2}), TypeError, "t: payload: .* key of type int"),
        (
            JobRequest(type="t", delay=1, run_at=datetime(2030, 1, 1, tzinfo=UTC)),
            ValueError,
            "t: expected delay or run_at",
        ),
        (JobRequest(type="t", max_attempts=-1), ValueError, "t: max_attempts: expected 1 or more, got -1"),
        (JobRequest(type="t", queue=5), TypeError, "t: queue: expected text"),  # type: ignore[arg-type]  # wrong on purpose
        (JobRequest(type="t", metadata={"taskharbor.a": "b"}), ValueError, "belong to the core"),
    ],
)
def test_a_wrong_request_is_refused_and_nothing_stored(request_: JobRequest, kind: Any, told: str) -> None:
    driver = Watched()
    with Client(driver) as client:
        with pytest.raises(kind, match=told):
            client.enqueue_many([JobRequest(type="good"), request_])
        assert driver.asked("enqueue") == []
    assert "nan" not in repr(request_)


def test_a_wrong_argument_is_refused_blocking_and_awaited() -> None:
    told = r"expected a JobRequest\(type=…, payload=…\), got dict"
    several = r"expected several JobRequest\(type=…, payload=…\), got JobRequest"

    async def awaited(client: Client) -> None:
        with pytest.raises(TypeError, match=told):
            await client.aenqueue({"type": "t"})  # type: ignore[arg-type]  # wrong on purpose
        with pytest.raises(TypeError, match=several):
            await client.aenqueue_many(JobRequest(type="t"))  # type: ignore[arg-type]  # wrong on purpose

    with Client("memory://") as client:
        with pytest.raises(TypeError, match=told):
            client.enqueue({"type": "t"})  # type: ignore[arg-type]  # wrong on purpose
        with pytest.raises(TypeError, match=told):
            client.enqueue_many([JobRequest(type="t"), {"type": "t"}])  # type: ignore[list-item]  # wrong on purpose
        with pytest.raises(TypeError, match=several):
            client.enqueue_many(JobRequest(type="t"))  # type: ignore[arg-type]  # wrong on purpose
        asyncio.run(awaited(client))


def test_blocking_and_awaited_calls_use_one_store() -> None:
    client = Client(MemoryDriver())
    first = client.enqueue(JobRequest(type="t"))

    async def other() -> str:
        assert await client.handle(first.id).astatus() is State.READY
        async with client:
            return (await client.aenqueue(JobRequest(type="t"))).id

    second = asyncio.run(other())
    assert client.handle(second).status() == "ready"
    client.close()


def test_many_are_one_call_in_order() -> None:
    driver = Watched()
    requests = [JobRequest(type="t", idempotency_key=str(number % 2)) for number in range(4)]
    with Client(driver) as client:
        handles = client.enqueue_many(requests)
        assert [handle.existed for handle in handles] == [False, False, True, True]
        assert handles[0] == handles[2]
        assert hash(handles[0]) == hash(handles[2])
        assert handles[0] != handles[1]
        assert client.enqueue_many([]) == []
        assert [entry[3] for entry in driver.asked("enqueue")] == [4]


def test_many_awaited() -> None:
    async def main() -> None:
        async with Client("memory://") as client:
            handles = await client.aenqueue_many(JobRequest(type=f"t{number}") for number in range(3))
            assert [handle.existed for handle in handles] == [False] * 3

    asyncio.run(main())


def test_events_report_what_was_stored_and_observers_cannot_break_it() -> None:
    seen: list[Event] = []

    def broken(event: Event) -> None:
        raise RuntimeError("observer")

    with Client("memory://", observers=[broken, seen.append]) as client:
        first = client.enqueue(JobRequest(type="t", idempotency_key="k"))
        client.enqueue(JobRequest(type="t", idempotency_key="k"))
    events = [event for event in seen if isinstance(event, JobEnqueued)]
    assert [(event.job.id, event.existed, event.worker) for event in events] == [
        (first.id, False, ""),
        (first.id, True, ""),
    ]


def test_an_outage_is_retried_and_a_lost_reply_stores_no_second_job(waits: Waits) -> None:
    faults, clock = Faults(), ManualClock()
    with Client(faults.wrap("memory://"), clock=clock) as client:
        faults.fail("enqueue", times=2)
        assert not client.enqueue(JobRequest(type="t")).existed
        assert len(waits.slept) == 2
        assert 0.05 <= waits.slept[0] <= 0.1 <= waits.slept[1] <= 0.2
        faults.fail("enqueue", after=True)
        handle = client.enqueue(JobRequest(type="t", idempotency_key="k"))
        assert not handle.existed
        faults.fail("enqueue", after=True)
        known = client.enqueue(JobRequest(type="t", idempotency_key="k"))
        assert (known.id, known.existed) == (handle.id, True)
        faults.fail("open")
        faults.fail("inspect")
        assert handle.status() == "ready"
        assert sum(asyncio.run(client._store.driver.counts(clock.now()))["default"].values()) == 2


def test_a_lasting_outage_is_raised_after_five_tries(waits: Waits) -> None:
    faults, clock = Faults(), ManualClock()
    with Client(faults.wrap("memory://"), clock=clock) as client:
        faults.fail("enqueue", times=50)
        with pytest.raises(BackendUnavailable, match="injected"):
            client.enqueue(JobRequest(type="t"))
        assert len(waits.slept) == 4
        assert faults.pending() == {"enqueue": 45}


def test_the_clock_follows_the_store_from_the_opening_on() -> None:
    class Ahead(MemoryDriver):
        async def server_time(self) -> datetime:
            return datetime(2040, 1, 1, tzinfo=UTC)

    with Client(Ahead(), clock=StoreClock()) as client:
        id = client.enqueue(JobRequest(type="t", delay=60)).id
        job = record(client, id)
        assert job.created_at.year == 2040
        assert job.run_at == job.created_at + timedelta(seconds=60)


def sql_harbor() -> tuple[Harbor, Sql, Callable[..., Any]]:
    driver = Sql()
    harbor = Harbor(driver)

    @harbor.task(name="send")
    def send(to: str) -> None: ...

    return harbor, driver, send


def test_a_callers_connection_carries_the_job_and_nothing_is_opened() -> None:
    harbor, driver, send = sql_harbor()
    connection: list[JobRecord] = []
    handle = send.options(connection=connection, delay=5).enqueue("ada")  # type: ignore[attr-defined]  # not in its declared type
    assert [job.id for job in connection] == [handle.id]
    assert connection[0].run_at is not None

    async def main() -> None:
        await send.options(connection=connection).aenqueue("bob")  # type: ignore[attr-defined]  # not in its declared type
        await harbor.aenqueue_many([send.s("c").options(connection=connection)])  # type: ignore[attr-defined]  # not in its declared type

    asyncio.run(main())
    harbor.enqueue_many([send.s("d").options(connection=connection)])  # type: ignore[attr-defined]  # not in its declared type
    assert [job.payload for job in connection] == [b'{"to":"%s"}' % name for name in (b"ada", b"bob", b"c", b"d")]
    assert driver.log == []


def test_one_call_has_one_connection() -> None:
    harbor, _, send = sql_harbor()
    with pytest.raises(ValueError, match="expected one connection= for all jobs"):
        harbor.enqueue_many([send.s("a").options(connection=[]), send.s("b")])  # type: ignore[attr-defined]  # not in its declared type


def test_a_connection_on_a_store_without_sql_is_refused() -> None:
    harbor = Harbor("memory://")

    @harbor.task
    def send(to: str) -> None: ...

    told = "connection= needs a driver on a SQL store .* got MemoryDriver.*, or make an outbox there"
    with closing(sqlite3.connect(":memory:")) as connection:
        with pytest.raises(TypeError, match=told):
            send.options(connection=connection).enqueue("a")
        with pytest.raises(TypeError, match=told):
            asyncio.run(send.options(connection=connection).aenqueue("a"))
    with pytest.raises(TypeError, match="expected one of psycopg Connection"):
        send.options(connection=object()).enqueue("a")


def test_no_password_shows() -> None:
    for made in (Client, Harbor):
        assert repr(made("postgresql://app:s3cret@db/jobs?x=s3cret")) == f"{made.__name__}('postgresql://…@db/jobs?…')"
        assert repr(made(MemoryDriver())) == f"{made.__name__}(<MemoryDriver>)"


def test_an_invalid_store_is_refused_by_the_constructor() -> None:
    with pytest.raises(TypeError, match=r"expected a DSN such as .*, or a driver .*, got int"):
        Client(5)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ValueError, match="expected a DSN such as"):
        Client("jobs.db")
    with pytest.raises(InvalidJob, match="default_queue"):
        Client("memory://", default_queue="")
    with pytest.raises(InvalidJob, match="id: expected text"):
        Client("memory://").handle(5)  # type: ignore[arg-type]  # wrong on purpose


def test_a_closed_client_opens_again() -> None:
    driver = Watched()
    client = Client(driver, codec=JsonCodec())
    client.close()
    for _ in range(2):
        client.enqueue(JobRequest(type="t"))
        client.close()
        client.close()
    assert [entry[0] for entry in driver.log] == ["open", "enqueue", "close"] * 2
    assert all(entry[1] is driver for entry in driver.log)


def test_aclose_closes_the_loops_driver_and_the_blocking_one() -> None:
    driver = Watched()
    client = Client(driver)
    client.enqueue(JobRequest(type="t"))

    async def main() -> None:
        await client.aenqueue(JobRequest(type="t"))
        await client.aclose()

    asyncio.run(main())
    assert client._store.portal.loop is None
    assert len(driver.asked("close")) == 2

"""Which calls are written on the thread that makes them: only quick ones. The writer's thread does the others."""

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskharbor.drivers import Ack, Enqueued, Fail, JobRecord
from taskharbor.drivers.sqlite import driver, writer
from tests.drivers.sqlite_files import opened

pytestmark = pytest.mark.lane("sqlite")
NOW = datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)
LEASE = timedelta(seconds=60)
WRITER_THREAD = "taskharbor-sqlite-writer"


def job(id, **fields):
    return JobRecord(id=id, type="t", **fields)


@pytest.fixture
def threads(monkeypatch):
    """The names of the threads on which outcomes were settled."""
    seen, settle = [], vars(driver)["settle"]

    def seen_settle(*given):
        seen.append(threading.current_thread().name)
        return settle(*given)

    monkeypatch.setattr(driver, "settle", seen_settle)
    monkeypatch.setattr(writer, "INLINE_BUDGET_S", 60.0)
    return seen


MANY = tuple(job(f"spawned-{number}") for number in range(33))
FINISHED: dict[str, tuple[Any, bool]] = {
    "plain": (lambda lease: Ack(lease, b"1"), True),
    "spawns a few": (lambda lease: Ack(lease, spawn=MANY[:32]), True),
    "a long result": (lambda lease: Ack(lease, bytes(5000)), False),
    "spawns many": (lambda lease: Ack(lease, spawn=MANY), False),
    "spawns something long": (lambda lease: Ack(lease, spawn=(job("long", payload=bytes(5000)),)), False),
    "fails and spawns many": (lambda lease: Fail(lease, "no use", 1, NOW, spawn=MANY), False),
}


@pytest.mark.parametrize("case", FINISHED)
async def test_outcomes_that_take_long_are_settled_by_the_writer_thread(tmp_path, threads, case):
    outcome, here = FINISHED[case]
    async with opened(tmp_path / "jobs.db", synchronous="normal") as store:
        await store.enqueue([job("a")], NOW)
        (held,) = await store.reserve(["default"], NOW, LEASE, 1)
        assert await store.settle([outcome(held.lease)], NOW) == [None]
    assert threads == ([threading.current_thread().name] if here else [WRITER_THREAD])


async def test_a_call_that_turns_out_to_be_large_is_left_to_the_writer(tmp_path, threads):
    """The ack of a job that a thousand wait for is a small call; what follows from it is not small."""
    async with opened(tmp_path / "jobs.db", synchronous="normal") as store:
        await store.enqueue([job("a")], NOW)
        await store.enqueue([job(f"b{number}", queue="b", depends_on=("a",)) for number in range(1000)], NOW)
        (held,) = await store.reserve(["default"], NOW, LEASE, 1)
        assert await store.settle([Ack(held.lease)], NOW) == [None]
        assert await store.counts(NOW) == {"default": {"done": 1}, "b": {"ready": 1000}}
    assert threads == [threading.current_thread().name, WRITER_THREAD]


async def test_a_statement_that_takes_too_long_goes_to_the_writer_thread(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "INLINE_BUDGET_S", 0.0)
    monkeypatch.setattr(writer, "STEPS_BETWEEN_CHECKS", 100)
    monkeypatch.setattr(writer, "INLINE_PAUSE_S", 0.0)
    threads = []

    def count(session):
        threads.append(threading.current_thread().name)
        session.execute("UPDATE taskharbor_meta SET number = number")
        return session.one(
            "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n LIMIT 1000) SELECT max(n) FROM n"
        )

    async with opened(tmp_path / "jobs.db", synchronous="normal") as store:
        await store.enqueue([job("a")], NOW)
        assert await store.database.write(count, inline=True) == (1000,)
        assert await store.enqueue([job("a")], NOW) == [Enqueued("a", True)]
    assert threads == [threading.current_thread().name, WRITER_THREAD]


async def test_after_a_statement_that_took_too_long_the_writer_thread_does_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "STEPS_BETWEEN_CHECKS", 100)
    monkeypatch.setattr(writer, "INLINE_PAUSE_S", 3600.0)
    threads = []

    def count(session):
        threads.append(threading.current_thread().name)
        return session.one(
            "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n LIMIT 1000) SELECT max(n) FROM n"
        )

    async with opened(tmp_path / "jobs.db", synchronous="normal") as store:
        monkeypatch.setattr(writer, "INLINE_BUDGET_S", 0.0)
        assert await store.database.write(count, inline=True) == (1000,)
        assert await store.database.write(count, inline=True) == (1000,)
    assert threads == [threading.current_thread().name, WRITER_THREAD, WRITER_THREAD]

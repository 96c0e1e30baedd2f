"""Calls that would wait for their own caller: refused at once, with the remedy, and nothing is stored."""

import asyncio
import gc
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from taskharbor import BlockingCall, Harbor, JobContext
from taskharbor.drivers.sqlite.session import WriteSession

pytestmark = pytest.mark.lane("sqlite")


@pytest.fixture
def dsn(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


def stored(dsn: str, queue: str) -> list[tuple[str, bytes]]:
    with closing(sqlite3.connect(dsn.removeprefix("sqlite:///"))) as file:
        return file.execute("SELECT id, payload FROM taskharbor_jobs WHERE queue = ? ORDER BY num", (queue,)).fetchall()


@pytest.mark.parametrize("other_options", ["", "?retention=1h"])  # the second is not even the same object
@pytest.mark.parametrize("kind", ["plain", "coroutine", "started"])
def test_an_enqueue_below_its_own_transaction_is_refused(dsn: str, kind: str, other_options: str) -> None:
    harbor, elsewhere = Harbor(dsn), Harbor(dsn + other_options)
    refused: list[str] = []

    @elsewhere.task
    def other(number: int) -> None: ...

    @harbor.task(queue="first")
    def plain(ctx: JobContext) -> None:
        with ctx.transaction() as connection:
            with pytest.raises(BlockingCall) as error:
                other.enqueue(1)
            refused.append(str(error.value))
            other.options(connection=connection).enqueue(2)
        with pytest.raises(BlockingCall):  # the transaction lasts as long as its job
            other.enqueue(3)

    @harbor.task(queue="first")
    async def coroutine(ctx: JobContext) -> None:
        async with ctx.transaction() as connection:
            with pytest.raises(BlockingCall) as error:
                await other.aenqueue(1)
            refused.append(str(error.value))
            await other.options(connection=connection).aenqueue(2)

    @harbor.task(queue="first")
    async def started(ctx: JobContext) -> None:
        async with ctx.transaction() as connection:
            with pytest.raises(BlockingCall) as error:
                await asyncio.create_task(asyncio.to_thread(other.enqueue, 1))
            refused.append(str(error.value))
            await other.options(connection=connection).aenqueue(2)

    job = {"plain": plain, "coroutine": coroutine, "started": started}[kind].enqueue()
    asyncio.run(harbor.worker(queues=["first"]).arun(until_empty=True))
    assert job.status() == "done"
    [text] = refused
    assert "Nothing was stored" in text
    assert "connection=" in text
    other.enqueue(4)
    assert [payload for _, payload in stored(dsn, "default")] == [b'{"number":2}', b'{"number":4}']


class Garbage:
    """In a cycle, so that the collector ends it, in whatever call it runs."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.work = work
        self.cycle = self

    def __del__(self) -> None:
        self.work()


@pytest.mark.parametrize("where", ["on the calling thread", "on the writing thread"])
def test_an_enqueue_from_a_del_below_another_call_is_refused(
    dsn: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harbor = Harbor(dsn)
    errors: list[str] = []

    @harbor.task
    def note(text: str) -> None: ...

    def enqueue() -> None:
        try:
            note.enqueue("from a __del__")
        except BlockingCall as error:
            errors.append(str(error))

    flush = WriteSession.flush

    def collecting(session: WriteSession) -> None:
        gc.collect()
        flush(session)

    note.enqueue("first")
    gc.collect()
    Garbage(enqueue)
    monkeypatch.setattr(WriteSession, "flush", collecting)
    if where == "on the calling thread":
        note.enqueue("outer")
    else:
        asyncio.run(note.aenqueue("outer" * 1000))
    monkeypatch.undo()
    [text] = errors
    assert "Nothing was stored" in text
    assert "__del__" in text
    assert len(stored(dsn, "default")) == 2

"""The application of these tests, for child processes and for `taskharbor worker run`. It writes a journal.

FOLDER (environment): where the journal is, and the files that make the lifespan misbehave: `fails`, `hangs`,
`is-cancelled`, and `child-fails` and so on for the children of `process=True` alone.
"""

import asyncio
import multiprocessing
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from taskharbor import Depends, Given, Harbor, JobContext

FOLDER = Path(os.environ.get("FOLDER", "."))


def journal(word: str, what: str = "-") -> None:
    """One line in one write: lines of several processes never mix."""
    with open(FOLDER / "journal", "ab", buffering=0) as file:
        file.write(f"{word} {what} {os.getpid()} 0\n".encode())


def misbehaves(how: str) -> bool:
    is_child = multiprocessing.parent_process() is not None
    return (FOLDER / how).exists() or (is_child and (FOLDER / f"child-{how}").exists())


class Resources:
    def __init__(self) -> None:
        self.beats = 0
        self.loop = asyncio.get_running_loop()
        self.thread = threading.current_thread().name


@asynccontextmanager
async def resources() -> AsyncIterator[Resources]:
    journal("enter")
    if misbehaves("fails"):
        raise ConnectionError("cannot connect to postgresql://ada:secret@db/shop")
    if misbehaves("is-cancelled"):
        other = asyncio.create_task(asyncio.Event().wait())
        other.cancel()
        await other
    given = Resources()

    async def beat() -> None:
        while True:
            given.beats += 1
            await asyncio.sleep(0.005)

    beating = asyncio.create_task(beat())
    yield given
    beating.cancel()
    journal("leave")
    if misbehaves("hangs"):
        await asyncio.Event().wait()


async def session(ctx: JobContext, app: Resources = Given()) -> AsyncIterator[str]:
    assert asyncio.get_running_loop() is app.loop
    journal("open", ctx.job.id)
    try:
        yield f"session {ctx.job.id}"
    finally:
        journal("close", ctx.job.id)


def thread_of() -> Iterator[str]:
    yield threading.current_thread().name


@contextmanager
def layer(ctx: JobContext) -> Iterator[None]:
    journal("layer", threading.current_thread().name)
    yield


harbor = Harbor("memory://", lifespan=resources)  # `worker run` has another store: its --dsn


@harbor.task(name="awaited", process=True)
async def awaited(db: str = Depends(session), app: Resources = Given()) -> list[object]:
    beats = app.beats
    while app.beats == beats:
        await asyncio.sleep(0)
    return [os.getpid(), db, threading.current_thread() is threading.main_thread()]


@harbor.task(name="plain", process=True)
def plain(
    ctx: JobContext, db: str = Depends(session), where: str = Depends(thread_of), app: Resources = Given()
) -> list[object]:
    beats = app.beats
    while app.beats == beats:  # the loop goes on while a plain function runs
        ctx.cancelled.wait(0.001)
    return [os.getpid(), db, where == threading.current_thread().name]


@harbor.task(name="without", process=True)
def without(x: int) -> list[int]:
    return [os.getpid(), x]


@harbor.task(name="fails", process=True, max_attempts=1)
async def fails(db: str = Depends(session)) -> None:
    raise ValueError("of the handler")


@harbor.task(name="here")
async def here(ctx: JobContext, app: Resources = Given()) -> int:
    journal("run", ctx.job.id)
    return os.getpid()


# Without a lifespan


async def adb(ctx: JobContext) -> AsyncIterator[str]:
    await asyncio.sleep(0)
    yield f"async {ctx.job.id}"


def db(ctx: JobContext) -> Iterator[str]:
    yield f"plain {ctx.job.id}"


def fake_db() -> str:
    return "fake"


def alone(a: str = Depends(db)) -> list[object]:
    return [os.getpid(), a, threading.current_thread() is threading.main_thread()]


def mixed(a: str = Depends(db), b: str = Depends(adb)) -> list[object]:
    journal("mixed", threading.current_thread().name)
    return [os.getpid(), a, b]


async def coroutine(a: str = Depends(db), b: str = Depends(adb)) -> list[object]:
    return [os.getpid(), a, b]

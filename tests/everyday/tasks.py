"""The tasks of the everyday application. What runs is written to a journal, one line in one write.

JOURNAL (environment): the file. Its lines, each with a number:

    sent N            before a call; stored N ID after it, with the job's id where there is one
    undone N          a transaction of the application's that was rolled back
    cancelled N ID    a job that was cancelled before it could run; doubtful N where it may have run
    books N           a job that has to write one row, and enqueue one job, in a transaction with its own ack
    ran N PID         by the handlers
"""

import asyncio
import inspect
import os
import time
from typing import Any

from taskharbor import Fixed, Harbor, JobContext, Unrecoverable
from taskharbor.flow import chain

harbor = Harbor()
DSN = os.environ.get("TASKHARBOR_DSN", "")
SQL = DSN.startswith(("sqlite", "postgres"))
BOOK = f"INSERT INTO bookings (n) VALUES ({'?' if DSN.startswith('sqlite') else '%s'})"


def path_of(dsn: str) -> str:
    """The file of an SQLite store."""
    return dsn.removeprefix("sqlite:///").partition("?")[0]


def note(*words: object) -> None:
    """One line of the journal. Several processes append to it; one write is never torn."""
    file = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, (" ".join(map(str, words)) + "\n").encode())
    finally:
        os.close(file)


def first_time(n: int) -> bool:
    """Whether this is the first call for this number."""
    try:
        os.close(os.open(f"{os.environ['JOURNAL']}.{n}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True


@harbor.task(name="quick")
async def quick(n: int) -> int:
    note("ran", n, os.getpid())
    return n


@harbor.task(name="plain", queue="other")
def plain(n: int) -> int:
    note("ran", n, os.getpid())
    time.sleep(0.01)  # work, so that there is something to kill
    return n


@harbor.task(name="slow")
async def slow(n: int) -> int:
    note("ran", n, os.getpid())
    await asyncio.sleep(0.2)  # the same
    return n


@harbor.task(name="flaky", max_attempts=3, retry=Fixed(0))
def flaky(ctx: JobContext, n: int) -> int:
    """Fails at its first attempt."""
    if ctx.job.attempts == 0:
        raise ConnectionError("the first attempt fails")
    note("ran", n, os.getpid())
    return n


@harbor.task(name="doomed", queue="other")
async def doomed(n: int) -> int:
    """Dies the first time; an operator has to requeue it."""
    if first_time(n):
        raise Unrecoverable("it dies the first time")
    note("ran", n, os.getpid())
    return n


@harbor.task(name="forks", queue="other")
def forks(n: int) -> int:
    """Starts a process as multiprocessing does, which never uses the store."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    note("ran", n, os.getpid())
    return n


@harbor.task(name="grows")
async def grows(n: int, more: int) -> Any:
    """Returns a workflow, which takes its place."""
    note("ran", n, os.getpid())
    return chain(plain.s(n=more), quick.s(n=more + 1))


@harbor.task(name="totals", queue="other")
def totals(found: list[int], n: int) -> int:
    """The end of a chord: it gets the results of its members, once."""
    assert found == [n - 2, n - 1]
    note("ran", n, os.getpid())
    return sum(found)


@harbor.task(name="books")
def books(ctx: JobContext, n: int, more: int) -> None:
    """On an SQL store its row, the job that it enqueues and its own ack are one transaction."""
    if not SQL:
        quick.options(idempotency_key=f"of {n}").enqueue(n=more)
    else:
        with ctx.transaction() as connection:
            connection.execute(BOOK, (n,))
            quick.options(connection=connection).enqueue(n=more)
    note("ran", n, os.getpid())


@harbor.task(name="books slowly", queue="other")
async def books_slowly(ctx: JobContext, n: int, more: int) -> None:
    """The same as a coroutine; each wait is a chance to be killed."""
    if not SQL:
        await quick.options(idempotency_key=f"of {n}").aenqueue(n=more)
    else:
        async with ctx.transaction() as connection:
            cursor = connection.execute(BOOK, (n,))
            if inspect.isawaitable(cursor):
                await cursor
            await quick.options(connection=connection).aenqueue(n=more)
            await asyncio.sleep(0.01)
    note("ran", n, os.getpid())


TASKS = (quick, plain, slow, flaky, doomed, forks)

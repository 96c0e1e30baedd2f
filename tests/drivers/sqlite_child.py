"""What the tests' child processes do: `python -m tests.drivers.sqlite_child ROLE FILE …`. They speak in lines."""

import asyncio
import os
import signal
import sys
import threading
import time
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

from taskharbor import Client, JobRequest, Worker
from taskharbor.drivers import Ack, BackendUnavailable, DriverError, JobRecord, ScheduleChange, StoredSchedule
from taskharbor.drivers.sqlite import SqliteDriver, schema
from taskharbor.model.ids import new_id
from taskharbor.model.times import from_ms, to_ms
from tests.drivers.blocking_calls import run
from tests.drivers.crash_child import run_with_journal, say

LEASE = timedelta(seconds=1)


def driver(path: str) -> SqliteDriver:
    return SqliteDriver(f"sqlite:///{path}?synchronous=normal")


def now() -> Any:
    return from_ms(int(time.time() * 1000))


async def reserve_and_hang(path: str) -> None:
    """Take a job under a lease of a second, say so, and wait to be killed."""
    store = driver(path)
    await store.open()
    held = await store.reserve(["default"], now(), LEASE, 1, "doomed")
    say(held[0].job.id)
    await asyncio.Event().wait()


async def enqueue_on_command(path: str) -> None:
    """For each line on standard input, one job."""
    store = driver(path)
    await store.open()
    client = Client(store)
    say("ready")
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        await client.aenqueue(JobRequest(type="t"))
    await client.aclose()
    await store.close()


async def look(path: str) -> None:
    """Open the file, count what is in it, and close it, as a command of the shell does."""
    store = driver(path)
    await store.open()
    say(str(sum(sum(states.values()) for states in (await store.counts(now())).values())))
    await store.close()


async def upgrade(path: str, folder: str) -> None:
    """A newer program, with the migrations of that folder beside ours: it upgrades the file and goes on working."""
    schema.FOLDER = Path(folder)
    schema.SCHEMA = max(int(file.name[:4]) for file in schema.FOLDER.glob("*.sql"))
    store = driver(path)
    try:
        await store.open()
        await store.enqueue([_job()], now())
        say("upgraded")
        while await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline):
            held = await store.reserve(["default"], now(), LEASE, 1, "new")
            say(str(await store.settle([Ack(item.lease) for item in held], now())))
        await store.close()
    except DriverError as error:
        say(str(error))


async def store_and_die(path: str, id: str) -> None:
    """Store a job and be killed: the -wal file stays."""
    store = driver(path)
    await store.open()
    await store.enqueue([JobRecord(id=id, type="t")], now())
    os.kill(os.getpid(), signal.SIGKILL)


async def open_when_told(path: str) -> None:
    """Open the file on request, together with others; `die` in the middle of the migration if asked."""
    store = driver(path)
    say("ready")
    sys.stdin.readline()
    await store.open()
    say(str((await store.enqueue([_job()], now()))[0].existed))
    await store.close()


async def die_in_the_migration(path: str) -> None:
    real = schema.statements

    def half(script: str) -> list[str]:
        found = real(script)
        return [*found[: len(found) // 2], "SELECT taskharbor_die()"]

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    schema.statements = half
    store = driver(path)
    prepare = schema.prepare

    def with_death(connection: Any, path: str, mode: str) -> None:
        connection.create_function("taskharbor_die", 0, die)
        prepare(connection, path, mode)

    schema.prepare = with_death
    await store.open()


async def hammer(path: str, rounds: str) -> None:
    """Enqueue, reserve and settle as fast as it goes; every error is said."""
    store = driver(path)
    await store.open()
    done = 0
    for _ in range(int(rounds)):
        try:
            await store.enqueue([_job() for _ in range(3)], now())
            held = await store.reserve(["default"], now(), timedelta(seconds=60), 3, "w")
            answers = await store.settle([Ack(item.lease) for item in held], now())
            done += answers.count(None)
            for answer in answers:
                if answer is not None:
                    say(f"refused {answer!r}")
        except Exception as error:
            say(f"error {type(error).__name__}: {error}")
    say(f"done {done}")
    await store.close()


async def stop_with_the_lock(path: str) -> None:
    """Be stopped (SIGSTOP) in the middle of a transaction; say so before, and again once it is committed."""
    store = driver(path)
    await store.open()

    def stop(session: Any) -> None:
        say("stopping")
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # this thread first: the others may run on a little

    await store.database.write(stop)
    say("committed")
    await asyncio.Event().wait()


async def die_with_the_lock(path: str) -> None:
    """Leave a forked child behind, which lives until standard input ends, and be killed inside of a transaction."""
    store = driver(path)
    await store.open()
    if os.fork() == 0:
        sys.stdin.read()
        os._exit(0)
    await store.database.write(lambda session: os.kill(os.getpid(), signal.SIGKILL))


async def fill_the_disk(folder: str, ballast: str) -> None:
    """Enqueue on a small disk until it is full, make room, and go on. Says what became of it."""
    ballast_file = os.open(f"{folder}/ballast", os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(ballast_file, bytes(int(ballast)))
    store = SqliteDriver(f"sqlite:///{folder}/jobs.db")
    await store.open()
    await store.enqueue([_job()], now())
    (held,) = await store.reserve(["default"], now(), timedelta(seconds=600), 1, "w")
    stored: list[str] = []
    try:
        while True:
            stored += [each.id for each in await store.enqueue([_job(bytes(50_000)), _job(bytes(50_000))], now())]
    except BackendUnavailable as error:
        say(f"refused {error}")
    try:
        while True:  # the last pages that are left
            stored += [each.id for each in await store.enqueue([_job(bytes(1_000))], now())]
    except BackendUnavailable:
        pass
    try:
        await store.settle([Ack(held.lease, bytes(60_000))], now())
    except BackendUnavailable as error:
        say(f"refused {error}")
    found = {item.job.id for item in (await store.list(now=now(), limit=10_000)).items}
    say(f"lost {len(set(stored) - found)} of {len(stored)}, and {len(found) - len(stored) - 1} never acknowledged")
    os.ftruncate(ballast_file, 0)
    say(f"settled {await store.settle([Ack(held.lease)], now())}")
    await store.enqueue([_job()], now())
    await store.close()
    worker, ran = Worker(SqliteDriver(f"sqlite:///{folder}/jobs.db")), 0

    async def handler() -> None:
        nonlocal ran
        ran += 1

    worker.register("t", handler)
    await worker.arun(until_empty=True)
    say(f"ran {ran - len(stored) - 1} more than were stored")


async def work(path: str, journal: str) -> None:
    """A worker that writes down what it runs, line by line, until it is killed."""
    worker = Worker(SqliteDriver(f"sqlite:///{path}"), concurrency=4, lease=1.0, poll_interval=0.1)
    await run_with_journal(worker, journal)


async def fire_slots(path: str) -> None:
    """Fire every slot of every schedule up to the second that is read from standard input, beside others; says each
    that it stored."""
    store = driver(path)
    await store.open()
    say("ready")
    end = from_ms(int(sys.stdin.readline()) * 1000)
    while due := (await store.due_schedules(["default"], end)).items:
        changes = [fired(row) for row in due]
        for change, done in zip(changes, await store.change_schedules(changes, end), strict=True):
            if done:
                say(change.jobs[0].payload.decode())
    await store.close()


def fired(row: StoredSchedule) -> ScheduleChange:
    """A schedule moves on by a second, and stores the job of its slot, under an id of its own: a slot that is fired
    twice has two jobs."""
    assert row.next_at is not None
    job = JobRecord(id=new_id(0), type="t", payload=f"{row.name} {to_ms(row.next_at) // 1000}".encode())
    to = StoredSchedule(
        name=row.name, queue=row.queue, revision=new_id(0), next_at=row.next_at + timedelta(seconds=1), body=row.body
    )
    return ScheduleChange(name=row.name, expect=row.revision, to=to, jobs=(job,))


async def die_while_firing(path: str) -> None:
    """Fork a process that is killed at the first statement of a change, one for the second, and so on until one
    lives to its end. Says how each of them ended, and waits for a line before the next."""
    for statement in count(1):
        status = _end_of_firing(path, statement)
        say(str(status))
        sys.stdin.readline()
        if status != -signal.SIGKILL:
            return


def _end_of_firing(path: str, statement: int) -> int:
    pid = os.fork()
    if pid == 0:
        _fire_and_die(path, statement)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _fire_and_die(path: str, statement: int) -> None:
    calls = driver(path).blocking()
    run(calls, lambda driver: driver.open())
    (row,) = run(calls, lambda driver: driver.schedules()).items
    assert calls._database is not None
    left = statement

    def told(text: str) -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    calls._database.writer.file.get().set_trace_callback(told)
    done = run(calls, lambda driver: driver.change_schedules([fired(row)], now()))
    os._exit(0 if done == [True] else 1)


def _job(ballast: bytes = b"") -> Any:
    return JobRecord(id=new_id(int(time.time() * 1000)), type="t", payload=b"{}" + b" " * len(ballast))


ROLES = {
    role.__name__: role
    for role in (
        reserve_and_hang,
        enqueue_on_command,
        look,
        store_and_die,
        upgrade,
        open_when_told,
        die_in_the_migration,
        hammer,
        stop_with_the_lock,
        die_with_the_lock,
        fill_the_disk,
        work,
        fire_slots,
        die_while_firing,
    )
}

if __name__ == "__main__":
    role: Any = ROLES[sys.argv[1]]
    asyncio.run(role(*sys.argv[2:]))

"""A process that has imported everything and forks an actor for each line: `python -m tests.survival.nursery`.

A line is a JSON object: `role`, `dsn`, `folder` and the options of that role. The answer is the pid of the fork. A fork
inherits no connection and no thread, for nothing is opened before it; what it prints goes to `folder/log`.
"""

import asyncio
import ctypes
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import psycopg as _psycopg
import redis as _redis  # noqa: F401 - imported before the forks, not in each

from taskharbor import Harbor, JobContext, TaskHarborError
from taskharbor.drivers import BackendUnavailable, open_driver
from taskharbor.drivers import postgres as _postgres
from taskharbor.drivers import redis as _redis_driver
from taskharbor.drivers import sqlite as _sqlite
from taskharbor.flow import chain, chord
from taskharbor.worker import Call
from tests.survival.journal import Pen
from tests.survival.journaled import Failpoint, Journaled
from tests.survival.tasks import Tasks

PR_SET_PDEATHSIG = 1
DRIVERS = (_postgres, _redis_driver, _sqlite)  # imported before the forks, not in each


def wrong_clock(skew: float, chance: random.Random) -> None:
    """The clock of this machine is wrong from now on, and is set back and forth while the process runs."""
    real, step = time.time, [skew, 0.0]

    def wrong() -> float:
        up = time.monotonic()
        if up > step[1]:
            step[0], step[1] = skew + chance.choice((-3600.0, -5.0, 0.0, 5.0, 3600.0)), up + chance.uniform(0.2, 2.0)
        return real() + step[0]

    time.time = wrong


def harbor_of(spec: dict[str, Any]) -> tuple[Harbor, Tasks]:
    if "skew" in spec:
        wrong_clock(spec["skew"], random.Random("{seed} {role} {skew}".format_map(spec)))
    failpoint, pen = Failpoint(spec.get("failpoint", "")), Pen(spec["folder"])

    async def before_the_start(ctx: JobContext, call_next: Call) -> object:
        failpoint.reached("start", "before", pen)
        return await call_next(ctx)

    driver: Any = Journaled(open_driver(spec["dsn"]), pen, failpoint)
    harbor = Harbor(driver, middleware=[before_the_start])
    return harbor, Tasks(harbor, spec["folder"], failpoint, spec.get("hold", ""))


def worker(spec: dict[str, Any]) -> None:
    harbor, tasks = harbor_of(spec)
    made = harbor.worker(
        concurrency=spec.get("concurrency", 8),
        lease=spec["lease"],
        max_lost=spec.get("max_lost", 1000),
        poll_interval=spec.get("poll", 0.2),
        shutdown_timeout=spec.get("shutdown", 10),
        name=spec.get("name"),
    )
    tasks.pen.note("ready", made.name)
    made.run()
    tasks.pen.note("stopped")


def chunks(numbers: range, size: int) -> Iterable[list[int]]:
    for start in range(numbers.start, numbers.stop, size):
        yield list(range(start, min(start + size, numbers.stop)))


def producer(spec: dict[str, Any]) -> None:
    """Enqueue the numbers from `first` on. What raises is noted as unknown and, with `again`, sent once more."""
    harbor, tasks = harbor_of(spec)
    note = tasks.pen.note
    note("ready", "")
    for numbers in chunks(range(spec["first"], spec["first"] + spec["count"]), spec.get("batch", 10)):
        options = {"seconds": spec["seconds"]} if spec.get("seconds") else {}
        note("sent", numbers)
        while True:
            keys = {n: f"n{n}" for n in numbers}
            try:
                # A key for each: what an enqueue without a reply did store is found again, not stored twice.
                handles = harbor.within(spec.get("timeout", 10)).enqueue_many(
                    [tasks.work.options(idempotency_key=keys[n]).s(n=n, **options) for n in numbers]
                )
            except (BackendUnavailable, TaskHarborError):
                note("unknown", numbers)
                time.sleep(0.05)
                continue
            note("stored", numbers, [handle.id for handle in handles])
            break
        if pause := spec.get("pause"):
            time.sleep(pause)
    note("stopped")
    harbor.close()


def flow(spec: dict[str, Any]) -> None:
    """A chord of four members and a finalizer behind a first job, or a job that becomes one: six numbers."""
    harbor, tasks = harbor_of(spec)
    first = spec["first"]
    numbers = list(range(first, first + 6))
    tasks.pen.note("sent", numbers)
    if spec["kind"] == "spawn":
        tasks.spread.enqueue(n=first, size=4)
    else:
        members = [tasks.member.s(n=n, i=n) for n in numbers[1:5]]
        chain(tasks.work.s(n=first), chord(members, tasks.last.s(n=first + 5, first=first + 1))).enqueue()
    tasks.pen.note("stored", numbers)
    harbor.close()


def opener(spec: dict[str, Any]) -> None:
    """Open a store that may be new, and enqueue one job."""
    harbor, tasks = harbor_of(spec)
    tasks.pen.note("ready", "")
    tasks.pen.note("sent", [spec["first"]])
    handle = tasks.work.enqueue(n=spec["first"])
    tasks.pen.note("stored", [spec["first"]], [handle.id])
    harbor.close()


def racer(spec: dict[str, Any]) -> None:
    """Clients that enqueue under the same keys at once; on SQL stores half of the keys are rolled back first."""
    harbor, tasks = harbor_of(spec)
    chance = random.Random(spec["seed"])
    tasks.pen.note("ready", "")
    keys = list(range(spec["keys"]))

    async def client(turn: int) -> None:
        order = keys[:]
        random.Random(spec["seed"] * 1000 + turn).shuffle(order)
        for n in order:
            while True:  # a busy store may not answer in time; the key makes it safe to send again
                with suppress(BackendUnavailable):
                    await tasks.work.options(idempotency_key=f"key {n}").aenqueue(n=n)
                    break

    async def live() -> None:
        async with harbor:
            await asyncio.gather(*(client(turn) for turn in range(spec["clients"])))

    if spec.get("rolls_back"):
        roll_back(spec, keys, tasks, chance)
    asyncio.run(live())
    tasks.pen.note("stopped")


def roll_back(spec: dict[str, Any], keys: list[int], tasks: Tasks, chance: random.Random) -> None:
    """Half of the keys inside the caller's own transaction, which ends with a rollback."""
    import sqlite3

    def connect() -> Any:
        if spec["dsn"].startswith("sqlite"):
            return sqlite3.connect(spec["dsn"].removeprefix("sqlite:///").partition("?")[0], timeout=60)
        return _psycopg.connect(spec["dsn"])

    for n in chance.sample(keys, len(keys) // 2):
        connection = connect()
        try:
            plain = Harbor(spec["dsn"])
            work = Tasks(plain, spec["folder"]).work
            with suppress(BackendUnavailable):
                work.options(idempotency_key=f"key {n}", connection=connection).enqueue(n=n)
            connection.rollback()
            plain.close()
        finally:
            connection.close()


ROLES = {role.__name__: role for role in (worker, producer, flow, opener, racer)}


def live(spec: dict[str, Any]) -> int:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a run that is killed leaves no worker behind
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(f"{spec['folder']}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        ROLES[spec["role"]](spec)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended forks are reaped by the kernel
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os._exit(live(json.loads(line)))
        print(pid, flush=True)


if __name__ == "__main__":
    main()

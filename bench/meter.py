"""What a sample on a store is made with, in any environment: the standard library and nothing else.

A subject is a module that ends with `meter.main({mode: function, …})` and is run as `python -m MODULE MODE ORDER`. It
prints one line of JSON. `job` and `ajob` are the job of every subject: they do nothing but count or tell when they ran.

    process       jobs are enqueued, then the same number is run: those, or the ones that waited before them
    enqueue-one   one call for each job
    enqueue-many  as many jobs in a call as `BATCH`
    latency       from the call that enqueues to the first line of the job, in the idle process that `serve` is
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import json
import os
import random
import resource
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

BATCH = 1_000
WARM = 5  # picks that are not counted: connections are opened, plans and scripts are cached
PAUSES = (0.01, 0.03)  # seconds between two picks, at random: time to be idle again, and no poll is met in step
PIPE = "TASKHARBOR_BENCH_PIPE"


@dataclass(frozen=True)
class Order:
    """What is to be measured, and where. `group`: members of one group; `server`: its process; `relaxed`: do not wait
    for the disk with each commit, where one may choose; `width`: how many jobs a hand-written loop takes at a time."""

    address: str
    jobs: int
    group: int = 0
    server: int = 0
    relaxed: bool = False
    width: int = 100


Measured = dict[str, Any]
Mode = Callable[[Order], Measured | Awaitable[Measured | None] | None]


# Processor time


def cpu_of_tree(pid: int, proc: str = "/proc") -> float:
    """Seconds of processor time of a process, of all below it, and of those below it that have ended."""
    if not pid or not os.path.isdir(f"{proc}/{pid}"):
        return 0.0
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for name in os.listdir(proc):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError), open(f"{proc}/{name}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()  # the name in parentheses may hold spaces
            children.setdefault(int(fields[1]), []).append(int(name))
            ticks[int(name)] = sum(map(int, fields[11:15]))  # own and, once waited for, of children that have ended
    total, todo = 0, [pid]
    while todo:
        each = todo.pop()
        total += ticks.get(each, 0)
        todo += children.get(each, [])
    return total / os.sysconf("SC_CLK_TCK")


def _own_cpu() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


class Watch:
    """A stopwatch: the wall's time, this process's and the server's."""

    def __init__(self, server: int = 0) -> None:
        self._pid = server

    def start(self) -> None:
        gc.collect()
        self._server, self._cpu, self._wall = cpu_of_tree(self._pid), _own_cpu(), time.perf_counter()

    def stop(self) -> None:
        self._wall = time.perf_counter() - self._wall
        self._cpu = _own_cpu() - self._cpu
        self._server = cpu_of_tree(self._pid) - self._server

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def sample(self, jobs: int) -> Measured:
        return {"jobs": jobs, "wall": self._wall, "cpu": self._cpu, "server": self._server}


# The job


def _nothing() -> None:
    """What a job does unless `count` or `tell_picks` was called."""


_on_job = _nothing


def job(*_: object, **__: object) -> None:
    """The job of queues that run plain functions."""
    _on_job()


async def ajob(*_: object, **__: object) -> None:
    """The job of queues that run coroutines."""
    _on_job()


def count(order: Order) -> None:
    """Time from the first job to the last one; then print the sample and end the process, whatever else it does."""
    global _on_job
    watch, ran, last = Watch(order.server), iter(range(1, sys.maxsize)), order.jobs
    started = threading.Event()  # jobs may run in several threads

    def on_job() -> None:
        number = next(ran)
        if number == 1:
            watch.start()
            started.set()
        elif number == last:
            started.wait()
            watch.stop()
            _print(watch.sample(last - 1))  # from the start of the first to the start of the last: one job less
            os._exit(0)

    _on_job = on_job


# Latency


class Picks:
    """An idle worker in another process, and how long it took to pick up each job."""

    def __init__(self, order: Order, read: int) -> None:
        self._order = order
        self._read = read
        self.latencies: list[float] = []

    def turns(self) -> Iterator[None]:
        """Enqueue one job in each turn."""
        for number in range(self._order.jobs + WARM):
            time.sleep(random.uniform(*PAUSES))
            asked = time.perf_counter()
            yield
            if number >= WARM:
                self.latencies.append(self._picked() - asked)
            else:
                self._picked()

    def _picked(self) -> float:
        told = os.read(self._read, 8)
        if len(told) < 8:
            raise RuntimeError("the worker ended before it ran the job")
        moment: float = struct.unpack("d", told)[0]
        return moment

    def sample(self) -> Measured:
        return {"jobs": self._order.jobs, "latencies": self.latencies}


@contextlib.contextmanager
def idle_worker(order: Order, mode: str = "serve") -> Iterator[Picks]:
    """Start this same program as a worker; it is killed at the end."""
    read, write = os.pipe()
    module = sys.modules["__main__"].__spec__.name  # type: ignore[union-attr]  # never None here
    worker = subprocess.Popen(
        [sys.executable, "-m", module, mode, json.dumps(asdict(replace(order, server=0)))],
        pass_fds=(write,),
        env={**os.environ, PIPE: str(write)},
        stdout=subprocess.DEVNULL,
    )
    os.close(write)
    try:
        yield Picks(order, read)
    finally:
        worker.kill()
        worker.wait()
        os.close(read)


def tell_picks() -> None:
    """In the worker's process: let each job say when it ran. perf_counter is the same in all processes of a machine."""
    global _on_job
    pipe = int(os.environ[PIPE])

    def on_job() -> None:
        os.write(pipe, struct.pack("d", time.perf_counter()))

    _on_job = on_job


# Running


def batches(jobs: int, size: int = BATCH) -> Iterator[int]:
    """How many jobs in each call."""
    for start in range(0, jobs, size):
        yield min(size, jobs - start)


def main(modes: dict[str, Mode]) -> None:
    """Run what the command line asks for."""
    mode, order = sys.argv[1], Order(**json.loads(sys.argv[2]))
    measured = modes[mode](order)
    if inspect.isawaitable(measured):
        measured = asyncio.run(_awaited(measured))
    if measured is None:
        raise SystemExit(f"{mode}: the worker ended before its last job")
    _print(measured)


async def _awaited(measured: Awaitable[Measured | None]) -> Measured | None:
    return await measured


def _print(measured: Measured) -> None:
    os.write(1, json.dumps(measured).encode() + b"\n")  # whatever the subject has made of sys.stdout

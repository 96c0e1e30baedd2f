"""Others' memory queues, each at the best settings found for a job that does nothing.

huey 3: MemoryHuey, its own consumer with one thread, no periodic tasks, no health checks. Its jobs are plain functions,
because it knows no coroutines. `results=False` was tried and was not faster: None is not stored anyway. More threads,
which would share one interpreter, and greenlets, which need gevent, were not tried.

taskiq: InMemoryBroker(await_inplace=True, cast_types=False), which runs a job where it is sent. It keeps no queue, so
for the worker's part alone finished messages are handed to `broker.kick`, which is what a worker does with them.

Both are imported by name at run time: they are installed by `make bench` only.
"""

from __future__ import annotations

import threading
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from bench.sample import Sample, Stopwatch


def installed(name: str) -> bool:
    """Whether a peer is there to be measured."""
    return find_spec(name) is not None


def huey(jobs: int, backlog: int) -> Sample:
    """huey's consumer on jobs that were enqueued beforehand."""
    queue = _Huey()
    queue.send(jobs)
    with Stopwatch() as watch:
        queue.work_off()
    return watch.sample(jobs)


def huey_through(jobs: int, backlog: int) -> Sample:
    """huey: enqueued one at a time, then worked off."""
    queue = _Huey()
    with Stopwatch() as watch:
        queue.send(jobs)
        queue.work_off()
    return watch.sample(jobs)


class _Huey:
    def __init__(self) -> None:
        self._huey: Any = import_module("huey").MemoryHuey("bench")
        self._over = threading.Event()
        self._noop = self._huey.task()(_noop)
        self._last = self._huey.task(name="last")(self._over.set)

    def send(self, jobs: int) -> None:
        noop = self._noop
        for _ in range(jobs):
            noop()

    def work_off(self) -> None:
        """Start the consumer and wait for a last job; one worker takes them in their order."""
        self._last()
        consumer = self._huey.create_consumer(
            workers=1, worker_type="thread", periodic=False, check_worker_health=False, scheduler_interval=60
        )
        consumer._set_signal_handlers = lambda: None  # the process is ours
        consumer.start()
        self._over.wait()
        consumer.stop()


def _noop() -> None:
    """The job."""


async def taskiq(jobs: int, backlog: int) -> Sample:
    """taskiq's receiver on messages that were made beforehand."""
    broker, task = await _taskiq()
    kicker = task.kicker()
    messages = [broker.formatter.dumps(kicker._prepare_message()) for _ in range(jobs)]
    with Stopwatch() as watch:
        for message in messages:
            await broker.kick(message)
    await broker.shutdown()
    return watch.sample(jobs)


async def taskiq_through(jobs: int, backlog: int) -> Sample:
    """taskiq: sent and run."""
    broker, task = await _taskiq()
    with Stopwatch() as watch:
        for _ in range(jobs):
            await task.kiq()
    await broker.shutdown()
    return watch.sample(jobs)


async def _taskiq() -> tuple[Any, Any]:
    broker: Any = import_module("taskiq").InMemoryBroker(await_inplace=True, cast_types=False)
    await broker.startup()
    return broker, broker.task(_taskiq_noop)


async def _taskiq_noop() -> None:
    """The job."""

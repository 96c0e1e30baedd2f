"""A program that runs a worker itself, and says on its output how far it is: `python program.py PHASE FILE`."""

import asyncio
import sys
import threading
from typing import Any

from taskharbor import Harbor, Worker
from taskharbor.drivers import Driver, WrappedDriver
from taskharbor.events import Event, WorkerStarted, WorkerStopping
from taskharbor.worker import waiting

harbor = Harbor(f"sqlite:///{sys.argv[2]}" if len(sys.argv) > 2 else "memory://")


def say(text: str) -> None:
    print(text, flush=True)


def observe(event: Event) -> None:
    if isinstance(event, WorkerStopping):
        say("stopping")
    elif isinstance(event, WorkerStarted) and sys.argv[1] in ("idle", "still:close"):
        say("there")


async def for_ever() -> None:
    """Swallows every cancellation."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


@harbor.task
async def coroutine() -> None:
    say("there")
    await asyncio.Event().wait()


@harbor.task
async def swallowing() -> None:
    say("there")
    await for_ever()


@harbor.task
async def background() -> None:
    """Leaves a task behind that nobody but the loop knows."""
    harbor.left = asyncio.create_task(for_ever())  # type: ignore[attr-defined]  # not in its declared type
    say("there")
    await asyncio.Event().wait()


@harbor.task
async def blocking() -> None:
    say("there")
    threading.Event().wait()


@harbor.task
async def elsewhere() -> None:
    """In asyncio's own threads, for which Python waits when a loop closes."""
    say("there")
    await asyncio.to_thread(threading.Event().wait)


@harbor.task
def thread() -> None:
    say("there")
    threading.Event().wait()


@harbor.task(process=True)
def child() -> None:
    say("there")
    threading.Event().wait()


class Standing(WrappedDriver):
    """A driver of a store that stands still in one verb."""

    def __init__(self, inner: Driver, verb: str) -> None:
        super().__init__(inner)
        self._verb = verb

    def sibling(self) -> Driver:
        return Standing(self.inner.sibling(), self._verb)

    async def around(self, verb: str, call: Any, args: Any) -> Any:
        if verb == self._verb:
            say("there")
            await asyncio.Event().wait()
        return await call()


def main(phase: str) -> None:
    waiting.STORE_S, waiting.HURRIED_S, waiting.CLOSE_S = 1.0, 0.5, 0.2
    options: dict[str, Any] = {"shutdown_timeout": 0.2, "lease": 600}
    if phase.startswith("still:"):
        worker = Worker(Standing(harbor.driver, phase.removeprefix("still:")), observers=[observe], **options)
    else:
        worker = harbor.worker(observers=[observe], **options)
    worker.run()
    say("returned")


if __name__ == "__main__":
    main(sys.argv[1])

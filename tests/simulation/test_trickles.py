"""Rare crashes over minutes, on virtual time: how long jobs wait that did nothing wrong.

The real restart loops and the real spare start processes that take as long as an interpreter with an application; now
and then a job takes one down. A good job waits while no process serves.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from taskharbor.model.events import Observers
from taskharbor.worker.supervisor import memory, messages
from taskharbor.worker.supervisor.process import Process
from taskharbor.worker.supervisor.roles import MAX_PAUSE_S, RestartLoop, Spare
from taskharbor.worker.supervisor.supervisor import CHECK_INTERVAL_S
from tests.simulation.loop import VirtualLoop
from tests.supervisor.child_messages import receive, taken

IMPORT_S = 1.0  # until a new process serves
OPEN_S = 0.1  # until a spare that has imported everything serves
NO_PID = 2**22 + 1  # more than any system gives
MINUTES = 10


class Fleet:
    """Processes that serve, crash and are replaced."""

    def __init__(self, loop: VirtualLoop, processes: int, *, spare: bool) -> None:
        self.loop = loop
        self.clock: Any = SimpleNamespace(monotonic=loop.time)
        self.started = 0
        self.alive: list[Process] = []
        self.imported: dict[Process, float] = {}  # when it has imported the application
        self.spare = Spare(partial(self.launch, waits=True)) if spare else None
        self.loops = [RestartLoop(number, self.clock, self.start, Observers()) for number in range(processes)]

    async def start(self, number: int) -> Process:
        process = self.spare.give() if self.spare is not None else None
        if process is not None:
            process.serve()
            at = max(self.loop.time() + OPEN_S, self.imported[process])
            self.loop.call_at(at, self.ready, process)
            return process
        return await self.launch(waits=False)

    async def launch(self, *, waits: bool) -> Process:
        self.started += 1
        process = Process(0, self.clock)
        process.pid = NO_PID
        self.imported[process] = self.loop.time() + IMPORT_S
        if not waits:
            self.loop.call_later(IMPORT_S, self.ready, process)
        self.alive.append(process)
        return process

    def ready(self, process: Process) -> None:
        receive(process, messages.Ready("w", None))

    @property
    def serving(self) -> list[Process]:
        return [process for process in self.alive if process.ready.is_set()]

    def crash(self) -> None:
        """A job takes its process down."""
        if self.serving:
            process = self.serving[0]
            receive(process, messages.Taken([taken("poison")], []))
            self.alive.remove(process)
            process.ended(-9)
            process.gone.set()

    async def watch(self) -> None:
        while self.spare is not None:
            await self.spare.keep(self.loops, self.loop.time())
            await asyncio.sleep(CHECK_INTERVAL_S)


def longest_wait(processes: int, every: float, *, spare: bool) -> tuple[float, int]:
    """The longest time that a job waited for a process that serves, and how many processes were started."""
    loop = VirtualLoop(random.Random(1), shuffle=True, steps=400_000)
    asyncio.set_event_loop(None)

    async def main() -> tuple[float, int]:
        fleet = Fleet(loop, processes, spare=spare)
        works: list[Callable[[], Awaitable[None]]] = [*(each.run for each in fleet.loops), fleet.watch]
        tasks = [loop.create_task(work()) for work in works]
        await asyncio.sleep(2 * IMPORT_S)
        longest, since, crash_at = 0.0, loop.time(), loop.time() + every
        while loop.time() < MINUTES * 60:
            await asyncio.sleep(0.05)
            if fleet.serving:
                since = loop.time()
            longest = max(longest, loop.time() - since)
            if loop.time() >= crash_at:
                fleet.crash()
                crash_at = loop.time() + every
        for task in tasks:
            task.cancel()
        return longest, fleet.started

    try:
        return loop.run_until_complete(main())
    finally:
        loop.dispose()


@pytest.fixture(autouse=True)
def nothing_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskharbor.worker.supervisor.process_end.kill", lambda pid: None)
    monkeypatch.setattr(memory, "free", lambda: 2**40)


@pytest.mark.parametrize("every", [3.5, 7.0, 11.0])
@pytest.mark.parametrize("processes", [1, 2])
def test_a_trickle_of_crashes_holds_up_no_other_job(processes: int, every: float) -> None:
    waited, _ = longest_wait(processes, every, spare=True)
    assert waited <= 2 * OPEN_S, f"a good job waited {waited:.1f} s"
    waited, _ = longest_wait(processes, every, spare=False)
    assert waited <= IMPORT_S + 2 * OPEN_S, f"without a spare a good job waited {waited:.1f} s"


def test_a_flood_of_crashes_starts_a_bounded_number_of_processes() -> None:
    waited, started = longest_wait(1, 0.1, spare=True)
    assert started <= 30 * MINUTES, f"{started} processes in {MINUTES} minutes"
    assert waited <= MAX_PAUSE_S * 1.25 + IMPORT_S, f"a good job waited {waited:.1f} s"

"""The restart loop: pauses between starts, and which event reports how a process ended."""

import asyncio
from collections.abc import Callable

import pytest

from taskharbor.model.events import Event, Observers
from taskharbor.testing import ManualClock
from taskharbor.worker.supervisor import messages
from taskharbor.worker.supervisor.process import Process
from taskharbor.worker.supervisor.roles import RestartLoop
from tests.supervisor.child_messages import async_test, receive, taken


@async_test
async def test_pauses_between_starts_grow_up_to_half_a_minute() -> None:
    async def start(number: int) -> Process:
        raise NotImplementedError

    loop = RestartLoop(0, ManualClock(), start, Observers())
    pauses = []
    for deaths in range(12):
        loop._deaths = deaths
        pauses.append(loop._pause())
    assert pauses[0] == 0
    assert all(pauses[n] >= min(30, 0.5 * 2 ** (n - 1)) for n in range(1, 12))
    assert max(pauses) <= 37.5


@pytest.mark.parametrize(("served", "pauses"), [(True, [0.0, 0.0, 0.0]), (False, [0.0, 0.5, 1.0])])
@async_test
async def test_only_a_process_that_has_served_counts_as_steady(
    served: bool, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose lifespan fails after a minute would otherwise be started again without a pause."""
    clock, waited = ManualClock(), list[float]()

    async def start(number: int) -> Process:
        raise NotImplementedError

    async def no_pause(*waiters: object) -> None:
        for each in waiters:
            each.close()  # type: ignore[attr-defined]  # coroutines, all of them

    loop = RestartLoop(0, clock, start, Observers([lambda event: waited.append(event.again_in)]))  # type: ignore[attr-defined]  # ProcessDied
    monkeypatch.setattr(loop, "_first_of", no_pause)
    for _ in pauses:
        process = Process(0, clock, 1)
        process.pid = 1_000_000
        if served:
            process.ready.set()
        clock.advance(60)
        process.ended(1)
        await loop._rest(process)
    assert [pause - pause % 0.5 for pause in waited] == pauses


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    ("end", "told"),
    [
        (lambda process: process.ended(0), "ProcessReplaced"),  # it took its last job before the next one served
        (lambda process: process.ended(-9), "ProcessDied"),
        (lambda process: (process.stop(), process.ended(0)), "ProcessEnded"),
    ],
)
@async_test
async def test_the_event_says_how_a_process_at_its_job_limit_ended(
    end: Callable[[Process], object], told: str, late: bool
) -> None:
    events: list[Event] = []
    started: list[Process] = []

    async def start(number: int) -> Process:
        started.append(Process(number, ManualClock(), 1))
        started[-1].pid = 1_000_000 + len(started)  # without a pid it would count as never started
        return started[-1]

    async def until(number: int) -> None:
        while len(started) < number:
            await asyncio.sleep(0)

    loop = RestartLoop(0, ManualClock(), start, Observers([events.append]))
    running = asyncio.create_task(loop.run())
    await until(1)
    receive(started[0], messages.Taken([taken("a")], []))
    if not late:
        await until(2)  # the next one is about to start
    end(started[0])
    started[0].state = "gone"
    started[0].gone.set()
    await until(2)
    while loop.process is not started[1]:
        await asyncio.sleep(0)
    assert [type(event).__name__ for event in events] == [told]
    loop.close()
    await running

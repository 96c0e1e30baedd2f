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


def pauses(deaths: int, *, served: bool = False, jobs: int = 0, seconds: float = 0.0) -> list[float]:
    """The pause after each of these deaths; each process lived for `seconds`, and took `jobs`."""
    clock = ManualClock()

    async def start(number: int) -> Process:
        raise NotImplementedError

    loop, found = RestartLoop(0, clock, start, Observers()), list[float]()
    for _ in range(deaths):
        process = Process(0, clock)
        if served:
            process.ready.set()
        process.taken = jobs
        clock.advance(seconds)
        found.append(loop._pause_after(process))
    return found


def test_pauses_grow_up_to_half_a_minute_while_nothing_can_start() -> None:
    found = pauses(12)
    assert found[0] == 0
    assert all(found[n] >= min(30, 0.5 * 2 ** (n - 1)) for n in range(1, 12))
    assert max(found) <= 37.5
    assert pauses(3, served=True, seconds=1)[1] >= 0.5, "it has served, and has not taken a job"


def test_only_a_process_that_has_served_counts_as_steady() -> None:
    """One whose lifespan fails after a minute would otherwise be started again without a pause."""
    assert pauses(3, served=True, seconds=60) == [0, 0, 0]
    assert [pause - pause % 0.5 for pause in pauses(3, seconds=60)] == [0, 0.5, 1]


def test_a_process_that_took_jobs_is_replaced_at_once_up_to_twenty_times_a_minute() -> None:
    assert set(pauses(100, served=True, jobs=1, seconds=3.5)) == {0}
    quick = pauses(23, served=True, jobs=1, seconds=0.5)
    assert quick[:20] == [0] * 20
    assert [pause - pause % 0.5 for pause in quick[20:]] == [0.5, 1, 2]


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

"""When the health report of a supervisor says ok."""

import asyncio

from taskharbor.model.events import Observers
from taskharbor.testing import ManualClock
from taskharbor.worker.supervisor import probes
from taskharbor.worker.supervisor.process import Process
from taskharbor.worker.supervisor.roles import RestartLoop
from tests.supervisor.child_messages import async_test, receive, tick


@async_test
async def test_a_place_is_healthy_while_its_last_poll_is_recent() -> None:
    clock = ManualClock()
    slot, process = RestartLoop(0, clock, lambda number: asyncio.sleep(0), Observers()), Process(0, clock)  # type: ignore[arg-type,return-value]  # wrong on purpose

    def ok(fleet: list[Process], stopping: bool = False) -> bool:
        return probes.describe([slot], fleet, clock.monotonic(), 10.0, stopping).ok

    assert not ok([process])
    receive(process, tick())
    assert ok([process])
    assert not ok([process], stopping=True)
    clock.advance(5)
    assert ok([])  # it died, and the next one is about to serve
    clock.advance(6)
    assert not ok([])
    receive(process, tick(busy=True, polled_seconds_ago=100.0))
    assert ok([process])  # it has no room, and so no need to poll
    clock.advance(11)
    receive(process, tick(busy=True, polled_seconds_ago=100.0, store_error="BackendUnavailable"))
    assert not ok([process])

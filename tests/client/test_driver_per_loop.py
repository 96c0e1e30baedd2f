"""One driver for each event loop: opened once, by the first call, and forgotten with its loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from taskharbor import Client, JobRequest
from taskharbor.drivers import BackendUnavailable
from taskharbor.testing import ManualClock
from tests.client.tools import Watched

REQUEST = JobRequest(type="t")


def test_coroutines_that_come_together_open_once() -> None:
    driver = Watched()
    client = Client(driver, clock=ManualClock())

    async def main() -> None:
        await asyncio.gather(*(client.aenqueue(REQUEST) for _ in range(20)))
        await client.aclose()

    asyncio.run(main())
    assert len(driver.asked("open")) == 1
    assert {entry[1] for entry in driver.log} == {driver}
    assert len(driver.asked("close")) == 1


def test_every_other_loop_gets_a_sibling() -> None:
    driver = Watched()
    client = Client(driver)
    client.enqueue(REQUEST)
    for _ in range(3):
        asyncio.run(client.aenqueue(REQUEST))
    opened = [entry[1] for entry in driver.asked("open")]
    assert opened[0] is driver
    assert len(set(opened)) == 4
    loops = [entry[2] for entry in driver.asked("open")]
    for _, used, loop, *_ in driver.asked("enqueue"):
        assert opened[loops.index(loop)] is used
    assert len(client._store.drivers._by_loop) <= 2  # the portal's, and at most the last one that closed
    assert sum(asyncio.run(driver.counts(client._store.clock.now()))["default"].values()) == 4
    client.close()


def test_an_opening_that_fails_is_tried_again_by_the_next() -> None:
    driver = Watched()
    driver.failing = 2
    client = Client(driver)

    async def main() -> None:
        told: list[str] = []
        for _ in range(3):  # calls that come together open once, and get the same error
            answers = await asyncio.gather(*(client.aenqueue(REQUEST) for _ in range(2)), return_exceptions=True)
            told += [type(answer).__name__ for answer in answers]
        assert told == ["OSError"] * 4 + ["JobHandle"] * 2

    asyncio.run(main())
    assert len(driver.asked("open")) == 3


def test_opening_goes_on_when_its_first_caller_is_cancelled() -> None:
    driver = Watched()
    client = Client(driver)

    async def main() -> None:
        first = asyncio.ensure_future(client.aenqueue(REQUEST))
        second = asyncio.ensure_future(client.aenqueue(REQUEST))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await second

    asyncio.run(main())
    assert len(driver.asked("open")) == 1


def test_closing_ends_an_opening() -> None:
    driver = Watched()
    client = Client(driver)

    async def main() -> None:
        begun, never = asyncio.Event(), asyncio.Event()

        async def hang() -> None:
            begun.set()
            await never.wait()

        driver.open = hang  # type: ignore[method-assign]  # replaced for the test
        asking = asyncio.ensure_future(client.aenqueue(REQUEST))
        await begun.wait()
        await client.aclose()
        with pytest.raises(BackendUnavailable, match="the client was closed while it opened the store"):
            await asyncio.wait_for(asking, 60)

    asyncio.run(main())
    assert not client._store.drivers._by_loop


@pytest.mark.parametrize("when", ["while it is asked", "during the pause"])
def test_a_call_that_is_under_way_does_not_open_a_closed_client_again(when: str) -> None:
    driver = Watched()
    client = Client(driver, call_timeout=3600)

    async def main() -> None:
        asked, closed = asyncio.Event(), asyncio.Event()

        async def refuse(*given: object) -> None:
            asked.set()
            if when == "while it is asked":
                await closed.wait()
            raise BackendUnavailable("it is away")

        driver.enqueue = refuse  # type: ignore[assignment]  # replaced for the test
        asking = asyncio.ensure_future(client.aenqueue(REQUEST))
        await asked.wait()
        await client.aclose()
        closed.set()
        with pytest.raises(BackendUnavailable, match="it is away"):
            await asyncio.wait_for(asking, 60)

    asyncio.run(main())
    assert len(driver.asked("open")) == 1
    assert not client._store.drivers._by_loop


def test_loops_in_many_threads_do_not_share_a_driver() -> None:
    driver = Watched()
    client = Client(driver)
    together = threading.Barrier(6)

    def work() -> None:
        async def main() -> None:
            together.wait(60)
            for _ in range(5):
                await client.aenqueue(REQUEST)
            together.wait(60)  # no loop may end, and leave its place, before all have begun
            await client.aclose()

        asyncio.run(main())

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    opened = [entry[1] for entry in driver.asked("open")]
    assert len(opened) == len(set(opened)) == 6
    assert driver in opened
    assert {(entry[1], entry[2]) for entry in driver.asked("enqueue")} == {(e[1], e[2]) for e in driver.asked("open")}
    assert len(driver.asked("close")) == 6


def test_a_clock_without_follow_is_left_alone_and_one_with_it_follows_each_opening() -> None:
    class Following(ManualClock):
        followed = 0

        async def follow(self, server_time: object) -> None:
            self.followed += 1

    clock = Following()
    client = Client(Watched(), clock=clock)
    for _ in range(2):
        asyncio.run(client.aenqueue(REQUEST))
    assert clock.followed == 2


def test_a_stale_clock_follows_the_store_again_and_an_outage_does_not_fail_the_call() -> None:
    class Following(ManualClock):
        followed = 0
        old = False

        def stale(self) -> bool:
            return self.old

        async def follow(self, server_time: object) -> None:
            self.followed += 1
            if self.old:
                raise BackendUnavailable("away")

    clock = Following()
    client = Client(Watched(), clock=clock)

    async def main() -> None:
        await client.aenqueue(REQUEST)
        await client.aenqueue(REQUEST)
        assert clock.followed == 1
        clock.old = True
        await client.aenqueue(REQUEST)
        assert clock.followed == 2

    asyncio.run(main())


def test_after_a_fork_nothing_of_the_parents_is_used_or_closed() -> None:
    driver = Watched()
    client = Client(driver)

    async def main() -> None:
        await client.aenqueue(REQUEST)
        client._store.drivers._forget()  # what a fork does in the child, here inside the same loop
        await client.aenqueue(REQUEST)
        await client.aclose()

    asyncio.run(main())
    first, second = (entry[1] for entry in driver.asked("open"))
    assert first is driver is not second
    assert [entry[1] for entry in driver.asked("enqueue")] == [driver, second]
    assert [entry[1] for entry in driver.asked("close")] == [second]

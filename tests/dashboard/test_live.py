"""Live: one sampler for all viewers, none without one, and a stream that says what changed and nothing else."""

import asyncio
from typing import Any

import msgspec
import pytest

from taskharbor import Harbor
from taskharbor.dashboard.sampler import REST_FACTOR, Sampler, sampler_of
from taskharbor.dashboard.stream import STREAM_S, has_room, stream
from taskharbor.drivers import JobRecord
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.testing import ManualClock
from tests.dashboard.site import NOW, Site, visit
from tests.dashboard.test_cost import Counted
from tests.dashboard.test_pages import Flaky


class Watch:
    """A sampled store on a clock of its own."""

    def __init__(self, driver: Any = None) -> None:
        self.clock = ManualClock(NOW)
        self.driver: Any = Counted(driver or MemoryDriver())
        self.harbor = Harbor(self.driver, clock=self.clock)
        self.sampler = Sampler(self.harbor)

    async def rounds(self, number: int) -> None:
        """Let this number of rounds begin and end."""
        for _ in range(number):
            while not self.clock.sleepers:
                await asyncio.sleep(0)
            self.clock.advance(1)
            for _ in range(20):
                await asyncio.sleep(0)


def test_viewers_share_one_sampler_and_learn_what_changed():
    async def run() -> None:
        watch = Watch()
        with watch.sampler.viewer() as first, watch.sampler.viewer("j1") as second:
            await watch.rounds(2)
            assert watch.driver.calls["counts"] == watch.sampler.rounds
            assert (first.take()[0], second.take()[0]) == (set(), set())
            await watch.driver.enqueue([JobRecord(id="j1", type="t")], NOW)
            await watch.rounds(2)
            assert first.take() == ({"jobs"}, "")
            assert second.take() == ({"jobs", "job"}, "")
        await watch.harbor.aclose()

    asyncio.run(run())


def test_the_last_viewer_ends_the_sampling():
    async def run() -> None:
        watch = Watch()
        with watch.sampler.viewer():
            await watch.rounds(1)
        before = watch.sampler.rounds
        watch.driver.take()
        watch.clock.advance(60)
        for _ in range(50):
            await asyncio.sleep(0)
        assert (watch.sampler.rounds, watch.driver.take()) == (before, (0, 0))
        with watch.sampler.viewer():
            await watch.rounds(1)
            assert watch.sampler.rounds > before
        await watch.harbor.aclose()

    asyncio.run(run())


def test_a_slow_round_is_followed_by_a_long_rest():
    async def run() -> None:
        clock = ManualClock(NOW)
        rests: list[float] = []

        class Slow(MemoryDriver):
            async def workers(self, now: Any) -> Any:
                clock.advance(0.5)
                return await super().workers(now)

        harbor = Harbor(Slow(), clock=clock)
        sampler = Sampler(harbor)
        rest = clock.sleep

        async def noted(seconds: float) -> None:
            rests.append(seconds)
            await rest(seconds)

        clock.sleep = noted  # type: ignore[method-assign]  # to see how long it rests
        with sampler.viewer():
            while not rests:
                await asyncio.sleep(0)
        assert rests[0] >= REST_FACTOR * 0.5
        await harbor.aclose()

    asyncio.run(run())


def test_a_store_that_goes_away_and_comes_back_is_said_once():
    async def run() -> None:
        flaky = Flaky()
        watch = Watch(flaky)
        with watch.sampler.viewer() as viewer:
            await watch.rounds(1)
            flaky.away = True
            await watch.rounds(2)
            topics, problem = viewer.take()
            assert topics == {"store"}
            assert "refused" in problem
            assert "hunter2" not in problem
            await watch.rounds(1)
            assert viewer.take()[0] == set()
            with watch.sampler.viewer() as late:
                assert late.take()[0] == {"store"}
            flaky.away = False
            await watch.rounds(2)
            topics, problem = viewer.take()
            assert ("store" in topics, problem) == (True, "")
        await watch.harbor.aclose()

    asyncio.run(run())


def test_the_stream_names_topics_and_ends_by_itself():
    async def run() -> None:
        watch = Watch()
        response = stream(watch.sampler, watch.clock, None)
        events: Any = response.body_iterator
        assert response.media_type == "text/event-stream"
        assert await anext(events) == b"retry: 2000\n\n"
        await watch.rounds(1)
        await watch.driver.enqueue([JobRecord(id="j1", type="secret-type")], NOW)
        await watch.rounds(1)
        event = bytes(await anext(events))
        data = msgspec.json.decode(event.partition(b"data: ")[2])
        assert data == {"topics": ["jobs"], "problem": ""}
        assert b"secret" not in event
        watch.clock.advance(STREAM_S)
        assert [each async for each in events] == []
        assert watch.sampler.viewers == 0
        await watch.harbor.aclose()

    asyncio.run(run())


def test_a_store_has_one_sampler_in_a_process():
    one, other = Harbor("memory://"), Harbor("memory://")
    assert sampler_of(one) is sampler_of(one)
    assert sampler_of(one) is not sampler_of(other)


def test_many_tabs_of_one_person_leave_room_for_others(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("taskharbor.dashboard.stream.MAX_STREAMS_OF_ONE", 2)
    monkeypatch.setattr("taskharbor.dashboard.stream.MAX_STREAMS", 4)

    async def run() -> None:
        watch = Watch()
        with watch.sampler.viewer(who="ada"), watch.sampler.viewer(who="ada"):
            assert (has_room(watch.sampler, "ada"), has_room(watch.sampler, "grace")) == (False, True)
            with watch.sampler.viewer(who="grace"), watch.sampler.viewer(who="otto"):
                assert not has_room(watch.sampler, "vera")
        assert has_room(watch.sampler, "ada")
        await watch.harbor.aclose()

    asyncio.run(run())


def test_a_tab_too_many_is_refused_and_reads_by_itself(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("taskharbor.dashboard.stream.MAX_STREAMS_OF_ONE", 0)

    async def look(site: Site) -> None:
        reply = await site.get("/events")
        assert (reply.status_code, "too many tabs" in reply.json()["error"]) == (503, True)

    visit(look, played=False)

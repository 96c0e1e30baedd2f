"""Jobs and flows by filter: what is listed, in which order, in pages, counted up to a cap; on drivers with and without
the feature."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskharbor import (
    BackendUnavailable,
    BlockingCall,
    Count,
    FeatureMissing,
    FlowStatus,
    Harbor,
    InvalidJob,
    JobRequest,
    Jobs,
    State,
)
from taskharbor.client import jobs as jobs_module
from taskharbor.client import listing
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.flow import chain
from taskharbor.model.job import JobRecord, Page
from taskharbor.model.outcome import Fail
from taskharbor.testing import Faults, ManualClock
from tests.client.tools import Waits, call
from tests.drivers.small_driver import SmallDriver

LEASE = timedelta(seconds=30)


async def a_store_with_some(driver: Any, clock: ManualClock) -> None:
    """Five jobs, a to e, enqueued a minute apart; `b` is dead, `c` cancelled, `e` has its own queue."""
    await driver.open()
    try:
        for id, queue in (("a", "q"), ("b", "q"), ("c", "q"), ("d", "q"), ("e", "other")):
            kind = "mail" if id in "ab" else "page"
            job = JobRecord(id=id, type=kind, queue=queue, payload=b'{"n":1}', group="g" if id == "d" else None)
            await driver.enqueue([job], clock.now())
            if id == "b":
                await driver.cancel(["a"], clock.now())  # out of the way
                (reserved,) = await driver.reserve(["q"], clock.now(), LEASE, 1)
                fail = Fail(reserved.lease, "because", 1, None, error_class="OSError", fingerprint="f1")
                assert await driver.settle([fail], clock.now()) == [None]
                await driver.requeue(["a"], clock.now())
            clock.advance(60)
        await driver.cancel(["c"], clock.now())
    finally:
        await driver.close()


@pytest.fixture
def filled(harbor: Harbor) -> Harbor:
    clock = harbor.clock
    assert isinstance(clock, ManualClock)
    asyncio.run(a_store_with_some(harbor.driver.sibling(), clock))
    return harbor


def minute(harbor: Harbor, number: int) -> datetime:
    """The moment at which the job of this number was enqueued."""
    return harbor.clock.now() - timedelta(minutes=5 - number)


def test_what_is_listed(filled: Harbor, colour: str) -> None:
    def ids(**names: Any) -> str:
        found = call(colour, filled.client, filled.jobs(**names), "iterate")
        return "".join(info.job.id for info in found)

    assert ids() == "abcde"
    assert ids(newest=True) == "edcba"
    assert ids(state="dlq") == "b"
    assert ids(state=State.READY, queue="q") == "ad"
    assert ids(type="mail") == "ab"
    assert ids(group="g") == "d"
    assert ids(error="OSError") == ids(error=OSError) == ids(fingerprint="f1") == "b"
    assert ids(error="ValueError") == ids(flow="nowhere") == ids(queue="nowhere") == ""
    # `a`, `d` and `e` by their enqueueing, `b` and `c` by their end
    assert ids(since=minute(filled, 3)) == "cde"
    assert ids(until=minute(filled, 3)) == "ab"
    assert ids(since=minute(filled, 1), until=minute(filled, 4), newest=True) == "db"


def test_iteration_gives_whole_records_and_the_others_none_of_the_payload(filled: Harbor, colour: str) -> None:
    jobs = filled.jobs(state="dlq")
    (whole,) = call(colour, filled.client, jobs, "iterate")
    assert (whole.job.payload, whole.job.error_class, whole.state) == (b'{"n":1}', "OSError", State.DLQ)
    (preview,) = call(colour, filled.client, jobs, "preview")
    assert (preview.job.payload, preview.job.error_class) == (b"", "OSError")
    assert call(colour, filled.client, filled.jobs(), "ids", 3) == ["a", "b", "c"]
    assert call(colour, filled.client, filled.jobs(newest=True), "ids", 9) == ["e", "d", "c", "b", "a"]
    assert [info.job.id for info in call(colour, filled.client, filled.jobs(), "preview", 2)] == ["a", "b"]


def test_counting_stops_at_the_cap(filled: Harbor, colour: str) -> None:
    jobs = filled.jobs()
    assert call(colour, filled.client, jobs, "count") == Count(5, False)
    assert call(colour, filled.client, jobs, "count", 5) == Count(5, False)
    assert call(colour, filled.client, jobs, "count", cap=4) == Count(4, True)
    assert [str(Count(4, True)), str(Count(4, False))] == ["4+", "4"]


def test_a_task_stands_for_its_type() -> None:
    with Harbor("memory://") as harbor:

        @harbor.task(name="mail")
        def mail(to: str) -> None: ...

        mail.enqueue("ada")
        harbor.client.enqueue(JobRequest(type="other"))
        assert harbor.jobs(type=mail) == harbor.jobs(type="mail")
        assert harbor.jobs(type=mail).count().n == 1


def test_a_filter_is_a_value_that_reads_nothing() -> None:
    faults = Faults()
    faults.fail("open", times=99)
    harbor = Harbor(faults.wrap("memory://"))
    one, other = harbor.jobs(state="dlq", queue="q"), harbor.jobs(queue="q", state=State.DLQ)
    assert one == other
    assert hash(one) == hash(other)
    assert {one, other, harbor.jobs()} == {one, harbor.jobs()}
    assert one != Harbor("memory://").jobs(state="dlq", queue="q")
    assert repr(one) == "Jobs(state=<State.DLQ: 'dlq'>, queue='q')"
    assert repr(harbor.flows(newest=True)) == "Flows(newest=True)"
    with pytest.raises(AttributeError):
        one.queue = "other"  # type: ignore[misc]  # frozen


@pytest.mark.parametrize(
    ("given", "kind", "told"),
    [
        ({"state": "dead"}, ValueError, "state: expected one of blocked, scheduled, .* got 'dead'"),
        ({"queue": 5}, InvalidJob, "queue: expected text, got int"),
        ({"type": ""}, InvalidJob, "type: expected 1 to 255"),
        ({"error": 5}, InvalidJob, "error: expected text, got int"),
        ({"since": timedelta(seconds=-1)}, ValueError, "since: expected zero or more seconds"),
        ({"since": datetime(2030, 1, 1)}, ValueError, "since: expected a datetime with a time zone"),  # noqa: DTZ001 - naive on purpose
        ({"until": 5}, TypeError, "until: expected a datetime"),
        ({"newest": 1}, TypeError, "newest: expected True or False, got int"),
    ],
)
def test_a_filter_refuses_what_makes_no_sense(given: dict[str, Any], kind: Any, told: str) -> None:
    harbor = Harbor("memory://")
    with pytest.raises(kind, match=told):
        harbor.jobs(**given)


def test_numbers_are_checked_before_the_store_is_read(colour: str) -> None:
    with Harbor("memory://") as client:
        for method, wrong in (("count", 0), ("ids", -1), ("preview", 0)):
            with pytest.raises(ValueError, match="expected 1 or more"):
                call(colour, client.client, client.jobs(), method, wrong)
        with pytest.raises(TypeError, match="cap: expected a whole number, got str"):
            call(colour, client.client, client.jobs(), "count", "9")


# Pages -------------------------------------------------------------------------------------------------------


class Counting(MemoryDriver):
    """Notes the listings, and changes the store between two pages."""

    asked: list[dict[str, Any]]
    vanishing: list[str]

    async def list(self, **names: Any) -> Page:
        self.asked.append(names)
        page = await super().list(**names)
        if self.vanishing:
            await self.delete([self.vanishing.pop(0)])
        return page

    def sibling(self) -> Counting:
        other = Counting()
        other.store, other.asked, other.vanishing = self.store, self.asked, self.vanishing
        return other


def counting(jobs: int) -> Counting:
    driver = Counting()
    driver.asked, driver.vanishing = [], []
    records = [JobRecord(id=f"{number:05}", type="t") for number in range(jobs)]
    asyncio.run(driver.enqueue(records, datetime(2030, 1, 1, tzinfo=UTC)))
    return driver


def test_a_job_that_vanishes_between_two_pages_spoils_nothing(colour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module.Jobs, "_page_size", 2)
    driver = counting(7)
    driver.vanishing += ["00001", "00004"]  # the one at which the cursor stands, and one that is still to come
    with Harbor(driver) as client:
        found = call(colour, client.client, client.jobs(), "iterate")
    assert [info.job.id for info in found] == ["00000", "00001", "00002", "00003", "00005", "00006"]


def test_pages_are_as_long_as_written(colour: str) -> None:
    driver = counting(250)
    with Harbor(driver) as client:
        assert len(call(colour, client.client, client.jobs(), "iterate")) == 250
        assert [(each["limit"], each["payloads"]) for each in driver.asked] == [(100, True)] * 3
        driver.asked.clear()
        assert call(colour, client.client, client.jobs(state="ready"), "count", 100) == Count(100, True)
        assert not driver.asked  # no job is read to count those of a state
        assert call(colour, client.client, client.jobs(type="t"), "count", 2500).n == 250
        assert len(call(colour, client.client, client.jobs(), "preview", 240)) == 240
        assert [(each["limit"], each["payloads"]) for each in driver.asked] == [(1000, False), (240, False)]


class Sparse(Counting):
    """A large store in which nothing fits: 150 pages are empty, and have a cursor behind what was looked at."""

    async def list(self, **names: Any) -> Page:
        self.asked.append(names)
        page = int(names["cursor"] or 0) + 1
        return Page((), str(page) if page < 150 else None)

    def sibling(self) -> Sparse:
        other = Sparse()
        other.store, other.asked, other.vanishing = self.store, self.asked, self.vanishing
        return other


def test_a_filter_that_finds_little_ends_after_a_hundred_pages(colour: str) -> None:
    driver = Sparse()
    driver.asked, driver.vanishing = [], []
    with Harbor(driver) as client:
        jobs = client.jobs(type="nothing")
        assert call(colour, client.client, jobs, "count") == Count(0, True)  # there may be some
        assert len(driver.asked) == listing.MAX_PAGES
        assert call(colour, client.client, jobs, "ids", 5) == call(colour, client.client, jobs, "preview") == []
        assert len(driver.asked) == 3 * listing.MAX_PAGES
        assert call(colour, client.client, jobs, "iterate") == []  # which goes on to the end
        assert len(driver.asked) == 3 * listing.MAX_PAGES + 150


def test_an_outage_between_two_pages_is_bridged(waits: Waits, colour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module.Jobs, "_page_size", 2)
    faults = Faults()
    with Harbor(faults.wrap(counting(5))) as client:
        faults.fail("list", times=3)
        assert len(call(colour, client.client, client.jobs(), "iterate")) == 5
        faults.fail("list", times=5)
        with pytest.raises(BackendUnavailable, match=r"\(jobs, tried 5 times"):
            call(colour, client.client, client.jobs(), "iterate")


def test_an_iteration_may_be_left_and_begun_again() -> None:
    with Harbor(counting(5)) as client:
        jobs = client.jobs()
        assert next(iter(jobs)).job.id == next(iter(jobs)).job.id == "00000"

        async def first() -> str:
            async for info in jobs:
                return info.job.id
            raise AssertionError

        assert asyncio.run(first()) == "00000"


def test_iterating_on_a_running_loop_names_what_to_use() -> None:
    async def main(client: Harbor) -> None:
        with pytest.raises(BlockingCall, match=r"harbor.jobs\(\) would block .* use: async for … in harbor.jobs"):
            iter(client.jobs())
        with pytest.raises(BlockingCall, match=r"use: await jobs.acount\(...\)"):
            client.jobs().count()

    with Harbor("memory://") as client:
        asyncio.run(main(client))


# A driver with the verbs that every driver has ------------------------------------------------------------------


def test_a_small_driver_lists_all_the_same_and_says_what_it_lacks(colour: str) -> None:
    clock = ManualClock()
    with Harbor(SmallDriver(), clock=clock) as harbor:
        asyncio.run(a_store_with_some(harbor.driver.sibling(), clock))
        since = harbor.jobs(since=minute(harbor, 3), queue="q")
        assert [info.job.id for info in call(colour, harbor.client, since, "iterate")] == ["c", "d"]
        assert call(colour, harbor.client, since, "count") == Count(2, False)
        for method in ("count", "preview", "iterate"):
            with pytest.raises(FeatureMissing, match="error= or fingerprint= needs a store that keeps it; SmallDriver"):
                call(colour, harbor.client, harbor.jobs(error="OSError"), method)
        with pytest.raises(FeatureMissing, match="a list of flows needs a store that keeps it; SmallDriver does not"):
            call(colour, harbor.client, harbor.flows(), "iterate")


# Flows -------------------------------------------------------------------------------------------------------


def test_flows_are_listed_by_status_time_and_order(harbor: Harbor, colour: str) -> None:
    clock = harbor.clock
    assert isinstance(clock, ManualClock)

    @harbor.task
    def step(n: int = 0) -> None: ...

    ids = []
    for _ in range(3):
        ids.append(chain(step.s(1), step.s()).enqueue().id)
        clock.advance(60)
    harbor.flow(ids[1]).cancel()

    def found(**names: Any) -> list[str]:
        return [info.id for info in call(colour, harbor.client, harbor.flows(**names), "iterate")]

    assert found() == ids
    assert found(newest=True) == ids[::-1]
    assert found(status="cancelled") == found(status=FlowStatus.CANCELLED) == [ids[1]]
    assert found(since=clock.now() - timedelta(minutes=2)) == ids[1:]
    assert found(until=clock.now() - timedelta(minutes=2)) == ids[:1]
    with pytest.raises(ValueError, match="status: expected one of running, succeeded, failed, cancelled, got 'dead'"):
        harbor.flows(status="dead")
    with pytest.raises(TypeError, match="newest: expected True or False"):
        harbor.flows(newest=1)  # type: ignore[arg-type]  # wrong on purpose


def test_flows_are_read_in_pages(colour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskharbor.client.listing.Flows._page_size", 2)
    with Harbor("memory://") as harbor:

        @harbor.task
        def step(n: int = 0) -> None: ...

        ids = [chain(step.s(1), step.s()).enqueue().id for _ in range(5)]
        assert [info.id for info in call(colour, harbor.client, harbor.flows(), "iterate")] == ids


def test_jobs_of_a_flow(harbor: Harbor, colour: str) -> None:
    @harbor.task
    def step(n: int = 0) -> None: ...

    flow = chain(step.s(1), step.s()).enqueue()
    step.enqueue(3)
    jobs = harbor.jobs(flow=flow.id)
    assert isinstance(jobs, Jobs)
    assert {info.state for info in call(colour, harbor.client, jobs, "iterate")} == {State.READY, State.BLOCKED}
    assert call(colour, harbor.client, jobs, "count") == Count(2, False)


def test_a_span_bounds_a_filter_from_now_back() -> None:
    clock = ManualClock()
    with Harbor("memory://", clock=clock) as harbor:
        task = harbor.task(name="task")(lambda: None)
        old = task.enqueue()
        clock.advance(7200)
        new = task.enqueue()
        hour = timedelta(hours=1)
        assert harbor.jobs(since=hour).ids(9) == [new.id]
        assert harbor.jobs(until=hour).ids(9) == [old.id]
        old.cancel(by="ada")
        assert len(list(harbor.audit(since=hour))) == 1
        assert harbor.flows(since=hour).since == clock.now() - hour
        assert harbor.dead(since=hour).since == clock.now() - hour

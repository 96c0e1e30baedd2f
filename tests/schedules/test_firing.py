"""Which slots get a job: one each at most, by catch-up and overlap, with any clock and any number of workers."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskharbor import State
from taskharbor.drivers import JobRecord, WrappedDriver
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.events import JobEnqueued, ScheduleFired, ScheduleMissed, ScheduleRefused, ScheduleSkipped
from taskharbor.model.errors import BackendUnavailable
from taskharbor.model.outcome import Ack, Fail, Retry
from taskharbor.schedules import firing as firing_module
from taskharbor.schedules import plan as plan_module
from taskharbor.schedules.body import Schedule, write_body
from taskharbor.testing import Faults
from taskharbor.testing.clock import START
from tests.schedules.bench import Bench

LEASE = timedelta(seconds=30)


async def test_each_slot_gets_one_job_that_stands_for_it(bench: Bench):
    await bench.harbor.schedules.aadd("ping", bench.ping.s(host="x"), every=15)
    assert (await bench.fire()).fired == 0
    for _ in range(3):
        assert await bench.fired_after(15) == 1
        assert (await bench.fire()).fired == 0
        await finish(bench)
    assert await bench.slots() == [15, 30, 45]
    (job, *_) = [info.job for info in await bench.jobs()]
    assert (job.type, job.queue, job.payload) == ("ping", "default", b'{"host":"x"}')
    assert job.run_at == START + timedelta(seconds=15)
    assert job.metadata["taskharbor.schedule"] == "ping"
    info = await bench.harbor.schedules.aget("ping")
    assert (info.fired, info.missed, info.skipped) == (3, 0, 0)
    assert info.last_at == START + timedelta(seconds=45)
    assert info.next_at == START + timedelta(seconds=60)
    assert bench.of(ScheduleFired)[0].slot == START + timedelta(seconds=15)
    assert len(bench.of(JobEnqueued)) == 3


async def finish(bench: Bench, outcome: str = "ack") -> None:
    """End every job that is ready."""
    for reserved in await bench.driver.reserve(["default", "sums"], bench.clock.now(), LEASE, 1000, "w"):
        lease, now = reserved.lease, bench.clock.now()
        ends: dict[str, Any] = {
            "ack": Ack(lease),
            "retry": Retry(lease, now + timedelta(hours=1), 1),
            "dead": Fail(lease, "because", 1, now),
        }
        assert await bench.driver.settle([ends[outcome]], now) == [None]


async def test_the_look_says_when_the_next_slot_comes(bench: Bench):
    assert await bench.fire() == (0, False, None)
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=15)
    assert await bench.fire() == (0, True, START + timedelta(seconds=15))
    bench.clock.advance(15)
    assert await bench.fire() == (1, True, START + timedelta(seconds=30))
    await bench.harbor.schedules.apause("ping")
    assert await bench.fire() == (0, False, None)


# Late


@pytest.mark.parametrize(
    ("catch_up", "late", "slots", "missed"),
    [
        ("latest", 100, [90], 5),
        ("none", 100, [90], 5),
        ("none", 90 + 61, [150], 9),
        ("all", 100, [15, 30, 45, 60, 75, 90], 0),
    ],
)
async def test_slots_that_nobody_noticed(bench: Bench, catch_up: Any, late: int, slots: list[int], missed: int):
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=15, catch_up=catch_up)
    await bench.fired_after(late)
    assert await bench.slots() == slots
    info = await bench.harbor.schedules.aget("ping")
    assert (info.fired, info.missed, info.skipped) == (len(slots), missed, 0)
    assert info.next_at is not None
    assert info.next_at > bench.clock.now()
    assert [event.missed for event in bench.of(ScheduleMissed)] == ([missed] if missed else [])


@pytest.mark.parametrize(("seconds", "fired"), [(60, 1), (60.001, 0)])
async def test_without_catch_up_a_slot_may_be_a_minute_late(bench: Bench, seconds: float, fired: int):
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=3600, catch_up="none")
    assert await bench.fired_after(3600 + seconds) == fired
    assert (await bench.harbor.schedules.aget("ping")).missed == 1 - fired


async def test_many_slots_are_caught_up_in_steps(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    await bench.harbor.schedules.aadd("all", bench.ping.s(), every=1, catch_up="all")
    await bench.harbor.schedules.aadd("cron", bench.add.s(a=1), cron="* * * * *")
    bench.clock.advance(2_500)
    sizes: list[int] = []
    change = bench.driver.change_schedules

    async def noted(changes: Any, now: datetime) -> list[bool]:
        sizes.extend(len(each.jobs) for each in changes)
        return await change(changes, now)

    monkeypatch.setattr(bench.driver, "change_schedules", noted)
    assert (await bench.fire()).fired == 2_501
    assert sorted(sizes, reverse=True)[:3] == [1000, 1000, 500]
    assert sorted(await bench.slots()) == sorted([*range(1, 2501), 2460])
    info = await bench.harbor.schedules.aget("all")
    assert (info.fired, info.missed, info.skipped) == (2500, 0, 0)


async def test_slots_of_a_cron_expression_are_counted_in_steps(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    await bench.harbor.schedules.aadd("cron", bench.ping.s(), cron="* * * * *")
    assert await bench.fired_after(60 * 2_500) == 1
    assert await bench.slots() == [60 * 2_500]
    info = await bench.harbor.schedules.aget("cron")
    assert (info.fired, info.missed) == (1, 2_499)


async def test_large_payloads_are_caught_up_in_smaller_steps(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plan_module, "MAX_STEP_BYTES", 100)
    await bench.harbor.schedules.aadd("all", bench.ping.s(host="x" * 30), every=1, catch_up="all")
    assert await bench.fired_after(7) == 7
    assert await bench.slots() == [1, 2, 3, 4, 5, 6, 7]


# Overlap


@pytest.mark.parametrize(("ends", "fires"), [("", False), ("retry", False), ("ack", True), ("dead", True)])
async def test_a_slot_is_skipped_while_an_earlier_job_has_not_ended(bench: Bench, ends: str, fires: bool):
    """A job that waits for a retry has not ended; one that is dead has."""
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=15)
    await bench.fired_after(15)
    if ends:
        await finish(bench, ends)
    assert await bench.fired_after(15) == int(fires)
    info = await bench.harbor.schedules.aget("ping")
    assert (info.fired, info.skipped, info.missed) == (1 + fires, 1 - fires, 0)
    assert info.last_at == START + timedelta(seconds=30 if fires else 15)
    assert len(bench.of(ScheduleSkipped)) == 1 - fires
    assert info.next_at == START + timedelta(seconds=45)


async def test_a_running_job_and_one_that_a_person_started_block_too(bench: Bench):
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=15)
    job = await bench.harbor.schedules.arun("ping")
    assert await bench.fired_after(15) == 0
    (reserved,) = await bench.driver.reserve(["default"], bench.clock.now(), LEASE, 1, "w")
    assert reserved.job.id == job.id
    assert await bench.fired_after(15) == 0
    assert await bench.driver.settle([Ack(reserved.lease)], bench.clock.now()) == [None]
    assert await bench.fired_after(15) == 1
    assert (await bench.harbor.schedules.aget("ping")).skipped == 2


async def test_slots_may_overlap_if_that_is_allowed(bench: Bench):
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=15, overlap="allow")
    for _ in range(3):
        await bench.fired_after(15)
    assert await bench.slots() == [15, 30, 45]


async def test_a_job_whose_record_is_gone_blocks_nothing(bench: Bench):
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=15)
    await bench.fired_after(15)
    await bench.driver.delete([info.job.id for info in await bench.jobs()])
    assert await bench.fired_after(15) == 1


async def test_what_is_caught_up_together_does_not_skip_each_other(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    await bench.harbor.schedules.aadd("all", bench.ping.s(), every=1, catch_up="all")
    await bench.fired_after(1)
    assert await bench.fired_after(1_500) == 0  # the first one runs: all that came after it are skipped
    await finish(bench)
    assert await bench.fired_after(1_500) == 1_500
    info = await bench.harbor.schedules.aget("all")
    assert (info.fired, info.skipped, info.missed) == (1_501, 1_500, 0)
    assert await bench.fired_after(1) == 0  # and from here on they count again
    assert (await bench.harbor.schedules.aget("all")).skipped == 1_501


# Clocks, ends, other programs


async def test_a_clock_that_steps_back_fires_nothing_twice(bench: Bench):
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=15, overlap="allow")
    await bench.fired_after(45)
    bench.clock.step(-40)
    for _ in range(3):
        assert (await bench.fire()).fired == 0
        bench.clock.advance(13)
    await bench.fired_after(16)
    assert await bench.slots() == [45, 60]


async def test_a_schedule_ends(bench: Bench):
    end = START + timedelta(seconds=45)
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=15, catch_up="all", end_at=end)
    bench.clock.advance(1000)
    assert await bench.fire() == (2, True, None)
    assert (await bench.harbor.schedules.aget("ping")).next_at is None


async def test_the_first_slot_of_a_start_is_the_start(bench: Bench):
    start = START + timedelta(seconds=7)
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=15, overlap="allow", start_at=start)
    for _ in range(4):
        await bench.fired_after(10)
    assert await bench.slots() == [7, 22, 37]


async def test_jitter_is_the_same_for_every_worker():
    async def jittered() -> list[Any]:
        bench = Bench()
        await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=60, jitter=30, overlap="allow")
        for _ in range(20):
            await bench.fired_after(60)
        jobs: list[Any] = [info.job for info in await bench.jobs()]
        return [job.run_at - datetime.fromisoformat(job.metadata["taskharbor.slot"]) for job in jobs]

    one, other = await jittered(), await jittered()
    assert one == other
    assert len(set(one)) > 10
    assert timedelta(0) <= min(one) <= max(one) <= timedelta(seconds=30)


async def test_of_many_workers_one_fires(bench: Bench):
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=15, overlap="allow")
    runners = [bench.runner() for _ in range(20)]
    for _ in range(5):
        bench.clock.advance(15)
        looks = await asyncio.gather(*(each.fire_due() for each in runners))
        assert sum(look.fired for look in looks) == 1
    assert await bench.slots() == [15, 30, 45, 60, 75]
    assert len(bench.of(ScheduleFired)) == 5


async def test_a_lost_reply_is_not_fired_again_and_is_reported():
    faults = Faults()
    bench = Bench(faults.wrap("memory://"))
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=15, overlap="allow")
    bench.clock.advance(15)
    runner = bench.runner()
    faults.fail("change_schedules", after=True)
    with pytest.raises(BackendUnavailable):
        await runner.fire_due()
    assert bench.of(ScheduleFired) == []
    assert (await runner.fire_due()).fired == 0
    assert await bench.slots() == [15]
    assert len(bench.of(ScheduleFired)) == 1
    faults.fail("change_schedules")
    bench.clock.advance(15)
    with pytest.raises(BackendUnavailable):
        await runner.fire_due()
    assert (await runner.fire_due()).fired == 1
    assert await bench.slots() == [15, 30]
    assert len(bench.of(ScheduleFired)) == 2


async def test_a_change_that_was_not_made_is_planned_anew():
    """What was right then may be wrong now: an hour later another slot is the newest."""
    faults = Faults()
    bench = Bench(faults.wrap("memory://"))
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=15, overlap="allow")
    bench.clock.advance(15)
    runner = bench.runner()
    faults.fail("change_schedules")
    with pytest.raises(BackendUnavailable):
        await runner.fire_due()
    bench.clock.advance(3600)
    await runner.fire_due()
    assert await bench.slots() == [3615]


async def test_added_ones_are_fired_by_workers_that_serve_their_queue(bench: Bench):
    await bench.harbor.schedules.aadd("sum", bench.add.s(a=1), every=15)
    bench.clock.advance(15)
    assert await bench.fire(queues=["default"]) == (0, False, None)
    assert (await bench.fire(queues=["sums"])).fired == 1


async def test_declared_ones_are_fired_by_the_code_that_declares_them():
    bench, other = Bench(), Bench()
    bench.harbor.schedule("sum", bench.add.s(a=1), every=15)
    await bench.declare()
    bench.clock.advance(15)
    assert (await bench.fire(harbor=other.harbor)).fired == 0
    assert (await bench.fire(queues=["default"])).fired == 1  # although it does not serve the queue


async def test_rows_of_other_code_do_not_cost_each_look():
    bench, other = Bench(), Bench()
    for number in range(250):
        other.harbor.schedule(f"old-{number:03}", other.ping.s(), every=15)
    await bench.declare(other.harbor)
    bench.harbor.schedule("ping", bench.ping.s(), every=20, overlap="allow")
    await bench.declare()
    bench.clock.advance(20)
    counted = CountingDriver(bench.driver)
    runner = bench.runner(driver=counted)
    assert (await runner.fire_due()).fired == 1
    assert counted.rows == 251
    counted.rows = 0
    for _ in range(30):
        bench.clock.advance(1)
        assert (await runner.fire_due()).exists
    assert counted.rows == 1  # its own
    bench.clock.advance(40)
    await runner.fire_due()
    assert counted.rows >= 250  # once a minute: they may be ours by now
    assert await bench.slots() == [20, 40, 80]


class CountingDriver(WrappedDriver):
    """Counts the rows that are read."""

    rows = 0

    async def due_schedules(self, *args: Any, **options: Any) -> Any:
        page = await super().due_schedules(*args, **options)
        self.rows += len(page.items)
        return page


# What cannot be fired


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x81\xa1v\x01"], ids=["empty", "garbage", "too little"])
async def test_a_damaged_row_is_left_alone_and_reported_once(bench: Bench, body: bytes):
    await bench.harbor.schedules.aadd("bad", bench.ping.s(), every=15)
    await bench.harbor.schedules.aadd("good", bench.ping.s(), every=15)
    await rewrite(bench, "bad", body=body)
    runner = bench.runner()
    for _ in range(3):
        bench.clock.advance(15)
        assert (await runner.fire_due()).fired == 1
        await finish(bench)
    (event,) = bench.of(ScheduleRefused)
    assert (event.schedule, event.queue) == ("bad", "default")
    assert "damaged" in event.reason
    assert "damaged" in (await bench.harbor.schedules.aget("bad")).problem


@pytest.mark.parametrize("part", ["looks_at", "plan"])
async def test_one_wrong_row_does_not_keep_the_others_waiting(bench: Bench, part: str, monkeypatch: pytest.MonkeyPatch):
    real = getattr(firing_module, part)

    def fails_for_bad(*arguments: Any, **options: Any) -> Any:
        schedule = next(each for each in arguments if isinstance(each, Schedule))
        if schedule.definition.metadata.get("bad"):
            raise ZeroDivisionError("secret")
        return real(*arguments, **options)

    await bench.harbor.schedules.aadd("bad", bench.ping.options(metadata={"bad": "1"}).s(), every=15)
    await bench.harbor.schedules.aadd("good", bench.ping.s(), every=15)
    monkeypatch.setattr(firing_module, part, fails_for_bad)
    runner = bench.runner()
    for _ in range(3):
        bench.clock.advance(15)
        assert (await runner.fire_due()).fired == 1
        await finish(bench)
    (event,) = bench.of(ScheduleRefused)
    assert event.schedule == "bad"
    assert "ZeroDivisionError" in event.reason
    assert "secret" not in event.reason


async def rewrite(bench: Bench, name: str, **fields: Any) -> None:
    import msgspec

    from taskharbor.drivers import ScheduleChange

    row = await bench.row(name)
    to = msgspec.structs.replace(row, revision=f"{row.revision}-", **fields)
    assert await bench.driver.change_schedules(
        [ScheduleChange(name=name, expect=row.revision, to=to)], bench.clock.now()
    ) == [True]


async def test_a_row_of_a_later_version_is_left_alone(bench: Bench):
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=15)
    later = (await bench.schedule("ping")).with_state(v=2)
    await rewrite(bench, "ping", body=write_body(later))
    before = await bench.row("ping")
    assert await bench.fired_after(15) == 0
    (event,) = bench.of(ScheduleRefused)
    assert "later version" in event.reason
    assert await bench.row("ping") == before


async def test_a_job_that_the_store_refuses_keeps_no_other_schedule_from_firing():
    bench = Bench(MemoryDriver())
    for name, host in (("a", "x"), ("b", "x" * 100), ("c", "y")):
        await bench.harbor.schedules.aadd(name, bench.ping.s(host=host), every=15, overlap="allow")
    small = SmallPayloads(bench.driver)
    runner = bench.runner(driver=small)
    for _ in range(2):
        bench.clock.advance(15)
        assert (await runner.fire_due()).fired == 2
    (event,) = bench.of(ScheduleRefused)
    assert event.schedule == "b"
    assert "payload" in event.reason
    assert "x" * 100 not in event.reason


class SmallPayloads(CountingDriver):
    """Takes payloads up to 50 bytes."""

    async def change_schedules(self, changes: Any, now: datetime) -> list[bool]:
        from taskharbor.model.bounds import check_schedule_changes

        check_schedule_changes(changes, 50)
        return await super().change_schedules(changes, now)


async def test_a_zone_that_this_machine_does_not_know_is_reported(bench: Bench):
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=15)
    schedule = await bench.schedule("ping")
    await rewrite(
        bench,
        "ping",
        body=write_body(schedule.with_state(edit={"cron": "0 4 * * *", "every": None, "tz": "Moon/Base"})),
    )
    assert await bench.fired_after(15) == 0
    (event,) = bench.of(ScheduleRefused)
    assert "Moon/Base" in event.reason


async def test_a_slot_never_gets_a_second_job_even_after_delete_and_add(bench: Bench):
    start = datetime(2030, 1, 1, tzinfo=UTC)
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=15, start_at=start)
    await bench.fired_after(15)
    (before,) = await bench.jobs()
    await bench.harbor.schedules.adelete("ping")
    bench.clock.step(-10)
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=15, start_at=start)
    await bench.fired_after(10)
    (after,) = await bench.jobs()
    assert before.job.id == after.job.id
    assert after.state is State.READY


async def test_a_pruned_record_does_not_bring_a_slot_back(bench: Bench):
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=15)
    await bench.fired_after(15)
    await finish(bench)
    await bench.driver.prune(bench.clock.now() + timedelta(days=9), 100)
    assert await bench.jobs() == []
    assert (await bench.fire()).fired == 0


async def test_an_unknown_job_does_not_matter_to_firing(bench: Bench):
    await bench.driver.enqueue([JobRecord(id="x", type="other")], bench.clock.now())
    assert await bench.fire() == (0, False, None)


async def test_a_declared_schedule_that_another_version_moved_to_another_queue_is_found(bench: Bench):
    bench.harbor.schedule("ping", bench.ping.s(), every=15)
    await bench.declare()
    runner = bench.runner(queues=["default"])
    bench.clock.advance(15)
    assert (await runner.fire_due()).fired == 1
    await finish(bench)
    other = Bench(bench.driver)
    other.harbor.schedule("ping", other.ping.options(queue="elsewhere").s(), every=15)
    await bench.declare(other.harbor)  # and that version goes away
    assert (await bench.row("ping")).queue == "elsewhere"
    bench.clock.advance(firing_module.PASSED_FOR_S + 15)
    assert (await runner.fire_due()).fired == 1


async def test_jobs_that_people_ask_for_do_not_hide_that_of_a_slot(bench: Bench):
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=15)
    assert await bench.fired_after(15) == 1
    await hold_one(bench)
    for _ in range(2 * plan_module.MAX_WATCHED_JOBS):
        await bench.harbor.schedules.arun("ping")
    await finish(bench)
    assert await bench.fired_after(15) == 0
    assert (await bench.harbor.schedules.aget("ping")).skipped == 1


async def hold_one(bench: Bench) -> None:
    """A worker runs the oldest job for a long time."""
    assert len(await bench.driver.reserve(["default"], bench.clock.now(), timedelta(hours=1), 1, "w")) == 1


async def test_the_oldest_of_many_that_were_caught_up_together_is_watched(bench: Bench):
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=15, catch_up="all")
    many = 2 * plan_module.MAX_WATCHED_JOBS
    assert await bench.fired_after(15 * many) == many
    await hold_one(bench)
    await finish(bench)
    assert await bench.fired_after(15) == 0
    assert (await bench.harbor.schedules.aget("ping")).skipped == 1


async def test_a_job_that_people_asked_for_is_forgotten_when_it_has_ended(bench: Bench):
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=15)
    await bench.harbor.schedules.arun("ping")
    assert await bench.fired_after(15) == 0
    await finish(bench)
    assert await bench.fired_after(15) == 1
    body = (await bench.schedule("ping")).body
    assert (body.asked, body.running) == ((), (body.last_id,))

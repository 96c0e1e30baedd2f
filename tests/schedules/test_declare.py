"""Code that declares schedules: what a start of its workers stores, beside edits and beside other versions."""

from datetime import timedelta
from typing import Any

import pytest

from taskharbor import Harbor, ScheduleNotFound
from taskharbor.drivers import ScheduleChange
from taskharbor.events import ScheduleChanged, ScheduleEditDropped, ScheduleRefused
from taskharbor.schedules import declare as declare_module
from taskharbor.schedules.body import write_body
from taskharbor.schedules.firing import PASSED_FOR_S
from taskharbor.testing import Faults
from taskharbor.testing.clock import START
from tests.schedules.bench import Bench
from tests.schedules.test_firing import rewrite


def later(seconds: float) -> Any:
    return START + timedelta(seconds=seconds)


def version(bench: Bench, *, host: str = "a", **options: Any) -> Harbor:
    """A program on the same store that declares `ping` in its own way."""
    harbor = Harbor(bench.driver, clock=bench.clock)

    @harbor.task(name="ping")
    def ping(host: str = "a") -> str:
        return host

    harbor.schedule("ping", ping.s(host=host), **options)
    return harbor


def test_a_declaration_reads_no_store():
    harbor = Harbor("sqlite:////nowhere/at/all.db")

    @harbor.task(name="ping")
    def ping() -> None: ...

    harbor.schedule("ping", ping.s(), every=60)
    assert harbor.declared_schedules == ("ping",)


async def test_it_is_stored_once_and_not_written_again(bench: Bench):
    harbor = version(bench, every=60)
    await bench.declare(harbor)
    before = await bench.row("ping")
    info = await bench.harbor.schedules.aget("ping")
    assert (info.declared, info.next_at) == (True, later(60))
    bench.clock.advance(90)
    await bench.declare(harbor)
    await bench.declare(version(bench, every=60))
    assert await bench.row("ping") == before
    assert [event.new for event in bench.of(ScheduleChanged)] == [True]


async def test_an_edit_stays_at_a_restart_until_the_code_changes(bench: Bench):
    await bench.declare(version(bench, every=60))
    await bench.harbor.schedules.aedit("ping", cron="0 4 * * *")
    await bench.harbor.schedules.apause("ping")
    await bench.declare(version(bench, every=60))
    info = await bench.harbor.schedules.aget("ping")
    assert (info.cron, info.edited, info.paused) == ("0 4 * * *", True, True)
    assert bench.of(ScheduleEditDropped) == []
    await bench.declare(version(bench, every=30))
    info = await bench.harbor.schedules.aget("ping")
    assert (info.cron, info.every, info.edited, info.paused) == (None, timedelta(seconds=30), False, True)
    assert [event.schedule for event in bench.of(ScheduleEditDropped)] == ["ping"]
    assert [event.new for event in bench.of(ScheduleChanged)] == [True, False]


async def test_other_arguments_keep_the_sequence_and_the_counts(bench: Bench):
    old = version(bench, every=60, overlap="allow")
    await bench.declare(old)
    bench.clock.advance(60)
    await bench.fire(harbor=old)
    bench.clock.advance(75)
    new = version(bench, host="b", every=60, overlap="allow")
    await bench.declare(new)  # a slot is due, and nobody has fired it yet
    await bench.fire(harbor=new)
    assert await bench.slots() == [60, 120]
    assert [info.job.payload for info in await bench.jobs()] == [b'{"host":"a"}', b'{"host":"b"}']
    info = await bench.harbor.schedules.aget("ping")
    assert (info.fired, info.missed, info.next_at) == (2, 0, later(180))


async def test_another_timing_begins_at_its_moment_and_counts_what_was_missed(bench: Bench):
    await bench.declare(version(bench, every=60))
    bench.clock.advance(130)
    new = version(bench, every=50)
    await bench.declare(new)
    info = await bench.harbor.schedules.aget("ping")
    assert (info.missed, info.next_at) == (2, later(180))


async def test_the_newer_code_wins_because_it_starts_last(bench: Bench):
    old, new = version(bench, every=60), version(bench, host="new", every=60)
    await bench.declare(old)
    await bench.declare(new)
    bench.clock.advance(60)
    assert (await bench.fire(harbor=old)).fired == 1  # it declares the name; what it makes is what the row says
    assert [info.job.payload for info in await bench.jobs()] == [b'{"host":"new"}']


async def test_an_added_one_is_taken_over_by_the_code_that_declares_its_name(bench: Bench):
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=60)
    await bench.declare(version(bench, every=60))
    assert (await bench.harbor.schedules.aget("ping")).declared
    assert [event.new for event in bench.of(ScheduleChanged)] == [False]


async def test_a_damaged_row_is_mended_and_one_of_a_later_version_left_alone(bench: Bench):
    harbor = version(bench, every=60)
    await bench.declare(harbor)
    await rewrite(bench, "ping", body=b"garbage")
    await bench.declare(harbor)
    assert (await bench.harbor.schedules.aget("ping")).problem == ""
    later_body = write_body((await bench.schedule("ping")).with_state(v=2))
    await rewrite(bench, "ping", body=later_body)
    await bench.declare(harbor)
    assert (await bench.row("ping")).body == later_body
    (event,) = bench.of(ScheduleRefused)
    assert "later version" in event.reason


async def test_other_time_zone_data_moves_the_next_slot(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    harbor = version(bench, cron="30 2 * * *", tz="Europe/Zurich")
    await bench.declare(harbor)
    right = await bench.row("ping")
    await rewrite(bench, "ping", next_at=right.next_at and right.next_at + timedelta(hours=1))
    await bench.declare(harbor)
    assert (await bench.row("ping")).next_at == right.next_at
    assert len(bench.of(ScheduleChanged)) == 1  # the code has not changed


async def test_a_clock_that_is_behind_by_less_than_an_interval_does_not_bring_slots_back(bench: Bench):
    """By more, the schedule begins anew: test_clock.py."""
    harbor = version(bench, every=60, overlap="allow")
    await bench.declare(harbor)
    bench.clock.advance(600)
    await bench.fire(harbor=harbor)
    bench.clock.step(-50)
    await bench.declare(harbor)
    await bench.declare(version(bench, every=60, host="b", overlap="allow"))
    await bench.harbor.schedules.aedit("ping", every=20)
    for _ in range(60):
        bench.clock.advance(10)
        await bench.fire(harbor=harbor)
    assert min((await bench.slots())[1:]) > 600


async def test_many_declarations_are_stored_in_batches(bench: Bench):
    for number in range(250):
        bench.harbor.schedule(f"s{number:03}", bench.ping.s(), every=60)
    await bench.declare()
    await bench.declare()
    assert len([info async for info in bench.harbor.schedules.list()]) == 250
    assert len(bench.of(ScheduleChanged)) == 250


@pytest.mark.parametrize("after", [False, True])
async def test_it_may_be_repeated_after_a_failure(after: bool):
    faults = Faults()
    bench = Bench(faults.wrap("memory://"))
    bench.harbor.schedule("ping", bench.ping.s(), every=60)
    faults.fail("change_schedules", after=after)
    with pytest.raises(Exception, match="injected"):
        await bench.declare()
    await bench.declare()
    assert (await bench.harbor.schedules.aget("ping")).next_at == later(60)


async def test_a_row_that_changes_meanwhile_is_compared_again(bench: Bench):
    await bench.declare(version(bench, every=60))
    bench.clock.advance(60)
    other = bench.runner(harbor=version(bench, every=60))
    read, moved = bench.driver.schedules, False

    async def fired_meanwhile(**options: Any) -> Any:
        nonlocal moved
        page = await read(**options)
        if not moved:
            moved = True
            await other.fire_due()
        return page

    bench.driver.schedules = fired_meanwhile  # type: ignore[method-assign]  # for this test
    await bench.declare(version(bench, host="b", every=60))
    info = await bench.harbor.schedules.aget("ping")
    assert info.fired == 1
    assert (await bench.schedule("ping")).definition.payload == b'{"host":"b"}'


async def test_whatever_is_wrong_with_one_row_the_others_are_declared(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    for name in ("bad", "good"):
        bench.harbor.schedule(name, bench.ping.s(), every=60)
    real = declare_module.declared_change

    def fails_for_bad(given: Any, *arguments: Any) -> Any:
        if given.name == "bad":
            raise ZeroDivisionError("secret")
        return real(given, *arguments)

    monkeypatch.setattr(declare_module, "declared_change", fails_for_bad)
    await bench.declare()
    assert [row.name for row in (await bench.driver.schedules()).items] == ["good"]
    (event,) = bench.of(ScheduleRefused)
    assert event.schedule == "bad"
    assert "secret" not in event.reason


@pytest.mark.parametrize("edit", [{"tz": "Moon/Base"}, {"cron": "garbage"}], ids=["zone", "cron"])
async def test_a_rule_that_this_machine_cannot_follow_is_replaced_by_code(bench: Bench, edit: dict[str, Any]):
    await bench.declare(version(bench, cron="0 4 * * *"))
    await unfollowable(bench, edit)
    bench.clock.advance(60)
    await bench.declare(version(bench, cron="0 5 * * *"))
    info = await bench.harbor.schedules.aget("ping")
    assert (info.cron, info.tz, info.missed, info.edited) == ("0 5 * * *", "UTC", 0, False)
    assert info.next_at == later(5 * 3600)
    assert not bench.of(ScheduleRefused)


async def unfollowable(bench: Bench, edit: dict[str, Any]) -> None:
    """Another machine has edited it."""
    schedule = await bench.schedule("ping")
    await rewrite(bench, "ping", body=write_body(schedule.with_state(edit=edit)))


@pytest.mark.parametrize("edit", [{"tz": "Moon/Base"}, {"cron": "garbage"}], ids=["zone", "cron"])
async def test_people_can_run_and_replace_a_rule_that_this_machine_cannot_follow(bench: Bench, edit: dict[str, Any]):
    schedules = bench.harbor.schedules
    await schedules.aadd("ping", bench.ping.s(), cron="0 4 * * *")
    await unfollowable(bench, edit)
    job = await schedules.arun("ping")
    assert [info.job.id for info in await bench.jobs()] == [job.id]
    assert (await bench.row("ping")).next_at == later(4 * 3600)
    info = await schedules.aedit("ping", cron="0 5 * * *", tz="UTC")
    assert info.next_at == later(5 * 3600)
    await unfollowable(bench, edit)
    assert (await schedules.areset("ping")).next_at == later(4 * 3600)


async def test_a_row_that_is_gone_is_stored_again_by_a_running_worker(bench: Bench):
    """The store was emptied, or restored from a backup of before the schedule."""
    harbor = version(bench, every=10)
    await bench.declare(harbor)
    runner = bench.runner(harbor=harbor)
    await runner.fire_due()
    await bench.driver.change_schedules(
        [ScheduleChange(name="ping", expect=(await bench.row("ping")).revision, to=None)], bench.clock.now()
    )
    bench.clock.advance(PASSED_FOR_S)
    await runner.fire_due()
    bench.clock.advance(10)
    assert (await runner.fire_due()).fired == 1
    assert [event.new for event in bench.of(ScheduleChanged)] == [True, True]


async def test_what_a_person_deleted_stays_deleted_until_a_reset(bench: Bench):
    harbor, schedules = version(bench, every=10), bench.harbor.schedules
    await bench.declare(harbor)
    assert not (await schedules.adelete("ping")).deleted, "what it was"
    runner = bench.runner(harbor=harbor)
    for _ in range(3):
        assert (await runner.fire_due()).fired == 0
        await bench.declare(harbor)  # a restart
        bench.clock.advance(PASSED_FOR_S)
    info = await schedules.aget("ping")
    assert (info.deleted, info.next_at) == (True, None)
    for refused in (schedules.aedit("ping", every=5), schedules.apause("ping"), schedules.arun("ping")):
        with pytest.raises(ScheduleNotFound, match=r"reset\('ping'\) brings it back"):
            await refused
    info = await schedules.areset("ping")
    assert (info.deleted, info.missed) == (False, 0)
    bench.clock.advance(10)
    assert (await runner.fire_due()).fired == 1


async def test_a_changed_declaration_ends_a_deletion_and_deleting_the_mark_leaves_nothing(bench: Bench):
    schedules = bench.harbor.schedules
    await bench.declare(version(bench, every=10))
    await schedules.adelete("ping")
    await bench.declare(version(bench, every=20))
    info = await schedules.aget("ping")
    assert (info.deleted, info.every, info.missed) == (False, timedelta(seconds=20), 0)
    await schedules.adelete("ping")
    assert (await schedules.adelete("ping")).deleted
    with pytest.raises(ScheduleNotFound):
        await schedules.aget("ping")


async def test_a_deletion_whose_reply_was_lost_does_not_delete_the_mark(bench: Bench):
    faults = Faults()
    bench = Bench(faults.wrap(bench.driver))
    await bench.declare(version(bench, every=10))
    faults.fail("change_schedules", after=True)
    assert not (await bench.harbor.schedules.adelete("ping")).deleted
    assert faults.pending() == {}
    assert (await bench.harbor.schedules.aget("ping")).deleted

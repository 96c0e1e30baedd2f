"""harbor.schedules: what each call does, in both colours, what it refuses, and that no change is lost."""

import asyncio
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec
import pytest

from taskharbor import (
    BackendUnavailable,
    FeatureMissing,
    Harbor,
    InvalidJob,
    JobRequest,
    ScheduleInfo,
    ScheduleNotFound,
    State,
    WrongState,
)
from taskharbor.client.schedules import Schedules
from taskharbor.drivers import ScheduleChange, WrappedDriver
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.flow import chain
from taskharbor.schedules.body import write_body
from taskharbor.testing import Faults, ManualClock
from taskharbor.testing.clock import START
from tests.drivers.small_driver import SmallDriver
from tests.schedules.bench import Bench

NAMES = ("add", "delete", "get", "preview", "edit", "reset", "pause", "resume", "run")


def later(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@pytest.fixture(params=["blocking", "awaited"])
def call(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Makes a call in one of the two colours: `call(schedules, "add", …)`."""

    def made(schedules: Schedules, name: str, *args: Any, **options: Any) -> Any:
        if request.param == "blocking":
            return getattr(schedules, name)(*args, **options)

        async def awaited() -> Any:
            return await getattr(schedules, f"a{name}")(*args, **options)

        return asyncio.run(awaited())

    return made


def test_there_is_a_call_of_each_colour():
    for name in NAMES:
        assert callable(getattr(Schedules, name))
        assert asyncio.iscoroutinefunction(getattr(Schedules, f"a{name}"))


def test_a_schedule_from_its_beginning_to_its_end(bench: Bench, call: Callable[..., Any]):
    schedules = bench.harbor.schedules
    info = call(schedules, "add", "ping", bench.ping.s(host="x"), every=60)
    assert info == ScheduleInfo(
        name="ping", queue="default", type="ping", every=timedelta(seconds=60), next_at=later(60)
    )
    assert call(schedules, "get", "ping") == info
    assert call(schedules, "preview", "ping", 3) == [later(60), later(120), later(180)]
    bench.clock.advance(30)
    info = call(schedules, "edit", "ping", every=10, jitter=2, catch_up="all", by="ada")
    assert (info.every, info.jitter, info.catch_up, info.edited) == (
        timedelta(seconds=10),
        timedelta(seconds=2),
        "all",
        True,
    )
    assert info.next_at == later(40)
    info = call(schedules, "pause", "ping")
    assert (info.paused, info.next_at) == (True, None)
    assert call(schedules, "preview", "ping", 1) == [later(40)]
    job = call(schedules, "run", "ping")
    assert job.id
    info = call(schedules, "resume", "ping")
    assert (info.paused, info.next_at) == (False, later(40))
    info = call(schedules, "reset", "ping")
    assert (info.every, info.jitter, info.catch_up, info.edited) == (
        timedelta(seconds=60),
        timedelta(0),
        "latest",
        False,
    )
    assert info.next_at == later(90)
    assert call(schedules, "delete", "ping").name == "ping"
    with pytest.raises(ScheduleNotFound, match="no schedule 'ping'"):
        call(schedules, "get", "ping")


@pytest.mark.parametrize("name", [name for name in NAMES if name != "add"])
def test_a_name_that_no_schedule_has(bench: Bench, call: Callable[..., Any], name: str):
    with pytest.raises(ScheduleNotFound):
        call(bench.harbor.schedules, name, "none", **({"jitter": 1} if name == "edit" else {}))


def test_adding_the_same_again_changes_nothing(bench: Bench, call: Callable[..., Any]):
    schedules = bench.harbor.schedules
    tags = {"p", "q", "r", "s"}

    @bench.harbor.task(name="tagged")
    def tagged(tags: set[str]) -> None: ...

    first = call(schedules, "add", "t", tagged.s(tags=tags), every=60)
    bench.clock.advance(7)
    assert call(schedules, "add", "t", tagged.s(tags={"s", "r", "q", "p"}), every=60) == first
    with pytest.raises(WrongState, match="does something else"):
        call(schedules, "add", "t", tagged.s(tags={"p"}), every=60)
    with pytest.raises(WrongState, match="does something else"):
        call(schedules, "add", "t", tagged.s(tags=tags), every=61)
    assert call(schedules, "get", "t") == first


async def test_a_name_that_code_declares_is_taken(bench: Bench):
    bench.harbor.schedule("ping", bench.ping.s(), every=60)
    await bench.declare()
    with pytest.raises(WrongState, match="declared in code"):
        await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=60)
    assert (await bench.harbor.schedules.adelete("ping")).declared
    await bench.declare()  # as at the next start of a worker
    assert (await bench.harbor.schedules.aget("ping")).declared


async def test_all_are_listed_page_by_page(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("taskharbor.client.listing.ScheduleListing._page_size", 2)
    for number in range(5):
        await bench.harbor.schedules.aadd(f"s{number}", bench.ping.s(), every=60)
    await bench.harbor.schedules.aadd("sum", bench.add.s(a=1), every=60)
    reads = 0
    read = bench.driver.schedules

    async def counted(**options: Any) -> Any:
        nonlocal reads
        reads += 1
        return await read(**options)

    monkeypatch.setattr(bench.driver, "schedules", counted)
    monkeypatch.setattr(bench.driver, "sibling", lambda: bench.driver)
    listing = bench.harbor.schedules.list()
    assert reads == 0
    found = [info.name async for info in listing]
    assert found == ["s0", "s1", "s2", "s3", "s4", "sum"]
    assert reads >= 3
    assert [info.name async for info in bench.harbor.schedules.list(queue="sums")] == ["sum"]


def test_a_listing_blocks_too(bench: Bench):
    bench.harbor.schedules.add("ping", bench.ping.s(), every=60)
    assert [info.name for info in bench.harbor.schedules.list()] == ["ping"]
    assert repr(bench.harbor.schedules.list(queue="sums")) == "ScheduleListing(queue='sums')"


# Edits


async def test_an_edit_begins_new_slots_at_its_moment_and_counts_what_was_missed(bench: Bench):
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=60, catch_up="all")
    bench.clock.advance(200)
    info = await bench.harbor.schedules.aedit("ping", every=10)
    assert (info.missed, info.next_at) == (3, later(210))
    await bench.fire()
    assert await bench.slots() == []
    await bench.fired_after(10)
    assert await bench.slots() == [210]


async def test_an_edit_that_leaves_the_slots_alone_misses_none(bench: Bench):
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=60)
    bench.clock.advance(60)
    info = await bench.harbor.schedules.aedit("ping", jitter=5, overlap="allow", catch_up="all")
    assert (info.missed, info.next_at) == (0, later(60))
    assert (await bench.fire()).fired == 1


async def test_edits_add_up_and_one_kind_of_timing_replaces_the_other(bench: Bench):
    schedules = bench.harbor.schedules
    await schedules.aadd("ping", bench.ping.s(), every=60, jitter=5, end_at=date(2031, 1, 1))
    await schedules.aedit("ping", cron="0 4 * * *")
    info = await schedules.aedit("ping", tz="Europe/Zurich")
    assert (info.cron, info.every, info.tz, info.jitter) == ("0 4 * * *", None, "Europe/Zurich", timedelta(seconds=5))
    assert info.next_at == datetime(2030, 1, 1, 3, tzinfo=UTC)
    info = await schedules.aedit("ping", end_at=None, start_at=date(2030, 6, 1))
    assert (info.end_at, info.start_at) == (None, datetime(2030, 5, 31, 22, tzinfo=UTC))
    info = await schedules.aedit("ping", every=15)
    assert (info.cron, info.every) == (None, timedelta(seconds=15))
    info = await schedules.areset("ping")
    assert (info.cron, info.every, info.tz) == (None, timedelta(seconds=60), "UTC")
    assert info.end_at == datetime(2031, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"cron": "x"}, "cron"),
        ({"cron": "* * * * * *"}, "cron"),
        ({"tz": "Moon/Base"}, "tz: expected"),
        ({"cron": "0 4 * * *", "every": 15}, "either"),
        ({"every": None}, "either"),
        ({"every": 0.5}, "every: expected at least 1 second"),
        ({"jitter": 60}, "jitter: expected less than every"),
        ({"catch_up": "some"}, "catch_up: expected one of 'latest', 'none', 'all', got 'some'"),
        ({"overlap": 1}, "overlap: expected one of 'skip', 'allow', got 1"),
        ({"end_at": START, "start_at": START}, "start_at: expected"),
        ({"start_at": datetime.fromisoformat("2030-01-01 00:00")}, "time zone"),
        ({}, "at least one option"),
    ],
)
async def test_an_edit_that_makes_no_sense_is_refused_and_changes_nothing(bench: Bench, options: Any, text: str):
    schedules = bench.harbor.schedules
    before = await schedules.aadd("ping", bench.ping.s(), every=60)
    with pytest.raises(ValueError, match=text):
        await schedules.aedit("ping", **options)
    assert await schedules.aget("ping") == before
    if options:
        (entry, *_) = [each async for each in bench.harbor.audit()]
        assert (entry.action, entry.refused) == ("schedule.edit", 1)


def test_an_unknown_option_is_a_mistake_of_the_caller(bench: Bench):
    schedules: Any = bench.harbor.schedules
    with pytest.raises(TypeError, match="unknown option 'crom'"):
        schedules.edit("ping", crom="0 4 * * *")
    with pytest.raises(TypeError, match="crom"):
        schedules.add("ping", bench.ping.s(), crom="0 4 * * *")


# Pause, resume, run


@pytest.mark.parametrize(("catch_up", "fired", "missed"), [("latest", 0, 3), ("none", 0, 3), ("all", 3, 0)])
async def test_slots_of_a_pause(bench: Bench, catch_up: Any, fired: int, missed: int):
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=60, catch_up=catch_up)
    await bench.harbor.schedules.apause("ping")
    assert await bench.fired_after(200) == 0
    await bench.harbor.schedules.apause("ping")  # twice does nothing
    await bench.harbor.schedules.aresume("ping")
    await bench.harbor.schedules.aresume("ping")
    assert (await bench.fire()).fired == fired
    info = await bench.harbor.schedules.aget("ping")
    assert (info.missed, info.next_at) == (missed, later(240))


def test_run_makes_a_job_now_and_leaves_the_slots_alone(bench: Bench, call: Callable[..., Any]):
    schedules = bench.harbor.schedules
    before = call(schedules, "add", "sum", bench.add.s(a=2), every=60)
    call(schedules, "pause", "sum")
    bench.clock.advance(7)
    one, two = call(schedules, "run", "sum", by="ada"), call(schedules, "run", "sum", by="ada")
    assert one.id != two.id
    job = one.info().job
    assert (job.type, job.queue, job.payload, job.run_at) == ("add", "sums", b'{"a":2}', None)
    assert job.metadata == {"taskharbor.schedule": "sum", "taskharbor.slot": later(7).isoformat()}
    after = call(schedules, "resume", "sum")
    assert (after.last_id, after.fired, after.next_at) == (None, 0, before.next_at)
    assert [entry.by for entry in bench.harbor.audit(by="ada")] == ["ada", "ada"]


# What may be scheduled


def test_what_a_schedule_can_make(bench: Bench):
    schedules = bench.harbor.schedules
    step = bench.add.s(a=1).options(
        priority=3, timeout=9, max_attempts=2, group="g", queue="other", metadata={"k": "v"}
    )
    schedules.add("step", step, every=60)
    job = schedules.run("step").info().job
    assert (job.priority, job.timeout, job.max_attempts, job.group) == (3, timedelta(seconds=9), 2, "g")
    assert (job.queue, job.metadata["k"]) == ("other", "v")
    schedules.add("request", JobRequest(type="add", payload={"a": 4}), every=60)
    assert schedules.run("request").info().job.payload == b'{"a":4}'


@pytest.mark.parametrize(
    ("option", "value"), [("idempotency_key", "k"), ("delay", 5), ("run_at", START), ("connection", object())]
)
def test_a_step_with_an_option_for_one_job_is_refused(bench: Bench, option: str, value: Any):
    options: Any = {option: value}
    with pytest.raises(ValueError, match=f"schedule 'ping': ping: expected no {option}, because"):
        bench.harbor.schedule("ping", bench.ping.s().options(**options), every=60)
    if option != "connection":
        with pytest.raises(ValueError, match=f"expected no {option}"):
            bench.harbor.schedules.add("ping", JobRequest(type="ping", **options), every=60)
        what = "delay or run_at" if option in ("delay", "run_at") else option
        flow = chain(bench.ping.s(), bench.ping.s().options(**options))
        with pytest.raises(ValueError, match=f"expected no {what}"):
            bench.harbor.schedule("flow", flow, every=60)


def test_what_cannot_be_scheduled(bench: Bench):
    other = Bench()
    schedule: Any = bench.harbor.schedule
    with pytest.raises(TypeError, match=r"expected a step or a workflow, got \w*Task; write ping\.s"):
        schedule("s", bench.ping, every=60)
    with pytest.raises(TypeError, match="expected a step or a workflow, got int"):
        schedule("s", 7, every=60)
    with pytest.raises(TypeError, match="missing parameter 'a'"):
        schedule("s", bench.add.s(), every=60)
    with pytest.raises(ValueError, match="declared on this harbor"):
        schedule("s", other.ping.s(), every=60)
    with pytest.raises(ValueError, match="declared on this harbor"):
        schedule("s", chain(other.ping.s(), other.ping.s()), every=60)
    with pytest.raises(InvalidJob, match="name"):
        schedule("", bench.ping.s(), every=60)
    with pytest.raises(InvalidJob, match="name"):
        schedule("x" * 256, bench.ping.s(), every=60)
    with pytest.raises(InvalidJob, match="at most 122880 bytes") as refused:
        schedule("s", bench.ping.s(host="secret" * 22_000), every=60)
    assert "secret" not in str(refused.value)
    with pytest.raises(ValueError, match="id: expected none"):
        bench.harbor.schedules.add("s", JobRequest(type="ping", id="x"), every=60)
    assert bench.harbor.declared_schedules == ()


def test_the_queue_of_a_schedule_is_served(bench: Bench):
    assert list(bench.harbor.declared_queues) == ["default", "sums"]
    bench.harbor.schedule("ping", bench.ping.s().options(queue="other"), every=60)
    assert list(bench.harbor.declared_queues) == ["default", "other", "sums"]


def test_one_harbor_declares_a_name_once(bench: Bench):
    bench.harbor.schedule("ping", bench.ping.s(), every=60)
    bench.harbor.schedule("ping", bench.ping.s(), every=60)
    with pytest.raises(ValueError, match="two schedules named 'ping', which differ"):
        bench.harbor.schedule("ping", bench.ping.s(), every=61)
    assert bench.harbor.declared_schedules == ("ping",)


# Many at once, and a store that fails


async def test_of_many_editors_none_loses_a_change(bench: Bench):
    schedules = bench.harbor.schedules
    await schedules.aadd("ping", bench.ping.s(), every=60)
    slow = Turns(bench.driver)
    changes: list[Any] = [
        {"jitter": 7},
        {"overlap": "allow"},
        {"catch_up": "all"},
        {"every": 30},
        {"tz": "Europe/Zurich"},
        {"end_at": datetime(2040, 1, 1, tzinfo=UTC)},
    ]
    harbors = [Harbor(slow, clock=bench.clock) for _ in changes]
    await asyncio.gather(
        *(each.schedules.aedit("ping", **change) for each, change in zip(harbors, changes, strict=True)),
        *(each.schedules.arun("ping") for each in harbors),
    )
    info = await schedules.aget("ping")
    assert (info.jitter, info.overlap, info.catch_up) == (timedelta(seconds=7), "allow", "all")
    assert (info.every, info.tz) == (timedelta(seconds=30), "Europe/Zurich")
    assert info.end_at == datetime(2040, 1, 1, tzinfo=UTC)
    assert len(await bench.jobs()) == 6


class Turns(WrappedDriver):
    """A driver that lets others in between a read and the change that follows."""

    def sibling(self) -> Any:
        return self

    async def schedules(self, **options: Any) -> Any:
        page = await super().schedules(**options)
        await asyncio.sleep(0)
        return page


@pytest.mark.parametrize("verb", ["schedules", "change_schedules"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("name", ["add", "edit", "pause", "resume", "reset", "run", "delete"])
async def test_a_call_is_repeated_after_a_failure_and_made_once(name: str, after: bool, verb: str):
    faults = Faults()
    bench = Bench(faults.wrap("memory://"))
    schedules = bench.harbor.schedules
    if name != "add":
        await schedules.aadd("ping", bench.ping.s(), every=60)
        await schedules.aedit("ping", jitter=1)
    if name == "resume":
        await schedules.apause("ping")
    bench.clock.advance(130)
    faults.fail(verb, after=after)
    if name == "add":
        await schedules.aadd("ping", bench.ping.s(), every=60)
    elif name == "edit":
        info = await schedules.aedit("ping", every=10)
        assert (info.missed, info.every) == (2, timedelta(seconds=10))
    elif name == "resume":
        assert (await schedules.aresume("ping")).missed == 2
    else:
        await getattr(schedules, f"a{name}")("ping")
    assert faults.pending() == {}
    assert len(await bench.jobs()) == (1 if name == "run" else 0)
    found = [info.name async for info in schedules.list()]
    assert found == ([] if name == "delete" else ["ping"])


async def test_a_repeated_edit_does_not_undo_what_others_changed_meanwhile():
    faults = Faults()
    inner = MemoryDriver()
    bench = Bench(inner)
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=60)
    mine = Harbor(faults.wrap(Interrupted(inner, bench)), clock=bench.clock)
    faults.fail("change_schedules", after=True)
    await mine.schedules.aedit("ping", jitter=1)
    info = await bench.harbor.schedules.aget("ping")
    assert info.jitter == timedelta(seconds=9)


class Interrupted(Turns):
    """Another person edits the schedule right after the first change of this one."""

    def __init__(self, driver: Any, bench: Bench) -> None:
        super().__init__(driver)
        self._bench = bench
        self._others = 1

    async def change_schedules(self, changes: Any, now: datetime) -> list[bool]:
        answers = await super().change_schedules(changes, now)
        if self._others:
            self._others -= 1
            await self._bench.harbor.schedules.aedit("ping", jitter=9)
        return answers


async def test_a_repeated_delete_leaves_what_was_added_meanwhile():
    faults = Faults()
    inner = MemoryDriver()
    bench = Bench(inner)
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=60)
    mine = Harbor(faults.wrap(AddedAgain(inner, bench)), clock=bench.clock)
    faults.fail("change_schedules", after=True)
    await mine.schedules.adelete("ping")
    assert (await bench.harbor.schedules.aget("ping")).every == timedelta(seconds=7)


class AddedAgain(Turns):
    """Another person adds the schedule again right after it was deleted."""

    def __init__(self, driver: Any, bench: Bench) -> None:
        super().__init__(driver)
        self._bench = bench

    async def change_schedules(self, changes: Any, now: datetime) -> list[bool]:
        answers = await super().change_schedules(changes, now)
        await self._bench.harbor.schedules.aadd("ping", self._bench.ping.s(), every=7)
        return answers


async def test_a_store_that_stays_away_says_what_is_unknown():
    faults = Faults()
    bench = Bench(faults.wrap("memory://"))
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=60)
    faults.fail("change_schedules", times=9)
    with pytest.raises(BackendUnavailable, match="may or may not have changed"):
        await bench.harbor.within(5).schedules.apause("ping")
    faults.fail("change_schedules", times=9)
    with pytest.raises(BackendUnavailable, match="may or may not be deleted"):
        await bench.harbor.within(5).schedules.adelete("ping")


# Damaged rows, other drivers, the audit


async def test_a_row_of_a_later_version_can_be_seen_and_deleted_but_not_changed(bench: Bench):
    schedules = bench.harbor.schedules
    await schedules.aadd("ping", bench.ping.s(), every=60)
    row = await bench.row("ping")
    newer = write_body((await bench.schedule("ping")).with_state(v=2))
    change = ScheduleChange(
        name="ping", expect=row.revision, to=msgspec.structs.replace(row, revision="r2", body=newer)
    )
    assert await bench.driver.change_schedules([change], bench.clock.now()) == [True]
    (info,) = [each async for each in schedules.list()]
    assert (info.name, info.queue) == ("ping", "default")
    assert "later version" in info.problem
    for name in ("pause", "resume", "reset", "run", "preview"):
        with pytest.raises(WrongState, match="schedule 'ping': a later version"):
            await getattr(schedules, f"a{name}")("ping")
    with pytest.raises(WrongState, match="later version"):
        await schedules.aedit("ping", jitter=1)
    with pytest.raises(WrongState, match="later version"):
        await schedules.aadd("ping", bench.ping.s(), every=60)
    assert (await bench.row("ping")).body == newer
    await schedules.adelete("ping")
    assert [each async for each in schedules.list()] == []


def test_a_driver_without_schedules_is_refused_with_a_clear_line():
    bench = Bench(SmallDriver())
    with pytest.raises(FeatureMissing, match="a schedule needs a store that keeps it; SmallDriver does not"):
        bench.harbor.schedules.add("ping", bench.ping.s(), every=60)
    assert list(bench.harbor.schedules.list()) == []
    bench.harbor.schedule("ping", bench.ping.s(), every=60)
    with pytest.raises(FeatureMissing, match=r"harbor\.schedule\('ping', …\) needs a store that keeps it"):
        bench.harbor.worker().run(until_empty=True)
    bench.harbor.worker(schedules=False).run(until_empty=True)
    other = Bench(SmallDriver())
    other.ping.enqueue()
    other.harbor.worker().run(until_empty=True)
    assert [info.state for info in other.harbor.jobs()] == [State.DONE]


def test_every_change_is_in_the_audit(bench: Bench):
    schedules = bench.harbor.schedules
    schedules.add("ping", bench.ping.s(host="secret"), every=60, by="ada")
    schedules.edit("ping", cron="0 4 * * *", by="ada")
    for name in ("pause", "resume", "reset", "run", "delete"):
        getattr(schedules, name)("ping", by="ada")
    with pytest.raises(ScheduleNotFound):
        schedules.pause("ping", by="ada")
    entries = list(bench.harbor.audit(by="ada"))
    actions = ["add", "edit", "pause", "resume", "reset", "run", "delete", "pause"]
    assert [entry.action for entry in reversed(entries)] == [f"schedule.{each}" for each in actions]
    assert {entry.target for entry in entries} == {"ping"}
    assert [entry.done for entry in entries] == [0, *[1] * 7]
    assert entries[-2].options == {"cron": "0 4 * * *"}
    assert "secret" not in repr(entries)


async def test_reprs_show_no_payload(bench: Bench):
    bench.harbor.schedule("ping", bench.ping.s(host="secret"), every=60)
    await bench.declare()
    schedule = await bench.schedule("ping")
    given = bench.harbor.handlers.schedules["ping"]
    shown = repr([schedule, schedule.body, schedule.definition, given, await bench.row("ping")])
    assert "secret" not in shown
    assert "secret" not in repr(bench.harbor.schedules) + repr(await bench.harbor.schedules.aget("ping"))
    assert ManualClock().now() == START

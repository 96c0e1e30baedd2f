"""What is particular to memory: DSNs, sharing, values that are copied, turns, clocks that go back."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from taskharbor.drivers import (
    Ack,
    Driver,
    JobNotInflight,
    JobRecord,
    Lease,
    LeaseExpired,
    LeaseMismatch,
    Seen,
    State,
    open_driver,
)
from taskharbor.drivers.cursor import decode_cursor, decode_place, encode_cursor, encode_place
from taskharbor.drivers.memory import MemoryDriver
from tests.drivers.blocking_calls import make_every_call
from tests.drivers.memory_damage import KINDS, damage, damage_field
from tests.drivers.memory_recount import recount

pytestmark = pytest.mark.lane("unit")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LEASE = 30 * SECOND
CURSOR = encode_cursor("abc")


def job(id, **fields):
    return JobRecord(**{"id": id, "type": "t", "created_at": NOW, **fields})


async def taken(driver, limit=100, queues=("default",), now=NOW, lease=LEASE):
    return [one.job.id for one in await driver.reserve(queues, now, lease, limit)]


# DSNs and sharing


def test_is_a_driver():
    driver: Driver = MemoryDriver()
    assert isinstance(driver, Driver)
    assert isinstance(open_driver("memory://"), MemoryDriver)


def test_options():
    driver = MemoryDriver("memory://?retention=36h&max_payload=10")
    assert driver.retention == timedelta(hours=36)
    assert driver.sibling().retention == timedelta(hours=36)
    asyncio.run(driver.enqueue([job("1", payload=b"x" * 10)], NOW))
    with pytest.raises(ValueError, match="at most 10 bytes"):
        asyncio.run(driver.sibling().enqueue([job("2", payload=b"x" * 11)], NOW))


@pytest.mark.parametrize(
    "dsn",
    [
        *("", "memory:", "memory:name", "redis://", "memory:///path", "memory://a/b", "memory://a#b", "memory://{x}"),
        *(f"memory://?{option}" for option in ("retention=soon", "other=1")),
        *(f"memory://?max_payload={size}" for size in ("0", "-1", "many")),
    ],
)
def test_bad_dsn(dsn):
    with pytest.raises(ValueError, match=r"expected"):
        MemoryDriver(dsn)


async def test_private_and_shared():
    one, other = MemoryDriver("memory://"), MemoryDriver("memory://")
    await one.enqueue([job("1")], NOW)
    assert await other.queues() == []
    assert await one.sibling().queues() == ["default"]
    named, same = MemoryDriver("memory://shared-test"), MemoryDriver("memory://shared-test?retention=1h")
    await named.enqueue([job("1")], NOW)
    assert await same.queues() == ["default"]
    assert await MemoryDriver("memory://Shared-test").queues() == []


async def test_open_and_close_do_nothing():
    driver = MemoryDriver()
    await driver.close()
    await driver.open()
    await driver.open()
    await driver.enqueue([job("1")], NOW)
    await driver.close()
    await driver.close()
    assert await taken(driver) == ["1"]


def test_a_driver_moves_from_one_event_loop_to_another():
    driver = MemoryDriver()
    asyncio.run(driver.enqueue([job("1")], NOW))
    held = asyncio.run(driver.reserve(["default"], NOW, LEASE, 1))
    assert asyncio.run(driver.settle([Ack(held[0].lease)], NOW)) == [None]


def test_server_time_does_not_go_back(monkeypatch):
    times = iter([1000.9999, 1000.0, 1001.0005])
    monkeypatch.setattr("taskharbor.drivers.memory.driver.time.time", lambda: next(times))
    driver = MemoryDriver()
    read = [asyncio.run(driver.server_time()) for _ in range(3)]
    assert [moment.timestamp() for moment in read] == [1000.999, 1000.999, 1001.0]
    assert read[0].utcoffset() == timedelta(0)


# Values


async def test_the_callers_metadata_dict_is_copied():
    driver, metadata = MemoryDriver(), {"tenant": "a"}
    await driver.enqueue([job("1", metadata=metadata)], NOW)
    metadata["tenant"] = "b"
    held = await driver.reserve(["default"], NOW, LEASE, 1)
    held[0].job.metadata["tenant"] = "c"
    info = await driver.inspect("1", NOW)
    assert info.job.metadata == {"tenant": "a"}
    info.job.metadata.clear()
    assert (await driver.list(now=NOW)).items[0].job.metadata == {"tenant": "a"}


@pytest.mark.parametrize("id", ["a", "0" * 255, "é/ü", "日本語"])
def test_a_cursor_decodes_to_its_id(id):
    assert decode_cursor(encode_cursor(id)) == id


@pytest.mark.parametrize(
    "damaged",
    ["", "x", "MQ==", "é", "a" * 12, CURSOR[:-1], CURSOR[1:], "A" + CURSOR[1:]],
)
def test_a_damaged_cursor_is_refused(damaged):
    with pytest.raises(ValueError, match="damaged"):
        decode_cursor(damaged)


@pytest.mark.parametrize("id", ["a", "0" * 255, "é:ü", ":", "日本語"])
@pytest.mark.parametrize("at", [NOW, datetime(1970, 1, 1, 0, 0, 0, 1, UTC), datetime.max.replace(tzinfo=UTC)])
def test_a_cursor_of_the_audit_decodes_to_its_place(id, at):
    assert decode_place(encode_place(at, id)) == (at, id)
    with pytest.raises(ValueError, match="damaged"):
        decode_cursor(encode_place(at, id))


def test_a_cursor_of_another_listing_is_refused():
    for damaged in (encode_cursor("abc"), encode_cursor("1:a"), encode_place(NOW, "a")[:-1], ""):
        with pytest.raises(ValueError, match="damaged"):
            decode_place(damaged)


def test_list_refuses_a_limit_below_one():
    with pytest.raises(ValueError, match="at least 1"):
        asyncio.run(MemoryDriver().list(now=NOW, limit=0))


async def test_an_id_known_by_its_key_is_the_same_job_for_the_whole_call():
    driver = MemoryDriver()
    await driver.enqueue([job("1", idempotency_key="k")], NOW)
    made = [job("2", idempotency_key="k"), job("2"), job("3", depends_on=("2",))]
    answers = await driver.enqueue(made, NOW)
    assert [(answer.id, answer.existed) for answer in answers] == [("1", True), ("1", True), ("3", False)]
    assert (await driver.inspect("3", NOW)).waiting_for == ("1",)


# Turns


async def test_grouped_and_ungrouped_jobs_take_turns():
    driver = MemoryDriver()
    await driver.enqueue([job(f"u{index}") for index in range(4)], NOW)
    await driver.enqueue([job(f"g{index}", group=f"g{index}") for index in range(2)], NOW)
    assert await taken(driver) == ["g0", "u0", "g1", "u1", "u2", "u3"]
    await driver.enqueue([job("u4"), job("g4", group="g4"), job("u5"), job("g5", group="g5")], NOW)
    assert await taken(driver, 1) == ["g4"]
    assert await taken(driver, 1) == ["u4"]
    assert await taken(driver, 1) == ["g5"]
    assert await taken(driver, 1) == ["u5"]


async def test_groups_take_turns():
    driver = MemoryDriver()
    names = [f"{group}{index}" for group in "abc" for index in range(3)]
    await driver.enqueue([job(name, group=name[0], group_limit=2) for name in names], NOW)
    assert await taken(driver) == ["a0", "b0", "c0", "a1", "b1", "c1"]


async def test_queues_take_turns_over_all_workers():
    """Two workers whose queues overlap: the queue that both serve does not get twice as many turns."""
    driver = MemoryDriver()
    await driver.enqueue([job(f"{queue}{index}", queue=queue) for queue in "abc" for index in range(9)], NOW)
    assert await taken(driver, 5, "abc") == ["a0", "b0", "c0", "a1", "b1"]
    assert await taken(driver, 1, "abc") == ["c1"]
    served = [(await taken(driver, 1, queues))[0][0] for _ in range(4) for queues in ("ab", "bc")]
    assert served == ["a", "b", "a", "c", "b", "c", "a", "b"]


async def test_a_queue_that_is_named_twice_has_one_turn():
    driver = MemoryDriver()
    await driver.enqueue([job(f"{queue}{index}", queue=queue) for queue in "ab" for index in range(3)], NOW)
    assert await taken(driver, 4, "aabba") == ["a0", "b0", "a1", "b1"]


# Clocks that go back


async def test_a_slow_clock_starts_nothing_early():
    driver = MemoryDriver()
    await driver.enqueue([job("1", run_at=NOW + 10 * SECOND), job("2", run_at=NOW + 10 * SECOND, group="g")], NOW)
    assert (await driver.counts(NOW + 10 * SECOND))["default"] == {"ready": 2}
    assert await taken(driver, now=NOW + 9 * SECOND) == []
    assert (await driver.counts(NOW + 9 * SECOND))["default"] == {"scheduled": 2}
    recount(driver.store)
    assert sorted(await taken(driver, now=NOW + 10 * SECOND)) == ["1", "2"]


async def test_a_lease_is_valid_again_when_now_goes_back():
    """A fast clock sees it expire, a slow one does not: for that one it is inflight, and its group is full."""
    driver = MemoryDriver()
    await driver.enqueue([job("1", group="g"), job("2", group="g"), job("3")], NOW)
    held = {one.job.id: one for one in await driver.reserve(["default"], NOW, 10 * SECOND, 5)}
    assert sorted(held) == ["1", "3"]
    assert (await driver.counts(NOW + 10 * SECOND))["default"] == {"ready": 3}
    assert await taken(driver, now=NOW + 9 * SECOND) == []
    assert (await driver.counts(NOW + 9 * SECOND))["default"] == {"ready": 1, "inflight": 2}
    await driver.counts(NOW + 10 * SECOND)
    answers = await driver.settle([Ack(held["1"].lease), Ack(held["3"].lease)], NOW + 9 * SECOND)
    assert answers == [None, None]
    recount(driver.store)
    assert await taken(driver, now=NOW + 9 * SECOND) == ["2"]


async def test_a_lease_that_a_fast_clock_saw_expire_can_be_extended():
    driver = MemoryDriver()
    await driver.enqueue([job("1", group="g"), job("2", group="g")], NOW)
    held = (await driver.reserve(["default"], NOW, 10 * SECOND, 1))[0]
    await driver.counts(NOW + 20 * SECOND)
    longer = await driver.extend_lease(held.lease, NOW + 5 * SECOND, 10 * SECOND)
    assert longer.expires_at == NOW + 15 * SECOND
    assert await taken(driver, now=NOW + 14 * SECOND) == []
    assert await taken(driver, now=NOW + 15 * SECOND) == ["2"]
    recount(driver.store)


async def test_an_expired_lease_is_refused_before_and_after_another_takes_the_job():
    driver = MemoryDriver()
    await driver.enqueue([job("1")], NOW)
    held = (await driver.reserve(["default"], NOW, SECOND, 1))[0]
    later = NOW + 5 * SECOND
    stolen = Lease("1", "default", "f" * 32, NOW + LEASE)
    for _ in range(2):
        answers = await driver.settle([Ack(held.lease), Ack(stolen)], later)
        assert [type(answer) for answer in answers] == [LeaseExpired, LeaseMismatch]
        await driver.counts(later)  # now it is due again
    await driver.cancel(["1"], later)
    assert isinstance((await driver.settle([Ack(held.lease)], NOW))[0], JobNotInflight)


# Damage


@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("group", [None, "g"])
@pytest.mark.parametrize("before", ["ready", "expired", "inflight", "scheduled", "blocked", "done"])
def test_a_damaged_record_is_set_aside(how, group, before):
    async def go():
        driver = MemoryDriver()
        await driver.enqueue([job("never", queue="elsewhere")], NOW)
        run_at = NOW + SECOND if before == "scheduled" else None
        depends_on = ("never",) if before == "blocked" else ()
        own = job("1", group=group, group_limit=3 if group else 0, flow_id="f", run_at=run_at, depends_on=depends_on)
        await driver.enqueue([own], NOW)
        if before in ("expired", "inflight", "done"):
            held = await driver.reserve(["default"], NOW, SECOND if before == "expired" else LEASE, 1)
            if before == "done":
                await driver.ack(held[0].lease, NOW)
        await driver.enqueue([job("2", group=group), job("3", group=group)], NOW)
        damage(driver, "1", how)
        await reads(driver, NOW)
        later = NOW + 2 * SECOND
        assert await taken(driver, now=later) == ["2", "3"]
        await reads(driver, later)
        # A record that is not due is not met, unless its state is damaged.
        info = await driver.inspect("1", later)
        if how == "state" or before in ("ready", "expired", "scheduled"):
            assert info.state is State.DLQ
            assert info.job.reason.startswith("damaged record: ")
            assert await driver.requeue(["1"], later) == [None]
            await reads(driver, later)
        else:
            assert info.state == before
            assert info.job.reason == ""
        assert await driver.delete(["1"]) == [None]
        recount(driver.store)

    async def reads(driver, now):
        info = await driver.inspect("1", now)
        assert (type(info.job.type), type(info.job.payload), type(info.job.attempts)) == (str, bytes, int)
        assert info in (await driver.list(now=now)).items
        assert info in (await driver.flow("f", now)).nodes
        assert sum((await driver.counts(now))["default"].values()) == 3
        recount(driver.store)

    asyncio.run(go())


async def test_prune_goes_by_finished_at_and_not_by_the_order_of_calls():
    driver = MemoryDriver()
    await driver.enqueue([job("ahead"), job("behind")], NOW)
    ahead, behind = await driver.reserve(["default"], NOW, LEASE, 2)
    assert await driver.settle([Ack(ahead.lease)], NOW + 10 * SECOND) == [None]
    assert await driver.settle([Ack(behind.lease)], NOW) == [None]
    assert await driver.prune(NOW + 5 * SECOND, 10) == 1
    assert (await driver.inspect("ahead", NOW)).state == State.DONE
    recount(driver.store)


async def test_a_lease_of_zero_seconds_is_expired_at_once():
    driver = MemoryDriver()
    await driver.enqueue([job("a", run_at=NOW)], NOW - SECOND)
    for deliveries in (1, 2, 3):
        (held,) = await driver.reserve(["default"], NOW, 0 * SECOND, 1)
        assert held.job.deliveries == deliveries
        recount(driver.store)


# Features


def test_every_call_of_a_client_works_without_a_loop():
    make_every_call(MemoryDriver().blocking())


@pytest.mark.parametrize("field", ["deliveries", "edits"])
async def test_a_record_damaged_in_what_was_seen_is_compared_as_it_is_shown(field):
    """So that an operator can delete it by what a listing shows."""
    driver = MemoryDriver()
    await driver.enqueue([job("a")], NOW)
    assert damage_field(driver, "a", field, "word")
    shown = [Seen.of(await driver.inspect("a", NOW))]
    assert await driver.delete(["a"], shown) == [None]

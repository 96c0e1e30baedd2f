"""Steps: memos that a handler saves under its lease, and that a later execution of its job reads."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment, lease_of
from taskharbor.conformance.parts import AMEND, STEPS
from taskharbor.drivers import (
    Ack,
    Amend,
    Cancelled,
    Fail,
    InvalidJob,
    JobNotFound,
    JobNotInflight,
    JobRecord,
    Lease,
    LeaseExpired,
    LeaseMismatch,
    Memo,
    Outcome,
    Reserved,
    Retry,
    State,
    TaskHarborError,
)

AS_GIVEN = (
    "A saved memo comes back as it was given, byte for byte, with the `now` of its save in milliseconds and the "
    "`deliveries` of its job."
)
REPLACED = "A memo takes the place of the one with its name: so a save may be sent again."
FENCED = "`save` raises what `extend` would return for its lease, and then stores nothing."
MOVES_NOTHING = "A save moves neither the lease nor the job, and wakes no `wait`."
BOUNDS = (
    "A memo that is out of bounds is `InvalidJob`, whatever the lease: its name is a name, and its value has at most "
    "128 KiB."
)
ORDER = (
    "`steps` returns the memos of a job in the order of `at`, then of names by code point; a job without memos, and an "
    "unknown id, has none."
)
HAS_MEMOS = (
    "A record with a memo has `has_memos`, in every state and as it is reserved; no other has it, whatever was "
    "enqueued."
)
STAY = "Memos stay over retries, releases, takeovers and requeues, and after the end of the job."
AMENDED = (
    "An amend with a payload forgets the memos of its job, also with the same payload; any other amend leaves them."
)
DELETED = "What deletes a job deletes its memos: a later job of that id has none."


async def save(env: Environment, held: Reserved | Lease, name: str = "s", value: Any = b"v", at: float = 0) -> None:
    await env.driver.save(lease_of(held), name, value, env.at(at))


async def refusal(env: Environment, held: Reserved | Lease, at: float = 0, **what: Any) -> str:
    """The name of the error, or `ok`."""
    try:
        await save(env, held, at=at, **what)
    except TaskHarborError as error:
        return type(error).__name__
    return "ok"


async def names(env: Environment, job: Reserved | JobRecord | str) -> list[str]:
    """The names of its memos; what the record says of them must agree."""
    id = job if isinstance(job, str) else job.id if isinstance(job, JobRecord) else job.job.id
    found = [memo.name for memo in await env.driver.steps(id)]
    try:
        assert (await env.info(id)).job.has_memos is bool(found)
    except JobNotFound:
        assert not found
    return found


@case(AS_GIVEN, needs=STEPS)
async def as_given(env: Environment) -> None:
    await env.add()
    held = await env.take_one()
    value = bytes(range(256)) * 4
    await save(env, held, "charge", value, at=1.234)
    await save(env, held, "é 🚢 'x\"", b"", at=2)
    assert await env.driver.steps(held.job.id) == [
        Memo("charge", value, env.at(1.234), 1),
        Memo("é 🚢 'x\"", b"", env.at(2), 1),
    ]


@case(AS_GIVEN, STAY, needs=STEPS)
async def of_each_execution(env: Environment) -> None:
    await env.add()
    held = await env.take_one(lease=5)
    await save(env, held, "one", b"1")
    second = await env.take_one(at=6)
    assert second.job.has_memos
    await save(env, second, "two", b"2", at=7)
    assert await env.driver.steps(held.job.id) == [
        Memo("one", b"1", env.at(0), 1),
        Memo("two", b"2", env.at(7), 2),
    ]


@case(REPLACED, needs=STEPS)
async def replaced(env: Environment) -> None:
    await env.add()
    held = await env.take_one()
    await save(env, held, "page", b"1")
    await save(env, held, "page", b"1")
    assert await env.driver.steps(held.job.id) == [Memo("page", b"1", env.at(0), 1)]
    await save(env, held, "other", b"o", at=1)
    await save(env, held, "page", b"2", at=2)
    assert await env.driver.steps(held.job.id) == [Memo("other", b"o", env.at(1), 1), Memo("page", b"2", env.at(2), 1)]


@case(FENCED, needs=STEPS)
async def refused_without_the_lease(env: Environment) -> None:
    """Expired, settled, taken over, of another job, unknown: a zombie stores nothing."""
    await env.add_many(5)
    taken, expired, settled, other, sound = await env.take(5, lease=5)
    await env.extend(settled, other, sound, lease=100)
    await env.ack(settled)
    again = await env.take_one(at=6, lease=100)
    assert again.job.id == taken.job.id
    mixed = Lease(other.job.id, env.queue, sound.lease.token, env.at(100))
    unknown = Lease(env.name("unknown"), env.queue, "e" * 32, env.at(100))
    asked = [taken.lease, expired.lease, settled.lease, mixed, unknown, sound.lease]
    assert [await refusal(env, lease, at=7) for lease in asked] == [
        LeaseMismatch.__name__,
        LeaseExpired.__name__,
        JobNotInflight.__name__,
        LeaseMismatch.__name__,
        JobNotFound.__name__,
        "ok",
    ]
    assert [await names(env, held) for held in (taken, expired, settled, other, sound)] == [[], [], [], [], ["s"]]


@case(FENCED, needs=STEPS)
async def to_the_millisecond(env: Environment) -> None:
    await env.add()
    held = await env.take_one(lease=5)
    assert await refusal(env, held, at=5, name="late") == LeaseExpired.__name__
    assert await refusal(env, held, at=4.999, name="in_time") == "ok"
    assert await names(env, held) == ["in_time"]


@case(FENCED, needs=STEPS)
async def a_zombie_changes_no_memo(env: Environment) -> None:
    await env.add()
    held = await env.take_one(lease=5)
    await save(env, held, value=b"first")
    second = await env.take_one(at=6)
    assert await refusal(env, held, at=7, value=b"zombie") == LeaseMismatch.__name__
    await save(env, second, value=b"second", at=8)
    assert await refusal(env, held, at=9, value=b"zombie") == LeaseMismatch.__name__
    await env.fail(second, at=9)
    assert [await refusal(env, each, at=9, value=b"late") for each in (held, second)] == ["JobNotInflight"] * 2
    assert await env.driver.steps(held.job.id) == [Memo("s", b"second", env.at(8), 2)]


@case(MOVES_NOTHING, needs=STEPS)
async def moves_nothing(env: Environment) -> None:
    await env.add()
    held = await env.take_one(lease=10)
    before = await env.info(held, 9)
    await save(env, held, at=9)
    after = await env.info(held, 9)
    assert (after.state, after.lease_expires_at) == (State.INFLIGHT, before.lease_expires_at)
    assert await env.state(held, 10) is State.READY
    assert await refusal(env, held, at=10) == LeaseExpired.__name__


@case(BOUNDS, needs=STEPS)
async def at_the_bounds(env: Environment) -> None:
    await env.add()
    held = await env.take_one()
    long, value = "é" * 127 + "x", b"\x00\xff" * 64 * 1024
    await save(env, held, long, value)
    assert await env.driver.steps(held.job.id) == [Memo(long, value, env.at(0), 1)]


@case(BOUNDS, needs=STEPS)
async def beyond_the_bounds(env: Environment) -> None:
    await env.add_many(2)
    held, ended = await env.take(2)
    await env.ack(ended)
    bad: list[tuple[Any, Any]] = [
        ("", b""),
        ("x" * 256, b""),
        ("a\x00b", b""),
        ("{a}", b""),
        ("\ud800", b""),
        (7, b""),
        ("s", b"x" * (128 * 1024 + 1)),
        ("s", "text"),
        ("s", None),
    ]
    for name, value in bad:
        for each in (held, ended):
            assert await refusal(env, each, name=name, value=value) == InvalidJob.__name__
    assert [await names(env, each) for each in (held, ended)] == [[], []]


@case(ORDER, needs=STEPS)
async def in_order(env: Environment) -> None:
    await env.add_many(2)
    held, other = await env.take(2)
    for number, name in enumerate(("b", "a", "Z", "é", "z", "\U0001f6a2", "\uffee")):
        await save(env, held, name, b"%d" % number, at=2)
    await save(env, held, "first", at=1)
    await save(env, held, "last", at=3)
    assert await names(env, held) == ["first", "Z", "a", "b", "z", "é", "\uffee", "\U0001f6a2", "last"]
    assert await names(env, other) == []
    assert await env.driver.steps(env.name("unknown")) == []
    assert await env.driver.steps("") == []


@case(HAS_MEMOS, STAY, needs=STEPS)
async def after_every_end(env: Environment) -> None:
    for number in range(4):
        queue = env.q(f"{number}")
        await env.add(queue=queue)
        held = await env.take_one(queues=[queue])
        assert not held.job.has_memos
        await save(env, held)
        assert await names(env, held) == ["s"]
        ends: list[Outcome] = [
            Ack(held.lease),
            Retry(held.lease, None, 1),
            Fail(held.lease, "over", 1, env.now),
            Cancelled(held.lease, "over"),
        ]
        await env.done(ends[number])
        assert await names(env, held) == ["s"]
        (listed,) = (await env.driver.list(now=env.now, queue=queue)).items
        assert listed.job.has_memos
        if number > 1:
            assert await env.driver.requeue([held.job.id], env.now) == [None]
        if number:
            again = await env.take_one(queues=[queue])
            assert again.job.has_memos
            assert await names(env, again) == ["s"]


@case(STAY, HAS_MEMOS, needs=STEPS)
async def when_it_is_lost_or_cancelled(env: Environment) -> None:
    await env.add_many(2)
    released, cancelled = await env.take(2, worker=env.name("w"))
    await save(env, released, "r")
    await save(env, cancelled, "c")
    assert await env.driver.cancel([cancelled.job.id], env.now) == [None]
    assert await env.driver.release(env.name("w"), env.now) == 1
    assert [await names(env, held) for held in (released, cancelled)] == [["r"], ["c"]]
    assert await env.driver.requeue([cancelled.job.id], env.now, env.at(60)) == [None]
    assert [held.job.has_memos for held in await env.take(at=60)] == [True, True]


@case(HAS_MEMOS, needs=STEPS)
async def with_all_else_that_a_record_has(env: Environment) -> None:
    """Also where a driver hands out plain records in a shorter way."""
    await env.add_many(2, group="g", group_limit=2, priority=3, metadata={"a": "b"}, timeout=timedelta(seconds=9))
    first, second = await env.take(2)
    await save(env, first)
    for held in (first, second):
        await env.retry(held)
    found = {each.job.id: each.job.has_memos for each in await env.take(2)}
    assert found == {first.job.id: True, second.job.id: False}


@case(HAS_MEMOS, needs=STEPS)
async def not_as_enqueued(env: Environment) -> None:
    job = env.job(has_memos=True)
    await env.put(job)
    assert not (await env.info(job)).job.has_memos
    held = await env.take_one()
    assert not held.job.has_memos
    spawned = env.job(has_memos=True)
    await env.done(Ack(held.lease, None, (spawned,)))
    assert not (await env.take_one()).job.has_memos


@case(AMENDED, needs=(STEPS, AMEND))
async def forgotten_by_a_new_payload(env: Environment) -> None:
    for number, payload in enumerate((b"new", b"{}")):
        queue = env.q(f"{number}")
        await env.add_many(3, queue=queue)
        waiting, dead, other = await env.take(3, queues=[queue])
        for held in (waiting, dead, other):
            await save(env, held, "one")
            await save(env, held, "two")
        await env.retry(waiting)
        await env.fail(dead)
        changes = [Amend(id=held.job.id, deliveries=1, edits=0, payload=payload) for held in (waiting, dead, other)]
        results = await env.driver.amend(changes, env.now)
        assert [type(result).__name__ for result in results] == ["NoneType", "NoneType", "WrongState"]
        assert [await names(env, held) for held in (waiting, dead, other)] == [[], [], ["one", "two"]]
        again = await env.take_one(queues=[queue])
        assert (again.job.id, again.job.has_memos) == (waiting.job.id, False)
        await save(env, again, "three")
        assert await names(env, again) == ["three"]


@case(AMENDED, needs=(STEPS, AMEND))
async def kept_by_any_other_change(env: Environment) -> None:
    await env.add()
    held = await env.take_one()
    await save(env, held)
    await env.retry(held)
    change: dict[str, Any] = {"run_at": env.at(5), "priority": 2, "max_attempts": 9, "metadata": {"a": "b"}}
    amend = Amend(id=held.job.id, deliveries=1, edits=0, timeout=timedelta(seconds=5), **change)
    assert await env.driver.amend([amend], env.now) == [None]
    assert await names(env, held) == ["s"]
    assert (await env.take_one(at=5)).job.has_memos


@case(DELETED, needs=STEPS)
async def deleted_with_the_job(env: Environment) -> None:
    job = await env.add()
    held = await env.take_one()
    await save(env, held, "old")
    assert await env.driver.delete([job.id]) == [None]
    assert await env.driver.steps(job.id) == []
    assert await refusal(env, held) == JobNotFound.__name__
    await env.put(job)
    assert await names(env, job) == []
    await save(env, await env.take_one(), "new")
    assert await names(env, job) == ["new"]


@case(DELETED, needs=STEPS)
async def pruned_with_the_job(env: Environment) -> None:
    jobs = await env.add_many(3)
    done, dropped, dead = await env.take(3)
    for held in (done, dropped, dead):
        await save(env, held, "old")
    await env.ack(done)
    await env.drop(dropped)
    await env.fail(dead)
    assert await env.driver.prune(env.at(1), 100) == 2
    assert [await names(env, held) for held in (done, dropped, dead)] == [[], [], ["old"]]
    await env.put(*jobs[:2])
    for held in await env.take(2):
        assert not held.job.has_memos
        await save(env, held, "new")
        assert await names(env, held) == ["new"]

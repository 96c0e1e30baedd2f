"""Amend: changes of stored jobs that are not running."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgspec

from taskharbor.conformance.case import case
from taskharbor.conformance.cases.wait import woken
from taskharbor.conformance.environment import Environment, ids_of, refusals
from taskharbor.conformance.parts import AMEND, ATTEMPTS
from taskharbor.drivers import Ack, Amend, JobRecord, Lost, Retry, TaskHarborError, replace

REPLACES = "Amend replaces the fields given, leaves all others, and adds one to `edits`."
EACH = (
    "Changes are applied one after the other in the order given, each on its own: a refused one has its error in its "
    "place."
)
STATES = (
    "An unknown job is `JobNotFound`; a job that is done or under a lease, also an expired one that nobody has taken "
    "over, is `WrongState`."
)
SINCE = (
    "A job whose `deliveries` or `edits` are not those given was reserved or amended since, and is `WrongState`: so a "
    "change that is sent again is refused."
)
INVALID = "A change without a field, and a value that enqueue would refuse, is `InvalidJob`."
PLACE = (
    "A waiting job with a new `run_at` or priority takes a new place, as by a retry: due at the later of `run_at` and "
    "`now`, and at once without one."
)
IN_PLACE = "Any other change leaves its place."
LATER = "A blocked job uses the changes when it is released; a dead or cancelled one keeps its state."
FENCE = "Amend never changes `deliveries`, `lost`, `attempts`, nor what the next reservation says of a lost execution."
WAKES = "A job that becomes due by an amend wakes `wait`."

ALL: dict[str, Any] = {
    "payload": b"\x00new\xff",
    "priority": 7,
    "max_attempts": 9,
    "timeout": timedelta(seconds=3),
    "metadata": {"tenant": "two", "é": ""},
    "last_error": "ValueError: •••",
    "reason": "",
    "trail": b"\x91\x00\xff",
    "note": b"\x00\xff",
}


async def amend(env: Environment, *changes: Amend, at: float = 0) -> list[TaskHarborError | None]:
    return await env.driver.amend(changes, env.at(at))


async def amended(env: Environment, job: JobRecord, at: float = 0, **changes: Any) -> JobRecord:
    """Change a job, seen as it is now; the change must be accepted."""
    seen = (await env.info(job, at)).job
    change = Amend(id=job.id, deliveries=seen.deliveries, edits=seen.edits, **changes)
    assert refusals(await amend(env, change, at=at)) == ["ok"]
    return (await env.info(job, at)).job


def fresh(job: JobRecord, **changes: Any) -> Amend:
    """A change of a job that was neither reserved nor amended yet."""
    return Amend(id=job.id, deliveries=0, edits=0, **changes)


@case(REPLACES, needs=AMEND)
async def every_field(env: Environment) -> None:
    job = await env.add(run_at=env.at(60), timeout=timedelta(seconds=1), metadata={"tenant": "one"})
    when = env.at(30)
    assert await amended(env, job, run_at=when, **ALL) == replace(job, run_at=when, edits=1, **ALL)
    assert await amended(env, job, run_at=None, timeout=None, metadata={}) == replace(
        job, **{**ALL, "run_at": None, "timeout": None, "metadata": {}, "edits": 2}
    )
    held = await env.take_one()
    assert (held.job.payload, held.job.edits, held.job.deliveries) == (ALL["payload"], 2, 1)


@case(REPLACES, needs=AMEND)
async def one_field_at_a_time(env: Environment) -> None:
    """What is not given stays, whatever it is."""
    for number, (name, value) in enumerate({**ALL, "run_at": env.at(30)}.items()):
        job = await env.add(
            queue=env.q(f"{number}"),
            idempotency_key=env.name("key"),
            flow_id=env.name("flow"),
            run_at=env.at(60),
            priority=-3,
            max_attempts=4,
            attempts=2,
            payload=b"old",
            timeout=timedelta(seconds=1),
            metadata={"a": "b"},
        )
        assert await amended(env, job, **{name: value}) == replace(job, edits=1, **{name: value})


@case(REPLACES, needs=AMEND)
async def the_dict_is_a_copy(env: Environment) -> None:
    job = await env.add()
    given = {"a": "b"}
    await amended(env, job, metadata=given)
    given["a"] = "c"
    assert (await env.info(job)).job.metadata == {"a": "b"}


@case(REPLACES, needs=AMEND)
async def counted_each_time(env: Environment) -> None:
    job = await env.add()
    assert [(await amended(env, job, max_attempts=number)).edits for number in range(1, 6)] == [1, 2, 3, 4, 5]
    same = await amended(env, job, max_attempts=5)
    assert (same.edits, same.max_attempts) == (6, 5)


@case(EACH, STATES, needs=AMEND)
async def a_batch(env: Environment) -> None:
    first, second, third = await env.add_many(3)
    assert await amend(env) == []
    changes = [
        fresh(first, payload=b"1"),
        Amend(id=env.name("unknown"), deliveries=0, edits=0, payload=b"x"),
        fresh(second, priority=2**40),
        fresh(second, payload=b"2"),
        Amend(id=third.id, deliveries=1, edits=0, payload=b"x"),
        fresh(third, payload=b"3"),
    ]
    assert refusals(await amend(env, *changes)) == ["ok", "JobNotFound", "InvalidJob", "ok", "WrongState", "ok"]
    found = [(await env.info(job)).job for job in (first, second, third)]
    assert [(record.payload, record.edits) for record in found] == [(b"1", 1), (b"2", 1), (b"3", 1)]


@case(EACH, SINCE, needs=AMEND)
async def the_same_job_twice(env: Environment) -> None:
    job = await env.add()
    assert refusals(await amend(env, fresh(job, payload=b"1"), fresh(job, payload=b"2"))) == ["ok", "WrongState"]
    next_edit = Amend(id=job.id, deliveries=0, edits=1, payload=b"3")
    last_edit = Amend(id=job.id, deliveries=0, edits=2, priority=1)
    assert refusals(await amend(env, next_edit, last_edit)) == ["ok", "ok"]
    record = (await env.info(job)).job
    assert (record.payload, record.priority, record.edits) == (b"3", 1, 3)


@case(EACH, REPLACES, needs=AMEND)
async def the_same_job_again_and_again(env: Environment) -> None:
    """Each change sees what the one before it has left."""
    job = await env.add(metadata={"a": "1"}, timeout=timedelta(seconds=1), group="g", group_limit=3)
    changes: list[dict[str, Any]] = [
        {"metadata": {"b": "2"}},
        {"timeout": timedelta(seconds=2)},
        {"metadata": {}},
        {"timeout": None, "max_attempts": 4},
        {"run_at": env.at(60)},
    ]
    edits = [Amend(id=job.id, deliveries=0, edits=number, **each) for number, each in enumerate(changes)]
    stale = Amend(id=job.id, deliveries=0, edits=0, metadata={"c": "3"}, timeout=timedelta(seconds=3))
    for number, expected in enumerate(({"b": "2"}, {"b": "2"}, {}, {}, {})):
        assert refusals(await amend(env, edits[number], stale)) == ["ok", "WrongState"]
        assert (await env.info(job)).job.metadata == expected
    twin = await env.add(metadata={"a": "1"}, timeout=timedelta(seconds=1), group="g", group_limit=3)
    edits = [Amend(id=twin.id, deliveries=0, edits=number, **each) for number, each in enumerate(changes)]
    stale = Amend(id=twin.id, deliveries=0, edits=0, metadata={"c": "3"}, timeout=timedelta(seconds=3))
    results = refusals(await amend(env, *edits[:2], stale, *edits[2:4], stale, edits[4]))
    assert results == ["ok", "ok", "WrongState", "ok", "ok", "WrongState", "ok"]
    for each in (job, twin):
        record = (await env.info(each)).job
        assert (record.metadata, record.timeout, record.max_attempts, record.edits) == ({}, None, 4, 5)
        assert (record.run_at, record.group, record.group_limit) == (env.at(60), "g", 3)


@case(STATES, needs=AMEND)
async def in_every_state(env: Environment) -> None:
    done = await env.finished()
    dead = await env.dead()
    cancelled = await env.add()
    await env.driver.cancel([cancelled.id], env.now)
    expired = await env.add()
    await env.take_one(lease=0.5)
    inflight = await env.add()
    await env.take_one()
    ready, later = await env.add(), await env.add(run_at=env.at(60))
    blocked = await env.add(depends_on=(later.id,))
    jobs = [done, dead, cancelled, expired, inflight, ready, later, blocked]
    before = [await env.info(job, 1) for job in jobs]
    changes = [
        Amend(id=info.job.id, deliveries=info.job.deliveries, edits=0, payload=b"new", max_attempts=3)
        for info in before
    ]
    wrong = "WrongState"
    assert refusals(await amend(env, *changes, at=1)) == [wrong, "ok", "ok", wrong, wrong, "ok", "ok", "ok"]
    after = [await env.info(job, 1) for job in jobs]
    for old, new in zip(before, after, strict=True):
        changed = old.job.id not in (done.id, expired.id, inflight.id)
        job = replace(old.job, payload=b"new", max_attempts=3, edits=1) if changed else old.job
        assert new == msgspec.structs.replace(old, job=job), f"{old.state} reads {new.state}"


@case(STATES, FENCE, needs=AMEND)
async def a_refused_one_leaves_the_lease(env: Environment) -> None:
    await env.add()
    held = await env.take_one()
    change = Amend(id=held.job.id, deliveries=1, edits=0, priority=5, run_at=None)
    assert refusals(await amend(env, change)) == ["WrongState"]
    await env.ack(held)


@case(STATES, needs=AMEND)
async def after_the_lease_is_over_and_given_back(env: Environment) -> None:
    """Expired: refused, because what ran it may still run. Retried or released: accepted."""
    job = await env.add()
    held = await env.take_one(lease=5, worker=env.name("w"))
    await env.counts(5)  # a store may notice the end of a lease here, or not
    expired = Amend(id=job.id, deliveries=1, edits=0, payload=b"new")
    assert refusals(await amend(env, expired, at=5)) == ["WrongState"]
    held = await env.take_one(at=6, worker=env.name("w"))
    await env.driver.release(env.name("w"), env.at(7))
    assert (await amended(env, job, 7, payload=b"released")).payload == b"released"
    held = await env.take_one(at=8)
    assert held.job.payload == b"released"
    await env.retry(held, at=9)
    assert (await amended(env, job, 9, payload=b"retried")).payload == b"retried"


@case(SINCE, needs=AMEND)
async def seen_before_a_reservation(env: Environment) -> None:
    job = await env.add()
    await env.retry(await env.take_one())
    assert refusals(await amend(env, fresh(job, payload=b"new"))) == ["WrongState"]
    assert refusals(await amend(env, Amend(id=job.id, deliveries=1, edits=1, payload=b"new"))) == ["WrongState"]
    assert refusals(await amend(env, Amend(id=job.id, deliveries=2, edits=0, payload=b"new"))) == ["WrongState"]
    record = (await env.info(job)).job
    assert (record.payload, record.edits) == (job.payload, 0)
    assert refusals(await amend(env, Amend(id=job.id, deliveries=1, edits=0, payload=b"new"))) == ["ok"]


@case(SINCE, needs=AMEND)
async def sent_again(env: Environment) -> None:
    job = await env.add()
    change = fresh(job, payload=b"new")
    assert [refusals(await amend(env, change)) for _ in range(3)] == [["ok"], ["WrongState"], ["WrongState"]]
    assert (await env.info(job)).job.edits == 1


@case(SINCE, needs=AMEND)
async def of_two_editors_one_wins(env: Environment) -> None:
    job = await env.add()
    others = await env.siblings(4)
    answers = await asyncio.gather(
        *(each.amend([fresh(job, payload=b"%d" % number)], env.now) for number, each in enumerate(others))
    )
    assert sorted(refusals([answer for (answer,) in answers])) == ["WrongState"] * 3 + ["ok"]
    record = (await env.info(job)).job
    assert (record.edits, record.payload) == (1, b"%d" % answers.index([None]))


@case(INVALID, needs=AMEND)
async def without_a_field(env: Environment) -> None:
    job = await env.add()
    assert refusals(await amend(env, Amend(id=job.id, deliveries=0, edits=0))) == ["InvalidJob"]
    assert (await env.info(job)).job.edits == 0


@case(INVALID, needs=AMEND)
async def values_out_of_bounds(env: Environment) -> None:
    """Whatever the state: also of a job that would be refused for another reason, or does not exist."""
    job = await env.add()
    done = await env.finished(queue=env.q("other"))
    bad: list[dict[str, Any]] = [
        {"payload": b"x" * (1024 * 1024 + 1)},
        {"payload": "text"},
        {"run_at": env.now.replace(tzinfo=None)},
        {"run_at": "soon"},
        {"priority": 2**31},
        {"priority": True},
        {"max_attempts": -1},
        {"timeout": timedelta(0)},
        {"timeout": 5},
        {"metadata": {"a": 1}},
        {"metadata": {"k": "\ud800"}},
        {"metadata": {"k": "x" * 16 * 1024}},
        {"metadata": None},
    ]
    for fields in bad:
        ids = [job.id, done.id, env.name("unknown")]
        changes = [Amend(id=id, deliveries=0, edits=0, **fields) for id in ids]
        assert refusals(await amend(env, *changes)) == ["InvalidJob"] * 3, f"{fields.keys()} was taken"
    for deliveries, edits in ((-1, 0), (0, 2**40)):
        change = Amend(id=job.id, deliveries=deliveries, edits=edits, priority=1)
        assert refusals(await amend(env, change)) == ["InvalidJob"]
    for id in ("", "a\x00b", "\ud800", "x" * 256):
        assert refusals(await amend(env, Amend(id=id, deliveries=0, edits=0, priority=1))) == ["InvalidJob"]
    assert (await env.info(job)).job == job


@case(INVALID, needs=AMEND)
async def at_the_bound(env: Environment) -> None:
    job = await env.add()
    payload = b"x" * (1024 * 1024)
    metadata = {f"{number:02d}": "x" * 200 for number in range(64)}
    found = await amended(env, job, payload=payload, metadata=metadata, priority=-(2**31), max_attempts=2**31 - 1)
    assert (found.payload == payload, found.metadata, found.priority) == (True, metadata, -(2**31))


@case(PLACE, needs=AMEND)
async def a_new_priority(env: Environment) -> None:
    """Higher comes first; the old priority again comes behind those that arrived meanwhile."""
    first, second, third = await env.add_many(3)
    await amended(env, third, 1, priority=1)
    await amended(env, first, 2, priority=0)
    assert await env.drain(at=3) == ids_of([third, second, first])


@case(PLACE, needs=AMEND)
async def run_at_of_a_ready_job(env: Environment) -> None:
    """Moved later, the job is scheduled; moved earlier, it is due from `now` on, after jobs already due."""
    first, second, third = await env.add_many(3)
    await amended(env, first, 1, run_at=env.at(60))
    assert await env.states(first, second, at=1) == ["scheduled", "ready"]
    await amended(env, second, 1, run_at=env.at(-100))
    assert await env.drain(at=2) == ids_of([third, second])
    assert await env.take(at=59.999) == []
    assert await env.taken_ids(at=60) == [first.id]


@case(PLACE, needs=AMEND)
async def run_at_of_a_scheduled_job(env: Environment) -> None:
    sooner, later, at_once, past = await env.add_many(4, run_at=env.at(60))
    await amended(env, sooner, 1, run_at=env.at(30))
    await amended(env, later, 1, run_at=env.at(90))
    await amended(env, at_once, 1, run_at=None)
    await amended(env, past, 1, run_at=env.at(-5))
    assert await env.states(sooner, later, at_once, past, at=1) == ["scheduled", "scheduled", "ready", "ready"]
    assert await env.counts(1) == {"scheduled": 2, "ready": 2}
    assert await env.drain(at=1) == ids_of([at_once, past])
    assert await env.drain(at=29.999) == []
    assert await env.drain(at=30) == [sooner.id]
    assert await env.drain(at=89.999) == []
    assert await env.drain(at=90) == [later.id]


@case(PLACE, needs=AMEND)
async def priority_of_a_scheduled_job(env: Environment) -> None:
    """It stays scheduled, and has its new priority when it is due."""
    low, high = await env.add_many(2, run_at=env.at(60))
    await amended(env, high, 1, priority=3)
    assert await env.states(low, high, at=59.999) == ["scheduled"] * 2
    assert await env.drain(at=60) == ids_of([high, low])


@case(PLACE, needs=AMEND)
async def a_new_place_among_equals(env: Environment) -> None:
    """Both due at the same moment: the amended one has arrived last."""
    first, second = await env.add_many(2, run_at=env.at(10))
    await amended(env, first, 1, run_at=env.at(10))
    assert await env.drain(at=10) == ids_of([second, first])


@case(PLACE, "Jobs of one group start in the order in which they became due; priority orders nothing inside a group.",
      needs=AMEND)  # fmt: skip
async def in_a_group(env: Environment) -> None:
    """It goes to the end of its group, and neither takes nor frees capacity."""
    group = env.name("g")
    running, first, second, third = await env.add_many(4, group=group)
    held = await env.take_one()
    assert held.job.id == running.id
    await amended(env, first, 1, priority=9)
    assert await env.take(at=1) == []
    await amended(env, third, 1, run_at=env.at(60))
    await env.ack(held, at=2)
    assert await env.drain(at=3) == ids_of([second, first])
    await amended(env, third, 4, run_at=None)
    assert await env.drain(at=4) == [third.id]


@case(PLACE, "A paused queue gives no new reservation; resume gives them again.", needs=AMEND)
async def in_a_paused_queue(env: Environment) -> None:
    job = await env.add(run_at=env.at(60))
    await env.driver.pause(env.queue)
    await amended(env, job, 1, run_at=None)
    assert await env.take(at=1) == []
    await env.driver.resume(env.queue)
    assert await env.taken_ids(at=1) == [job.id]


@case(IN_PLACE, needs=AMEND)
async def other_changes_leave_the_place(env: Environment) -> None:
    first, second = await env.add_many(2)
    grouped, behind = await env.add_many(2, queue=env.q("other"), group=env.name("g"))
    changes = {name: value for name, value in ALL.items() if name != "priority"}
    await amended(env, first, 5, **changes)
    await amended(env, grouped, 5, **changes)
    assert await env.drain(at=6) == ids_of([first, second])
    assert await env.drain(at=6, queues=[env.q("other")]) == ids_of([grouped, behind])


@case(LATER, needs=AMEND)
async def blocked_and_then_released(env: Environment) -> None:
    """With a new run_at in the future it is scheduled by the ack; with a new priority it has that place."""
    root = await env.add()
    low, high, later = await env.add_many(3, depends_on=(root.id,))
    sooner = await env.add(depends_on=(root.id,), run_at=env.at(60))
    held = await env.take_one()
    await amended(env, high, 1, priority=5, payload=b"new")
    await amended(env, later, 1, run_at=env.at(30))
    await amended(env, sooner, 1, run_at=None)
    assert await env.states(low, high, later, sooner, at=1) == ["blocked"] * 4
    assert await env.take(at=1) == []
    await env.ack(held, at=2)
    assert await env.states(later, sooner, at=2) == ["scheduled", "ready"]
    taken = await env.take(at=2, lease=100)
    assert ids_of(taken) == ids_of([high, low, sooner])
    assert taken[0].job.payload == b"new"
    assert await env.taken_ids(at=30) == [later.id]


@case(LATER, needs=AMEND)
async def dead_and_cancelled_ones(env: Environment) -> None:
    """They stay as they are, and run with the changes after a requeue."""
    dead = await env.dead()
    cancelled = await env.add()
    await env.driver.cancel([cancelled.id], env.now)
    for job in (dead, cancelled):
        before = await env.info(job, 1)
        found = await amended(env, job, 1, payload=b"mended", priority=5, run_at=env.at(60))
        assert found == replace(before.job, payload=b"mended", priority=5, run_at=env.at(60), edits=1)
    assert await env.states(dead, cancelled, at=100) == ["dlq", "cancelled"]
    assert await env.take(at=100) == []
    await env.driver.requeue([dead.id, cancelled.id], env.at(101))
    taken = await env.take(at=101)
    assert [(each.job.payload, each.job.priority, each.job.edits) for each in taken] == [(b"mended", 5, 1)] * 2


@case(LATER, needs=AMEND)
async def a_cancelled_one_is_pruned_all_the_same(env: Environment) -> None:
    job = await env.add()
    await env.driver.cancel([job.id], env.now)
    await amended(env, job, 1, payload=b"new")
    assert await env.driver.prune(env.at(5), 10) == 1
    assert await env.gone(job)


@case(FENCE, needs=AMEND)
async def counters_stay(env: Environment) -> None:
    job = await env.add()
    await env.take_one(lease=5)
    held = await env.take_one(at=5)
    await env.done(Retry(held.lease, None, 0), at=6)
    before = (await env.info(job, 6)).job
    found = await amended(env, job, 7, run_at=None, priority=2)
    assert (found.deliveries, found.lost, found.attempts) == (before.deliveries, before.lost, before.attempts)
    assert (found.deliveries, found.lost) == (2, 1)
    await env.done(Retry(held.lease, None, 0), at=8)  # a repetition is one still
    again = await env.take_one(at=9)
    assert (again.job.deliveries, again.job.lost) == (3, 1)


@case(FENCE, needs=(AMEND, ATTEMPTS))
async def a_loss_is_not_forgotten(env: Environment) -> None:
    job = await env.add()
    await env.take_one(at=1, worker=env.name("w"))
    await env.driver.release(env.name("w"), env.at(2))
    await amended(env, job, 3, run_at=env.at(10), payload=b"new")
    assert (await env.take_one(at=10)).lost_by == Lost(env.name("w"), env.at(1), env.at(2))


@case(FENCE, needs=(AMEND, ATTEMPTS))
async def what_was_written_stays(env: Environment) -> None:
    job = await env.add(keep_for=timedelta(hours=1))
    held = await env.take_one(worker=env.name("w"))
    await env.extend(held, notes={held.lease.token: b"note"})
    await env.done(Retry(held.lease, None, 1, "text", env.now, "Boom", "f1", b"trail"))
    before = (await env.info(job)).job
    assert await amended(env, job, priority=1) == replace(before, priority=1, edits=1)


@case(WAKES, needs=AMEND)
async def wakes_a_waiting_worker(env: Environment) -> None:
    job = await env.add(run_at=env.at(60))
    await woken(env, lambda: amend(env, fresh(job, run_at=None)), reserves_first=True)


@case(PLACE, needs=AMEND)
async def after_other_verbs(env: Environment) -> None:
    """An amended job is cancelled, requeued, deleted and acked like any other."""
    first, second, third = await env.add_many(3, run_at=env.at(60))
    for job in (first, second, third):
        await amended(env, job, run_at=None, priority=1)
    assert await env.driver.cancel([first.id], env.at(1)) == [None]
    assert await env.driver.delete([second.id]) == [None]
    assert await env.driver.requeue([first.id], env.at(2)) == [None]
    held = await env.take(at=3)
    assert ids_of(held) == ids_of([third, first])
    assert await env.settle(*(Ack(each.lease) for each in held), at=4) == [None, None]
    assert await env.counts(4) == {"done": 2}

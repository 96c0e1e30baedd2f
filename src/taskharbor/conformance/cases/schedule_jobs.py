"""The jobs of schedules, stored with the change of the row; and what neither a row nor a job of one may be."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from taskharbor.conformance.case import case
from taskharbor.conformance.cases.schedules import (
    INVALID,
    ORDER,
    REFUSED,
    REPEATED,
    add,
    apply,
    change,
    due,
    read,
    schedule,
)
from taskharbor.conformance.cases.wait import woken
from taskharbor.conformance.environment import MS, Environment
from taskharbor.conformance.parts import SCHEDULES, UPCOMING
from taskharbor.drivers import InvalidJob, State, StoredSchedule
from taskharbor.model.job import EPOCH
from taskharbor.model.schedule import MAX_JOBS_OF_A_CHANGE, MAX_SCHEDULE_BYTES

JOBS = (
    "The jobs of a change are stored in its transaction as `enqueue` stores them. An id that exists already stores "
    "nothing, and the row changes all the same."
)
WAKES = "A job that a change stores ends a `wait`, as an enqueued one does."
OF_ITS_QUEUE = (
    "The same holds for a job that enqueue would refuse, that is not of the queue `to.queue`, that comes without a "
    "`to`, or that has dependencies, a flow or an idempotency key."
)
BAD_NAMES = ("", "a\x00b", "a\nb", "{", "\ud800", "x" * 256, "é" * 128, 7, None)


@case(JOBS, needs=SCHEDULES)
async def jobs_are_stored_as_they_are_given(env: Environment) -> None:
    """Every field that such a job may have; and those that only the store writes start fresh."""
    row = schedule(env, "s", 1)
    job = env.job(
        type="mail:send",
        payload=bytes(range(256)),
        run_at=env.at(-1.5),
        priority=-7,
        attempts=2,
        max_attempts=9,
        group=env.name("group"),
        group_limit=3,
        metadata={"taskharbor.schedule": "s", "a": "\x00 \U0001f600"},
        created_at=env.at(-60.001),
    )
    dirty = replace(job, deliveries=7, lost=3, last_error="old", failed_at=env.now, reason="old", result=b"old")
    assert await apply(env, change(None, row, dirty), at=5) == [True]
    info = await env.info(job, 5)
    assert (info.job, info.state) == (job, State.READY)
    assert (await env.take_one(at=5)).job == replace(job, deliveries=1, **env.ran(5))
    plain = env.job(created_at=EPOCH)
    assert await apply(env, change(row, replace(row, revision=env.name("new")), plain), at=6) == [True]
    assert (await env.info(plain, 6)).job == replace(plain, created_at=env.at(6))


@case(JOBS, needs=SCHEDULES)
async def jobs_wait_like_others(env: Environment) -> None:
    """For their time, behind their priority and their group's limit, and in the order in which they are given."""
    waiting = await env.add()
    a, b, c, d = (env.job(id=env.name(id)) for id in ("d", "c", "b", "a"))
    urgent, later = replace(c, priority=5), replace(d, run_at=env.at(10))
    grouped = [env.job(group=env.name("g"), group_limit=1) for _ in range(3)]
    assert await apply(env, change(None, schedule(env, "s", 1), a, b, urgent, later, *grouped)) == [True]
    assert await env.states(a, later, *grouped) == ["ready", "scheduled", "ready", "ready", "ready"]
    assert await env.counts() == {"ready": 7, "scheduled": 1}
    taken = await env.taken_ids()
    assert [id for id in taken if id != grouped[0].id] == [urgent.id, waiting.id, a.id, b.id]
    assert grouped[0].id in taken
    assert await env.taken_ids(at=9.999) == []
    assert later.id in await env.taken_ids(at=10)


@case(JOBS, REPEATED, needs=SCHEDULES)
async def jobs_are_stored_once(env: Environment) -> None:
    """However often the change is sent, and whatever has become of the job and of the row since."""
    one, two, three = (schedule(env, "s", version, version=version) for version in (1, 2, 3))
    first, second = env.job(), env.job()
    fires = change(one, two, first, second)
    await add(env, one)
    for _ in range(3):
        assert await apply(env, fires) == [True]
    assert await env.all_ids() == [first.id, second.id]
    await env.ack(await env.take_one())
    assert await env.driver.prune(env.at(60), 100) == 1
    assert await env.driver.delete([second.id]) == [None]
    assert await apply(env, fires) == [True]
    assert await env.all_ids() == []
    assert await apply(env, change(two, three)) == [True]
    assert await apply(env, fires) == [False]
    assert await apply(env, change(three, None)) == [True]
    assert await apply(env, fires) == [False]
    assert await env.all_ids() == []
    assert await read(env) == []


@case(JOBS, needs=SCHEDULES)
async def ids_that_exist(env: Environment) -> None:
    """In the store in any state, in the call, and in another queue."""
    other = env.q("other")
    done, elsewhere = await env.finished(), await env.add(queue=other)
    one, two, new = (schedule(env, "s", version, version=version) for version in (1, 2, 3))
    fresh = env.job()
    same = [replace(job, queue=env.queue, payload=b"else") for job in (done, elsewhere, fresh)]
    assert await apply(env, change(None, one, same[0], fresh, same[1], same[2])) == [True]
    assert await read(env) == [one]
    assert await env.all_ids() == [done.id, fresh.id]
    assert await env.states(done, elsewhere, fresh) == ["done", "ready", "ready"]
    assert (await env.info(fresh)).job.payload == fresh.payload
    assert (await env.info(elsewhere)).job == elsewhere
    assert await apply(env, change(one, two, same[2]), change(two, new, same[0], same[1])) == [True, True]
    assert await read(env) == [new]
    assert await env.all_ids() == [done.id, fresh.id]
    assert (await env.driver.enqueue([fresh], env.now))[0].existed


@case(REFUSED, JOBS, needs=SCHEDULES)
async def a_refused_change_stores_no_job(env: Environment) -> None:
    row = schedule(env, "s", 1)
    await add(env, row)
    new = schedule(env, "s", 2, version=2)
    jobs = [env.job(), env.job(run_at=env.at(9)), env.job(group=env.name("g"), group_limit=5)]
    assert await apply(env, change(None, new, *jobs)) == [False]
    assert await apply(env, change(new, schedule(env, "s", 3, version=3), *jobs)) == [False]
    assert await env.all_ids() == []
    assert env.queue not in await env.driver.queues()
    for job in jobs:
        assert await env.gone(job)


@case(JOBS, INVALID, needs=SCHEDULES)
async def as_many_jobs_as_a_change_may_have(env: Environment) -> None:
    jobs = [env.job(run_at=env.at(number % 2)) for number in range(MAX_JOBS_OF_A_CHANGE)]
    new = schedule(env, "s", 1)
    assert await apply(env, change(None, new, *jobs)) == [True]
    assert await env.counts() == {"ready": 500, "scheduled": 500}
    assert await apply(env, change(None, new, *jobs)) == [True]
    assert await env.counts(1) == {"ready": 1000}


@case(JOBS, ORDER, needs=SCHEDULES)
async def many_in_a_call(env: Environment) -> None:
    """Each with a job, and half of them refused."""
    rows = [schedule(env, f"{number:03d}", number / 10, version="old") for number in range(300)]
    await add(env, *rows[::2])
    new = [replace(row, revision=row.revision + "!", body=row.name.encode()) for row in rows]
    jobs = [env.job() for _ in rows]
    expected = [number % 2 == 0 for number in range(300)]
    assert await apply(env, *map(change, rows, new, jobs)) == expected
    assert await env.all_ids() == [job.id for job in jobs[::2]]
    assert await read(env) == new[::2]
    assert await env.drain() == [job.id for job in jobs[::2]]


@case(WAKES, needs=SCHEDULES)
async def a_waiting_worker_is_woken(env: Environment) -> None:
    row = schedule(env, "s", 1)
    await woken(env, lambda: apply(env, change(None, row, env.job())))


@case(WAKES, needs=SCHEDULES)
async def woken_by_a_job_in_the_new_queue(env: Environment) -> None:
    row, other = schedule(env, "s", 1), env.q("other")
    await add(env, row)
    moved = schedule(env, "s", 2, queue=other, version=2)
    await woken(env, lambda: apply(env, change(row, moved, env.job(queue=other))), [other])


@case(WAKES, needs=(SCHEDULES, UPCOMING))
async def jobs_for_later_are_ahead(env: Environment) -> None:
    """A schedule itself is nothing that a reserve could return."""
    row = schedule(env, "s", 5)
    await add(env, row)
    assert await env.driver.upcoming([env.queue], env.now) is None
    assert await apply(env, change(row, schedule(env, "s", 9, version=2), env.job(run_at=env.at(7)))) == [True]
    assert await env.driver.upcoming([env.queue], env.now) == env.at(7)


# Out of bounds


@case(INVALID, needs=SCHEDULES)
async def rows_out_of_bounds(env: Environment) -> None:
    known, good = schedule(env, "known", 1), schedule(env, "good", 1)
    await add(env, known)
    wrong: list[Any] = [
        None,
        {"name": good.name, "expect": None, "to": None},
        good,
        *(replace(change(None, good), name=name, to=None) for name in BAD_NAMES),
        *(replace(change(None, good), name=name, to=replace(good, name=name)) for name in BAD_NAMES),
        *(replace(change(None, good), expect=expect) for expect in BAD_NAMES[:-1]),
        replace(change(None, good), name=env.name("another")),
        replace(change(None, good), to={"name": good.name}),
        *(change(None, replace(good, revision=revision)) for revision in BAD_NAMES),
        *(change(None, replace(good, queue=queue)) for queue in BAD_NAMES),
        *(
            change(None, replace(good, body=body))
            for body in ("text", None, bytearray(b"1"), b"x" * (MAX_SCHEDULE_BYTES + 1))
        ),
        *(
            change(None, replace(good, next_at=moment))
            for moment in (env.now.replace(tzinfo=None), datetime(1969, 12, 31, tzinfo=UTC), "now", 5, timedelta(1))
        ),
    ]
    await nothing_is_stored(env, known, wrong)


@case(INVALID, OF_ITS_QUEUE, needs=SCHEDULES)
async def jobs_out_of_bounds(env: Environment) -> None:
    known, good = schedule(env, "known", 1), schedule(env, "good", 1)
    first = await env.add(queue=env.q("first"))
    await add(env, known)
    job = env.job()
    jobs: list[Any] = [
        None,
        replace(job, queue=env.q("other")),
        replace(job, depends_on=(first.id,)),
        replace(job, depends_on=(job.id,)),
        replace(job, flow_id=env.name("flow")),
        replace(job, idempotency_key="key"),
        replace(job, id=""),
        replace(job, id="a\x00b"),
        replace(job, type=""),
        replace(job, payload="text"),
        replace(job, payload=b"x" * (1024 * 1024 + 1)),
        replace(job, run_at=env.now.replace(tzinfo=None)),
        replace(job, created_at=env.now.replace(tzinfo=None)),
        replace(job, priority=2**31),
        replace(job, group="a\nb"),
        replace(job, metadata={"a": "x" * 20_000}),
    ]
    wrong = [change(None, good, env.job(), each) for each in jobs]
    wrong.append(change(None, good, *(env.job() for _ in range(MAX_JOBS_OF_A_CHANGE + 1))))
    wrong.append(change(known, None, job))
    moved = replace(known, queue=env.q("other"), revision=env.name("moved"))
    wrong.append(change(known, moved, job))
    await nothing_is_stored(env, known, wrong)
    assert await env.all_ids(queue=env.q("first")) == [first.id]


async def nothing_is_stored(env: Environment, known: StoredSchedule, wrong: Sequence[Any]) -> None:
    """Neither of the change nor of those beside it, whether they come before it or behind it."""
    changed = replace(known, revision=env.name("changed"), next_at=known.next_at and known.next_at + MS)
    for each in wrong:
        last = change(None, schedule(env, "last", 1), env.job())
        try:
            await apply(env, change(known, changed, env.job()), each, last)
        except InvalidJob:
            continue
        raise AssertionError(f"{each!r} was taken")
    assert await read(env) == await due(env, 9) == [known]
    assert await env.all_ids() == await env.all_ids(queue=env.q("other")) == []

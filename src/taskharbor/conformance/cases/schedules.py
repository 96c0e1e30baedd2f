"""Schedules: rows that change only if they are still as they were read, together with the jobs that they store.

The rows of a case have names of its own, and lie in queues of its own.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from taskharbor.conformance.case import case
from taskharbor.conformance.cases.text import AWKWARD
from taskharbor.conformance.environment import Environment, refusals
from taskharbor.conformance.parts import SCHEDULES
from taskharbor.drivers import JobRecord, ScheduleChange, StoredSchedule
from taskharbor.model.schedule import MAX_SCHEDULE_BYTES

STORED = "A stored schedule comes back as it was given, byte for byte."
UNIQUE = "A name is one schedule in the whole store, whatever its queue."
BY_REVISION = (
    "A change happens if the row has the revision `expect`, and with `expect=None` if there is no row of that name. "
    "Then it is True: `to` takes the place of the row, and without a `to` the row is deleted."
)
REFUSED = "A change of a row with any other revision is False, and stores nothing: neither the row nor a job."
REPEATED = (
    "A change to the revision that the row has already, and the deletion of a row that is not there, are True and do "
    "nothing: a change may be sent again after its reply was lost, and stores its jobs once."
)
ORDER = (
    "Changes are applied one after the other in the order given, each in a transaction of its own: a change sees what "
    "those before it have left."
)
INVALID = (
    "A change that is out of bounds is `InvalidJob`, and nothing of the call is stored. Name, queue and revision are "
    "names; a body has at most 128 KiB; a change has at most 1,000 jobs."
)
MOVED = "A `to` of another queue moves the row: it is due there, and no longer in the queue where it was."
BESIDE = "A schedule is not a job and makes no queue known; pause, cancel, delete and prune leave it as it is."


# What the cases of schedules share


def schedule(
    env: Environment,
    name: str,
    at: float | None = None,
    *,
    queue: str | None = None,
    version: object = 1,
    body: bytes = b"{}",
) -> StoredSchedule:
    """A row with a name of the case's own, due `at` seconds after the start; another version has another revision."""
    return StoredSchedule(
        name=env.name(name),
        queue=queue or env.queue,
        revision=env.name(f"{name} {version}")[:200],
        next_at=None if at is None else env.at(at),
        body=body,
    )


def change(old: StoredSchedule | None, new: StoredSchedule | None, *jobs: JobRecord) -> ScheduleChange:
    """From one version of a row to another; None stands for no row."""
    row = new or old
    assert row is not None
    return ScheduleChange(name=row.name, expect=None if old is None else old.revision, to=new, jobs=jobs)


async def apply(env: Environment, *changes: ScheduleChange, at: float = 0) -> list[bool]:
    return await env.driver.change_schedules(changes, env.at(at))


async def add(env: Environment, *rows: StoredSchedule) -> None:
    """Store new rows, 500 in a call."""
    for start in range(0, len(rows), 500):
        some = rows[start : start + 500]
        assert await apply(env, *(change(None, row) for row in some)) == [True] * len(some)


async def read(env: Environment, limit: int = 1000, **asked: Any) -> list[StoredSchedule]:
    """The rows of all pages, of the case's own."""
    found: list[StoredSchedule] = []
    cursor = None
    for _ in range(3000):
        page = await env.driver.schedules(limit=limit, cursor=cursor, **asked)
        assert len(page.items) <= limit
        assert page.upcoming is None
        found += page.items
        cursor = page.cursor
        if cursor is None:
            return [row for row in found if row.name.startswith(env.prefix)]
    raise AssertionError("the pages never end")


async def due(env: Environment, at: float = 0, *queues: str, limit: int = 1000) -> list[StoredSchedule]:
    """The due rows of all pages, in the case's queue unless others are named."""
    found: list[StoredSchedule] = []
    cursor = None
    for _ in range(3000):
        page = await env.driver.due_schedules(queues or [env.queue], env.at(at), limit=limit, cursor=cursor)
        assert len(page.items) <= limit
        found += page.items
        cursor = page.cursor
        if cursor is None:
            return found
    raise AssertionError("the pages never end")


# Rows


@case(STORED, needs=SCHEDULES)
async def comes_back(env: Environment) -> None:
    assert await apply(env) == []
    assert await read(env) == await due(env) == []
    one = schedule(env, "one", 1.001, body=bytes(range(256)) * 4)
    two = schedule(env, "two", body=b"")
    await add(env, two, one)
    assert await read(env) == [one, two]
    other = await env.sibling()
    assert (await other.schedules(names=[one.name])).items == (one,)
    assert (await other.due_schedules([env.queue], env.at(2))).items == (one,)


@case(STORED, UNIQUE, "No name collides with another, whatever characters it is made of.", needs=SCHEDULES)
async def text_of_any_kind(env: Environment) -> None:
    """In names, queues and revisions."""
    rows = [schedule(env, text, 1, queue=env.q(text), version=text, body=text.encode()) for text in AWKWARD]
    await add(env, *rows)
    assert await read(env, 7) == sorted(rows, key=lambda row: row.name)
    for row in rows:
        assert await read(env, names=[row.name]) == await read(env, queue=row.queue) == [row]
        assert await due(env, 1, row.queue) == [row]
    changed = [replace(row, revision=row.revision + "é", body=b"changed") for row in rows]
    assert await apply(env, *map(change, rows, changed)) == [True] * len(rows)
    assert await apply(env, *(change(row, None) for row in rows)) == [False] * len(rows)
    assert await due(env, 1, *(row.queue for row in rows)) == sorted(changed, key=lambda row: row.name)


@case(STORED, INVALID, needs=SCHEDULES)
async def at_the_bounds(env: Environment) -> None:
    """Pages of large rows may be short, and yet all are found."""
    names = [env.long_name(255), env.long_name(255, "😀")]
    for queue in names:
        env.used.add(queue)
    rows = [
        StoredSchedule(
            name=name, queue=name, revision=name, next_at=env.at(1), body=bytes([number]) * MAX_SCHEDULE_BYTES
        )
        for number, name in enumerate(names)
    ]
    rows += [schedule(env, f"{number:02d}", 2, body=b"\xff\x00" * (MAX_SCHEDULE_BYTES // 2)) for number in range(40)]
    await add(env, *rows)
    rows.sort(key=lambda row: row.name)
    assert await read(env) == rows
    assert await read(env, queue=names[0]) == [row for row in rows if row.queue == names[0]]
    found = await due(env, 9, *names, env.queue)
    assert found == sorted(rows, key=lambda row: (row.next_at, row.name))
    new = [replace(row, revision=row.revision[:-2], next_at=None, body=b"") for row in found]
    assert await apply(env, *map(change, found, new)) == [True] * len(rows)
    assert await due(env, 9, *names, env.queue) == []


@case(BY_REVISION, REFUSED, needs=SCHEDULES)
async def only_from_the_revision_expected(env: Environment) -> None:
    one, two, three = (schedule(env, "s", version=version, body=b"%d" % version) for version in (1, 2, 3))
    assert await apply(env, change(two, one)) == [False]
    assert await read(env) == []
    assert await apply(env, change(None, one)) == [True]
    for refused in (change(None, two), change(two, three), change(three, None)):
        assert await apply(env, refused) == [False]
        assert await read(env) == [one]
    assert await apply(env, change(one, two)) == [True]
    assert await read(env) == [two]
    assert await apply(env, change(one, three)) == await apply(env, change(one, None)) == [False]
    assert await apply(env, change(two, three)) == [True]
    assert await read(env) == [three]


@case(BY_REVISION, REFUSED, needs=SCHEDULES)
async def a_revision_is_compared_as_a_whole(env: Environment) -> None:
    row = schedule(env, "s", version="Aé")
    await add(env, row)
    whole = row.revision
    for near in (whole[:-1], whole + "e", whole.swapcase(), whole[:-1] + "e\u0301", " " + whole, "%", "*"):
        refused = ScheduleChange(name=row.name, expect=near, to=schedule(env, "s", version=2))
        assert await apply(env, refused, replace(refused, to=None)) == [False, False]
    assert await read(env) == [row]


@case(BY_REVISION, needs=SCHEDULES)
async def every_field_is_replaced(env: Environment) -> None:
    """Also by None and by nothing, and back."""
    beside = schedule(env, "beside", 5)
    await add(env, beside)
    old = None
    for version, (at, body) in enumerate(((5, b"a"), (None, b""), (3, b"\x00"), (5, b"b" * 5000), (5, b"c"), (9, b""))):
        new = schedule(env, "s", at, version=version, body=body)
        assert await apply(env, change(old, new)) == [True]
        assert await read(env) == [beside, new]
        expected = [row for row in (beside, new) if row.next_at is not None]
        assert await due(env, 10) == sorted(expected, key=lambda row: (str(row.next_at), row.name))
        assert new in await due(env, at or 0) or at is None
        old = new


@case(BY_REVISION, REPEATED, needs=SCHEDULES)
async def deleted(env: Environment) -> None:
    one, two, beside = schedule(env, "s", 1), schedule(env, "s", 2, version=2), schedule(env, "s2", 1)
    await add(env, one, beside)
    assert await apply(env, change(one, None)) == [True]
    assert await read(env) == await due(env, 9) == [beside]
    assert await read(env, names=[one.name]) == []
    for again in (change(one, None), change(two, None), ScheduleChange(name=one.name, expect=None, to=None)):
        assert await apply(env, again) == [True]
    assert await apply(env, change(None, two)) == [True]
    assert await due(env, 9) == [beside, two]
    nobody = ScheduleChange(name=two.name, expect=None, to=None)
    assert await apply(env, nobody) == [False]
    assert await read(env) == [two, beside]


@case(REPEATED, needs=SCHEDULES)
async def sent_again(env: Environment) -> None:
    """Its reply was lost. What was stored stays, also where the same change now says something else."""
    one, two = schedule(env, "s", 1), schedule(env, "s", 2, version=2, body=b"2")
    for _ in range(3):
        assert await apply(env, change(None, one)) == [True]
    for _ in range(3):
        assert await apply(env, change(one, two)) == [True]
    assert await apply(env, change(None, replace(two, next_at=None, body=b"else"))) == [True]
    assert await read(env) == await due(env, 9) == [two]
    assert await apply(env, change(None, one), change(two, one), change(one, two)) == [False, True, True]
    assert await read(env) == [two]


@case(REFUSED, REPEATED, needs=SCHEDULES)
async def not_the_row_that_it_was(env: Environment) -> None:
    """Deleted and added again under the same name: a caller that read the old row changes nothing of the new one."""
    old, new = schedule(env, "s", 1), schedule(env, "s", 1, version="new")
    await add(env, old)
    assert await apply(env, change(old, None), change(None, new)) == [True, True]
    stale = schedule(env, "s", 2, version="stale")
    job = env.job()
    assert await apply(env, change(old, stale, job), change(old, None), change(None, old, job)) == [False] * 3
    assert await read(env) == [new]
    assert await env.all_ids() == []


@case(UNIQUE, BY_REVISION, needs=SCHEDULES)
async def one_name_in_two_queues(env: Environment) -> None:
    one = schedule(env, "s", 1, queue=env.q("a"))
    other = schedule(env, "s", 1, queue=env.q("b"), version=2)
    await add(env, one)
    assert await apply(env, change(None, other)) == [False]
    assert await due(env, 9, env.q("a"), env.q("b")) == [one]
    assert await read(env, queue=other.queue) == []
    assert await apply(env, change(one, None), change(None, other)) == [True, True]
    assert await due(env, 9, env.q("a"), env.q("b")) == [other]


@case(MOVED, needs=SCHEDULES)
async def to_another_queue(env: Environment) -> None:
    a, b = env.q("a"), env.q("b")
    old, beside = schedule(env, "s", 5, queue=a), schedule(env, "t", 5, queue=a)
    await add(env, old, beside)
    for version, (queue, at) in enumerate(((b, 5), (a, 4), (b, None), (a, 5), (b, 7)), start=2):
        new = schedule(env, "s", at, queue=queue, version=version)
        job = env.job(queue=queue)
        assert await apply(env, change(old, new, job)) == [True]
        there, elsewhere = (a, b) if queue == a else (b, a)
        assert await read(env, names=[new.name]) == [row for row in await read(env, queue=there) if row != beside]
        assert new not in await read(env, queue=elsewhere)
        assert [row for row in await due(env, 9, there) if row != beside] == ([] if at is None else [new])
        assert [row for row in await due(env, 9, elsewhere) if row != beside] == []
        assert (await env.driver.due_schedules([elsewhere], env.now)).upcoming == (
            beside.next_at if queue == b else None
        )
        assert (await env.info(job)).job.queue == queue
        assert await apply(env, change(old, new, env.job(queue=queue))) == [True]
        old = new
    assert await read(env) == [old, beside]


@case(ORDER, needs=SCHEDULES)
async def several_in_a_call(env: Environment) -> None:
    """A refused one among them spoils nothing, and stores nothing."""
    rows = [schedule(env, f"{number}", number) for number in range(5)]
    await add(env, rows[1], rows[3])
    new = [replace(row, revision=row.revision + " new", body=b"new") for row in rows]
    jobs = [env.job() for _ in rows]
    changes = [
        change(None, new[4], jobs[0]),
        change(rows[0], new[0], jobs[1]),
        change(rows[3], new[3], jobs[2]),
        change(None, new[1], jobs[3]),
        change(None, new[2], jobs[4]),
    ]
    assert await apply(env, *changes) == [True, False, True, False, True]
    assert await read(env) == [rows[1], new[2], new[3], new[4]]
    assert await env.drain() == [jobs[0].id, jobs[2].id, jobs[4].id]


@case(ORDER, REPEATED, needs=SCHEDULES)
async def one_name_twice_in_a_call(env: Environment) -> None:
    """As in two calls."""
    one, two, three = (schedule(env, "s", version, version=version) for version in (1, 2, 3))
    first, second, third, fourth = (env.job() for _ in range(4))
    changes = [
        change(None, one, first),
        change(one, two, second),
        change(one, three, third),
        change(None, two, third),
        change(two, None),
        change(one, None),
        change(None, three, fourth),
    ]
    assert await apply(env, *changes) == [True, True, False, True, True, True, True]
    assert await read(env) == await due(env, 9) == [three]
    assert await env.drain() == [first.id, second.id, fourth.id]


@case(BESIDE, needs=SCHEDULES)
async def beside_the_jobs(env: Environment) -> None:
    """Also where a schedule has the name of a job or of a queue."""
    rows = [schedule(env, name, at) for name, at in (("000001", 1), ("queue", 2), ("later", 500), ("never", None))]
    await add(env, *rows)
    assert env.queue not in await env.driver.queues()
    assert env.queue not in await env.driver.counts(env.now)
    assert await env.all_ids(9) == await env.taken_ids(at=9) == []
    for verb in (env.driver.cancel, env.driver.requeue):
        assert refusals(await verb([row.name for row in rows], env.now)) == ["JobNotFound"] * 4
    assert refusals(await env.driver.delete([row.name for row in rows])) == ["JobNotFound"] * 4
    await env.driver.pause(env.queue)
    assert await due(env, 9) == rows[:2]
    fired = replace(rows[0], revision=env.name("fired"), next_at=env.at(3))
    job = env.job(id=env.name("000001"))
    assert await apply(env, change(rows[0], fired, job), at=1) == [True]
    assert await env.take(at=9) == []
    await env.driver.resume(env.queue)
    await env.ack(await env.take_one(at=2), at=2)
    assert await env.driver.prune(env.at(900), 100) == 1
    other = await env.add()
    assert await env.driver.cancel([other.id], env.now) == await env.driver.delete([other.id]) == [None]
    assert env.queue not in await env.driver.queues()
    assert await due(env, 9) == [rows[1], fired]
    assert await read(env) == [fired, rows[2], rows[3], rows[1]]

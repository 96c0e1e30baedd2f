"""Filters: listings by error and time, downwards and without payloads, and counts that stop at a cap."""

from __future__ import annotations

import random
from typing import Any

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment, ids_of
from taskharbor.conformance.parts import ATTEMPTS
from taskharbor.drivers import Ack, Fail, JobInfo, JobRecord, Retry, State
from taskharbor.drivers.base import MAX_SCANNED_JOBS

ERRORS = "`list` also filters by `error_class` and `fingerprint`."
NAMED = (
    "`error_name` fits every class whose name ends with a dot and this text. It belongs to `error_class`: with both, a "
    "job that fits one of them is listed."
)
TIMES = (
    "`since` and `until` (exclusive) are compared with `finished_at` of a job that has ended, and with `created_at` of "
    "any other."
)
DOWN = 'With `order="-id"` the last id comes first, and a cursor goes downwards.'
NO_PAYLOADS = "With `payloads=False` the records have no payload, no result and no trail."
SCANNED = (
    "A call looks at no more than 10,000 jobs: then its page is short or empty and has a cursor. Without a cursor, all "
    "were looked at."
)
BAD = "An unknown order, and a moment without a time zone, is a `ValueError`."
CAP = (
    "`counts(now, cap)` returns no number above `cap`, which stands for that many or more; a cap below 1 is a "
    "`ValueError`."
)
CURSOR = "A cursor stays valid when jobs are inserted, and a damaged one is a `ValueError`."


async def listed(env: Environment, limit: int = 1000, at: float = 0, **filters: Any) -> list[JobInfo]:
    """The items of all pages."""
    found: list[JobInfo] = []
    cursor = None
    for _ in range(1000):
        page = await env.driver.list(now=env.at(at), cursor=cursor, limit=limit, **{"queue": env.queue, **filters})
        assert len(page.items) <= limit
        found += page.items
        cursor = page.cursor
        if cursor is None:
            return found
    raise AssertionError("the pages never end")


async def ids(env: Environment, limit: int = 1000, at: float = 0, **filters: Any) -> list[str]:
    return ids_of(await listed(env, limit, at, **filters))


async def counts(env: Environment, cap: int | None, at: float = 0, queue: str | None = None) -> dict[str, int]:
    found = (await env.driver.counts(env.at(at), cap)).get(queue or env.queue, {})
    return {str(state): number for state, number in found.items()}


async def dead(env: Environment, error_class: str, fingerprint: str, at: float = 0, **fields: Any) -> JobRecord:
    job = await env.add(at=at, **fields)
    held = await env.take_one(at=at, queues=[job.queue])
    lease = held.lease
    await env.done(Fail(lease, "over", 1, env.at(at), error_class=error_class, fingerprint=fingerprint), at=at)
    return job


@case(ERRORS, needs=ATTEMPTS)
async def by_error(env: Environment) -> None:
    one = await dead(env, "ValueError", "f1")
    two = await dead(env, "ValueError", "f2")
    three = await dead(env, "app.Boom", "f1")
    retried = await env.add(type="other")
    held = await env.take_one()
    await env.done(Retry(held.lease, None, 1, error_class="ValueError", fingerprint="f1"))
    plain = await env.add()
    assert await ids(env, error_class="ValueError") == ids_of([one, two, retried])
    assert await ids(env, fingerprint="f1") == ids_of([one, three, retried])
    assert await ids(env, error_class="ValueError", fingerprint="f1") == ids_of([one, retried])
    assert await ids(env, error_class="ValueError", state="dlq") == ids_of([one, two])
    assert await ids(env, fingerprint="f1", state="dlq", limit=1) == ids_of([one, three])
    assert await ids(env, error_class="ValueError", type="other", state=State.READY) == [retried.id]
    assert await ids(env, error_class="valueerror") == []
    assert await ids(env, error_class="Value%") == []
    assert await ids(env, error_class="app") == []
    assert await ids(env, error_class="") == [plain.id]


@case(NAMED, needs=ATTEMPTS)
async def by_the_name_of_an_error(env: Environment) -> None:
    """With and without a module, nested, and names that only look alike."""
    labels = [
        "Boom",
        "app.Boom",
        "app.Outer.Boom",
        "app.f.<locals>.Boom",
        ".Boom",
        "Big.BigBoom",
        "appBoom",
        "app.boom",
    ]
    bare, *named = jobs = [await dead(env, label, f"f{number}") for number, label in enumerate(labels)]
    plain = await env.add()
    named = named[:4]
    assert await ids(env, error_name="Boom") == ids_of(named)
    assert await ids(env, limit=1, error_name="Boom", order="-id") == ids_of(named[::-1])
    assert await ids(env, error_name="Boom", error_class="Boom") == ids_of([bare, *named])
    assert await ids(env, error_name="Boom", error_class="app.boom", state="dlq") == ids_of([*named, jobs[-1]])
    assert await ids(env, error_name="Boom", error_class="none") == ids_of(named)
    assert await ids(env, error_name="Boom", fingerprint="f1") == ids_of(named[:1])
    assert await ids(env, error_name="Boom", error_class="Boom", fingerprint="f0", queue=None) == [bare.id]
    assert await ids(env, error_name="Boom", state="ready") == []
    for none in ("B%m", "B__m", "%", "oom", "app", "BOOM", "x" * 300, "a\x00b"):
        assert await ids(env, error_name=none) == [], none
    assert await ids(env, error_name="Boom", error_class="") == [*ids_of(named), plain.id]


@case(NAMED, needs=ATTEMPTS)
async def by_any_name_of_an_error(env: Environment) -> None:
    """Characters of every length, and those that have a meaning in a pattern."""
    for name in ("é", "😀", "*", "[a]", "\\", "'"):
        job = await dead(env, f"módulo.{name}", "f")
        assert await ids(env, error_name=name) == [job.id], f"{name!r}"


@case(ERRORS, needs=ATTEMPTS)
async def by_any_text(env: Environment) -> None:
    """A label is any text; a text that no label can be is that of no job."""
    labels = ["}", "{a}", "' or 1=1", "é", "e\u0301", "😀", "a b", "*", "\\", "\n"]
    jobs = [await dead(env, label, label) for label in labels]
    for label, job in zip(labels, jobs, strict=True):
        assert await ids(env, error_class=label) == [job.id], f"{label!r}"
        assert await ids(env, fingerprint=label, state="dlq") == [job.id], f"{label!r}"
    for label in ("a\x00b", "\ud800", "x" * 300):
        assert await ids(env, error_class=label) == []
        assert await ids(env, fingerprint=label, state="dlq") == []


@case(TIMES)
async def by_the_time_of_enqueue(env: Environment) -> None:
    """Of jobs that have not ended: ready, scheduled, inflight and blocked."""
    inflight = await env.add(created_at=env.at(1), at=10)
    await env.take_one(at=11, lease=1000)
    ready = await env.add(created_at=env.at(2), at=10)
    later = await env.add(created_at=env.at(3), run_at=env.at(60), at=10)
    blocked = await env.add(created_at=env.at(4), depends_on=(later.id,), at=10)
    jobs = [inflight, ready, later, blocked]
    assert await ids(env, at=20, since=env.at(2)) == ids_of(jobs[1:])
    assert await ids(env, at=20, since=env.at(2.001)) == ids_of(jobs[2:])
    assert await ids(env, at=20, until=env.at(3)) == ids_of(jobs[:2])
    assert await ids(env, at=20, until=env.at(3.001)) == ids_of(jobs[:3])
    assert await ids(env, at=20, since=env.at(2), until=env.at(4)) == ids_of([ready, later])
    assert await ids(env, at=20, since=env.at(2), until=env.at(4), state="ready") == [ready.id]
    assert await ids(env, at=20, since=env.at(2), until=env.at(2)) == []
    assert await ids(env, at=20, since=env.at(4), until=env.at(2)) == []


@case(TIMES)
async def by_the_time_of_the_end(env: Environment) -> None:
    """Of jobs that have ended: done, dead and cancelled. Their enqueue time no longer matters."""
    done, dying, cancelled = await env.add_many(3)
    first, second = await env.take(2, lease=1000)
    await env.done(Ack(first.lease), at=101)
    await env.done(Fail(second.lease, "over", 1, env.at(50)), at=102)
    await env.driver.cancel([cancelled.id], env.at(103))
    open_one = await env.add(created_at=env.at(102))
    assert await ids(env, at=200, since=env.at(102)) == ids_of([dying, cancelled, open_one])
    assert await ids(env, at=200, since=env.at(102.001)) == [cancelled.id]
    assert await ids(env, at=200, until=env.at(102)) == [done.id]
    assert await ids(env, at=200, until=env.at(102.001)) == ids_of([done, dying, open_one])
    assert await ids(env, at=200, until=env.at(101)) == []
    for state, job, at in (("done", done, 101), ("dlq", dying, 102), ("cancelled", cancelled, 103)):
        assert await ids(env, at=200, state=state, since=env.at(at), until=env.at(at + 1)) == [job.id]
        assert await ids(env, at=200, state=state, since=env.at(at + 0.001)) == []
        assert await ids(env, at=200, state=state, until=env.at(at)) == []


@case(TIMES)
async def requeued_it_has_not_ended(env: Environment) -> None:
    job = await env.dead(at=50)
    assert await ids(env, at=60, since=env.at(50)) == [job.id]
    await env.driver.requeue([job.id], env.at(55))
    assert await ids(env, at=60, since=env.at(50)) == []
    assert await ids(env, at=60, since=env.at(0), until=env.at(1)) == [job.id]


@case(DOWN)
async def downwards(env: Environment) -> None:
    """By code point, whatever the store's collation does with case, accents and emoji."""
    names = ["b", "B", "a", "Z", "é", "e", "z", "10", "9", "ﬀ", "😀", "_", "~", "-", "a b", "ab"]
    made = [env.name(name) for name in names]
    await env.put(*(env.job(id=id) for id in made))
    for limit in (1, 3, 4, 16, 17):
        assert await ids(env, limit, order="-id") == sorted(made, reverse=True)
        assert await ids(env, limit, order="id") == sorted(made)


@case(DOWN)
async def downwards_with_filters(env: Environment) -> None:
    flow, group = env.name("flow"), env.name("group")
    jobs = [
        await env.add(
            type="one" if number % 2 else "two",
            flow_id=flow if number % 3 else None,
            group=group if number % 4 else None,
            run_at=env.at(60) if number % 5 else None,
        )
        for number in range(24)
    ]
    down = jobs[::-1]
    for limit in (1, 5, 100):
        assert await ids(env, limit, order="-id", type="one") == ids_of(j for j in down if j.type == "one")
        assert await ids(env, limit, order="-id", flow_id=flow) == ids_of(j for j in down if j.flow_id)
        assert await ids(env, limit, order="-id", flow_id=flow, queue=None) == ids_of(j for j in down if j.flow_id)
        assert await ids(env, limit, order="-id", group=group) == ids_of(j for j in down if j.group)
        assert await ids(env, limit, order="-id", group="") == [], "no group is not a group without a name"
        assert await ids(env, limit, order="-id", state="scheduled") == ids_of(j for j in down if j.run_at)
        assert await ids(env, limit, order="-id", state="ready") == ids_of(j for j in down if not j.run_at)
        assert await ids(env, limit, order="-id", state="dlq") == []


@case(DOWN)
async def every_state_both_ways(env: Environment) -> None:
    """Two of each: in the order of ids, and against it, page by page."""
    jobs: dict[str, list[JobRecord]] = {"done": [], "dlq": [], "cancelled": []}
    for _ in range(2):
        jobs["done"].append(await env.finished())
        jobs["dlq"].append(await env.dead())
        jobs["cancelled"].append(await env.add())
        await env.driver.cancel([jobs["cancelled"][-1].id], env.now)
    jobs["inflight"] = await env.add_many(2)
    await env.take(2)
    jobs["ready"] = await env.add_many(2)
    jobs["scheduled"] = await env.add_many(2, run_at=env.at(9))
    jobs["blocked"] = await env.add_many(2, depends_on=(jobs["ready"][0].id,))
    for state, two in jobs.items():
        for limit in (1, 2, 3):
            assert await ids(env, limit, state=state) == ids_of(two), f"listing {state}"
            assert await ids(env, limit, state=state, order="-id") == ids_of(two[::-1]), f"listing {state}"
    everything = [job for two in jobs.values() for job in two]
    assert await ids(env, 3, order="-id") == sorted(ids_of(everything), reverse=True)


@case(DOWN, CURSOR)
async def a_cursor_downwards(env: Environment) -> None:
    """What is inserted above the cursor is not seen, what is inserted below it is; also when its job is gone."""
    made = [env.name(f"m{number}") for number in range(6)]
    await env.put(*(env.job(id=id) for id in made))
    first = await env.driver.list(now=env.now, queue=env.queue, limit=3, order="-id")
    assert ids_of(first.items) == made[:2:-1]
    await env.put(*(env.job(id=env.name(id)) for id in ("a", "m15", "m45", "z")))
    await env.driver.delete([made[3]])
    rest = await env.driver.list(now=env.now, queue=env.queue, limit=100, order="-id", cursor=first.cursor)
    assert ids_of(rest.items) == [made[2], env.name("m15"), made[1], made[0], env.name("a")]
    assert rest.cursor is None


@case(DOWN)
async def pages_that_end_exactly(env: Environment) -> None:
    """As many as the limit, one less, one more: nothing twice, nothing left out."""
    jobs = await env.add_many(6)
    for limit in (2, 3, 5, 6, 7):
        for order, expected in (("id", ids_of(jobs)), ("-id", ids_of(jobs[::-1]))):
            page = await env.driver.list(now=env.now, queue=env.queue, limit=limit, order=order)
            assert ids_of(page.items) == expected[:limit]
            assert page.cursor is not None or limit >= 6
            assert await ids(env, limit, order=order) == expected


@case(NO_PAYLOADS)
async def without_payloads(env: Environment) -> None:
    job = await env.add(payload=b"much", metadata={"a": "b"})
    held = await env.take_one()
    await env.done(Ack(held.lease, b"result", trail=b"trail" if ATTEMPTS not in env.lacks else b""))
    (full,) = await listed(env)
    assert (full.job.payload, full.job.result) == (b"much", b"result")
    asked: list[dict[str, Any]] = [{}, {"state": "done"}, {"order": "-id"}, {"type": "work"}]
    for filters in asked:
        (slim,) = await listed(env, payloads=False, **filters)
        assert (slim.job.payload, slim.job.result, slim.job.trail) == (b"", None, b"")
        assert (slim.state, slim.job.id, slim.job.metadata) == (full.state, job.id, {"a": "b"})
        assert slim.job.finished_at == full.job.finished_at
    assert (await env.info(job)).job == full.job


@case(NO_PAYLOADS)
async def without_payloads_the_rest_is_there(env: Environment) -> None:
    await env.add(payload=b"much")
    waits = await env.add(depends_on=((await env.add()).id,), payload=b"much")
    await env.take_one(worker=env.name("w"))
    found = {item.job.id: item for item in await listed(env, payloads=False)}
    for item in await listed(env):
        slim = found[item.job.id]
        assert (slim.state, slim.worker, slim.lease_expires_at) == (item.state, item.worker, item.lease_expires_at)
        assert slim.waiting_for == item.waiting_for
    assert found[waits.id].waiting_for


@case(SCANNED)
async def more_than_one_call_looks_at(env: Environment) -> None:
    """The rare ones among more jobs than a call looks at: pages may be empty, and yet all are found, both ways."""
    number = MAX_SCANNED_JOBS + 30
    jobs = [env.job(type="rare" if place in (0, 5, number - 1) else "usual") for place in range(number)]
    for start in range(0, number, 1000):
        await env.put(*jobs[start : start + 1000])
    rare = ids_of([jobs[0], jobs[5], jobs[-1]])
    assert await ids(env, type="rare") == rare
    assert await ids(env, type="rare", order="-id") == rare[::-1]
    assert await ids(env, limit=2, type="rare", state="ready") == rare
    assert await ids(env, type="none") == []
    assert await ids(env, since=env.at(1)) == []
    assert await ids(env, limit=4000) == ids_of(jobs)
    await env.driver.cancel(rare, env.now)
    assert await ids(env, limit=2, state="cancelled", order="-id") == rare[::-1]
    assert await ids(env, limit=2, state="dlq") == []


@case(BAD)
async def bad_arguments(env: Environment) -> None:
    await env.add()
    bad: list[dict[str, Any]] = [
        {"order": "newest"},
        {"order": ""},
        {"order": "id desc"},
        {"since": env.now.replace(tzinfo=None)},
        {"until": env.now.replace(tzinfo=None)},
        {"since": "yesterday"},
        {"limit": 0},
        {"cursor": "damaged"},
        {"state": "colourful"},
    ]
    for wrong in bad:
        try:
            await env.driver.list(now=env.now, queue=env.queue, **wrong)
        except ValueError:
            continue
        raise AssertionError(f"{wrong} was taken")


@case(TIMES, DOWN)
async def against_a_plain_search(env: Environment) -> None:
    """Random jobs and random questions: the same as if all were listed and searched here."""
    pick = random.Random(7)
    for number in range(40):
        at = number / 2
        job = await env.add(at=at, type=pick.choice("ab"), created_at=env.at(at), queue=env.q(pick.choice(["x", "y"])))
        end = pick.choice(["ack", "fail", "cancel", "leave"])
        if end == "cancel":
            await env.driver.cancel([job.id], env.at(at + pick.randint(0, 9)))
        elif end != "leave":
            held = await env.take_one(at=at, queues=[job.queue])
            await (env.ack if end == "ack" else env.fail)(held, at=at + pick.randint(0, 9))
    everything = [item for queue in ("x", "y") for item in await listed(env, at=50, queue=env.q(queue))]
    for _ in range(60):
        queue = env.q(pick.choice(["x", "y"]))
        state = pick.choice([None, *State])
        since = pick.choice([None, env.at(pick.randint(0, 30))])
        until = pick.choice([None, env.at(pick.randint(0, 30))])
        order, kind = pick.choice(["id", "-id"]), pick.choice([None, "a", "b"])
        expected = [
            item.job.id
            for item in everything
            if item.job.queue == queue
            and state in (None, item.state)
            and kind in (None, item.job.type)
            and (since is None or moment_of(item) >= since)
            and (until is None or moment_of(item) < until)
        ]
        asked = {"queue": queue, "state": state, "type": kind, "since": since, "until": until, "order": order}
        found = await ids(env, pick.choice([1, 3, 50]), 50, **asked)
        assert found == sorted(expected, reverse=order == "-id"), f"{asked}"


def moment_of(item: JobInfo) -> Any:
    return item.job.finished_at if item.state.terminal else item.job.created_at


@case(CAP)
async def capped(env: Environment) -> None:
    """Below, at and above the number; of each state and queue by itself."""
    await env.add_many(4)
    await env.take(1, lease=5)
    await env.add_many(2, run_at=env.at(60))
    await env.add_many(3, queue=env.q("other"))
    assert await counts(env, 1) == {"ready": 1, "inflight": 1, "scheduled": 1}
    assert await counts(env, 2) == {"ready": 2, "inflight": 1, "scheduled": 2}
    assert await counts(env, 3) == {"ready": 3, "inflight": 1, "scheduled": 2}
    assert await counts(env, 4) == await counts(env, 100) == await counts(env, None) == await env.counts()
    assert await counts(env, 2, queue=env.q("other")) == {"ready": 2}
    assert await counts(env, 4, at=5) == {"ready": 4, "scheduled": 2}
    assert await counts(env, 3, at=5) == {"ready": 3, "scheduled": 2}
    assert await counts(env, 5, at=60) == {"ready": 5}


@case(CAP)
async def capped_in_every_state(env: Environment) -> None:
    for _ in range(3):
        await env.finished()
        await env.dead()
    waiting = await env.add_many(3)
    await env.driver.cancel(ids_of(waiting), env.now)
    ready = await env.add_many(3, group=env.name("g"))
    await env.add_many(3, depends_on=(ready[0].id,))
    states = ("done", "dlq", "cancelled", "ready", "blocked")
    for cap in (1, 2, 3, 4, 2**31, 2**70):
        assert await counts(env, cap) == dict.fromkeys(states, min(cap, 3))


@case(CAP)
async def a_cap_below_one(env: Environment) -> None:
    await env.add()
    for cap in (0, -1):
        try:
            await env.driver.counts(env.now, cap)
        except ValueError:
            continue
        raise AssertionError(f"a cap of {cap} was taken")

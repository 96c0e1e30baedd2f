"""Listing and counting: pages, filters, cursors."""

from __future__ import annotations

from typing import Any

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment, ids_of
from taskharbor.drivers import State

LIST = "`list` returns pages in the order of ids, filtered by queue, state, type, group and flow."
CURSOR = "A cursor stays valid when jobs are inserted, and a damaged one is a `ValueError`."
COUNTS = "`counts(now)` returns the number of jobs by queue and state, without zeros."
QUEUES = "`queues()` returns the names of the queues that hold a job or are paused, in order."


async def pages(env: Environment, limit: int, **filters: Any) -> list[list[str]]:
    """The ids of all pages, page by page."""
    found, cursor = [], None
    while True:
        page = await env.driver.list(now=env.now, cursor=cursor, limit=limit, **{"queue": env.queue, **filters})
        found.append(ids_of(page.items))
        cursor = page.cursor
        if cursor is None:
            return found
        assert len(found) < 1000, "the pages never end"


@case(LIST)
async def in_the_order_of_ids(env: Environment) -> None:
    """By code point, whatever the store's collation does with case, accents and emoji."""
    names = ["b", "B", "a", "Z", "é", "e", "z", "10", "9", "ﬀ", "😀", "_", "~", "-", "a b", "ab"]
    ids = [env.name(name) for name in names]
    await env.put(*(env.job(id=id) for id in ids))
    assert await env.all_ids() == sorted(ids)
    assert [id for page in await pages(env, 3) for id in page] == sorted(ids)


@case(LIST)
async def page_by_page(env: Environment) -> None:
    jobs = await env.add_many(7)
    for limit in (1, 2, 3, 7, 8):
        found = await pages(env, limit)
        assert [id for page in found for id in page] == ids_of(jobs)
        assert all(len(page) <= limit for page in found)
    assert await pages(env, 10, queue=env.q("empty")) == [[]]


@case(LIST)
async def filters(env: Environment) -> None:
    flow, group = env.name("flow"), env.name("group")
    a = await env.add(type="one", flow_id=flow)
    b = await env.add(type="two", flow_id=flow, group=group)
    c = await env.add(type="one", group=group, run_at=env.at(60))
    d = await env.add(type="one", queue=env.q("other"), flow_id=flow)
    assert await env.all_ids(type="one") == ids_of([a, c])
    assert await env.all_ids(group=group) == ids_of([b, c])
    assert await env.all_ids(queue=None, flow_id=flow) == ids_of([a, b, d])
    assert await env.all_ids(state="scheduled") == [c.id]
    assert await env.all_ids(state=State.READY, group=group) == [b.id]
    assert await env.all_ids(state="ready", type="one", flow_id=flow) == [a.id]
    assert await env.all_ids(type="none") == []
    assert await env.all_ids(type="o%") == []
    assert await env.all_ids(queue=env.name("nowhere")) == []


@case(LIST)
async def every_state(env: Environment) -> None:
    jobs = {"done": await env.finished(), "dlq": await env.dead(), "cancelled": await env.add()}
    await env.driver.cancel([jobs["cancelled"].id], env.now)
    jobs["inflight"] = await env.add()
    await env.take_one()
    jobs["ready"] = await env.add()
    jobs["scheduled"] = await env.add(run_at=env.at(9))
    jobs["blocked"] = await env.add(depends_on=(jobs["ready"].id,))
    for state, job in jobs.items():
        assert await env.all_ids(state=state) == [job.id], f"listing {state}"
        assert await env.all_ids(state=State(state)) == [job.id]
    assert await env.counts() == dict.fromkeys(jobs, 1)


@case(LIST)
async def pages_with_filters(env: Environment) -> None:
    """A filter that matches one job in ten still fills its pages, or reads on to the end."""
    jobs = [await env.add(type="rare" if number % 10 == 0 else "usual") for number in range(60)]
    found = await pages(env, 2, type="rare")
    assert [id for page in found for id in page] == ids_of(jobs[::10])


@case(LIST)
async def items_read_like_inspect(env: Environment) -> None:
    first = await env.add()
    await env.add(depends_on=(first.id,))
    await env.take_one(worker=env.name("w"))
    for item in (await env.driver.list(now=env.now, queue=env.queue)).items:
        assert item == await env.info(item.job.id)


@case(CURSOR)
async def stable_under_inserts(env: Environment) -> None:
    """What is inserted before the cursor is not seen, what is inserted behind it is, nothing is seen twice."""
    ids = [env.name(f"m{number}") for number in range(6)]
    await env.put(*(env.job(id=id) for id in ids))
    first = await env.driver.list(now=env.now, queue=env.queue, limit=3)
    assert ids_of(first.items) == ids[:3]
    before, behind, last = env.name("a"), env.name("m35"), env.name("z")
    await env.put(*(env.job(id=id) for id in (before, behind, last)))
    second = await env.driver.list(now=env.now, queue=env.queue, limit=100, cursor=first.cursor)
    assert ids_of(second.items) == [ids[3], behind, *ids[4:], last]


@case(CURSOR)
async def stable_under_deletes(env: Environment) -> None:
    """Also when the job that the cursor stands on is gone, or is in another state now."""
    jobs = await env.add_many(6)
    page = await env.driver.list(now=env.now, queue=env.queue, state="ready", limit=3)
    await env.driver.delete([jobs[2].id])
    await env.driver.cancel([jobs[0].id], env.now)
    rest = await env.driver.list(now=env.now, queue=env.queue, state="ready", limit=100, cursor=page.cursor)
    assert ids_of(rest.items) == ids_of(jobs[3:])


@case(CURSOR)
async def good_on_a_sibling(env: Environment) -> None:
    jobs = await env.add_many(4)
    page = await env.driver.list(now=env.now, queue=env.queue, limit=2)
    rest = await (await env.sibling()).list(now=env.now, queue=env.queue, limit=2, cursor=page.cursor)
    assert ids_of(rest.items) == ids_of(jobs[2:])


@case(CURSOR)
async def damaged(env: Environment) -> None:
    await env.add_many(4)
    good = (await env.driver.list(now=env.now, queue=env.queue, limit=2)).cursor
    assert good is not None
    bad = [
        "!",
        "garbage",
        "\x00",
        "💥",
        "%00",
        "' or 1=1",
        "e30=",
        "bnVsbA==",
        "AAAA",
        "-1",
        good[:-1],
        good[1:],
        good[::-1],
    ]
    for cursor in [*bad, good + "x", "x" + good, good + good, "\ud800"]:
        try:
            await env.driver.list(now=env.now, queue=env.queue, limit=2, cursor=cursor)
        except ValueError:
            continue
        raise AssertionError(f"the damaged cursor {cursor!r} was taken")
    assert len((await env.driver.list(now=env.now, queue=env.queue, limit=2, cursor=good)).items) == 2


@case(COUNTS)
async def counts(env: Environment) -> None:
    await env.add_many(3)
    await env.add_many(2, queue=env.q("other"), run_at=env.at(60))
    await env.take(1)
    found = await env.driver.counts(env.now)
    assert found[env.queue] == {"ready": 2, "inflight": 1}
    assert found[env.q("other")] == {"scheduled": 2}
    if env.exclusive:
        assert set(found) == {env.queue, env.q("other")}


@case(COUNTS)
async def counts_follow_every_step(env: Environment) -> None:
    """After every step the sum of the counts is the number of records."""
    jobs = await env.add_many(6, group=env.name("g"), group_limit=9)
    held = await env.take()
    await env.ack(held[0])
    await env.retry(held[1])
    await env.retry(held[2], run_at=60)
    await env.fail(held[3])
    await env.drop(held[4])
    assert await env.counts() == {"done": 1, "ready": 1, "scheduled": 1, "dlq": 1, "cancelled": 1, "inflight": 1}
    await env.driver.requeue([jobs[3].id, jobs[4].id], env.now)
    assert await env.counts() == {"done": 1, "ready": 3, "scheduled": 1, "inflight": 1}
    assert await env.counts(60) == {"done": 1, "ready": 5}
    await env.driver.delete(ids_of(jobs))
    assert await env.counts() == {}


@case(QUEUES)
async def queues(env: Environment) -> None:
    """In the order of code points; a queue whose last job is gone is gone."""
    names = [env.q(name) for name in ("b", "B", "a", "é", "z:1")]
    jobs = [await env.add(queue=name) for name in names]
    await env.driver.pause(env.q("paused"))
    found = [name for name in await env.driver.queues() if name in env.used]
    assert found == sorted([*names, env.q("paused")])
    await env.driver.delete([jobs[0].id])
    await env.driver.resume(env.q("paused"))
    found = [name for name in await env.driver.queues() if name in env.used]
    assert found == sorted(names[1:])
    if env.exclusive:
        assert await env.driver.queues() == found

"""Flows: a listing of them, without their jobs."""

from __future__ import annotations

from typing import Any

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment
from taskharbor.conformance.parts import FLOWS
from taskharbor.drivers import Ack, FlowInfo, FlowStatus
from taskharbor.drivers.base import MAX_SCANNED_FLOWS

PAGES = (
    '`flows` returns pages of flows in the order of their ids, or with `order="-id"` the last first, without nodes and '
    "edges."
)
STATUS = "In a listing a flow has the status that `flow` returns."
CREATED = (
    "In a listing `created_at` is that of the first job in the order of ids, and `updated_at` the `created_at` of the "
    "last."
)
FILTER = "`status` filters, and so do `since` and `until` (exclusive), by that `created_at`."
SCANNED = "A call looks at no more than 1,000 flows: then its page is short or empty and has a cursor."
CURSOR = "A cursor stays valid when jobs are inserted, and a damaged one is a `ValueError`."


async def listed(
    env: Environment, limit: int = 100, at: float = 0, cursor: str | None = None, **filters: Any
) -> list[FlowInfo]:
    """The flows of all pages that belong to the case."""
    found: list[FlowInfo] = []
    for _ in range(5000):
        page = await env.driver.flows(now=env.at(at), cursor=cursor, limit=limit, **filters)
        assert len(page.items) <= limit
        found += page.items
        cursor = page.cursor
        if cursor is None:
            return [flow for flow in found if flow.id.startswith(env.prefix)]
    raise AssertionError("the pages never end")


async def names(env: Environment, limit: int = 100, at: float = 0, **filters: Any) -> list[str]:
    return [flow.id.removeprefix(env.prefix) for flow in await listed(env, limit, at, **filters)]


async def flow_of(env: Environment, name: str, *, at: float = 0, **fields: Any) -> None:
    """A flow of two jobs, of which the second waits for the first."""
    first = await env.add(at=at, flow_id=env.name(name), created_at=env.at(at), **fields)
    await env.add(at=at, flow_id=env.name(name), depends_on=(first.id,), created_at=env.at(at), **fields)


@case(PAGES, needs=FLOWS)
async def in_the_order_of_ids(env: Environment) -> None:
    """By code point, each once, however many jobs it has and wherever they are."""
    made = ["b", "B", "a", "Z", "é", "10", "9", "😀", "~", "a b", "ab"]
    for name in made:
        await flow_of(env, name, queue=env.q(name))
    await env.add()
    for limit in (1, 3, 11, 12):
        assert await names(env, limit) == sorted(made)
        assert await names(env, limit, order="-id") == sorted(made, reverse=True)


@case(PAGES, needs=FLOWS)
async def none(env: Environment) -> None:
    await env.add_many(3)
    assert await listed(env) == []
    assert await listed(env, order="-id", status="running") == []


@case(PAGES, STATUS, CREATED, needs=FLOWS)
async def what_a_listing_shows(env: Environment) -> None:
    await flow_of(env, "f", at=1)
    (found,) = await listed(env, at=2)
    assert found == FlowInfo(env.name("f"), FlowStatus.RUNNING, env.at(1), env.at(1), (), ())


@case(CREATED, needs=FLOWS)
async def first_and_last_in_the_order_of_ids(env: Environment) -> None:
    """Neither the oldest, nor the first that was stored, nor what ended last."""
    flow = env.name("f")
    for id, created in (("m", 5), ("z", 2), ("a", 7), ("k", 9)):
        await env.put(env.job(id=env.name(id), flow_id=flow, created_at=env.at(created)), at=10)
    (found,) = await listed(env, at=20)
    assert (found.created_at, found.updated_at) == (env.at(7), env.at(2))
    await env.drain(at=30)
    (found,) = await listed(env, at=40)
    assert (found.created_at, found.updated_at) == (env.at(7), env.at(2))
    await env.driver.delete([env.name("a"), env.name("z")])
    (found,) = await listed(env, at=40)
    assert (found.created_at, found.updated_at) == (env.at(9), env.at(5))


@case(STATUS, FILTER, needs=FLOWS)
async def every_status(env: Environment) -> None:
    """Through the life of a flow: the listing agrees with `flow`, and filters by it."""
    flow = env.name("f")
    first, second = await env.add_many(2, flow_id=flow)

    async def reads(status: FlowStatus, at: float) -> None:
        assert (await env.driver.flow(flow, env.at(at))).status is status
        (found,) = await listed(env, at=at)
        assert found.status is status
        for each in FlowStatus:
            assert await names(env, at=at, status=each) == (["f"] if each is status else [])
            assert await names(env, at=at, status=each.value) == (["f"] if each is status else [])

    await reads(FlowStatus.RUNNING, 0)
    one, two = await env.take(2)
    await reads(FlowStatus.RUNNING, 1)
    await env.ack(one, at=1)
    await reads(FlowStatus.RUNNING, 1)
    await env.ack(two, at=2)
    await reads(FlowStatus.SUCCEEDED, 2)
    third, fourth = await env.add_many(2, flow_id=flow, at=3)
    await reads(FlowStatus.RUNNING, 3)
    await env.driver.cancel([third.id], env.at(4))
    await reads(FlowStatus.CANCELLED, 4)
    await env.fail(await env.take_one(at=5), at=5)
    await reads(FlowStatus.FAILED, 5)
    await env.driver.requeue([fourth.id], env.at(6))
    await reads(FlowStatus.CANCELLED, 6)
    await env.driver.requeue([third.id], env.at(7))
    await reads(FlowStatus.RUNNING, 7)
    await env.drain(at=8)
    await reads(FlowStatus.SUCCEEDED, 8)
    assert await env.driver.delete([first.id, second.id]) == [None, None]
    await reads(FlowStatus.SUCCEEDED, 9)


@case(STATUS, needs=FLOWS)
async def dead_and_deleted(env: Environment) -> None:
    """What made it fail is gone; then the flow is gone."""
    flow = env.name("f")
    dead = await env.dead(flow_id=flow)
    rest = await env.add(flow_id=flow)
    assert [found.status for found in await listed(env)] == [FlowStatus.FAILED]
    await env.driver.delete([dead.id])
    assert [found.status for found in await listed(env)] == [FlowStatus.RUNNING]
    await env.driver.delete([rest.id])
    assert await listed(env) == []


@case(STATUS, needs=FLOWS)
async def cancelled_as_a_whole_and_pruned(env: Environment) -> None:
    await flow_of(env, "f")
    await env.driver.cancel_flow(env.name("f"), env.at(1))
    assert await names(env, at=1, status="cancelled") == ["f"]
    await env.driver.prune(env.at(5), 10)
    assert await listed(env, at=5) == []


@case(STATUS, needs=FLOWS)
async def a_spawned_job_belongs_to_it(env: Environment) -> None:
    await env.add()
    held = await env.take_one()
    await env.done(Ack(held.lease, spawn=(env.job(flow_id=env.name("f"), created_at=env.at(3)),)))
    (found,) = await listed(env)
    assert (found.status, found.created_at) == (FlowStatus.RUNNING, env.at(3))


@case(FILTER, needs=FLOWS)
async def by_time(env: Environment) -> None:
    for number in range(5):
        await flow_of(env, f"f{number}", at=number)
    await env.finished(at=9, flow_id=env.name("f0"), queue=env.q("other"))
    assert await names(env, at=10, since=env.at(2)) == ["f2", "f3", "f4"]
    assert await names(env, at=10, since=env.at(2.001)) == ["f3", "f4"]
    assert await names(env, at=10, until=env.at(2)) == ["f0", "f1"]
    assert await names(env, at=10, until=env.at(2.001)) == ["f0", "f1", "f2"]
    assert await names(env, 1, 10, since=env.at(1), until=env.at(4), order="-id") == ["f3", "f2", "f1"]
    assert await names(env, at=10, since=env.at(3), until=env.at(3)) == []
    assert await names(env, at=10, since=env.at(3), status="running") == ["f3", "f4"]


@case(CURSOR, PAGES, needs=FLOWS)
async def a_cursor_stays_valid(env: Environment) -> None:
    for name in ("b", "d", "f", "h"):
        await flow_of(env, name, queue=env.q(name))
    up, down = await behind(env, "d", "id"), await behind(env, "f", "-id")
    await flow_of(env, "a", queue=env.q("a"))
    await flow_of(env, "e", queue=env.q("e"))
    assert await names(env, cursor=up) == ["e", "f", "h"]
    assert await names(env, cursor=down, order="-id") == ["e", "d", "b", "a"]
    await env.driver.cancel_flow(env.name("d"), env.now)
    await env.driver.prune(env.at(1), 10)
    assert await names(env, cursor=up) == ["e", "f", "h"]


async def behind(env: Environment, name: str, order: str) -> str:
    """The cursor of a page that ends with this flow."""
    cursor = None
    for _ in range(5000):
        page = await env.driver.flows(now=env.now, limit=1, order=order, cursor=cursor)
        cursor = page.cursor
        if page.items and page.items[0].id == env.name(name):
            assert cursor is not None
            return cursor
    raise AssertionError("the pages never end")


@case(CURSOR, FILTER, needs=FLOWS)
async def bad_arguments(env: Environment) -> None:
    bad: list[dict[str, Any]] = [
        {"order": "newest"},
        {"status": "colourful"},
        {"since": env.now.replace(tzinfo=None)},
        {"until": "tomorrow"},
        {"limit": 0},
        {"cursor": "damaged"},
    ]
    for wrong in bad:
        try:
            await env.driver.flows(now=env.now, **wrong)
        except ValueError:
            continue
        raise AssertionError(f"{wrong} was taken")


@case(SCANNED, needs=FLOWS)
async def more_than_one_call_looks_at(env: Environment) -> None:
    """The one that was cancelled among more flows than a call looks at."""
    number = MAX_SCANNED_FLOWS + 30
    jobs = [env.job(flow_id=env.name(f"{place:05d}"), queue=env.q("many")) for place in range(number)]
    await env.put(*jobs)
    await env.driver.cancel([jobs[3].id, jobs[-2].id], env.now)
    rare = ["00003", f"{number - 2:05d}"]
    assert await names(env, status="cancelled") == rare
    assert await names(env, status="cancelled", order="-id") == rare[::-1]
    assert await names(env, status="failed") == []
    assert len(await names(env, limit=400)) == number


@case(STATUS, "Listing, counting and inspecting never fail because of it, and it can be deleted.", needs=FLOWS)
async def with_a_damaged_record(env: Environment) -> None:
    """An unknown state reads as dead, and so does its flow; with any other damage the flow is listed as well."""
    for how in ("state", "type", "payload", "number"):
        flow = env.name(how)
        broken = await env.add(flow_id=flow, queue=env.q(how))
        await env.add(flow_id=flow, queue=env.q(how))
        await env.damage(broken.id, how)
        (found,) = [each for each in await listed(env) if each.id == flow]
        assert found.status is (await env.driver.flow(flow, env.now)).status
        await env.take(queues=[env.q(how)])
        (found,) = [each for each in await listed(env) if each.id == flow]
        assert found.status is FlowStatus.FAILED

"""Turns: a deep queue, a busy group or the ungrouped jobs never starve the others.

Which of them begins is the driver's choice: these cases only check that no job waits for ever.
"""

from __future__ import annotations

from typing import Any

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment

QUEUES = "Queues are served in turns: one deep queue never starves another."
MIXED = "Grouped and ungrouped jobs of a queue take turns."
GROUPS = "Groups take turns: a busy group never starves another."


async def not_starved(env: Environment, queues: list[str], limit: int = 1, **fields: Any) -> None:
    """A job with these fields is reserved within a few calls, whenever it is added."""
    for _ in range(3):
        for _ in range(2):
            await serve(env, queues, limit)
        job = await env.add(**fields)
        for _ in range(25):
            if job.id in await serve(env, queues, limit):
                break
        else:
            raise AssertionError("the job starves: it did not come within 25 calls")


async def serve(env: Environment, queues: list[str], limit: int) -> list[str]:
    """Reserve and ack; return the ids."""
    taken = await env.take(limit, queues=queues)
    for held in taken:
        await env.ack(held)
    return [held.job.id for held in taken]


@case(QUEUES)
async def deep_queue_first(env: Environment) -> None:
    deep, shallow = env.q("deep"), env.q("shallow")
    await env.add_many(200, queue=deep)
    await not_starved(env, [deep, shallow], queue=shallow)
    await not_starved(env, [shallow, deep], queue=shallow)


@case(QUEUES)
async def deep_queue_with_priority(env: Environment) -> None:
    """A priority orders its own queue, not the others."""
    deep, shallow = env.q("deep"), env.q("shallow")
    await env.add_many(100, queue=deep, priority=100)
    await not_starved(env, [deep, shallow], queue=shallow)


@case(QUEUES)
async def deep_queue_in_batches(env: Environment) -> None:
    deep, shallow = env.q("deep"), env.q("shallow")
    await env.add_many(450, queue=deep)
    await not_starved(env, [deep, shallow], limit=5, queue=shallow)


@case(QUEUES)
async def three_queues(env: Environment) -> None:
    names = [env.q("a"), env.q("b"), env.q("c")]
    for name in names:
        await env.add_many(40, queue=name)
    seen = [(await env.take_one(queues=names)).job.queue for _ in range(45)]
    assert all(seen.count(name) >= 5 for name in names), "a queue was hardly served"


@case(QUEUES)
async def empty_and_paused_neighbours_cost_no_turn(env: Environment) -> None:
    empty, paused, deep = env.q("empty"), env.q("paused"), env.q("deep")
    await env.add_many(3, queue=paused)
    await env.driver.pause(paused)
    await env.add_many(10, queue=deep)
    for _ in range(10):
        assert (await env.take_one(queues=[empty, paused, deep])).job.queue == deep
    assert len(await env.take(10, queues=[empty, paused, deep])) == 0


@case(QUEUES)
async def a_call_is_filled_from_any_queue(env: Environment) -> None:
    """Turns are not a quota: if one queue has too few jobs, the other fills the call."""
    deep, shallow = env.q("deep"), env.q("shallow")
    await env.add_many(9, queue=deep)
    await env.add(queue=shallow)
    assert len(await env.take(10, queues=[shallow, deep])) == 10


@case(MIXED)
async def ungrouped_do_not_starve_a_group(env: Environment) -> None:
    await env.add_many(100, priority=100)
    await not_starved(env, [env.queue], group=env.name("g"))


@case(MIXED)
async def groups_do_not_starve_the_ungrouped(env: Environment) -> None:
    for number in range(40):
        await env.add(group=env.name(f"g{number}"))
    await env.add_many(60, group=env.name("deep"), group_limit=60)
    await not_starved(env, [env.queue], priority=-5)


@case(MIXED)
async def a_call_is_filled_from_either_kind(env: Environment) -> None:
    await env.add_many(5)
    await env.add_many(5, group=env.name("g"), group_limit=5)
    assert len(await env.take(10)) == 10


@case(GROUPS)
async def a_busy_group(env: Environment) -> None:
    await env.add_many(100, group=env.name("busy"))
    await not_starved(env, [env.queue], group=env.name("quiet"))


@case(GROUPS)
async def a_busy_group_with_many_slots(env: Environment) -> None:
    await env.add_many(100, group=env.name("busy"), group_limit=60)
    await not_starved(env, [env.queue], group=env.name("quiet"))


@case(GROUPS)
async def many_groups(env: Environment) -> None:
    """Each of ten groups is served within thirty turns."""
    groups = [env.name(f"g{number}") for number in range(10)]
    for group in groups:
        await env.add_many(4, group=group)
    seen: list[str | None] = []
    for _ in range(30):
        held = await env.take_one()
        await env.ack(held)
        seen.append(held.job.group)
    assert set(seen) == set(groups)


@case(GROUPS, "Within a queue, never more jobs of one group are inflight than its limit.")
async def full_groups_are_passed_over(env: Environment) -> None:
    full = env.name("full")
    await env.add_many(20, group=full)
    others = [await env.add(group=env.name(f"g{number}")) for number in range(3)]
    taken = await env.taken_ids(10)
    assert len(taken) == 4
    assert {other.id for other in others} <= set(taken)

"""`heads` on stores that nobody arranged, compared with all that is there; and what a call costs."""

import asyncio
import itertools

import pytest

from taskharbor.conformance.environment import opened
from taskharbor.drivers import Ack, JobRecord, QueueHead, open_driver
from tests.drivers.head_stores import HOUR, NOW, PLACES, QUEUES, SECOND, Crowd, on_every_store

pytestmark = pytest.mark.timeout(3600)


def job(id, queue, **fields):
    return JobRecord(id=id, type="t", queue=queue, **fields)


@on_every_store
@pytest.mark.parametrize("jobs", [600, pytest.param(200_000, marks=pytest.mark.left_to("full"))])
def test_a_crowd(place, jobs, tmp_path):
    """The oldest is the oldest of all, and workers get what is next, in its order."""

    async def story():
        async with opened(open_driver(PLACES[place].empty(tmp_path))) as driver:
            crowd = Crowd(driver, seed=jobs)
            await crowd.come(jobs)
            truth = await crowd.truth()
            assert all(ready for ready, _ in truth.values())
            found = await driver.heads(QUEUES, crowd.now, 10)
            assert [head.queue for head in found] == QUEUES
            if jobs < 10_000:
                assert all(head.oldest_known and head.next_known for head in found), found
            for head in found:
                if head.oldest_known:
                    assert (head.queue, head.oldest_at) == (head.queue, truth[head.queue][1])
                if head.next_known:
                    await driver.resume(head.queue)
                    got = []
                    for _ in range(10):
                        got += await driver.reserve([head.queue], crowd.now, HOUR, 1)
                    assert (head.queue, list(head.next)) == (head.queue, [each.job.id for each in got])

    asyncio.run(story())


@on_every_store
def test_what_became_due_while_nobody_worked(place, tmp_path):
    """More than a call looks at: the oldest is known all the same; what is next is known, or said not to be."""

    async def story():
        async with opened(open_driver(PLACES[place].empty(tmp_path))) as driver:
            jobs = [job(f"{number:05d}", "q", run_at=NOW + (9000 - number) * SECOND) for number in range(4000)]
            await driver.enqueue(jobs, NOW)
            (head,) = await driver.heads(["q"], NOW + 10_000 * SECOND, 3)
            assert (head.oldest_at, head.oldest_known) == (NOW + 5001 * SECOND, True)
            assert head.next == (("03999", "03998", "03997") if head.next_known else ())

    asyncio.run(story())


@on_every_store
@pytest.mark.parametrize("fields", [{}, {"group": "g"}, {"priority": 5}], ids=["plain", "group", "priority"])
def test_more_became_due_than_a_reserve_lines_up(place, fields, tmp_path):
    """A reserve may line up only some of it; then others may come first that are due later."""

    async def story():
        async with opened(open_driver(PLACES[place].empty(tmp_path))) as driver:
            late = NOW + HOUR
            due = {f"{number:03d}": NOW + number * SECOND for number in range(1, 351)}
            jobs = [job(id, "q", run_at=at, **(fields if id == "240" else {})) for id, at in due.items()]
            await driver.enqueue(jobs, NOW)
            (head,) = await driver.heads(["q"], late, 2)
            held = [await driver.reserve(["q"], late, HOUR, 1) for _ in range(2)]
            assert head.next == (tuple(each.job.id for (each,) in held) if head.next_known else ())
            assert head.next_known or fields
            await driver.enqueue([job(f"late{number}", "q") for number in range(60)], late)
            due |= {f"late{number}": late for number in range(60)}
            while due:
                for each in itertools.chain.from_iterable(held):
                    del due[each.job.id]
                (head,) = await driver.heads(["q"], late)
                assert (head.oldest_at, head.oldest_known) == (min(due.values(), default=None), True)
                held = [await driver.reserve(["q"], late, HOUR, 50)]

    asyncio.run(story())


@on_every_store
def test_more_groups_than_a_call_looks_at(place, tmp_path):
    """Known, or said not to be: never a moment that is not the oldest."""

    async def story():
        async with opened(open_driver(PLACES[place].empty(tmp_path))) as driver:
            groups = [job(f"g{number:05d}", "q", group=f"{number:05d}") for number in range(2500)]
            await driver.enqueue(groups[::-1], NOW + SECOND)
            await driver.enqueue([job("first", "q", group="first")], NOW)
            many = ["q", *(f"other{number}" for number in range(100))]  # they share what a call looks at
            unknown = (await driver.heads(many, NOW + HOUR, 3))[0]
            assert unknown.oldest_at == (NOW if unknown.oldest_known else None)
            (head, other) = await driver.heads(["q", "other"], NOW + HOUR, 3)
            assert head.oldest_at == (NOW if head.oldest_known else None)
            got = [await driver.reserve(["q"], NOW + HOUR, HOUR, 1) for _ in range(3)]
            assert head.next == (tuple(each.job.id for (each,) in got) if head.next_known else ())
            assert other == QueueHead("other")

    asyncio.run(story())


@on_every_store
def test_a_clock_that_is_behind_passes_over_groups_that_are_not_ready_yet(place, tmp_path):
    async def story():
        async with opened(open_driver(PLACES[place].empty(tmp_path))) as driver:
            later = [job(f"l{number}", "q", group=f"l{number}", run_at=NOW + HOUR) for number in range(6)]
            await driver.enqueue(later, NOW)
            assert len(await driver.reserve(["q"], NOW + 2 * HOUR, HOUR, 1)) == 1  # the queue stands at this moment
            await driver.enqueue([job("zz", "q", group="zz")], NOW)
            (head,) = await driver.heads(["q"], NOW + SECOND, 1)
            assert head.next == (("zz",) if head.next_known else ())
            assert head.oldest_at == (NOW if head.oldest_known else None)

    asyncio.run(story())


async def backlog(driver, done: int, ready: int):
    """A queue with much done today and much waiting for an hour. Beside it one with much that just came, and with ids
    before those of a third one, where a few wait longest."""
    for first in range(0, done, 1000):
        numbers = range(first, min(first + 1000, done))
        await driver.enqueue([job(f"p{number:08d}", "busy") for number in numbers], NOW)
        await driver.enqueue([job(f"{number:08d}", "mail") for number in numbers], NOW - 2 * HOUR)
        held = await driver.reserve(["mail"], NOW - 2 * HOUR, HOUR, 1000)
        await driver.settle([Ack(each.lease) for each in held], NOW - 2 * HOUR)
    await driver.enqueue([job(f"r{number:08d}", "mail") for number in range(ready)], NOW - HOUR)
    await driver.enqueue([job(f"z{number}", "small") for number in range(5)], NOW - 3 * HOUR)


@on_every_store
def test_a_thousand_queues_in_one_call(place, tmp_path):
    async def story():
        async with opened(open_driver(PLACES[place].empty(tmp_path))) as driver:
            names = [f"q{number}" for number in range(1000)]
            await driver.enqueue([job(name, name) for name in names[::3]], NOW)
            found = await driver.heads(names, NOW + SECOND, 1)
            assert found[::3] == [QueueHead(name, NOW, (name,)) for name in names[::3]]
            assert found[1::3] == [QueueHead(name) for name in names[1::3]]

    asyncio.run(story())

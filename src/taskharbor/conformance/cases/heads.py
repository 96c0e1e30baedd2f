"""Heads: which jobs of a queue come next, and since when the oldest ready one waits."""

from __future__ import annotations

import random
from datetime import datetime

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment, ids_of
from taskharbor.conformance.parts import HEADS
from taskharbor.drivers import Fail, QueueHead, Retry

EACH = (
    "`heads(queues, now, n=0)` returns a `QueueHead` for each of these queues, in their order; one that holds nothing "
    "is empty."
)
OLDEST = (
    "`oldest_at` of a head is the moment since which that ready job is due that is due longest, as `reserve` orders "
    "them, whatever its priority or group; None if no job is ready."
)
NEXT = (
    "`next` of a head has up to `n` ids: what reserves of one job each would return one after the other, if the queue "
    "were not paused."
)
DUE = "What is due by `now` counts in a head, also if no reserve has come since; so does a job whose lease has expired."
READS = (
    "A call of `heads` writes nothing, reads no payload, and looks at a bounded number of records: what does not "
    "follow from these is empty, with `oldest_known` or `next_known` False."
)
BOUNDS = "An `n` below 0 or above 100 is a `ValueError`."


async def head(env: Environment, at: float = 0, n: int = 10, queue: str | None = None) -> QueueHead:
    """The head of one queue, of which everything must be known: cases have few jobs."""
    (found,) = await env.driver.heads([queue or env.queue], env.at(at), n)
    assert found.queue == (queue or env.queue)
    assert (found.oldest_known, found.next_known) == (True, True), f"not known, although there are few jobs: {found}"
    return found


async def oldest(env: Environment, at: float = 0, queue: str | None = None) -> datetime | None:
    found = await head(env, at, 0, queue)
    assert found.next == ()
    return found.oldest_at


async def comes_true(env: Environment, at: float = 0, n: int = 10) -> list[str]:
    """What is next, compared with what workers get that reserve one job at a time."""
    found, got = await head(env, at, n), []
    for _ in range(n):
        got += await env.taken_ids(1, at=at, lease=1000)
    assert list(found.next) == got, f"{found.next} were next, and workers got {got}"
    return got


@case(EACH, needs=HEADS)
async def a_head_for_each_queue(env: Environment) -> None:
    a, b, empty = (env.q(name) for name in ("a", "b", "empty"))
    first, second = await env.add(queue=a, at=1), await env.add(queue=b, at=2)
    await env.driver.pause(empty)
    asked = [b, "", env.name("unknown"), a, empty, "\ud800", "a\x00b", b]
    found = await env.driver.heads(asked, env.at(3), 1)
    assert [each.queue for each in found] == asked
    mine, other = QueueHead(a, env.at(1), (first.id,)), QueueHead(b, env.at(2), (second.id,))
    assert found == [other, QueueHead(asked[1]), QueueHead(asked[2]), mine, *map(QueueHead, asked[4:7]), other]
    assert await env.driver.heads([], env.at(3), 1) == []


@case(EACH, READS, needs=HEADS)
async def a_thousand_queues(env: Environment) -> None:
    queues = [env.q(f"{number:03d}") for number in range(1000)]
    first, last = await env.add(queue=queues[0], at=1), await env.add(queue=queues[-1], at=2)
    found = await env.driver.heads(queues, env.at(3), 1)
    assert found[0] == QueueHead(queues[0], env.at(1), (first.id,))
    assert found[-1] == QueueHead(queues[-1], env.at(2), (last.id,))
    assert found[1:-1] == [QueueHead(queue) for queue in queues[1:-1]]


@case(EACH, OLDEST, needs=HEADS)
async def long_names(env: Environment) -> None:
    queue, group = env.long_name(255), env.long_name(255, "☃")
    env.used.add(queue)
    first = await env.add(queue=queue, group=group, at=1)
    second = await env.add(queue=queue, at=2)
    assert await head(env, 3, 5, queue) == QueueHead(queue, env.at(1), (first.id, second.id))


@case(OLDEST, needs=HEADS)
async def nothing_is_ready(env: Environment) -> None:
    assert await head(env) == QueueHead(env.queue)
    done = await env.finished()
    await env.dead()
    await env.add(depends_on=((await env.add(run_at=env.at(50))).id, done.id))
    await env.driver.cancel([(await env.add()).id], env.now)
    running = await env.add()
    await env.take_one(lease=60)
    assert await env.state(running) == "inflight"
    assert await head(env, 40) == QueueHead(env.queue)


@case(OLDEST, NEXT, needs=HEADS)
async def whatever_the_priority(env: Environment) -> None:
    """The oldest may be the last in line."""
    low = await env.add(priority=-5, at=1)
    middle = await env.add(at=2)
    high = await env.add(priority=7, at=3)
    assert await head(env, 4) == QueueHead(env.queue, env.at(1), (high.id, middle.id, low.id))
    assert (await head(env, 4, 2)).next == (high.id, middle.id)
    await env.driver.cancel([low.id], env.at(4))
    assert await oldest(env, 5) == env.at(2)


@case(OLDEST, NEXT, needs=HEADS)
async def full_groups_wait_too(env: Environment) -> None:
    """A job of a full group is ready, and may be the oldest, but is not next."""
    group = env.name("g")
    await env.add(group=group)
    held = await env.take_one(lease=100)
    waits = await env.add(group=group, at=1)
    plain = await env.add(at=2)
    assert await head(env, 3) == QueueHead(env.queue, env.at(1), (plain.id,))
    await env.ack(held, at=4)
    assert set((await head(env, 5)).next) == {waits.id, plain.id}


@case(NEXT, needs=HEADS)
async def up_to_the_limit_of_a_group(env: Environment) -> None:
    two, one = env.name("two"), env.name("one")
    pairs = await env.add_many(3, group=two, group_limit=2)
    single = await env.add_many(2, group=one)
    assert sorted(await comes_true(env)) == sorted(ids_of([*pairs[:2], single[0]]))
    assert (await head(env)).next == ()
    assert await oldest(env) == env.now


@case(NEXT, needs=HEADS)
async def groups_take_turns(env: Environment) -> None:
    """Grouped and ungrouped jobs, and the groups, as it was left by the last reserve."""
    for group in ("a", "b", "c"):
        await env.add_many(4, group=env.name(group), group_limit=3)
    await env.add_many(7)
    await env.take_one()
    await env.take_one()
    await env.take_one()
    await comes_true(env, n=12)


@case(NEXT, DUE, needs=HEADS)
async def the_limit_of_a_group_is_the_first(env: Environment) -> None:
    group = env.name("g")
    jobs = await env.add_many(3, group=group)
    await env.take_one(lease=5)
    assert (await head(env, 1)).next == ()
    await env.add(group=group, group_limit=2, run_at=env.at(50), at=1)
    assert (await head(env, 2)).next == (jobs[1].id,)
    assert (await head(env, 5)).next == (jobs[1].id, jobs[2].id)


@case(OLDEST, DUE, needs=HEADS)
async def when_it_became_due(env: Environment) -> None:
    """Enqueued, scheduled, retried, requeued, unblocked, released, expired: each is due since that moment."""

    async def since(name: str, at: float) -> None:
        found = await oldest(env, 99, env.q(name))
        assert found == env.at(at), f"{name}: since {found}, expected {env.at(at)}"

    await env.add(queue=env.q("enqueued"), at=3, run_at=env.at(1))
    await since("enqueued", 3)
    await env.add(queue=env.q("scheduled"), at=3, run_at=env.at(5))
    await since("scheduled", 5)
    for name, run_at, expected in (("retried", None, 7), ("later", 9, 9), ("earlier", 2, 7)):
        await env.add(queue=env.q(name))
        held = await env.take_one(queues=[env.q(name)], lease=50)
        await env.done(Retry(held.lease, None if run_at is None else env.at(run_at), 1, "no", env.at(6)), at=7)
        await since(name, expected)
    await env.add(queue=env.q("requeued"))
    held = await env.take_one(queues=[env.q("requeued")], lease=50)
    await env.done(Fail(held.lease, "no", 1, env.at(6)), at=7)
    await env.driver.requeue([held.job.id], env.at(8))
    await since("requeued", 8)
    first = await env.add(queue=env.q("first"))
    await env.add(queue=env.q("unblocked"), depends_on=(first.id,))
    assert await oldest(env, 9, env.q("unblocked")) is None
    await env.ack(await env.take_one(queues=[env.q("first")], lease=50), at=11)
    await since("unblocked", 11)
    await env.add(queue=env.q("released"))
    await env.take_one(queues=[env.q("released")], lease=50, worker=env.name("w"))
    await env.driver.release(env.name("w"), env.at(12))
    await since("released", 12)
    await env.add(queue=env.q("expired"))
    await env.take_one(queues=[env.q("expired")], lease=13)
    assert await oldest(env, 12.999, env.q("expired")) is None
    await since("expired", 13)


@case(DUE, NEXT, needs=HEADS)
async def due_but_not_in_line_yet(env: Environment) -> None:
    """Nobody has reserved since these became due: scheduled ones and expired ones, grouped and not."""
    groups = [env.name(name) for name in "gh"]
    await env.add_many(2, priority=1)
    await env.add_many(2, group=groups[0], group_limit=2)
    await env.take(lease=20)
    await env.add_many(2, at=1)
    await env.add(run_at=env.at(15), priority=3)
    await env.add(run_at=env.at(16), group=groups[1])
    await env.add(run_at=env.at(17), group=groups[1])
    await env.add(run_at=env.at(90))
    assert await oldest(env, 10) == env.at(1)
    await env.driver.cancel((await head(env, 10)).next, env.at(10))
    assert await oldest(env, 14.999) is None
    assert await oldest(env, 15) == env.at(15)
    assert len((await head(env, 20)).next) == 6
    assert len(await comes_true(env, 20)) == 6


@case(NEXT, OLDEST, needs=HEADS)
async def paused_all_the_same(env: Environment) -> None:
    first, second = await env.add(at=1), await env.add(run_at=env.at(4))
    await env.driver.pause(env.queue)
    assert await head(env, 5) == QueueHead(env.queue, env.at(1), (first.id, second.id))
    await env.driver.resume(env.queue)


@case(READS, needs=HEADS)
async def nothing_is_changed(env: Environment) -> None:
    """Asked at a later moment, and then at an earlier one again: nothing starts early, and no lease is lost."""
    await env.add(run_at=env.at(30), group=env.name("g"))
    await env.add()
    held = await env.take_one(lease=20)
    before = (await env.driver.list(now=env.at(1), queue=env.queue)).items
    found = await head(env, 100)
    assert found.oldest_at == env.at(20)
    assert len(found.next) == 2
    assert (await env.driver.list(now=env.at(1), queue=env.queue)).items == before
    assert await head(env, 1) == QueueHead(env.queue)
    assert await env.take(at=1) == []
    await env.ack(held, at=2)


@case(OLDEST, DUE, needs=HEADS)
async def a_clock_that_goes_back(env: Environment) -> None:
    """A reserve with a faster clock has found these due, or expired: at an earlier moment they are not."""
    await env.add(run_at=env.at(30))
    await env.add_many(2, group=env.name("g"), group_limit=2)
    await env.take(2, lease=20)
    assert len(await env.take(1, at=40, lease=1)) == 1
    assert await head(env, 10) == QueueHead(env.queue)
    plain = await env.add(at=11, priority=-9)
    assert await head(env, 12) == QueueHead(env.queue, env.at(11), (plain.id,))


@case(BOUNDS, needs=HEADS)
async def bad_numbers(env: Environment) -> None:
    await env.add_many(3)
    for n in (-1, 101):
        try:
            await env.driver.heads([env.queue], env.now, n)
        except ValueError:
            continue
        raise AssertionError(f"heads accepted n={n}")
    assert len((await head(env, n=100)).next) == 3


@case(OLDEST, NEXT, DUE, needs=HEADS)
async def over_random_histories(env: Environment) -> None:
    """Whatever happened before: workers get what is next, in its order."""
    for seed in range(8):
        pick = random.Random(seed)
        env.queue = env.q(f"history {seed}")
        for step in range(30):
            await happen(env, pick, float(step))
        await comes_true(env, 30, n=20)


async def happen(env: Environment, pick: random.Random, at: float) -> None:
    """One random call."""
    group = pick.choice([None, None, *(env.name(name) for name in "gh")])
    if pick.random() < 0.6:
        run_at = pick.choice([None, None, env.at(at - 1), env.at(at + pick.randint(1, 9))])
        limit = pick.randint(0, 2) if group else 0
        await env.add(at=at, run_at=run_at, group=group, group_limit=limit, priority=pick.randint(-1, 1))
        return
    for held in await env.take(pick.randint(1, 2), at=at, lease=pick.choice([1, 4, 60])):
        if pick.random() < 0.5:
            await env.retry(held, at=at, run_at=pick.choice([None, at + 3]))

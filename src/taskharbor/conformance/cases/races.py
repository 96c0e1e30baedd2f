"""Races: two calls at once on the same jobs, and then a check of what must hold whichever came first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from taskharbor.conformance.case import case
from taskharbor.conformance.cases.schedules import UNIQUE, add, change, due, read, schedule
from taskharbor.conformance.cases.seen import CHECKS, DIFFERS, act, seen_of
from taskharbor.conformance.environment import Environment, ids_of, refusals
from taskharbor.conformance.parts import SCHEDULES
from taskharbor.drivers import Ack, Driver, Enqueued, InvalidJob, ScheduleChange

T = TypeVar("T")
ROUNDS = 12
JOIN = (
    "A job with open dependencies is blocked, and leaves that state in the same transaction that "
    "settles the last of them."
)
ONE_WINS = "Of two calls that settle the same delivery differently, exactly one wins."
ONCE = "Two callers never have valid leases on the same job, whatever they call at the same time."
DELETE = "`delete` takes any job, except one on which a job depends that is neither done nor cancelled."
CANCEL_FLOW = (
    "`cancel_flow` cancels what is not terminal, returns the number of these jobs, and sets a flag: "
    "what is enqueued or spawned into a cancelled flow is stored cancelled."
)
CANCELLED = "A job cancelled while inflight frees the capacity of its group, and its worker gets `JobNotInflight`."

SAME_ROW = "Of changes of one row that several callers make at the same time, at most one happens, with its jobs."
SAME_SEEN = "Of several calls that requeue a job with the same `Seen`, exactly one succeeds."


async def _after(turns: int, call: Awaitable[T]) -> T:
    """The call, some turns of the loop later: so that two calls of several steps meet at each of them."""
    for _ in range(turns):
        await asyncio.sleep(0)
    return await call


@case(JOIN)
async def last_two_acks_of_a_join(env: Environment) -> None:
    """If neither saw the other as done, the job that waits for both would never run."""
    drivers = await env.siblings(3)
    for _ in range(ROUNDS):
        jobs = await env.add_many(3)
        join = await env.add(depends_on=tuple(job.id for job in jobs))
        taken = await env.take(3)
        pairs = zip(drivers, taken, strict=True)
        answers = await asyncio.gather(*(driver.settle([Ack(held.lease)], env.now) for driver, held in pairs))
        assert answers == [[None]] * 3
        assert await env.taken_ids() == [join.id]
        assert await env.take() == []


@case(JOIN, "A dependency that is already done counts as done.")
async def enqueue_beside_the_ack(env: Environment) -> None:
    """A job that is made dependent while its dependency is acked is never left behind."""
    one, two = await env.siblings(2)
    for _ in range(ROUNDS):
        first = await env.add()
        held = await env.take_one()
        child = env.job(depends_on=(first.id,))
        answers, stored = await asyncio.gather(one.settle([Ack(held.lease)], env.now), two.enqueue([child], env.now))
        assert (answers, stored) == ([None], [Enqueued(child.id, False)])
        assert await env.drain() == [child.id]


@case(DELETE, "An unknown dependency, or a cycle, is `InvalidJob`.")
async def delete_beside_the_enqueue(env: Environment) -> None:
    """Either the dependency stays, or the dependent is refused."""
    one, two = await env.siblings(2)
    for number in range(ROUNDS):
        first = await env.add(run_at=env.at(60))
        child = env.job(depends_on=(first.id,))
        deleted, stored = await asyncio.gather(
            _after(number % 4, one.delete([first.id])), two.enqueue([child], env.now), return_exceptions=True
        )
        assert not isinstance(deleted, BaseException)
        if deleted == [None]:
            assert isinstance(stored, InvalidJob)
            assert await env.gone(first)
        else:
            assert refusals(deleted) == ["WrongState"]
            assert stored == [Enqueued(child.id, False)]
            assert await env.state(child) == "blocked"


@case(CANCELLED, ONE_WINS)
async def cancel_beside_the_ack(env: Environment) -> None:
    one, two = await env.siblings(2)
    for _ in range(ROUNDS):
        job = await env.add(group=env.name("g"))
        held = await env.take_one()
        acked, cancelled = await asyncio.gather(one.settle([Ack(held.lease)], env.now), two.cancel([job.id], env.now))
        pair = (*refusals(acked), *refusals(cancelled))
        assert pair in {("ok", "WrongState"), ("JobNotInflight", "ok")}
        assert await env.state(job) == ("done" if pair[0] == "ok" else "cancelled")
    await env.add_many(2, group=env.name("g"))
    assert len(await env.take()) == 1


@case(ONCE)
async def cancel_beside_the_reserve(env: Environment) -> None:
    """A job that was cancelled is not running, whichever call came first."""
    one, two = await env.siblings(2)
    for _ in range(ROUNDS):
        job = await env.add(group=env.name("g"))
        taken, cancelled = await asyncio.gather(env.take(by=one), two.cancel([job.id], env.now))
        assert cancelled == [None]
        assert await env.state(job) == "cancelled"
        for held in taken:
            assert refusals(await env.settle(Ack(held.lease))) == ["JobNotInflight"]
    await env.add_many(2, group=env.name("g"))
    assert len(await env.take()) == 1


@case(ONCE)
async def release_beside_the_ack(env: Environment) -> None:
    one, two = await env.siblings(2)
    for _ in range(ROUNDS):
        job = await env.add(group=env.name("g"))
        held = await env.take_one(worker=env.name("w"))
        acked, released = await asyncio.gather(
            one.settle([Ack(held.lease)], env.now), two.release(env.name("w"), env.now)
        )
        assert (refusals(acked), released) in ((["ok"], 0), (["JobNotInflight"], 1))
        assert await env.drain() == ([job.id] if released else [])


@case(ONCE)
async def takeover_beside_the_ack(env: Environment) -> None:
    """At the very end of the lease the ack is refused; the takeover has the job for itself."""
    one, two = await env.siblings(2)
    for _ in range(ROUNDS):
        await env.add()
        held = await env.take_one(lease=10)
        acked, taken = await asyncio.gather(one.settle([Ack(held.lease)], env.at(10)), env.take(at=10, by=two))
        assert refusals(acked)[0] in ("LeaseExpired", "LeaseMismatch")
        assert [item.job.id for item in taken] == [held.job.id]
        await env.ack(taken[0], at=11)


@case(ONCE)
async def extend_beside_the_takeover(env: Environment) -> None:
    """An extension in the last millisecond and a reservation in the next: one of them has the job."""
    one, two = await env.siblings(2)
    for _ in range(ROUNDS):
        await env.add()
        held = await env.take_one(lease=10)
        extended, taken = await asyncio.gather(
            one.extend([held.lease], env.at(9.999), timedelta(seconds=10)), env.take(at=10, by=two)
        )
        assert (refusals(extended)[0] == "ok") != (len(taken) == 1)
        for item in [held, *taken]:
            await env.settle(Ack(item.lease), at=11)
        assert await env.counts(11) == {"done": _ + 1}


@case(CANCEL_FLOW)
async def cancel_flow_beside_spawn_and_enqueue(env: Environment) -> None:
    """Whichever call comes first: in the end no job of the flow is unfinished."""
    drivers = await env.siblings(3)
    for turn in range(ROUNDS):
        flow = env.name(f"flow{turn}")
        await env.add()
        held = await env.take_one()
        await env.add(flow_id=flow)
        spawned, enqueued = env.job(flow_id=flow), env.job(flow_id=flow)
        await asyncio.gather(
            drivers[0].settle([Ack(held.lease, None, (spawned,))], env.now),
            drivers[1].cancel_flow(flow, env.now),
            drivers[2].enqueue([enqueued], env.now),
        )
        assert (await env.driver.flow(flow, env.now)).status == "cancelled"
        assert await env.take() == []


@case(ONCE, "A key lives as long as its record: after `delete` or `prune` it is free again.")
async def delete_beside_the_same_key(env: Environment) -> None:
    """The result names a job that exists, or existed then; the key is never lost."""
    one, two = await env.siblings(2)
    for turn in range(ROUNDS):
        key = f"key{turn}"
        first = await env.add(idempotency_key=key, run_at=env.at(60))
        second = env.job(idempotency_key=key, run_at=env.at(60))
        deleted, (answer,) = await asyncio.gather(one.delete([first.id]), two.enqueue([second], env.now))
        assert deleted == [None]
        assert answer in (Enqueued(first.id, True), Enqueued(second.id, False))
        third = env.job(idempotency_key=key, run_at=env.at(60))
        expected = Enqueued(third.id, False) if answer.existed else Enqueued(second.id, True)
        assert await env.put(third) == [expected]


@case(SAME_SEEN)
async def requeue_what_several_saw(env: Environment) -> None:
    """A second requeue would count as one of what had run, and died, after the first."""
    drivers = await env.siblings(4)
    for _ in range(ROUNDS):
        jobs = [await env.dead() for _ in range(3)]
        seen = await seen_of(env, *jobs)
        there = [act(env, "requeue", jobs, seen, by=driver) for driver in drivers[:2]]
        back = [act(env, "requeue", jobs[::-1], seen[::-1], by=driver) for driver in drivers[2:]]
        answers = await asyncio.gather(*there, *back)
        in_order = [*answers[:2], *(each[::-1] for each in answers[2:])]
        for place in range(len(jobs)):
            results = refusals([each[place] for each in in_order])
            assert sorted(results) == ["WrongState"] * 3 + ["ok"]
        assert sorted(await env.drain()) == ids_of(jobs)


@case(DIFFERS, ONCE)
async def cancel_of_what_was_seen_beside_the_reserve(env: Environment) -> None:
    """Either the job runs, and was neither cancelled nor deleted; or it does not run."""
    one, two = await env.siblings(2)
    for turn in range(ROUNDS):
        job = await env.add(group=env.name("g"))
        seen = await seen_of(env, job)
        verb = "delete" if turn % 2 else "cancel"
        taken, answers = await asyncio.gather(
            _after(turn % 3, env.take(by=one)), _after(turn % 4, act(env, verb, [job], seen, by=two))
        )
        assert (len(taken), refusals(answers)) in ((1, ["WrongState"]), (0, ["ok"]))
        for held in taken:
            assert refusals(await env.settle(Ack(held.lease))) == ["ok"]
    await env.add_many(2, group=env.name("g"))
    assert len(await env.take()) == 1


@case(DIFFERS, CHECKS)
async def delete_beside_the_requeue(env: Environment) -> None:
    """What one operator brings back is not deleted by another who saw it dead."""
    one, two = await env.siblings(2)
    for turn in range(ROUNDS):
        job = await env.dead()
        seen = await seen_of(env, job)
        deleted, requeued = await asyncio.gather(
            _after(turn % 3, act(env, "delete", [job], seen, by=one)), act(env, "requeue", [job], seen, by=two)
        )
        pair = (*refusals(deleted), *refusals(requeued))
        assert pair in {("ok", "JobNotFound"), ("WrongState", "ok")}
        assert await env.drain() == ([] if deleted == [None] else [job.id])


async def _changed(driver: Driver, env: Environment, *changes: ScheduleChange) -> list[bool]:
    return await driver.change_schedules(changes, env.now)


@case(SAME_ROW, needs=SCHEDULES)
async def one_slot_one_job(env: Environment) -> None:
    """Many workers see the same due schedule. The jobs have ids of their own, so that none is known by its id."""
    drivers = await env.siblings(6)
    row = schedule(env, "s", 0)
    await add(env, row)
    for turn in range(ROUNDS):
        new = [schedule(env, "s", 0, version=f"{turn} {number}") for number in range(len(drivers))]
        jobs = [env.job() for _ in drivers]
        calls = [
            _after(number % (turn + 1), _changed(driver, env, change(row, new[number], jobs[number])))
            for number, driver in enumerate(drivers)
        ]
        answers = [answer for (answer,) in await asyncio.gather(*calls)]
        assert answers.count(True) == 1, f"turn {turn}: {answers.count(True)} of them"
        won = answers.index(True)
        assert await due(env) == [new[won]]
        assert await env.drain() == [jobs[won].id]
        row = new[won]


@case(SAME_ROW, needs=SCHEDULES)
async def one_slot_one_job_in_threads(env: Environment) -> None:
    """Each worker looks, and moves on what it finds, until all slots have passed."""
    slots, workers = 25, 4
    await add(env, schedule(env, "s", 0, version=0, body=b"0"))
    jobs = {
        (worker, slot): env.job(id=env.name(f"{slot:03d}-{worker}")) for worker in range(workers) for slot in range(25)
    }

    def work(worker: int) -> Callable[[Driver], Awaitable[int]]:
        async def fire(driver: Driver) -> int:
            fired = 0
            while rows := (await driver.due_schedules([env.queue], env.now)).items:
                slot = int(rows[0].body)
                at = 0 if slot + 1 < slots else None
                new = schedule(env, "s", at, version=f"{slot} {worker}", body=b"%d" % (slot + 1))
                fired += (await _changed(driver, env, change(rows[0], new, jobs[worker, slot]))).count(True)
            return fired

        return fire

    assert sum(await env.in_threads([work(worker) for worker in range(workers)])) == slots
    assert [id.removeprefix(env.prefix)[:3] for id in await env.all_ids()] == [f"{slot:03d}" for slot in range(slots)]


@case(SAME_ROW, UNIQUE, needs=SCHEDULES)
async def one_name_added_in_two_queues(env: Environment) -> None:
    drivers = await env.siblings(4)
    queues = [env.q(name) for name in "abcd"]
    for turn in range(ROUNDS):
        rows = [schedule(env, f"{turn:02d}", 1, queue=queue, version=queue) for queue in queues]
        jobs = [env.job(queue=queue) for queue in queues]
        calls = [
            _after((turn * number) % 4, _changed(driver, env, change(None, rows[number], jobs[number])))
            for number, driver in enumerate(drivers)
        ]
        answers = [answer for (answer,) in await asyncio.gather(*calls)]
        assert answers.count(True) == 1, f"turn {turn}: {answers.count(True)} of them"
        won = rows[answers.index(True)]
        assert await read(env, names=[won.name]) == [won]
        assert [row for row in await due(env, 1, *queues) if row.name == won.name] == [won]
        for row in rows:
            assert (row in await read(env, queue=row.queue)) is (row == won)
        assert [await env.gone(job) for job in jobs] == [not answer for answer in answers]


@case(SAME_ROW, needs=SCHEDULES)
async def moved_beside_a_change_and_a_deletion(env: Environment) -> None:
    """One of the three happens; the row is where that one left it, and nowhere else."""
    drivers = await env.siblings(3)
    a, b = env.q("a"), env.q("b")
    for turn in range(ROUNDS):
        old = schedule(env, f"{turn:02d}", 1, queue=a)
        await add(env, old)
        moved = schedule(env, f"{turn:02d}", 2, queue=b, version="moved")
        changed = schedule(env, f"{turn:02d}", 3, queue=a, version="changed")
        jobs = [env.job(queue=b), env.job(queue=a)]
        changes = [change(old, moved, jobs[0]), change(old, changed, jobs[1]), change(old, None)]
        calls = [
            _after((turn + 2 * number) % 5, _changed(driver, env, changes[number]))
            for number, driver in enumerate(drivers)
        ]
        answers = [answer for (answer,) in await asyncio.gather(*calls)]
        expected = [row for row, answer in zip((moved, changed), answers, strict=False) if answer]
        assert answers in ([True, False, False], [False, True, False], [False, False, True])
        assert [row for row in await due(env, 9, a, b) if row.name == old.name] == expected
        assert await read(env, names=[old.name]) == expected
        assert [await env.gone(job) for job in jobs] == [not answer for answer in answers[:2]]


@case(SAME_ROW, "An id that already exists writes nothing and is returned with `existed=True`, so the call may be sent "
      "again.", needs=SCHEDULES)  # fmt: skip
async def the_job_of_a_change_is_enqueued_meanwhile(env: Environment) -> None:
    """Under its id: it is one job, and the row changes in either order."""
    one, two = await env.siblings(2)
    row = schedule(env, "s", 0)
    await add(env, row)
    for turn in range(ROUNDS):
        job, new = env.job(), schedule(env, "s", 0, version=f"{turn} new")
        answers, _ = await asyncio.gather(
            _after(turn % 3, _changed(one, env, change(row, new, job))), _after(turn % 2, two.enqueue([job], env.now))
        )
        assert answers == [True]
        assert await read(env) == [new]
        assert await env.drain() == [job.id]
        row = new

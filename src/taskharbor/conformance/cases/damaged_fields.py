"""Damaged fields: every field of a record with every kind of wrong value, in every state of the job.

The pairs are generated, each in a queue of its own, beside healthy neighbours, and all of them in one store. A
damaged record must either be returned as a record with fields of the right types, or be set aside with a reason. Damage
to a field by which the store finds a record may also leave it where no call finds it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment
from taskharbor.conformance.parts import AMEND, ATTEMPTS, FLOWS, STEPS, UPCOMING
from taskharbor.drivers import (
    DAMAGED_PREFIX,
    Ack,
    Amend,
    Cancelled,
    DriverError,
    Fail,
    JobRecord,
    Lease,
    Outcome,
    Reserved,
    Retry,
    Seen,
    State,
    TaskHarborError,
    check_record,
)

ALONE = (
    "Whatever another program put into a field of one record, no call raises because of it, and no other record is "
    "touched: neither its lease, nor its counts, nor its place."
)
KINDS = ("missing", "empty", "word", "bytes", "negative", "huge", "fraction", "infinite", "nested")
FIELDS = (*(name for name in JobRecord.__struct_fields__ if name not in ("id", "queue")), "state")
OF_ATTEMPTS = {"began_at", "ran_on", "trail", "error_class", "fingerprint", "note", "keep_for"}
STANDING = {"group", "run_at", "depends_on", "flow_id", "state"}
RICH: dict[str, Any] = {
    "payload": b"{}",
    "timeout": timedelta(seconds=5),
    "max_attempts": 9,
    "metadata": {"tenant": "one"},
}

Place = Callable[[Environment, "Pair"], Awaitable[None]]


class Pair:
    """One field with one kind of damage, in a queue of its own."""

    def __init__(self, env: Environment, number: int, field: str, kind: str) -> None:
        self.env = env
        self.queue = env.q(f"{number}")
        self.key = env.name(f"key {number}")
        self.field = field
        self.kind = kind
        self.number = number

    async def break_(self, job: JobRecord) -> bool:
        return await self.env.damage_field(job.id, self.field, self.kind)

    async def read(self, broken: JobRecord, at: float = 0) -> State:
        """Every way of reading works, and finds the record."""
        env = self.env
        info = await env.info(broken, at)
        assert isinstance(info.state, State)
        check_record(info.job, shown=True)
        assert broken.id in await env.all_ids(at, queue=self.queue)
        listed, counted = await env.all_ids(at, queue=self.queue), (await env.counts(at, self.queue)).values()
        assert len(listed) - 1 <= sum(counted) <= len(listed)
        for state in State:
            found = await env.all_ids(at, queue=self.queue, state=state)
            assert (broken.id in found) == (info.state is state)
        await env.driver.results([broken.id])
        await self.read_filtered(broken, info.state, at)
        return info.state

    async def read_filtered(self, broken: JobRecord, state: State, at: float) -> None:
        """The same through filters, and through optional parts of the contract."""
        env = self.env
        page = await env.driver.list(now=env.at(at), queue=self.queue, order="-id", payloads=False)
        (found,) = [info for info in page.items if info.job.id == broken.id]
        assert (found.state, found.job.payload, found.job.result, found.job.trail) == (state, b"", None, b"")
        check_record(found.job, shown=True)
        assert all(number <= 1 for number in (await env.driver.counts(env.at(at), 1)).get(self.queue, {}).values())
        await env.driver.list(now=env.at(at), queue=self.queue, since=env.at(-1), until=env.at(1), error_class="Boom")
        await env.driver.heads([self.queue], env.at(at), 5)
        if UPCOMING not in env.lacks:
            await env.driver.upcoming([self.queue], env.at(at))
        if FLOWS not in env.lacks:
            await env.driver.flows(now=env.at(at))

    async def met(self, broken: JobRecord, held: Sequence[Reserved], at: float = 0) -> Reserved | None:
        """After a reserve that could return it: it was returned whole, or set aside."""
        for item in held:
            if item.job.id == broken.id:
                check_record(item.job)
                return item
        info = await self.env.info(broken, at)
        if info.state is State.DLQ:
            assert info.job.reason.startswith(DAMAGED_PREFIX)
        else:
            assert self.field in STANDING, f"it reads {info.state}, and reserve neither takes it nor sets it aside"
        return None

    async def decided_over(self, broken: JobRecord, at: float = 0) -> None:
        """It can be requeued, cancelled and deleted, or is refused as any other."""
        driver, ids, now = self.env.driver, [broken.id], self.env.at(at)
        if AMEND not in self.env.lacks:
            seen = (await self.env.info(broken, at)).job
            change = Amend(id=broken.id, deliveries=seen.deliveries, edits=seen.edits, priority=1, payload=b"{}")
            (answer,) = await self.env.driver.amend([change], now)
            assert answer is None or isinstance(answer, DriverError)
        shown = [Seen.of(await self.env.info(broken, at))]
        for answers in (await driver.cancel(ids, now, shown), await driver.delete(ids, [Seen(99)])):
            assert answers == [None] or isinstance(answers[0], DriverError)
        for answers in (
            await driver.requeue(ids, now),
            await driver.cancel(ids, now),
            await driver.requeue(ids, now, run_at=self.env.at(at + 50), reset_attempts=True),
        ):
            assert answers == [None] or isinstance(answers[0], DriverError)
        await self.read(broken, at)
        assert await driver.delete(ids) == [None]
        assert await self.env.gone(broken)
        assert broken.id not in await self.env.all_ids(at, queue=self.queue)

    def fresh(self, held: Reserved, *, lost: int = 0, deliveries: int = 1) -> bool:
        return (held.job.lost, held.job.deliveries) == (lost, deliveries)


async def beside(pair: Pair, broken: JobRecord, neighbours: Sequence[JobRecord], at: float = 0) -> None:
    """A damaged record waits among others, and these are reserved, extended, settled and taken over as usual."""
    env = pair.env
    await pair.read(broken, at)
    held = await env.take(queues=[pair.queue], at=at)
    by_id = {item.job.id: item for item in held}
    assert by_id.keys() - {broken.id} == {job.id for job in neighbours}
    assert all(pair.fresh(by_id[job.id]) for job in neighbours)
    taken = await pair.met(broken, held, at)
    answers = await env.extend(*held, at=at)
    assert [isinstance(answer, Lease) for answer in answers] == [True] * len(held)
    first, last = by_id[neighbours[0].id], by_id[neighbours[-1].id]
    outcomes: list[Outcome] = [Ack(first.lease, b"1")]
    if taken is not None:
        outcomes.append(Retry(taken.lease, None, taken.job.attempts + 1, "broken"))
    assert await env.settle(*outcomes, at=at) == [None] * len(outcomes)
    late = {item.job.id: item for item in await env.take(queues=[pair.queue], at=at + 100)}
    assert pair.fresh(late[last.job.id], lost=1, deliveries=2)
    await pair.met(broken, list(late.values()), at + 100)
    await env.put(env.job(queue=pair.queue, idempotency_key=pair.key), at=at + 100)
    await pair.decided_over(broken, at + 100)


async def in_every_place(env: Environment, place: Place) -> None:
    fields = [name for name in FIELDS if ATTEMPTS not in env.lacks or name not in OF_ATTEMPTS]
    fields = [name for name in fields if AMEND not in env.lacks or name != "edits"]
    fields = [name for name in fields if STEPS not in env.lacks or name != "has_memos"]
    pairs = [(field, kind) for field in fields for kind in KINDS]
    for number, (field, kind) in enumerate(env.draw(pairs)):
        try:
            await place(env, Pair(env, number, field, kind))
        except Exception as error:
            error.add_note(f"the field {field} was damaged: {kind}")
            raise


@case(ALONE)
async def plain_in_line(env: Environment) -> None:
    async def place(env: Environment, pair: Pair) -> None:
        first, broken, last = await env.add_many(3, queue=pair.queue)
        if await pair.break_(broken):
            await beside(pair, broken, [first, last])

    await in_every_place(env, place)


@case(ALONE)
async def with_every_field_in_line(env: Environment) -> None:
    async def place(env: Environment, pair: Pair) -> None:
        first = await env.add(queue=pair.queue)
        broken = await env.add(
            queue=pair.queue, idempotency_key=pair.key, flow_id=env.name(f"run {pair.number}"), **RICH
        )
        last = await env.add(queue=pair.queue)
        if await pair.break_(broken):
            try:
                await env.driver.flow(str(broken.flow_id), env.now)
            except DriverError:
                assert pair.field == "flow_id"
            await beside(pair, broken, [first, last])
            await env.driver.cancel_flow(str(broken.flow_id), env.now)

    await in_every_place(env, place)


@case(ALONE)
async def scheduled(env: Environment) -> None:
    async def place(env: Environment, pair: Pair) -> None:
        broken = await env.add(queue=pair.queue, run_at=env.at(5), **RICH)
        first, last = await env.add_many(2, queue=pair.queue, run_at=env.at(5))
        if await pair.break_(broken):
            await pair.read(broken, 1)
            await beside(pair, broken, [first, last], at=10)

    await in_every_place(env, place)


@case(ALONE)
async def after_a_retry(env: Environment) -> None:
    """It has an error, a time of failure, and attempts."""

    async def place(env: Environment, pair: Pair) -> None:
        broken = await env.add(queue=pair.queue)
        held = await env.take_one(queues=[pair.queue], worker=env.name("w"))
        written = ("Boom", "f1", b"trail") if ATTEMPTS not in env.lacks else ()
        if ATTEMPTS not in env.lacks:
            await env.extend(held, notes={held.lease.token: b"note"})
        await env.done(Retry(held.lease, None, 1, "it failed", env.now, *written))
        first, last = await env.add_many(2, queue=pair.queue)
        if await pair.break_(broken):
            await beside(pair, broken, [first, last])

    await in_every_place(env, place)


@case(ALONE)
async def inflight(env: Environment) -> None:
    """Its worker extends and settles it with its neighbours; or its lease ends like any other."""

    async def place(env: Environment, pair: Pair) -> None:
        first, broken, last = await env.add_many(3, queue=pair.queue, **RICH)
        held = {item.job.id: item for item in await env.take(queues=[pair.queue], lease=5)}
        if not await pair.break_(broken):
            return
        await pair.read(broken)
        answers = await env.extend(held[first.id], held[broken.id], held[last.id], lease=5)
        assert isinstance(answers[0], Lease)
        assert isinstance(answers[1], Lease | DriverError)
        assert isinstance(answers[2], Lease)
        lease = held[broken.id].lease
        ways: tuple[Outcome, ...] = (
            Ack(lease, b"1"), Retry(lease, None, 1), Fail(lease, "over", 1, env.now), Cancelled(lease, "over"),
        )  # fmt: skip
        if pair.number % 5 < len(ways):
            outcomes = (Ack(held[first.id].lease), ways[pair.number % 5], Ack(held[last.id].lease))
            settled = await env.settle(*outcomes)
            assert (settled[0], settled[2]) == (None, None)
            assert settled[1] is None or isinstance(settled[1], TaskHarborError)
        else:
            taken = {item.job.id: item for item in await env.take(queues=[pair.queue], at=10)}
            assert all(pair.fresh(taken[job.id], lost=1, deliveries=2) for job in (first, last))
            await pair.met(broken, list(taken.values()), 10)
        await pair.read(broken, 10)
        await pair.decided_over(broken, 10)

    await in_every_place(env, place)


@case(ALONE)
async def released(env: Environment) -> None:
    """What a dead worker held comes back, also beside a damaged record."""

    async def place(env: Environment, pair: Pair) -> None:
        first, broken, last = await env.add_many(3, queue=pair.queue)
        worker = env.name(f"worker {pair.number}")
        await env.take(queues=[pair.queue], worker=worker)
        if await pair.break_(broken):
            assert await env.driver.release(worker, env.at(1)) in (2, 3)
            held = {item.job.id: item for item in await env.take(queues=[pair.queue], at=2)}
            assert all(pair.fresh(held[job.id], lost=1, deliveries=2) for job in (first, last))
            late = await env.take(queues=[pair.queue], at=20)  # where it was not released, its lease is over by now
            if broken.id not in held:
                await pair.met(broken, late, 20)
            await pair.decided_over(broken, 20)

    await in_every_place(env, place)


@case(ALONE)
async def in_a_group(env: Environment) -> None:
    """It neither blocks its group nor takes capacity of it."""

    async def place(env: Environment, pair: Pair) -> None:
        group = env.name(f"group {pair.number}")
        broken, first, second = await env.add_many(3, queue=pair.queue, group=group)
        if not await pair.break_(broken):
            return
        await pair.read(broken)
        order: list[str] = []
        for _ in range(3):
            held = await env.take(queues=[pair.queue])
            for item in held:
                await env.ack(item)
            order += [item.job.id for item in held]
        assert [id for id in order if id != broken.id] == [first.id, second.id]
        if broken.id not in order:
            await pair.met(broken, [])
        await pair.decided_over(broken)

    await in_every_place(env, place)


@case(ALONE)
async def blocked(env: Environment) -> None:
    """The outcome of its dependency is not refused because of it, and the other dependents are released."""

    async def place(env: Environment, pair: Pair) -> None:
        root = await env.add(queue=pair.queue)
        broken, sound = await env.add_many(2, queue=pair.queue, depends_on=(root.id,), **RICH)
        held = await env.take_one(queues=[pair.queue])
        if not await pair.break_(broken):
            return
        await pair.read(broken)
        assert await env.settle(Ack(held.lease, b"1")) == [None]
        taken = {item.job.id: item for item in await env.take(queues=[pair.queue])}
        assert pair.fresh(taken[sound.id])
        await pair.met(broken, list(taken.values()))
        await pair.decided_over(broken)

    await in_every_place(env, place)


@case(ALONE)
async def depended_on(env: Environment) -> None:
    """What depends on it waits for it, and can be cancelled."""

    async def place(env: Environment, pair: Pair) -> None:
        broken = await env.add(queue=pair.queue)
        waits = await env.add(queue=pair.queue, depends_on=(broken.id,))
        if not await pair.break_(broken):
            return
        await pair.read(broken)
        held = await pair.met(broken, await env.take(queues=[pair.queue]))
        if held is not None:
            assert await env.settle(Ack(held.lease)) == [None]
            assert await env.taken_ids(queues=[pair.queue]) == [waits.id]
        else:
            assert await env.state(waits) == "blocked"
        assert await env.driver.cancel([waits.id], env.now) == [None]
        await pair.decided_over(broken)

    await in_every_place(env, place)


@case(ALONE)
async def ended(env: Environment) -> None:
    """Done, dead or cancelled: it is listed, pruned or deleted like its neighbours."""

    async def place(env: Environment, pair: Pair) -> None:
        kept: dict[str, Any] = {"keep_for": env.driver.retention} if ATTEMPTS not in env.lacks else {}
        first, broken, last = await env.add_many(3, queue=pair.queue, idempotency_key=None, **kept, **RICH)
        held = {item.job.id: item for item in await env.take(queues=[pair.queue])}
        lease = held[broken.id].lease
        ways: tuple[Outcome, ...] = (Ack(lease, b"1"), Fail(lease, "over", 1, env.now), Cancelled(lease, "over"))
        outcomes = (Ack(held[first.id].lease), ways[pair.number % 3], Ack(held[last.id].lease))
        assert await env.settle(*outcomes) == [None] * 3
        if not await pair.break_(broken):
            return
        await pair.read(broken)
        assert await env.driver.prune(env.at(60), 1000) >= 2
        assert await env.gone(first)
        assert await env.gone(last)
        if not await env.gone(broken):
            await pair.decided_over(broken)

    await in_every_place(env, place)

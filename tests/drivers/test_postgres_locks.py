"""Locks: calls over the same jobs in any order never deadlock, and no worker loses a lease to
another client's transaction.

Random batches in random orders from many clients, seeded, on a real server: extends, settles with spawns and handovers,
releases, requeues, cancels, deletes, prunes, changes of schedules and the application's open transactions. The server
counts deadlocks; here it looks for one after 20 ms instead of a second, so that none passes unseen.
"""

import asyncio
import functools
import random
from contextlib import suppress
from datetime import timedelta

import msgspec
import psycopg
import pytest

from taskharbor.drivers import (
    Ack,
    Amend,
    BackendUnavailable,
    Cancelled,
    Fail,
    Figures,
    InvalidJob,
    JobNotFound,
    JobNotInflight,
    JobRecord,
    Lease,
    LeaseMismatch,
    Retry,
    ScheduleChange,
    Seen,
    StoredAudit,
    StoredSchedule,
    TransactionFailed,
    WrongState,
)
from tests import lanes
from tests.drivers.postgres_recount import mistakes
from tests.drivers.postgres_stores import deadlocks, opened, store

pytestmark = pytest.mark.lane("locks-postgres")
LEASE = timedelta(hours=1)
CALLS = lanes.figure(test=25, full=100)  # of each client
KEPT = 12
QUEUES = ("q0", "q1")


class Crowd:
    """Clients that work on the same jobs, and what they know together."""

    def __init__(self, address, seed):
        self.address, self.seed = address, seed
        self.kept: list[Lease] = []
        self.ids: list[str] = []
        self.leases: dict[str, Lease] = {}
        self.made = 0
        self.calls = 0
        self.moved = asyncio.Condition()

    def job(self, chance, **given):
        self.made += 1
        id = f"{chance.randrange(16):x}{self.made:05d}"  # the order of ids is not that of arrival
        self.ids.append(id)
        return JobRecord(id=id, type="t", queue=chance.choice(QUEUES), **given)

    def family(self, chance):
        """Some jobs of one call: alone, in a group, with a key, or a flow in which others wait for them."""
        kind = chance.randrange(4)
        if kind == 0:
            return [self.job(chance) for _ in range(3)]
        if kind == 1:
            return [self.job(chance, group=f"g{chance.randrange(4)}", group_limit=2) for _ in range(3)]
        if kind == 2:
            return [self.job(chance, idempotency_key=f"k{chance.randrange(20)}")]
        flow = f"f{chance.randrange(6)}"
        first = [self.job(chance, flow_id=flow) for _ in range(3)]
        waits = tuple(job.id for job in first)
        if chance.random() < 0.5:
            first = [msgspec.structs.replace(job, group=f"g{chance.randrange(4)}") for job in first]
        return [*first, *(self.job(chance, flow_id=flow, depends_on=waits) for _ in range(2))]

    def some(self, chance, most=8):
        pool = self.ids[-60:]
        return chance.sample(pool, min(len(pool), chance.randint(1, most)))

    async def told(self):
        async with self.moved:
            self.calls += 1
            self.moved.notify_all()

    async def meanwhile(self, number):
        """Until others have made this many calls, or all have ended."""
        async with self.moved:
            aim = self.calls + number
            await self.moved.wait_for(lambda: self.calls >= aim or self.over)

    over = False

    # The clients: each makes its calls in the order of its own seed

    async def extends(self, chance, driver, now):
        leases = [*self.kept, *self.leases.values()]
        chance.shuffle(leases)
        tokens = {lease.token for lease in self.kept}
        notes = {lease.token: b"%d" % chance.randrange(9) for lease in leases if chance.random() < 0.5}
        for lease, answer in zip(leases, await driver.extend(leases, now, LEASE, notes), strict=True):
            if lease.token in tokens:
                assert isinstance(answer, Lease | BackendUnavailable), f"a lease was lost: {answer!r}"
            else:
                assert isinstance(answer, Lease | BackendUnavailable | JobNotFound | JobNotInflight | LeaseMismatch)

    async def works(self, chance, driver, now):
        await driver.enqueue(self.family(chance), now)
        worker = f"w{chance.randrange(3)}"
        names = chance.sample(QUEUES, chance.randint(1, 2))
        for held in await driver.reserve(names, now, LEASE, chance.randint(1, 6), worker):
            self.leases[held.job.id] = held.lease
        mine = [self.leases[id] for id in chance.sample(sorted(self.leases), min(len(self.leases), 5))]
        outcomes = [self.outcome(chance, lease, now) for lease in mine]
        for lease, answer in zip(mine, await driver.settle(outcomes, now), strict=True):
            if not isinstance(answer, BackendUnavailable):
                self.leases.pop(lease.job_id, None)

    def outcome(self, chance, lease, now):
        kind = chance.randrange(8)
        if kind == 0:
            return Retry(lease, None, 1)
        if kind == 1:
            return Fail(lease, "no", 1, now)
        if kind == 2:
            return Cancelled(lease, "no")
        if kind == 3:
            heir = self.job(chance, flow_id=f"f{chance.randrange(6)}", group=f"g{chance.randrange(4)}")
            return Ack(lease, None, (heir, self.job(chance, depends_on=(heir.id, lease.job_id))), heir.id)
        if kind == 4:
            # Others are ending at the same moment, and may spawn what depends on this one.
            other = chance.choice([*self.kept, *self.leases.values()]).job_id
            return Ack(lease, b"1", (self.job(chance, depends_on=(other, lease.job_id)),))
        return Ack(lease, b"1")

    async def handles(self, chance, driver, now):
        """A handler that writes to the application's own table, and whose ack is committed with that."""
        await driver.enqueue(self.family(chance), now)
        for held in await driver.reserve(QUEUES, now, LEASE, 1, "handler"):
            transaction = driver.transaction(held.lease)
            async with transaction as connection:
                await connection.execute("update orders set number = number + 1 where id = %s", (chance.randrange(3),))
            outcome = self.outcome(chance, held.lease, now)
            answer = await transaction.commit(outcome if isinstance(outcome, Ack) else Ack(held.lease), now)
            assert not isinstance(answer, TransactionFailed), answer.__cause__

    async def decides(self, chance, driver, now):
        kind = chance.randrange(11)
        if kind == 0:
            answers = await driver.cancel(self.some(chance), now)
        elif kind == 9:
            ids = self.some(chance)
            seen = [Seen(chance.randrange(2), chance.randrange(2)) for _ in ids]
            verb = chance.choice([driver.delete, *[functools.partial(driver.cancel, now=now)] * 2])
            answers = await verb(ids, seen=seen)
        elif kind == 10:
            entries = [StoredAudit(id=f"{n}", at=now, by="anna") for n in chance.sample(range(9), 5)]
            await driver.put_audit(entries, now + chance.choice([timedelta(0), timedelta(days=91)]))
            return
        elif kind == 7:
            changes = [
                Amend(id=id, deliveries=chance.randrange(2), edits=chance.randrange(2), priority=chance.randrange(3))
                for id in self.some(chance)
            ]
            answers = await driver.amend(changes, now)
        elif kind == 8:
            minute = now.replace(second=0, microsecond=0)
            names = chance.sample(QUEUES, 2)
            await driver.add_figures([Figures(minute, queue, {"done": 1, "failed": 1}) for queue in names], now)
            return
        elif kind == 1:
            answers = await driver.delete(self.some(chance))
        elif kind in (2, 3):
            answers = await driver.requeue(self.some(chance), now)
        elif kind == 4:
            await driver.prune(now + LEASE, 20)
            return
        elif kind == 5:
            await driver.release(f"w{chance.randrange(3)}", now)
            return
        else:
            with suppress(BackendUnavailable):
                await driver.cancel_flow(f"f{chance.randrange(6)}", now)
            return
        expected = WrongState | JobNotFound | BackendUnavailable
        assert all(answer is None or isinstance(answer, expected) for answer in answers), answers

    async def schedules(self, chance, driver, now, own=""):
        """Changes in any order, of schedules that all clients know or new ones, whose jobs share ids and groups."""
        changes = []
        revisions = ("1", "2", "3")
        for name in chance.sample("abcdef", chance.randint(1, 5)):
            queue = chance.choice(QUEUES)
            jobs = tuple(
                JobRecord(id=f"{now} {chance.randrange(12)}", type="t", queue=queue, group=f"{now} {n}", group_limit=2)
                for n in chance.sample(range(9), chance.randint(0, 3))
            )
            to = StoredSchedule(name=name + own, queue=queue, revision=chance.choice(revisions), next_at=now)
            expect = None if own else chance.choice([None, *revisions])
            change = ScheduleChange(name=name + own, expect=expect, to=to, jobs=jobs)
            deletes = not own and chance.random() < 0.3
            changes.append(ScheduleChange(name=name, expect=expect, to=None) if deletes else change)
        assert len(await driver.change_schedules(changes, now)) == len(changes)

    async def transacts(self, chance, driver, now):
        """The application's own transaction, in which new jobs depend on what is there; it stays open for a while."""
        connection = await psycopg.AsyncConnection.connect(self.address)
        try:
            for _ in range(chance.randint(1, 3)):
                wanted = [chance.choice(self.kept).job_id, *self.some(chance, 2)]
                for id in wanted:
                    with suppress(InvalidJob):  # it was deleted; the transaction goes on
                        await driver.enqueue_on(connection, [self.job(chance, depends_on=(id,))], now)
            await self.meanwhile(chance.randint(0, 12))
            await (connection.commit() if chance.random() < 0.7 else connection.rollback())
        finally:
            await connection.close()

    async def run(self):
        chance = random.Random(self.seed)
        clients = [self.extends] * 6 + [self.works] * 3 + [self.handles] * 2 + [self.decides] * 2 + [self.transacts] * 2
        clients += [self.schedules] * 4
        async with opened(self.address, len(clients)) as drivers:
            now = await drivers[0].server_time()
            kept = [JobRecord(id=f"{chance.randrange(16):x}kept{n}", type="t", queue="kept") for n in range(KEPT)]
            await drivers[0].enqueue(kept, now)
            self.kept = [held.lease for held in await drivers[0].reserve(["kept"], now, LEASE, KEPT, "keeper")]
            assert len(self.kept) == KEPT
            left = len(clients)

            async def client(number):
                nonlocal left
                own = random.Random(f"{self.seed} {number}")
                try:
                    for turn in range(CALLS):
                        await clients[number](own, drivers[number], now + timedelta(milliseconds=turn))
                        await self.told()
                finally:
                    left -= 1
                    self.over = left <= 4  # those that wait for others
                    await self.told()

            await asyncio.gather(*(client(number) for number in range(len(clients))))
            last = now + timedelta(minutes=1)
            assert all(isinstance(answer, Lease) for answer in await drivers[0].extend(self.kept, last, LEASE))


@pytest.mark.parametrize("verb", ["requeue", "cancel", "delete"])
def test_what_was_seen_is_compared_under_the_lock(verb):
    """Another transaction has the job, and changes it: the call waits for it, and finds the job changed."""
    address = store()

    async def scenario():
        async with opened(address) as (driver,):
            now = await driver.server_time()
            await driver.enqueue([JobRecord(id="a", type="t"), JobRecord(id="b", type="t")], now)
            if verb == "requeue":
                await driver.cancel(["a", "b"], now)
            before = await driver.list(now=now)
            seen = [Seen.of(item) for item in before.items]
            table = "history" if verb == "requeue" else "jobs"
            async with await psycopg.AsyncConnection.connect(address) as other:
                await other.execute(f"update taskharbor.{table} set edits = 1 where id = 'a'".encode())
                given = () if verb == "delete" else (now,)
                call = asyncio.create_task(getattr(driver, verb)(["a", "b"], *given, seen=seen))
                while await driver.list(now=now) == before:  # until the other job has been changed
                    assert not call.done()
                await other.commit()
            first, second = await call
            assert second is None
            assert isinstance(first, WrongState)
            assert "changed since" in str(first)

    asyncio.run(scenario())


@pytest.mark.parametrize("how", ["on the pool", "in a handler's transaction"])
def test_outcomes_that_spawn_what_depends_on_each_other(how):
    """Each holds its own job and needs the other's: neither waits for it while it holds anything."""
    address = store()

    async def end(driver, one, other, now):
        spawned = JobRecord(id=f"{one.job.id}s", type="t", queue="s", depends_on=(other.job.id,), flow_id="f")
        ack = Ack(one.lease, None, (spawned,))
        if how == "on the pool":
            return (await driver.settle([ack], now))[0]
        transaction = driver.transaction(one.lease)
        async with transaction:
            pass
        return await transaction.commit(ack, now)

    async def scenario():
        async with opened(address, 2) as drivers:
            now = await drivers[0].server_time()
            for turn in range(lanes.figure(test=20, full=100)):
                await drivers[0].enqueue([JobRecord(id=f"{turn}{name}", type="t", group=name) for name in "ab"], now)
                one, two = await drivers[0].reserve(["default"], now, LEASE, 2)
                ends = (end(drivers[0], one, two, now), end(drivers[1], two, one, now))
                assert list(await asyncio.gather(*ends)) == [None, None]

    asyncio.run(scenario())
    assert deadlocks(address) == 0
    assert mistakes(address) == []


@pytest.mark.parametrize("names", ["the same schedules", "schedules of their own"])
def test_changes_of_schedules_in_random_orders(names):
    """Clients that begin at the same moment: schedules are locked in one order, and so is what their jobs need."""
    seed, clients = lanes.seed(), 6
    address = store()
    crowd = Crowd(address, seed)

    async def scenario():
        chances = [random.Random(f"{seed} {number}") for number in range(clients)]
        async with opened(address, clients) as drivers:
            now = await drivers[0].server_time()
            for turn in range(lanes.figure(test=40, full=500)):
                at = now + timedelta(milliseconds=turn)
                calls = []
                for number, driver in enumerate(drivers):
                    own = "" if names == "the same schedules" else f"{number} {turn}"
                    calls.append(crowd.schedules(chances[number], driver, at, own))
                await asyncio.gather(*calls)

    asyncio.run(scenario())
    assert deadlocks(address) == 0, f"TASKHARBOR_SEED={seed}"
    assert mistakes(address) == [], f"TASKHARBOR_SEED={seed}"


def test_random_batches_in_random_orders():
    seed = lanes.seed()
    address = store()
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("create table orders (id integer primary key, number integer)")
        connection.execute("insert into orders select n, 0 from generate_series(0, 2) as n")
    asyncio.run(Crowd(address, seed).run())
    assert deadlocks(address) == 0, f"TASKHARBOR_SEED={seed}"
    assert mistakes(address) == [], f"TASKHARBOR_SEED={seed}"

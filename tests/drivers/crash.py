"""Load on a store that is being killed: a producer and three worker processes, and a journal of what they ran."""

import asyncio
import random
import subprocess
import sys
from collections import defaultdict
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from taskharbor.drivers import BackendUnavailable, JobRecord, open_driver
from tests import lanes

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
WORKERS, SLOTS = 3, 8


@contextmanager
def killed_at_the_end(started):
    """Around a block that uses processes: they are killed whatever happens in it."""
    try:
        yield started
    finally:
        for child in started:
            child.kill()
            child.communicate()


def children(*commands):
    """Processes of crash_child."""
    return killed_at_the_end([spawn(*command) for command in commands])


def spawn(*command):
    return subprocess.Popen(
        [sys.executable, "-m", "tests.drivers.crash_child", *map(str, command)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def line(child):
    text = child.stdout.readline()
    assert text, f"the child ended with {child.wait()}"
    return text.strip()


def lived(scenario):
    async def live():
        async with asyncio.timeout(PATIENCE * 3):
            await scenario()

    asyncio.run(live())


def jobs_of(numbers):
    """Every third in another queue; on a Cluster that is another hash slot."""
    queues = ("default", "default", "other")
    return [JobRecord(id=f"{n:06d}", type="t", queue=queues[n % 3], payload=b'{"n":%d}' % n) for n in numbers]


class Load:
    """`number` jobs, until every one is done. `disturb` kills the store, or hurts it otherwise, and mends it."""

    def __init__(self, dsn, number, journal, lease):
        self.dsn, self.number, self.journal, self.lease = dsn, number, journal, lease
        self.sent = 0
        self.moved, self.up = asyncio.Condition(), asyncio.Event()
        self.up.set()
        self.killed: set[int] = set()
        self.outages: list[tuple[int, int]] = []  # how long the journal was before the store died, and when it was back

    def _written(self):
        return len(self.journal.read_text().splitlines()) if self.journal.exists() else 0

    async def _produce(self, driver):
        for start in range(0, self.number, 10):
            jobs = jobs_of(range(start, start + 10))
            while True:
                try:
                    await driver.enqueue(jobs, await driver.server_time())
                    break
                except BackendUnavailable:
                    await self.up.wait()
                    await asyncio.sleep(0)
            async with self.moved:
                self.sent += len(jobs)
                self.moved.notify_all()

    async def _reached(self, share):
        async with self.moved:
            await self.moved.wait_for(lambda: self.sent >= min(self.number, share * self.number))

    async def run(self, disturb, rounds):
        command = ("work", self.dsn, self.journal, self.lease)
        driver = open_driver(self.dsn)
        await driver.open()
        try:
            with children(*[command] * WORKERS) as started:
                for child in started:
                    assert await asyncio.to_thread(line, child) == "ready"
                producing = asyncio.create_task(self._produce(driver))
                chance = random.Random(lanes.seed())
                for turn in range(rounds):
                    await self._reached((turn + chance.random()) / rounds)
                    await self._disturbed(disturb)
                    # The last is never killed: it has to survive the store's death.
                    await self._replaced(started, chance.randrange(WORKERS - 1), command)
                await producing
                await self._all_done(driver)
                assert started[-1].poll() is None
        finally:
            await driver.close()

    async def _disturbed(self, disturb):
        before = self._written()
        self.up.clear()
        await asyncio.to_thread(disturb)
        self.up.set()
        # Until a worker has noticed that the store is back it may run what it had reserved before.
        self.outages.append((before, self._written() + WORKERS * SLOTS))

    async def _replaced(self, started, victim, command):
        started[victim].kill()
        started[victim].wait()
        self.killed.add(started[victim].pid)
        started[victim].stdout.close()
        started[victim] = spawn(*command)
        await asyncio.to_thread(line, started[victim])

    async def _all_done(self, driver):
        try:
            async with asyncio.timeout(PATIENCE * 2):
                while not await self._are_done(driver):
                    await asyncio.sleep(0)
        except TimeoutError:
            raise AssertionError(f"never done: {await self._others(driver)}") from None

    async def _are_done(self, driver):
        try:
            counts = await driver.counts(await driver.server_time())
            dead = any(queue.get("dlq") for queue in counts.values())
            assert not dead, f"dead: {await self._others(driver)}"
        except BackendUnavailable:
            return False
        return sum(queue.get("done", 0) for queue in counts.values()) == self.number

    async def _others(self, driver):
        """Those of the jobs that are not done, and how many the store has at all."""
        now, found, cursor = await driver.server_time(), [], None
        while True:
            page = await driver.list(now=now, cursor=cursor, limit=1000)
            found += page.items
            if (cursor := page.cursor) is None:
                break
        others = [each for each in found if each.state != "done"]
        told = [f"{each.job.id} {each.state} lost {each.job.lost}: {each.job.reason}" for each in others]
        return f"{len(found)} of {self.number} are stored, {told}"

    def _ran(self):
        """The places in the journal of each job, and who ran it there."""
        ran: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for place, text in enumerate(self.journal.read_text().splitlines()):
            job, pid = map(int, text.split())
            ran[job].append((place, pid))
        assert set(ran) == set(range(self.number)), "a job was never executed"
        return ran

    def each_is_explained(self):
        """Nothing lost, and whatever ran again did so after its process was killed, or because the store was away."""
        for job, times in self._ran().items():
            for (place, pid), (later, _) in pairwise(times):
                away = any(place <= after and later >= before for before, after in self.outages)
                assert pid in self.killed or away, f"job {job} ran at {place} ({pid}) and at {later} without a cause"

    def all_are_explained(self):
        """Nothing lost, and not more ran again than what was held when something died: for leases that may end early
        on a loaded machine."""
        again = sum(len(times) - 1 for times in self._ran().values())
        held = 4 * SLOTS  # what a worker may have taken, or not yet reported
        assert again <= len(self.outages) * (WORKERS + 1) * held, f"{again} executions that no kill explains"

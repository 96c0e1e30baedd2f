"""What a worker has put off itself is run at its time, not at the poll after it."""

import asyncio
import random
from datetime import timedelta

import pytest

from taskharbor import Snooze
from taskharbor.events import JobRetried, JobSnoozed, JobStarted
from taskharbor.policy.retry import Fixed
from taskharbor.testing.clock import START
from taskharbor.worker import fetcher
from taskharbor.worker.fetcher import DueTimes
from tests.worker.workbench import Bench, bench_test, job

HOUR = 3600.0


@pytest.mark.parametrize("how", ["retry", "snooze"])
@bench_test
async def test_a_job_that_was_put_off_starts_when_it_is_due(bench: Bench, how: str) -> None:
    tries: list[float] = []
    worker = bench.worker(poll_interval=HOUR, lease=4 * HOUR, retry=Fixed(5))

    async def handler(name: str) -> None:
        tries.append(bench.clock.monotonic())
        if len(tries) < 3:
            raise Snooze(5) if how == "snooze" else ValueError

    async def slow(name: str) -> None:
        await asyncio.Event().wait()

    worker.register("t", handler)
    worker.register("slow", slow)
    await bench.enqueue(job("s", "slow", payload=b'{"name":""}'), job("j", payload=b'{"name":""}'))
    async with bench.running(worker):
        for number in (1, 2):
            await bench.heard(JobRetried if how == "retry" else JobSnoozed, number)
            await asleep(bench, 3)  # the heart, the upkeep, and the fetcher until then
            bench.clock.advance(4.9)
            await asleep(bench, 3)
            assert len(tries) == number
            bench.clock.advance(0.1)
            await bench.heard(JobStarted, number + 2)
    assert tries == [0.0, 5.0, 10.0]


async def asleep(bench: Bench, sleepers: int) -> None:
    """Wait until `sleepers` tasks sleep on the clock, and nothing else happens."""
    while bench.clock.sleepers < sleepers:
        await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)


@bench_test
async def test_an_earlier_due_time_replaces_a_later_one(bench: Bench) -> None:
    delays = {"late": 50.0, "soon": 5.0}
    starts: list[tuple[str, float]] = []
    worker = bench.worker(poll_interval=HOUR, lease=4 * HOUR)

    async def handler(name: str) -> None:
        starts.append((name, bench.clock.monotonic()))
        if [each for each, _ in starts].count(name) == 1:
            if name == "soon":
                await gate.wait()
            raise Snooze(delays[name])

    gate = asyncio.Event()
    worker.register("t", handler)
    await bench.enqueue(*[job(name, payload=b'{"name":"%s"}' % name.encode()) for name in delays])
    async with bench.running(worker):
        await bench.heard(JobSnoozed, 1)
        await asleep(bench, 3)
        gate.set()
        await bench.heard(JobSnoozed, 2)
        await asleep(bench, 3)
        bench.clock.advance(5)
        await bench.heard(JobStarted, 3)
        assert starts[-1] == ("soon", 5.0)
        await asleep(bench, 3)
        bench.clock.advance(45)
        await bench.heard(JobStarted, 4)
        assert starts[-1] == ("late", 50.0)


def test_due_times_come_in_order_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher, "MAX_TIMES", 50)
    rng, times = random.Random(7), DueTimes()
    offsets = [rng.randrange(1000) for _ in range(60)]
    for number, offset in enumerate(offsets):
        sooner = times.note(START + timedelta(seconds=offset))
        assert sooner == (number < 50 and all(offset < other for other in offsets[:number]))
    left = sorted(offsets[:50])
    for now in range(0, 1001, 37):
        times.passed(START + timedelta(seconds=now))
        left = [offset for offset in left if offset > now]
        assert times.seconds(START + timedelta(seconds=now)) == (left[0] - now if left else None)

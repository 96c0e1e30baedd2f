"""Jobs that take their worker down: run alone, blamed alone, and given up after max_lost."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from taskharbor.events import JobDeadLettered, JobGivenBack, JobReserved, JobStarted
from tests.worker.bench import Bench, bench_test, job

LEASE = timedelta(seconds=30)


async def crash(bench: Bench, limit: int = 100) -> list[str]:
    """A worker takes what it can and dies with it; its supervisor, or the leases, notice."""
    taken = await bench.driver.reserve(["default"], bench.clock.now(), LEASE, limit, "dead")
    bench.clock.advance(LEASE)
    return [reserved.job.id for reserved in taken]


@pytest.mark.parametrize("max_lost", [1, 2, 3])
def test_a_job_lost_too_often_is_not_run_again(max_lost: int) -> None:
    @bench_test
    async def scenario(bench: Bench) -> None:
        ran: list[str] = []
        worker = bench.worker(max_lost=max_lost)
        worker.register("t", lambda: ran.append("ran"))
        await bench.enqueue(job("j"))
        for _ in range(max_lost):
            assert await crash(bench) == ["j"]
        await worker.arun(until_empty=True)
        info = await bench.info("j")
        # The takeover itself counted the last loss, so that `lost` reached the limit.
        assert (info.state, info.job.reason, ran) == ("dlq", f"crashed {max_lost} times", [])
        assert info.job.attempts == 0
        assert len(bench.of(JobDeadLettered)) == 1

    scenario()


async def lose(bench: Bench, *ids: str, **fields: Any) -> None:
    """Jobs that were with a worker when it died."""
    await bench.enqueue(*[job(id, payload=b'{"name":"%s"}' % id.encode(), **fields) for id in ids])
    await crash(bench)


class Company:
    """A handler that notes who else runs beside it."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.beside: dict[str, set[str]] = {}
        self.gate = asyncio.Event()

    async def __call__(self, name: str) -> None:
        self.running.add(name)
        self.beside[name] = set(self.running)
        if name.startswith("held"):
            await self.gate.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        self.beside[name] |= self.running
        self.running.discard(name)


@bench_test
async def test_an_idle_worker_runs_a_suspect_at_once_and_alone(bench: Bench) -> None:
    await lose(bench, "suspect", priority=-1)
    company = Company()
    worker = bench.worker(concurrency=10)
    worker.register("t", company)
    await bench.enqueue(*[job(f"b{n}", payload=b'{"name":"b%d"}' % n) for n in range(5)])
    await worker.arun(until_empty=True)
    assert next(iter(company.beside)) == "suspect"
    assert company.beside["suspect"] == {"suspect"}
    assert not any("suspect" in others for name, others in company.beside.items() if name != "suspect")
    assert [event.reason for event in bench.of(JobGivenBack)] == ["a suspect runs alone first"] * 5
    assert (await bench.driver.counts(bench.clock.now())) == {"default": {"done": 6}}
    assert [(await bench.info(f"b{n}")).job.lost for n in range(5)] == [0] * 5


@bench_test
async def test_a_suspect_found_beside_running_jobs_lets_them_finish(bench: Bench) -> None:
    company = Company()
    worker = bench.worker(concurrency=10, lease=3600)
    worker.register("t", company)
    await bench.enqueue(*[job(f"held{n}", payload=b'{"name":"held%d"}' % n) for n in range(3)])
    task = asyncio.create_task(worker.arun(until_empty=True))
    await bench.heard(JobStarted, 3)
    await bench.driver.pause("default")
    await bench.enqueue(job("suspect", payload=b'{"name":"suspect"}'))
    await bench.driver.resume("default")
    [_] = await bench.driver.reserve(["default"], bench.clock.now(), LEASE, 1, "dead")
    bench.clock.advance(LEASE)
    await bench.enqueue(*[job(f"b{n}", payload=b'{"name":"b%d"}' % n) for n in range(5)])
    await bench.heard(JobReserved, 4)
    for _ in range(20):
        await asyncio.sleep(0)
    assert "suspect" not in company.beside
    company.gate.set()
    await task
    assert company.beside["suspect"] == {"suspect"}
    assert not any("suspect" in others for name, others in company.beside.items() if name != "suspect")
    assert (await bench.driver.counts(bench.clock.now())) == {"default": {"done": 9}}


@bench_test
async def test_only_the_job_that_kills_is_blamed(bench: Bench) -> None:
    """Sixteen jobs, one of them poison: it is run exactly three times, its neighbours all succeed."""
    runs: list[str] = []
    await bench.enqueue(*[job(f"j{n:02}", payload=b'{"name":"j%02d"}' % n) for n in range(16)])

    for _ in range(40):
        died = asyncio.Event()
        worker = bench.worker(concurrency=16, name="w")

        async def handler(name: str, died: asyncio.Event = died) -> None:
            runs.append(name)
            if name == "j05":
                died.set()
                await asyncio.Event().wait()
            await asyncio.sleep(0)

        worker.register("t", handler)
        # The process dies: nothing it does reaches the store any more, so its leases run out.
        driver = bench.driver.sibling()
        driver.sibling = lambda driver=driver: driver  # type: ignore[method-assign,misc]
        worker._source = driver
        settle = driver.settle

        async def cut(outcomes, now, died=died, settle=settle):
            return [None] * len(outcomes) if died.is_set() else await settle(outcomes, now)

        driver.settle = cut  # type: ignore[method-assign]
        task = asyncio.create_task(worker.arun(until_empty=True))
        death = asyncio.create_task(died.wait())
        await asyncio.wait((task, death), return_when=asyncio.FIRST_COMPLETED)
        if not died.is_set():
            death.cancel()
            break
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        bench.clock.advance(LEASE)
    counts = (await bench.driver.counts(bench.clock.now()))["default"]
    assert counts == {"done": 15, "dlq": 1}
    info = await bench.info("j05")
    assert info.job.reason == "crashed 3 times"
    assert runs.count("j05") == 3

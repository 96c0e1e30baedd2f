"""Jobs that take their worker down: run alone, blamed alone, and given up after max_lost."""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from taskharbor.events import JobDeadLettered, JobGivenBack, JobReserved, JobStarted, JobSucceeded
from tests.worker.workbench import Bench, bench_test, job

LEASE = timedelta(seconds=30)


async def crash(bench: Bench, limit: int = 100) -> list[str]:
    """A worker takes what it can and dies with it; its supervisor, or the leases, notice."""
    taken = await bench.driver.reserve(["default"], bench.clock.now(), LEASE, limit, "dead")
    bench.clock.advance(LEASE)
    return [reserved.job.id for reserved in taken]


@pytest.mark.parametrize("max_lost", [1, 2, 3])
@bench_test
async def test_a_job_lost_too_often_is_not_run_again(bench: Bench, max_lost: int) -> None:
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


async def lose(bench: Bench, *ids: str, times: int = 2, **fields: Any) -> None:
    """Jobs that were lost `times` times with a worker that died."""
    await bench.enqueue(*[job(id, payload=b'{"name":"%s"}' % id.encode(), **fields) for id in ids])
    for _ in range(times):
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
async def test_a_job_lost_once_is_not_a_suspect(bench: Bench) -> None:
    """What a process held when it was killed runs again together, and beside fresh jobs: nobody waits for it."""
    ids = [f"held{n}" for n in range(16)]
    await lose(bench, *ids, times=1)
    company = Company()
    worker = bench.worker(concurrency=17, lease=3600)
    worker.register("t", company)
    await bench.enqueue(job("fresh", payload=b'{"name":"held-fresh"}'))
    task = asyncio.create_task(worker.arun(until_empty=True))
    await bench.heard(JobStarted, 17)
    company.gate.set()
    await task
    assert company.running == set()
    assert not bench.of(JobGivenBack)
    assert set.intersection(*company.beside.values()) == {*ids, "held-fresh"}


@pytest.mark.parametrize("max_lost", [2, 3, 4, 5])
@bench_test
async def test_the_last_execution_before_the_end_is_alone(bench: Bench, max_lost: int) -> None:
    """Whatever the limit is, no job is called crashed that was never alone."""
    await lose(bench, "suspect", times=max_lost - 1, priority=-1)
    company = Company()
    await bench.ran(company, job("b", payload=b'{"name":"b"}'), concurrency=10, max_lost=max_lost)
    assert company.beside == {"suspect": {"suspect"}, "b": {"b"}}


@bench_test
async def test_a_suspect_that_outlives_its_timeout_frees_its_place(bench: Bench) -> None:
    """Its function goes on in its thread; the other slots take jobs again as soon as the failure is stored."""
    release = threading.Event()
    await lose(bench, "suspect", timeout=timedelta(seconds=5), max_attempts=1)
    worker = bench.worker(concurrency=4)

    def stuck(name: str) -> None:
        if name == "suspect":
            release.wait(60)

    worker.register("t", stuck)
    async with bench.running(worker):
        await bench.heard(JobStarted)
        await bench.enqueue(*[job(f"b{n}", payload=b'{"name":"b%d"}' % n) for n in range(5)])
        while not bench.clock.sleepers:
            await asyncio.sleep(0)
        bench.clock.advance(5)
        await bench.heard(JobDeadLettered)
        await bench.heard(JobSucceeded, 5)
        assert worker.health().running >= 1
        release.set()


@bench_test
async def test_an_idle_worker_runs_a_suspect_at_once_and_alone(bench: Bench) -> None:
    await lose(bench, "suspect", priority=-1)
    company = Company()
    await bench.ran(company, *[job(f"b{n}", payload=b'{"name":"b%d"}' % n) for n in range(5)], concurrency=10)
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
    for _ in range(2):
        assert await crash(bench, 1) == ["suspect"]
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
        driver.sibling = lambda driver=driver: driver  # type: ignore[method-assign,misc]  # replaced for the test
        worker._source = driver
        settle = driver.settle

        async def cut(outcomes, now, died=died, settle=settle):
            return [None] * len(outcomes) if died.is_set() else await settle(outcomes, now)

        driver.settle = cut  # type: ignore[method-assign]  # replaced for the test
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

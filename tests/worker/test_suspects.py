"""Jobs that take their worker down: run alone, blamed alone, and given up after max_lost."""

import asyncio
from datetime import timedelta

import pytest

from taskharbor.events import JobDeadLettered, JobStarted
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


@bench_test
async def test_a_suspect_runs_alone_and_the_others_before_and_after_it(bench: Bench) -> None:
    await bench.enqueue(job("suspect"))
    await crash(bench)
    running: set[str] = set()
    beside: dict[str, set[str]] = {}
    gate = asyncio.Event()
    worker = bench.worker(concurrency=10)

    def handler_for(kind: str):  # type: ignore[no-untyped-def]
        async def handler(name: str) -> None:
            running.add(name)
            beside[name] = set(running)
            if kind == "held":
                await gate.wait()
            for _ in range(5):
                await asyncio.sleep(0)
            beside[name] |= running
            running.discard(name)

        return handler

    worker.register("t", handler_for("free"))
    worker.register("held", handler_for("held"))
    first = [job(f"a{n}", "held", payload=b'{"name":"a%d"}' % n, priority=9) for n in range(3)]
    later = [job(f"b{n}", payload=b'{"name":"b%d"}' % n) for n in range(30)]
    await bench.driver.delete(["suspect"])
    await bench.enqueue(job("suspect", payload=b'{"name":"suspect"}', priority=9))
    await bench.driver.reserve(["default"], bench.clock.now(), LEASE, 1, "dead")
    bench.clock.advance(LEASE)
    await bench.enqueue(*first, *later)
    task = asyncio.create_task(worker.arun(until_empty=True))
    await bench.heard(JobStarted, 3)
    for _ in range(20):
        await asyncio.sleep(0)
    assert "suspect" not in beside
    gate.set()
    await task
    assert beside["suspect"] == {"suspect"}
    assert all("suspect" not in names for name, names in beside.items() if name != "suspect")
    assert (await bench.driver.counts(bench.clock.now())) == {"default": {"done": 34}}


@bench_test
async def test_only_the_job_that_kills_is_blamed(bench: Bench) -> None:
    """Sixteen jobs, one of them poison: it is run exactly three times, its neighbours all succeed."""
    runs: list[str] = []
    await bench.enqueue(*[job(f"j{n:02}", payload=b'{"name":"j%02d"}' % n) for n in range(16)])

    class Died(Exception):
        pass

    def on_death(worker_task: asyncio.Task[None]) -> None:
        worker_task.cancel()

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

        async def cut(outcomes, now, died=died, settle=settle):  # type: ignore[no-untyped-def]
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

"""process=True: a child process that is really killed at the timeout."""

import os
from datetime import timedelta

import msgspec
import pytest

from taskharbor.events import JobProgress, JobRetried, JobStarted
from taskharbor.policy.retry import UNRECOVERABLE_KEY, Fixed, write_unrecoverable
from tests import lanes
from tests.supervisor.worker_run import eventually, exists
from tests.worker import process_handlers as handlers
from tests.worker.workbench import Bench, bench_test, job

pytestmark = pytest.mark.left_to(
    "full",
    except_for=lanes.Chosen(
        "test_a_job_runs_in_another_process_which_is_used_again",
        "test_a_child_process_is_killed_at_the_timeout",
        "test_a_handler_may_use_multiprocessing[pool-fork]",
        "test_processes_of_a_handler_end_with_its_timeout",
        "test_an_exception_of_a_child_is_decided_like_any_other",
    ),
)


@bench_test
async def test_a_job_runs_in_another_process_which_is_used_again(bench: Bench) -> None:
    worker = bench.worker(concurrency=1)
    worker.register("where", handlers.where, process=True)
    worker.register("hello", handlers.coroutine, process=True)
    await bench.enqueue(job("a", "where"), job("b", "where"), job("c", "hello", payload=b'{"name":"ada"}'))
    await worker.arun(until_empty=True)
    a, b = [msgspec.json.decode((await bench.info(id)).job.result or b"null") for id in "ab"]
    assert a["pid"] == b["pid"] != os.getpid()
    assert (a["fence"], a["key"], b["key"]) == (1, "a:where", "b:where")
    assert (await bench.info("c")).job.result == b'"hello ada"'
    assert [event.note for event in bench.of(JobProgress)] == ["half way"] * 2


@bench_test
async def test_a_call_may_override_process(bench: Bench) -> None:
    worker = bench.worker(concurrency=1)
    worker.register("thread", handlers.where)
    worker.register("process", handlers.where, process=True)
    worker.register("coroutine", handlers.where_awaited)
    await bench.enqueue(
        job("a", "thread", metadata={"taskharbor.process": "1"}),
        job("b", "process", metadata={"taskharbor.process": "0"}),
        job("c", "coroutine", metadata={"taskharbor.process": "1"}),
        job("d", "coroutine", metadata={"tenant": "x"}),
    )
    await worker.arun(until_empty=True)
    pids = [msgspec.json.decode((await bench.info(id)).job.result or b"null")["pid"] for id in "abcd"]
    assert [pid == os.getpid() for pid in pids] == [False, True, False, True]


@bench_test
async def test_a_child_process_is_killed_at_the_timeout(bench: Bench) -> None:
    worker = bench.worker(retry=Fixed(3600))
    worker.register("hangs", handlers.hangs, process=True)
    await bench.enqueue(job("j", "hangs", timeout=timedelta(seconds=5)))
    async with bench.running(worker) as task:
        await bench.heard(JobStarted)
        bench.clock.advance(5)
        await bench.heard(JobRetried)
        worker.stop()
        await task
        assert worker.health().running == 0
    assert (await bench.info("j")).job.last_error.startswith("TimeoutError: timed out after 5 s")


@pytest.mark.parametrize("start", ["spawn", "fork"])
@pytest.mark.parametrize("way", ["pool", "executor"])
@bench_test
async def test_a_handler_may_use_multiprocessing(bench: Bench, way: str, start: str) -> None:
    worker = bench.worker()
    worker.register("t", handlers.in_parallel, process=True)
    await bench.enqueue(job("j", payload=msgspec.json.encode({"way": way, "start": start})))
    await worker.arun(until_empty=True)
    assert (await bench.info("j")).job.result == b"[1,4,9]"


@bench_test
async def test_processes_of_a_handler_end_with_its_timeout(bench: Bench) -> None:
    worker = bench.worker(retry=Fixed(3600))
    worker.register("t", handlers.hangs_in_parallel, process=True)
    await bench.enqueue(job("j", timeout=timedelta(seconds=5)))
    async with bench.running(worker) as task:
        [progress] = await bench.heard(JobProgress)
        bench.clock.advance(5)
        await bench.heard(JobRetried)
        worker.stop()
        await task
    eventually(lambda: not any(exists(int(pid)) for pid in progress.note.split()), "all of them are gone")


@pytest.mark.parametrize(("handler", "word"), [(handlers.dies, "signal 9"), (handlers.leaves, "exit code 7")])
@bench_test
async def test_a_child_that_dies_is_a_failure_and_not_a_lost_worker(bench: Bench, handler: object, word: str) -> None:
    worker = bench.worker(retry=Fixed(0))
    worker.register("t", handler, process=True)  # type: ignore[arg-type]  # wrong on purpose
    worker.register("ok", handlers.coroutine, process=True)
    await bench.enqueue(job("j", max_attempts=2), job("ok", "ok", payload=b'{"name":"x"}'))
    await worker.arun(until_empty=True)
    info = await bench.info("j")
    assert (info.state, info.job.attempts, info.job.lost) == ("dlq", 2, 0)
    assert word in info.job.last_error
    assert await bench.state("ok") == "done"


@bench_test
async def test_an_exception_of_a_child_is_decided_like_any_other(bench: Bench) -> None:
    worker = bench.worker(retry=Fixed(0), concurrency=1)
    worker.register("raises", handlers.raises, process=True)
    for kind in ("value", "final", "later", "local"):
        await bench.enqueue(job(kind, "raises", payload=b'{"kind":"%s"}' % kind.encode(), max_attempts=2))
    await bench.enqueue(job("misfit", "raises", payload=b'{"kind":5}'))
    await worker.arun(until_empty=True)
    infos = {id: await bench.info(id) for id in ("value", "final", "later", "local", "misfit")}
    assert (infos["value"].state, infos["value"].job.attempts) == ("dlq", 2)
    assert infos["value"].job.last_error.startswith("ValueError: in the child")
    assert "process_handlers.py" in infos["value"].job.last_error
    assert (infos["final"].job.reason, infos["final"].job.attempts) == ("no use", 1)
    assert (infos["later"].state, infos["later"].job.attempts) == ("scheduled", 0)
    assert "cannot travel" in infos["local"].job.last_error
    assert (infos["misfit"].state, infos["misfit"].job.attempts) == ("dlq", 1)
    assert "'kind'" in infos["misfit"].job.reason


@bench_test
async def test_an_unrecoverable_error_that_cannot_be_pickled_is_still_final(bench: Bench) -> None:
    worker = bench.worker(retry=Fixed(0), concurrency=1)
    worker.register("declared", handlers.rejects, process=True, unrecoverable=[handlers.Rejected])
    worker.register("plain", handlers.rejects, process=True)
    carried = {UNRECOVERABLE_KEY: write_unrecoverable([handlers.Rejected])}
    await bench.enqueue(
        job("declared", "declared"), job("carried", "plain", metadata=carried), job("plain", "plain", max_attempts=2)
    )
    await worker.arun(until_empty=True)
    for id in ("declared", "carried"):
        record = (await bench.info(id)).job
        assert (record.reason, record.attempts) == ("unrecoverable Rejected: 404 no such thing", 1)
        assert "process_handlers.py" in record.last_error
    assert (await bench.info("plain")).job.reason == "failed 2 of 2 attempts"


@bench_test
async def test_a_child_process_sees_the_cancellation_at_shutdown(bench: Bench) -> None:
    worker = bench.worker()
    worker.register("t", handlers.waits_for_the_signal, process=True)
    await bench.enqueue(job("j"))
    await bench.run_until(JobProgress, worker, worker.stop)
    assert (await bench.info("j")).job.result == b'"shutdown"'


@bench_test
async def test_hurry_kills_the_child_and_gives_the_job_back(bench: Bench) -> None:
    worker = bench.worker()
    worker.register("t", handlers.hangs, process=True)
    await bench.enqueue(job("j"))
    await bench.run_until(JobStarted, worker, worker.hurry)
    info = await bench.info("j")
    assert (info.state, info.job.attempts) == ("ready", 0)

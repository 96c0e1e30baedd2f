"""`consume` as it is: real threads, tasks, processes and signals, on a real server."""

import asyncio
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from taskharbor.omniq import AsyncOmniQ, JobContext, LeaseLost, OmniQ
from tests.omniq.conftest import url
from tests.servers.redis import until

PROGRAM = Path(__file__).with_name("consumer_program.py")
WAIT = 60


class Consumer:
    """A consumer process, read line by line."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, str(PROGRAM), *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.strip())

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def says(self) -> str:
        return self.lines.get(timeout=WAIT)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.reader.join()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def consumer(server) -> Iterator[object]:
    started = []

    def start(colour: str, how: str) -> Consumer:
        started.append(Consumer(url(server), colour, how))
        return started[-1]

    yield start
    for each in started:
        each.end()


COLOURS = pytest.mark.parametrize("colour", ["sync", "async"])


@COLOURS
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_drain_lets_the_current_job_finish_and_reserves_no_other(q, store, consumer, colour, number):
    for each in ("a", "b"):
        q.publish("jobs", {}, job_id=each)
    process = consumer(colour, "drain")
    assert process.says() == "started a"
    process.process.send_signal(number)
    process.go()
    assert process.says() == "finished a"
    assert process.says() == "left"
    assert process.process.wait(WAIT) == 0
    assert (store.where("a"), store.where("b")) == (["completed"], ["wait"])
    assert store.wrong() == []


@COLOURS
def test_hazard_24_without_drain_a_signal_ends_it_at_once_and_the_job_is_given_back(q, store, consumer, colour):
    q.publish("jobs", {}, job_id="a", max_attempts=1)
    process = consumer(colour, "now")
    assert process.says() == "started a"
    process.process.send_signal(signal.SIGTERM)
    assert process.says() == f"interrupted a {'Stopped' if colour == 'sync' else 'CancelledError'} True"
    assert process.says() == "left"
    assert process.process.wait(WAIT) == 0
    job = store.job("a")
    assert (job["state"], job["attempt"], job["max_attempts"]) == ("wait", "1", "2")
    assert store.wrong() == []


@COLOURS
def test_a_second_signal_ends_a_drain(q, store, consumer, colour):
    q.publish("jobs", {}, job_id="a")
    process = consumer(colour, "drain")
    assert process.says() == "started a"
    process.process.send_signal(signal.SIGTERM)
    process.process.send_signal(signal.SIGINT)
    assert process.says().startswith("interrupted a")
    assert process.says() == "left"
    assert store.where("a") == ["wait"]


@COLOURS
def test_hazard_23_a_handler_whose_lease_is_lost_is_stopped_and_nothing_acked(q, store, raw, consumer, colour):
    q.publish("jobs", {}, job_id="a", timeout_ms=60_000)
    process = consumer(colour, "drain")
    assert process.says() == "started a"
    raw.hset(store.key("job:a"), "lease_token", "another lease's")
    assert process.says() == f"interrupted a {'LeaseLost' if colour == 'sync' else 'CancelledError'} True"
    assert store.where("a") == ["active"]
    process.process.send_signal(signal.SIGTERM)
    assert process.says() == "left"


# In this process


@contextmanager
def consumer_steps(q: OmniQ, handler, **options) -> Iterator[None]:
    thread = threading.Thread(target=q.consume, args=("jobs", handler), kwargs=options)
    thread.start()
    try:
        yield
    finally:
        q.stop()
        thread.join(WAIT)
        assert not thread.is_alive()


def test_a_handler_receives_the_job_and_its_result_is_acked(q, store):
    seen: queue.SimpleQueue[JobContext] = queue.SimpleQueue()
    q.publish("jobs", {"to": "zoë"}, job_id="a", gid="g", max_attempts=7)
    with consumer_steps(q, seen.put):
        ctx = seen.get(timeout=WAIT)
        until(lambda: store.where("a") == ["completed"], "the ack")
    assert (ctx.queue, ctx.job_id, ctx.payload_raw, ctx.payload) == ("jobs", "a", '{"to":"zoë"}', {"to": "zoë"})
    assert (ctx.attempt, ctx.gid, ctx.max_attempts) == (1, "g", 7)
    assert ctx.lease_token
    assert ctx.lock_until_ms > 1_700_000_000_000
    assert "zo" not in repr(ctx)


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_every_exception_is_a_failure_and_none_ends_the_consumer(q, store, error):
    def handler(ctx: JobContext) -> None:
        if ctx.job_id == "bad":
            raise error

    q.publish("jobs", {}, job_id="bad", max_attempts=1)
    q.publish("jobs", {}, job_id="good")
    with consumer_steps(q, handler):
        until(lambda: store.where("good") == ["completed"], "the job after")
    assert store.where("bad") == ["failed"]
    assert store.job("bad")["last_error"].startswith(type(error).__name__)


def test_it_promotes_retries_and_reaps_by_itself(q, store):
    runs: list[int] = []

    def handler(ctx: JobContext) -> None:
        runs.append(ctx.attempt)
        if ctx.attempt < 3:
            raise RuntimeError("again")

    q.publish("jobs", {}, job_id="a", backoff_ms=1)
    q.publish("jobs", {}, job_id="lost", timeout_ms=1, max_attempts=1)
    first, second = q.reserve("jobs"), q.reserve("jobs")
    q.give_back("jobs", first.job_id, first.lease_token)
    with consumer_steps(q, handler, promote_interval_s=0.01, reap_interval_s=0.01):
        until(lambda: store.where("a") == ["completed"], "the third run")
        until(lambda: store.where("lost") == ["failed"], "the reaping")
    assert runs == [2, 3]
    assert second.job_id == "lost"


def test_the_lease_of_a_long_job_is_kept(q, store):
    begun, go = threading.Event(), threading.Event()

    def handler(ctx: JobContext) -> None:
        begun.set()
        assert go.wait(WAIT)

    q.publish("jobs", {}, job_id="a", timeout_ms=5000)
    with consumer_steps(q, handler, heartbeat_interval_s=0.02):
        assert begun.wait(WAIT)
        first = store.scores("active")["a"]
        until(lambda: store.scores("active")["a"] > first, "a heartbeat")
        go.set()
        until(lambda: store.where("a") == ["completed"], "the ack")


def test_hazard_23_a_handler_that_cannot_be_interrupted_is_left_behind(q, store, raw):
    """In a call of C no exception gets through: the consumer goes on without it, and its result counts for nothing."""
    stuck, go, told = threading.Event(), threading.Lock(), queue.SimpleQueue[object]()
    go.acquire()

    def handler(ctx: JobContext) -> None:
        if ctx.job_id == "a":
            try:
                stuck.set()
                go.acquire()
            except LeaseLost as error:
                told.put(error)
                raise
            told.put(None)

    q.publish("jobs", {}, job_id="a", timeout_ms=60_000)
    with consumer_steps(q, handler, heartbeat_interval_s=0.02, grace_s=0.05):
        assert stuck.wait(WAIT)
        raw.hset(store.key("job:a"), "lease_token", "another lease's")
        q.publish("jobs", {}, job_id="b")
        until(lambda: store.where("b") == ["completed"], "the next job")
        assert store.where("a") == ["active"]
        go.release()
        assert isinstance(told.get(timeout=WAIT), LeaseLost)
        assert store.where("a") == ["active"]


def test_the_server_may_go_and_come_back(q, store, server):
    done = threading.Event()
    q.publish("jobs", {}, job_id="a")

    def handler(ctx: JobContext) -> None:
        # All connections of the consumer are cut while its handler runs: the ack is sent again.
        server.run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        done.set()

    with consumer_steps(q, handler):
        assert done.wait(WAIT)
        until(lambda: store.where("a") == ["completed"], "the ack")


def test_cancelling_an_asynchronous_consumer_gives_its_job_back(q, store, server):
    async def main() -> None:
        started = asyncio.Event()

        async def handler(ctx: JobContext) -> None:
            started.set()
            await asyncio.Event().wait()

        async with AsyncOmniQ(url(server)) as client:
            task = asyncio.create_task(client.consume("jobs", handler))
            await asyncio.wait_for(started.wait(), WAIT)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    q.publish("jobs", {}, job_id="a")
    asyncio.run(main())
    assert store.where("a") == ["wait"]
    assert store.job("a")["max_attempts"] == "4"


def test_an_asynchronous_consumer_runs_plain_functions_and_what_they_return(q, store, server):
    seen: list[object] = []

    def plain(ctx: JobContext):
        seen.append(threading.current_thread() is threading.main_thread())

        async def later() -> None:
            seen.append(ctx.job_id)

        return later()

    async def main() -> None:
        async with AsyncOmniQ(url(server)) as client:
            task = asyncio.create_task(client.consume("jobs", plain))
            while not await asyncio.to_thread(lambda: store.where("a") == ["completed"]):
                pass
            client.stop()
            await asyncio.wait_for(task, WAIT)

    q.publish("jobs", {}, job_id="a")
    asyncio.run(main())
    assert seen == [False, "a"]

"""A workflow in place of a step: each slot starts it anew, and it counts as busy while it runs."""

import asyncio
import itertools
import os
import subprocess
import sys
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest

from taskharbor import Harbor, InvalidJob, JobContext, State
from taskharbor.drivers import JobRecord
from taskharbor.flow import FlowFailure, chain, chord, group
from taskharbor.model.codec import JsonCodec
from taskharbor.model.outcome import Ack, Fail
from taskharbor.tasks.workflow import launched
from taskharbor.testing import ManualClock, adrain, drain
from taskharbor.testing.clock import START
from tests.schedules.bench import Bench

LEASE = timedelta(seconds=30)


class Program:
    """A harbor whose tasks note with which slot they ran."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.harbor = Harbor("memory://", clock=self.clock)
        self.seen: list[tuple[str, Any, float | None]] = []
        self.breaks = False
        harbor = self.harbor

        def note(name: str, value: Any, ctx: JobContext) -> None:
            at = None if ctx.slot is None else (ctx.slot - START).total_seconds()
            self.seen.append((name, value, at))

        @harbor.task(name="one", queue="first")
        def one(ctx: JobContext, n: int) -> int:
            note("one", n, ctx)
            if self.breaks:
                raise ValueError
            return n + 1

        @harbor.task(name="total")
        def total(ctx: JobContext, numbers: list[int]) -> int:
            note("total", numbers, ctx)
            return sum(numbers)

        @harbor.task(name="dynamic")
        def dynamic(ctx: JobContext) -> Any:
            note("dynamic", None, ctx)
            return chain(one.s(n=5))

        @harbor.task(name="alert")
        def alert(ctx: JobContext, failure: FlowFailure) -> None:
            note("alert", failure.job_type, ctx)

        self.one, self.total, self.dynamic, self.alert = one, total, dynamic, alert


def test_each_slot_starts_the_workflow_anew():
    program = Program()
    flow = chord(group(program.one.s(n=n) for n in (1, 2)), program.total.s())
    program.harbor.schedule("sums", flow, every=60)
    assert drain(program.harbor) == 0
    for number in (1, 2):
        program.clock.advance(60)
        assert drain(program.harbor) == 3
        at = 60 * number
        assert program.seen[-3:] == [("one", 1, at), ("one", 2, at), ("total", [2, 3], at)]
    info = program.harbor.schedules.get("sums")
    assert (info.queue, info.type, info.fired, info.skipped) == ("first", "taskharbor.launch", 2, 0)
    assert info.last_id is not None
    assert program.harbor.job(info.last_id).result(1) == 5
    assert len({info.job.id for info in program.harbor.jobs()}) == 2 * 4
    assert {info.state for info in program.harbor.jobs()} == {State.DONE}
    run_by_hand = program.harbor.schedules.run("sums")
    drain(program.harbor)
    assert run_by_hand.result(1) == 5


def test_a_group_without_an_end_ends_in_a_join():
    program = Program()
    program.harbor.schedule("many", group(program.one.s(n=n) for n in (1, 2)), every=60)
    drain(program.harbor)
    program.clock.advance(60)
    drain(program.harbor)
    info = program.harbor.schedules.get("many")
    assert info.last_id is not None
    assert program.harbor.job(info.last_id).result(1) == [2, 3]


def test_a_workflow_that_a_task_returns_stands_for_the_slot_as_well():
    program = Program()
    program.harbor.schedule("dynamic", program.dynamic.s(), every=60)
    drain(program.harbor)
    program.clock.advance(60)
    drain(program.harbor)
    assert program.seen == [("dynamic", None, 60), ("one", 5, 60)]
    program.dynamic.enqueue()
    drain(program.harbor)
    assert program.seen[2:] == [("dynamic", None, None), ("one", 5, None)]


def test_the_failure_step_of_each_run_runs_once():
    program = Program()
    program.breaks = True
    flow = chain(program.one.s(n=1).options(max_attempts=1), program.total.s(), on_failure=program.alert.s())
    program.harbor.schedule("broken", flow, every=60)
    drain(program.harbor)
    for number in (1, 2):
        program.clock.advance(60)
        drain(program.harbor)
        assert program.seen[-1] == ("alert", "one", 60 * number)
    assert len(program.seen) == 4
    assert program.harbor.schedules.get("broken").skipped == 0  # one that is dead blocks nothing


async def test_a_workflow_is_busy_while_it_runs(bench: Bench):
    flow = chain(bench.add.s(a=1), bench.add.s(b=2))
    await bench.harbor.schedules.aadd("sums", flow, every=60)
    assert await bench.fired_after(60) == 1
    await step_on(bench)  # the launch: the workflow takes its place
    for _ in range(2):
        assert await bench.fired_after(60) == 0
        await step_on(bench)
    assert await bench.fired_after(60) == 1
    assert (await bench.harbor.schedules.aget("sums")).skipped == 2


async def step_on(bench: Bench) -> None:
    """Run one job as a worker does, a launch included."""
    (reserved,) = await bench.driver.reserve(["sums"], bench.clock.now(), LEASE, 1, "w")
    ack = Ack(reserved.lease, b"1")
    if reserved.job.type == "taskharbor.launch":
        spawned = launched(reserved.job, bench.clock.now())
        ack = Ack(reserved.lease, None, spawned.jobs, spawned.handover)
    assert await bench.driver.settle([ack], bench.clock.now()) == [None]


@pytest.mark.parametrize("runs", [False, True])
async def test_a_workflow_that_failed_is_busy_only_while_others_of_its_jobs_run(bench: Bench, runs: bool):
    flow = chord(group(bench.add.s(a=1), bench.add.s(a=2)), bench.ping.s())
    await bench.harbor.schedules.aadd("sums", flow, every=60)
    await bench.fired_after(60)
    await step_on(bench)
    one, two = await bench.driver.reserve(["sums"], bench.clock.now(), timedelta(hours=1), 2, "w")
    ends: list[Any] = [Fail(one.lease, "because", 1, bench.clock.now()), *([] if runs else [Ack(two.lease)])]
    assert set(await bench.driver.settle(ends, bench.clock.now())) == {None}
    assert await bench.fired_after(60) == (0 if runs else 1)


async def test_a_launch_that_cannot_be_read_is_dead_and_another_worker_waits_for_one_that_knows_it(bench: Bench):
    await bench.driver.enqueue(
        [JobRecord(id="bad", type="taskharbor.launch", payload=b'{"jobs":[],"end":"0"}'),
         JobRecord(id="worse", type="taskharbor.launch", payload=b"garbage")],
        bench.clock.now(),
    )  # fmt: skip
    await adrain(bench.harbor)
    infos = {info.job.id: info for info in await bench.jobs()}
    for id in ("bad", "worse"):
        assert infos[id].state is State.DLQ
        assert "its workflow cannot be stored" in infos[id].job.reason


def test_a_workflow_that_is_too_large_is_refused(bench: Bench):
    flow = group(bench.ping.s(host="x" * 100) for _ in range(1000))
    with pytest.raises(InvalidJob, match="returns the workflow"):
        bench.harbor.schedule("large", flow, every=60)


def test_the_same_workflow_is_the_same_declaration():
    def program() -> Harbor:
        bench = Bench()
        flow = chord(
            group(bench.add.s(a=n) for n in range(3)), bench.ping.s().options(priority=2), on_failure=bench.ping.s()
        )
        bench.harbor.schedule("flow", flow, every=60)
        return bench.harbor

    one, other = program().handlers.schedules["flow"], program().handlers.schedules["flow"]
    assert one.hash == other.hash


class NonceCodec(JsonCodec):
    """Encodes the same value to other bytes each time, as one that encrypts does."""

    def encode(self, value: Any) -> bytes:
        return super().encode(value) + b" " * next(NONCES)


NONCES = itertools.count(1)


def hash_of(codec: Any, texts: Iterable[str], alert: str = "a") -> str:
    harbor = Harbor("memory://", codec=codec)

    @harbor.task(name="take")
    def take(texts: set[str]) -> int:
        return len(texts)

    @harbor.task(name="end")
    def end(n: int) -> None: ...

    @harbor.task(name="alert")
    def alert_(failure: FlowFailure, who: str) -> None: ...

    flow = chain(
        group(take.s(texts=set(texts)), take.s(texts=set())), chain(end.s(n=1)), on_failure=alert_.s(who=alert)
    )
    harbor.schedule("flow", flow, every=60)
    return harbor.handlers.schedules["flow"].hash


def test_a_workflow_is_the_same_declaration_whatever_its_codec_adds():
    first = hash_of(NonceCodec(), "abc")
    assert first == hash_of(NonceCodec(), "abc")
    assert first != hash_of(NonceCodec(), "abd")
    assert first != hash_of(NonceCodec(), "abc", alert="b")


def test_a_workflow_with_a_set_is_the_same_declaration_in_every_process():
    code = "from tests.schedules.test_workflows import *; print(hash_of(JsonCodec(), map(str, range(20))))"
    hashes = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(hashes) == 1


def test_a_process_child_knows_its_slot(tmp_path: Any):
    from tests.worker.process_handlers import tell_slot

    clock = ManualClock(datetime.fromisoformat("2030-01-01T00:00:00+00:00"))
    harbor = Harbor("memory://", clock=clock)
    task = harbor.task(name="tell", process=True)(tell_slot)
    harbor.schedule("tell", task.s(), every=60)
    drain(harbor)
    clock.advance(60)
    assert drain(harbor) == 1
    info = harbor.schedules.get("tell")
    assert info.last_id is not None
    assert harbor.job(info.last_id).result(1) == "2030-01-01T00:01:00+00:00"
    job = task.enqueue()
    drain(harbor)
    assert job.result(1) == "None"


def test_a_slot_that_another_program_wrote_does_no_harm():
    for text in ("yesterday", "2030-01-01T00:00:00", "9999-99-99T00:00:00+00:00"):
        assert JobContext(JobRecord(id="x", type="t", metadata={"taskharbor.slot": text})).slot is None
    assert JobContext(JobRecord(id="x", type="t")).slot is None
    slot = JobContext(JobRecord(id="x", type="t", metadata={"taskharbor.slot": "2030-01-01T02:00:00+02:00"})).slot
    assert slot == START
    assert asyncio.iscoroutinefunction(adrain)

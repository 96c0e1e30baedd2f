"""Steps of a handler: called once, stored under the lease, given again to a later execution."""

import asyncio
import threading
from datetime import datetime, timedelta
from typing import Any

import pytest

from taskharbor import BlockingCall, JobContext, StepRefused
from taskharbor.drivers import JobInfo, Lease, Memo
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.events import JobCancelled, JobDeadLettered, JobFailed, JobSnoozed, LeaseLost
from taskharbor.model.errors import BackendUnavailable
from taskharbor.policy.retry import Fixed
from taskharbor.tasks.steps import MAX_STEPS, MAX_VALUE_BYTES, Asleep
from taskharbor.testing import context
from tests.worker import process_handlers
from tests.worker.workbench import Bench, bench_test, heard_test, job

AT_ONCE = Fixed(0)


class Counting(MemoryDriver):
    """Counts the calls for steps. `trouble`: what the next saves raise."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.trouble: list[Exception] = []

    def sibling(self) -> "Counting":
        other = Counting()
        other.store, other.calls, other.trouble = self.store, self.calls, self.trouble
        return other

    async def save(self, lease: Lease, name: str, value: bytes, now: datetime) -> None:
        self.calls.append(f"save {name}")
        if self.trouble:
            raise self.trouble.pop(0)
        await super().save(lease, name, value, now)

    async def steps(self, id: str) -> list[Memo]:
        self.calls.append("steps")
        if self.trouble:
            raise self.trouble.pop(0)
        return await super().steps(id)


class Effects:
    """What steps have done, in order. The first `failures` executions of `fail` raise."""

    def __init__(self, failures: int = 0) -> None:
        self.done: list[str] = []
        self.failures = failures

    def act(self, what: str) -> str:
        self.done.append(what)
        return what.upper()

    async def aact(self, what: str) -> str:
        await asyncio.sleep(0)
        return self.act(what)

    def fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise ValueError("broken")


def counting(bench: Bench) -> Counting:
    bench.driver = driver = Counting()
    return driver


async def done(bench: Bench, id: str = "j") -> JobInfo:
    info = await bench.info(id)
    assert info.state == "done", info.job.last_error or info.state
    return info


@bench_test
async def test_a_stored_step_is_not_run_again(bench: Bench) -> None:
    driver, effects = counting(bench), Effects(failures=2)

    async def handler(ctx: JobContext) -> list[str]:
        first = await ctx.astep("first", effects.aact, "a")
        second = await ctx.astep("second", effects.act, "b")
        effects.fail()
        return [first, second]

    await bench.ran(handler, job("j"), retry=AT_ONCE)
    assert effects.done == ["a", "b"]
    assert (await done(bench)).job.result == b'["A","B"]'
    assert driver.calls == ["save first", "save second", "steps", "steps"]


@bench_test
async def test_the_same_in_a_plain_function(bench: Bench) -> None:
    driver, effects = counting(bench), Effects(failures=1)

    def handler(ctx: JobContext) -> str:
        found = ctx.step("first", effects.act, "a")
        effects.fail()
        return found

    await bench.ran(handler, job("j"), retry=AT_ONCE)
    assert effects.done == ["a"]
    assert (await done(bench)).job.result == b'"A"'
    assert driver.calls == ["save first", "steps"]


@bench_test
async def test_a_handler_without_steps_costs_nothing_more(bench: Bench) -> None:
    driver, effects = counting(bench), Effects(failures=1)

    async def handler(ctx: JobContext) -> None:
        effects.fail()

    await bench.ran(handler, job("j"), retry=AT_ONCE)
    await done(bench)
    assert driver.calls == []


@bench_test
async def test_an_error_of_a_step_is_that_of_the_handler_and_stores_nothing(bench: Bench) -> None:
    driver, effects = counting(bench), Effects(failures=1)

    def handler(ctx: JobContext) -> None:
        ctx.step("fails", effects.fail)
        ctx.step("fails once", effects.act, "b")

    await bench.ran(handler, job("j"), retry=AT_ONCE)
    assert [type(event.error) for event in bench.of(JobFailed)] == [ValueError]
    assert driver.calls == ["save fails", "save fails once"]


@bench_test
async def test_a_step_that_raised_may_be_tried_again_in_one_execution(bench: Bench) -> None:
    effects = Effects(failures=1)

    def handler(ctx: JobContext) -> None:
        with pytest.raises(ValueError, match="broken"):
            ctx.step("s", effects.fail)
        ctx.step("s", effects.fail)

    await bench.ran(handler, job("j"))
    await done(bench)


@bench_test
async def test_a_name_is_used_once_in_an_execution(bench: Bench) -> None:
    effects = Effects()

    def handler(ctx: JobContext) -> None:
        ctx.step("s", effects.act, "a")
        for name in ("s", "", "x" * 256, "a\nb", "taskharbor.mine"):
            with pytest.raises(ValueError, match="step"):
                ctx.step(name, effects.act, "b")
        with pytest.raises(ValueError, match="step"):
            ctx.sleep("s", 0)

    await bench.ran(handler, job("j"))
    await done(bench)
    assert effects.done == ["a"]


@bench_test
async def test_steps_may_run_side_by_side(bench: Bench) -> None:
    effects = Effects(failures=1)

    async def handler(ctx: JobContext) -> list[str]:
        found = await asyncio.gather(*(ctx.astep(f"s{number}", effects.aact, f"{number}") for number in range(5)))
        effects.fail()
        return found

    await bench.ran(handler, job("j"), retry=AT_ONCE)
    assert sorted(effects.done) == ["0", "1", "2", "3", "4"]
    assert (await done(bench)).job.result == b'["0","1","2","3","4"]'


@bench_test
async def test_threads_of_a_handler_may_take_steps(bench: Bench) -> None:
    effects = Effects()

    def handler(ctx: JobContext) -> None:
        threads = [threading.Thread(target=ctx.step, args=(f"s{n}", effects.act, f"{n}")) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    await bench.ran(handler, job("j"))
    await done(bench)
    assert [memo.name for memo in await bench.driver.steps("j")] == ["s0", "s1", "s2"]


@bench_test
async def test_a_value_is_what_the_codec_gives_back(bench: Bench) -> None:
    effects, seen = Effects(failures=1), list[Any]()

    def annotated() -> datetime:
        return bench.clock.now()

    def handler(ctx: JobContext) -> None:
        seen.append((ctx.step("at", annotated), ctx.step("pair", lambda: (1, 2)), ctx.step("none", lambda: None)))
        effects.fail()

    await bench.ran(handler, job("j"), retry=AT_ONCE)
    assert seen == [(bench.clock.now(), [1, 2], None)] * 2


@bench_test
async def test_the_wrong_colour_names_its_twin(bench: Bench) -> None:
    effects = Effects()

    async def coroutine(ctx: JobContext) -> None:
        for call, twin in (
            (lambda: ctx.step("s", effects.act, "a"), "astep"),
            (lambda: ctx.sleep("s", 1), "asleep"),
            (lambda: ctx.checkpoint(1), "acheckpoint"),
        ):
            with pytest.raises(BlockingCall, match=rf"await ctx\.{twin}\(\)"):
                call()

    def plain(ctx: JobContext) -> None:
        for call, twin in (
            (lambda: ctx.astep("s", effects.act, "a"), "step"),
            (lambda: ctx.asleep("s", 1), "sleep"),
            (lambda: ctx.acheckpoint(1), "checkpoint"),
        ):
            with pytest.raises(BlockingCall, match=rf"use: ctx\.{twin}\(\)"):
                call()
        functions: tuple[Any, ...] = (effects.aact, lambda what: effects.aact(what))
        for fn in functions:
            with pytest.raises(TypeError, match=r"ctx\.astep"):
                ctx.step("s", fn, "a")

    worker = bench.worker()
    worker.register("coroutine", coroutine)
    worker.register("plain", plain)
    await bench.enqueue(job("a", "coroutine"), job("b", "plain"))
    await worker.arun(until_empty=True)
    await done(bench, "a")
    await done(bench, "b")
    assert effects.done == []


# Bounds -------------------------------------------------------------------------------------------------------------


def unreadable() -> int:
    return "seven"  # type: ignore[return-value]  # on purpose


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (lambda: "secret" * MAX_VALUE_BYTES, "at most 65536"),
        (lambda: float("nan"), "cannot be encoded"),
        (lambda: object(), "object cannot be encoded"),
        (unreadable, "annotated to return"),
    ],
)
@bench_test
async def test_what_cannot_be_kept_is_unrecoverable_and_quotes_no_value(bench: Bench, fn: Any, said: str) -> None:
    driver = counting(bench)

    def handler(ctx: JobContext) -> None:
        ctx.step("mine", fn)

    await bench.ran(handler, job("j"))
    (dead,) = bench.of(JobDeadLettered)
    record = (await bench.info("j")).job
    assert "step 'mine'" in record.reason
    assert said in record.reason
    assert not any(secret in record.reason + record.last_error for secret in ("secretsecret", "seven"))
    assert dead.job.id == "j"
    assert driver.calls == []


def test_the_bounds_of_a_job() -> None:
    ctx = context()
    ctx.step("exact", lambda: "x" * (MAX_VALUE_BYTES - 2))
    with pytest.raises(StepRefused, match="'more'"):
        ctx.step("more", lambda: "x" * (MAX_VALUE_BYTES - 1))
    for number in range(15):
        ctx.step(f"{number}", lambda: "x" * (MAX_VALUE_BYTES - 2))
    with pytest.raises(StepRefused, match="1048576 bytes in all"):
        ctx.step("last", lambda: None)
    ctx = context()
    for page in range(30):  # a replaced one counts once
        ctx.checkpoint(["x" * 60_000, page])
    for number in range(MAX_STEPS - 1):
        ctx.step(f"{number}", lambda: None)
    with pytest.raises(StepRefused, match="at most 1000 steps"):
        ctx.step("last", lambda: None)
    assert ctx.last_checkpoint[1] == 29


# Sleeps -------------------------------------------------------------------------------------------------------------


@bench_test
async def test_a_sleep_holds_no_slot_no_lease_and_no_attempt(bench: Bench) -> None:
    effects = Effects()

    async def handler(ctx: JobContext) -> int:
        await ctx.astep("before", effects.act, "before")
        await ctx.asleep("cool-off", timedelta(hours=1))
        await ctx.astep("behind", effects.act, "behind")
        return ctx.job.attempts

    worker = await bench.ran(handler, job("j"), retry=AT_ONCE)
    info = await bench.info("j")
    assert (info.state, info.job.attempts, info.job.run_at) == ("scheduled", 0, bench.clock.now() + timedelta(hours=1))
    assert len(bench.of(JobSnoozed)) == 1
    bench.clock.advance(3599)
    await worker.arun(until_empty=True)
    assert effects.done == ["before"]
    bench.clock.advance(1)
    await worker.arun(until_empty=True)
    assert effects.done == ["before", "behind"]
    assert (await done(bench)).job.result == b"0"


@bench_test
async def test_a_sleeper_that_is_run_early_sleeps_on(bench: Bench) -> None:
    def handler(ctx: JobContext) -> None:
        ctx.sleep("night", 100)

    worker = await bench.ran(handler, job("j"))
    until = (await bench.info("j")).job.run_at
    await bench.driver.cancel(["j"], bench.clock.now())
    await bench.driver.requeue(["j"], bench.clock.now())
    bench.clock.advance(40)
    await worker.arun(until_empty=True)
    info = await bench.info("j")
    assert (info.state, info.job.run_at) == ("scheduled", until)
    bench.clock.advance(60)
    await worker.arun(until_empty=True)
    await done(bench)


@bench_test
async def test_behind_a_sleep_every_call_raises_whatever_is_caught(bench: Bench) -> None:
    effects, raised = Effects(), list[str]()

    def handler(ctx: JobContext) -> None:
        for call in (
            lambda: ctx.sleep("night", 100),
            lambda: ctx.step("s", effects.act, "a"),
            lambda: ctx.checkpoint(1),
            lambda: ctx.sleep("again", 1),
        ):
            try:
                call()
            except Exception as error:
                raised.append(type(error).__name__)
        ctx.step("t", effects.act, "b")

    await bench.ran(handler, job("j"))
    assert raised == [Asleep.__name__] * 4
    assert effects.done == []
    assert await bench.state("j") == "scheduled"


@bench_test
async def test_a_step_that_became_a_sleep_is_refused(bench: Bench) -> None:
    effects = Effects(failures=1)

    def handler(ctx: JobContext) -> None:
        if effects.failures:
            ctx.step("s", effects.act, "a")
            effects.fail()
        ctx.sleep("s", 5)

    await bench.ran(handler, job("j"), retry=AT_ONCE)
    assert "another name" in (await bench.info("j")).job.reason


# Checkpoints --------------------------------------------------------------------------------------------------------


@bench_test
async def test_a_checkpoint_is_replaced_and_found_again(bench: Bench) -> None:
    pages, effects = list[int](), Effects(failures=1)

    async def handler(ctx: JobContext) -> None:
        start = (ctx.last_checkpoint or {"page": 0})["page"]
        for page in range(start, 6):
            pages.append(page)
            await ctx.acheckpoint({"page": page + 1})
            assert ctx.last_checkpoint == {"page": page + 1}
            if page == 3:
                effects.fail()

    await bench.ran(handler, job("j"), retry=AT_ONCE)
    assert pages == [0, 1, 2, 3, 4, 5]
    await done(bench)


# Leases and outages -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_coroutine", [True, False], ids=["coroutine", "plain"])
@bench_test
async def test_a_lost_lease_stores_nothing_and_ends_every_later_call(bench: Bench, is_coroutine: bool) -> None:
    driver, effects, raised, ended = counting(bench), Effects(), list[str](), threading.Event()

    def lose() -> None:
        bench.clock.advance(3600)

    def plain(ctx: JobContext) -> None:
        lose()
        for name in "abc":
            try:
                ctx.step(name, effects.act, name)
            except Exception as error:
                raised.append(type(error).__name__)
        ended.set()

    async def coroutine(ctx: JobContext) -> None:
        lose()
        for name in "abc":
            try:
                await ctx.astep(name, effects.aact, name)
            except BaseException as error:
                raised.append(type(error).__name__)
        ended.set()

    await bench.ran(coroutine if is_coroutine else plain, job("j"), max_lost=1)
    await asyncio.to_thread(ended.wait, 30)  # a thread is not waited for by its worker
    assert len(raised) == 3
    assert await driver.steps("j") == []
    assert bench.of(LeaseLost)
    assert set(effects.done) <= {"a"}


@bench_test
async def test_a_cancelled_job_takes_no_further_step(bench: Bench) -> None:
    effects = Effects()

    async def handler(ctx: JobContext) -> None:
        await bench.driver.cancel(["j"], bench.clock.now())
        await ctx.astep("s", effects.act, "a")
        effects.act("never")

    await bench.ran(handler, job("j"))
    assert effects.done == ["a"]
    assert len(bench.of(JobCancelled)) == 1
    assert await bench.driver.steps("j") == []


@bench_test
async def test_a_save_is_tried_again_while_the_store_is_away(bench: Bench) -> None:
    driver, effects = counting(bench), Effects()
    driver.trouble += [BackendUnavailable("away"), BackendUnavailable("still away")]

    async def handler(ctx: JobContext) -> str:
        return await ctx.astep("s", effects.act, "a")

    await bench.ran(handler, job("j"))
    assert effects.done == ["a"]
    await done(bench)
    assert driver.calls == ["save s"] * 3


@bench_test
async def test_a_job_whose_steps_cannot_be_read_is_given_back(bench: Bench) -> None:
    driver, effects = counting(bench), Effects(failures=1)

    async def handler(ctx: JobContext) -> None:
        await ctx.astep("s", effects.act, "a")
        driver.trouble.append(BackendUnavailable("away"))
        effects.fail()
        driver.trouble.clear()

    worker = await bench.ran(handler, job("j"), retry=AT_ONCE)
    assert (await bench.info("j")).state == "scheduled"
    bench.clock.advance(5)
    await worker.arun(until_empty=True)
    assert (await done(bench)).job.attempts == 1
    assert effects.done == ["a"]


@heard_test
async def test_steps_in_a_child_process(bench: Bench) -> None:
    worker = bench.worker(concurrency=1, retry=AT_ONCE)
    worker.register("t", process_handlers.in_steps, process=True)
    await bench.enqueue(job("j"))
    await worker.arun(until_empty=True)
    info = await done(bench)
    assert info.job.result == b'[1,"one",{"page":1}]'
    assert info.job.attempts == 1
    assert {memo.name for memo in await bench.driver.steps("j")} == {"one", "nap", "taskharbor.checkpoint"}

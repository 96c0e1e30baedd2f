"""How handlers end, and what becomes of their jobs."""

from datetime import timedelta
from typing import Any

import pytest

from taskharbor import Cancel, JobContext, RetryLater, Snooze
from taskharbor.events import (
    Event,
    JobCancelled,
    JobDeadLettered,
    JobFailed,
    JobReserved,
    JobRetried,
    JobSnoozed,
    JobStarted,
    JobSucceeded,
    JobUnknown,
    PolicyFailed,
)
from taskharbor.policy.retry import Fixed
from taskharbor.tasks.flow_metadata import JOIN_TYPE
from taskharbor.tasks.workflow import Spawned, Workflow
from taskharbor.worker import Worker
from tests.worker.workbench import Bench, bench_test, job


@bench_test
async def test_events_of_a_success_come_in_order_with_the_job(bench: Bench) -> None:
    await bench.ran(lambda: {"a": 1}, job("j"))
    kinds = [type(event) for event in bench.events if getattr(event, "job", None) is not None]
    assert kinds == [JobReserved, JobStarted, JobSucceeded]
    assert (await bench.info("j")).job.result == b'{"a":1}'


@bench_test
async def test_an_observer_that_asks_for_successes_late_gets_their_durations(bench: Bench) -> None:
    late: list[JobSucceeded] = []

    class Late:
        asked = False

        def wants(self, event_type: type[Event]) -> bool:
            return self.asked and event_type is JobSucceeded

        def __call__(self, event: Event) -> None:
            assert isinstance(event, JobSucceeded)
            late.append(event)

    observer = Late()
    worker = Worker(bench.driver, clock=bench.clock, observers=[observer], heart="loop")

    async def handler() -> None:
        bench.clock.advance(2)
        observer.asked = True

    worker.register("t", handler)
    await bench.enqueue(job("first"), job("second"))
    await worker.arun(until_empty=True)
    await bench.enqueue(job("third"), job("join", JOIN_TYPE))
    await worker.arun(until_empty=True)
    assert {event.job.id: event.seconds for event in late} == {"first": 2, "second": 2, "third": 2, "join": 0}


@bench_test
async def test_the_seconds_of_a_job_are_those_of_its_handler_not_of_the_store(bench: Bench) -> None:
    driver = bench.driver.sibling()
    settle = driver.settle

    async def slow(outcomes: Any, now: Any) -> Any:
        bench.clock.advance(5)
        return await settle(outcomes, now)

    driver.settle = slow  # type: ignore[method-assign]  # replaced for the test
    driver.sibling = lambda: driver  # type: ignore[method-assign]  # replaced for the test
    bench.driver = driver

    async def handler(fails: bool) -> None:
        bench.clock.advance(2)
        if fails:
            raise ValueError

    await bench.ran(
        handler,
        job("fine", payload=b'{"fails":false}'),
        job("bad", payload=b'{"fails":true}', max_attempts=1),
        concurrency=1,
    )
    assert [event.seconds for event in bench.of(JobSucceeded)] == [2]
    assert [event.seconds for event in bench.of(JobFailed)] == [2]


@bench_test
async def test_snooze_spends_no_attempt(bench: Bench) -> None:
    async def handler(ctx: JobContext) -> None:
        if ctx.job.deliveries == 1:
            raise Snooze(90)

    worker = await bench.ran(handler, job("j", max_attempts=1))
    info = await bench.info("j")
    assert (info.state, info.job.attempts, info.job.last_error) == ("scheduled", 0, "")
    assert info.job.run_at == bench.clock.now() + timedelta(seconds=90)
    assert not bench.of(JobFailed)
    assert len(bench.of(JobSnoozed)) == 1
    bench.clock.advance(90)
    await worker.arun(until_empty=True)
    assert await bench.state("j") == "done"


@bench_test
async def test_retry_later_spends_an_attempt_and_sets_its_own_delay(bench: Bench) -> None:
    async def handler() -> None:
        raise RetryLater(timedelta(seconds=7))

    worker = await bench.ran(handler, job("j", max_attempts=2), retry=Fixed(5000))
    info = await bench.info("j")
    assert (info.job.attempts, info.job.run_at) == (1, bench.clock.now() + timedelta(seconds=7))
    bench.clock.advance(7)
    await worker.arun(until_empty=True)
    assert await bench.state("j") == "dlq"


@bench_test
async def test_cancel_by_the_handler(bench: Bench) -> None:
    def handler() -> None:
        raise Cancel("the order was withdrawn")

    await bench.ran(handler, job("j"))
    info = await bench.info("j")
    assert (info.state, info.job.reason, info.job.attempts) == ("cancelled", "the order was withdrawn", 0)
    assert [event.reason for event in bench.of(JobCancelled)] == ["the order was withdrawn"]


@bench_test
async def test_an_unrecoverable_type_of_the_handler(bench: Bench) -> None:
    worker = bench.worker()

    def handler() -> None:
        raise KeyError("k")

    worker.register("t", handler, unrecoverable=[LookupError])
    await bench.enqueue(job("j"))
    await worker.arun(until_empty=True)
    info = await bench.info("j")
    assert (info.state, info.job.attempts) == ("dlq", 1)
    assert info.job.reason == "unrecoverable KeyError: 'k'"


@pytest.mark.parametrize(
    ("value", "word"),
    [("x" * 70_000, "over the limit of 65536"), (float("nan"), "nan"), (object(), "object"), ({"a": {2}}, None)],
)
@bench_test
async def test_a_result_that_cannot_be_stored_is_final(bench: Bench, value: Any, word: str | None) -> None:
    await bench.ran(lambda: value, job("j"), retry=Fixed(0))
    info = await bench.info("j")
    if word is None:
        assert info.state == "done"
        return
    assert (info.state, info.job.attempts) == ("dlq", 1)
    assert word in info.job.reason


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("c4n4ry" * 20_000, "its result of 120002 bytes is over the limit of 65536"),
        ({"c4n4ry": object()}, "its result cannot be stored: TypeError"),
    ],
    ids=["too large", "not to be written"],
)
def test_the_log_says_why_a_result_was_refused_and_quotes_nothing_of_it(
    value: Any, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    @bench_test
    async def scenario(bench: Bench) -> None:
        worker = bench.worker()
        worker.register("t", lambda: value)
        await bench.enqueue(job("j"))
        await worker.arun(until_empty=True)

    scenario()
    [first, *_] = [record for record in caplog.records if record.__dict__.get("event") == "JobFailed"]
    assert first.__dict__["error"].startswith(told)
    assert "endings.py" not in caplog.text
    assert "c4n4ry" not in caplog.text


@pytest.mark.parametrize(
    "payload", [b'{"to": 5}', b"{}", b"not json", b'{"to": "a", "cc": "b"}', b"\xff", b"[" * 5000, b""]
)
@bench_test
async def test_a_payload_that_does_not_fit_is_final_and_never_quoted(bench: Bench, payload: bytes) -> None:
    def handler(to: str) -> None: ...

    await bench.ran(handler, job("j", payload=payload), retry=Fixed(0))
    info = await bench.info("j")
    assert (info.state, info.job.attempts) == ("dlq", 1)
    assert len(bench.of(JobDeadLettered)) == 1


@bench_test
async def test_a_payload_that_is_not_an_object_is_the_only_argument(bench: Bench) -> None:
    seen: list[Any] = []
    await bench.ran(lambda value: seen.append(value), job("a", payload=b"[1,2]"), job("b", payload=b'"text"'))
    assert seen == [[1, 2], "text"]


@bench_test
async def test_an_unknown_type_is_given_back_with_a_delay_and_never_dead(bench: Bench) -> None:
    worker = bench.worker()
    await bench.enqueue(job("j", "nobody knows", max_attempts=1))
    for _ in range(5):
        await worker.arun(until_empty=True)
        info = await bench.info("j")
        assert (info.state, info.job.attempts) == ("scheduled", 0)
        assert info.job.run_at is not None
        assert info.job.run_at > bench.clock.now()
        bench.clock.advance(60)
    assert len(bench.of(JobUnknown)) == 5
    assert {event.known for event in bench.of(JobUnknown)} == {()}


@bench_test
async def test_an_unknown_type_is_reported_with_the_known_ones(bench: Bench) -> None:
    worker = bench.worker()
    for number in range(30):
        worker.register(f"shop.jobs.n{number:02}", lambda: None)
    await bench.enqueue(job("j", "shop.other.mail"))
    await worker.arun(until_empty=True)
    (event,) = bench.of(JobUnknown)
    assert event.known == tuple(f"shop.jobs.n{number:02}" for number in range(20))
    assert "imported" in event.advice


def test_a_worker_without_handlers_warns(caplog: pytest.LogCaptureFixture) -> None:
    Worker("memory://").run(until_empty=True)
    assert "has no handlers, so it can run nothing" in caplog.text
    caplog.clear()
    worker = Worker("memory://")
    worker.register("t", lambda: None)
    worker.run(until_empty=True)
    assert "can run nothing" not in caplog.text


def _policy_raises(attempts: int, error: BaseException) -> float:
    raise ZeroDivisionError


@pytest.mark.parametrize("policy", [_policy_raises, lambda a, e: float("nan"), lambda a, e: -1, lambda a, e: "soon"])
@bench_test
async def test_a_retry_policy_that_raises_means_one_minute_and_is_reported(bench: Bench, policy: Any) -> None:
    def handler() -> None:
        raise ValueError

    await bench.ran(handler, job("j"), retry=policy)
    info = await bench.info("j")
    assert (info.job.attempts, info.job.run_at) == (1, bench.clock.now() + timedelta(seconds=60))
    assert len(bench.of(PolicyFailed)) == 1


@bench_test
async def test_a_retry_policy_that_returns_none_ends_the_job(bench: Bench) -> None:
    def handler(ctx: JobContext) -> None:
        raise KeyError if ctx.job.attempts else ValueError

    await bench.ran(handler, job("j"), retry=lambda attempts, error: None if isinstance(error, KeyError) else 0)
    info = await bench.info("j")
    assert (info.state, info.job.attempts) == ("dlq", 2)
    assert len(bench.of(JobRetried)) == 1


class Expansion(Workflow):
    """Stands for a workflow: all that the worker knows of one is its class and its `compile`."""

    def __init__(self, *jobs: Any, handover: str) -> None:
        self.jobs, self.handover = jobs, handover

    def _compile(self, parent: Any, now: Any) -> Spawned:
        return Spawned(self.jobs, self.handover)


@bench_test
async def test_a_returned_workflow_takes_the_jobs_place(bench: Bench) -> None:
    worker = bench.worker()
    worker.register("split", lambda: Expansion(job("s1"), job("s2", depends_on=("s1",)), handover="s2"))
    worker.register("t", lambda: "result")
    await bench.enqueue(job("p", "split"), job("next", depends_on=("p",)))
    await worker.arun(until_empty=True)
    assert (await bench.info("p")).job.handed_to == "s2"
    assert (await bench.info("next")).job.depends_on == ("s2",)
    assert await bench.state("next") == "done"
    assert await bench.driver.results(["p"]) == {"p": b'"result"'}


@bench_test
async def test_a_workflow_that_cannot_be_stored_fails_the_job(bench: Bench) -> None:
    worker = bench.worker()
    worker.register("split", lambda: Expansion(job("s1", depends_on=("nobody",)), handover="s1"))
    await bench.enqueue(job("p", "split"))
    await worker.arun(until_empty=True)
    info = await bench.info("p")
    assert (info.state, info.job.attempts) == ("dlq", 1)
    assert "its workflow cannot be stored" in info.job.reason

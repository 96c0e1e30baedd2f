"""Endings that once left a job inflight for ever and a slot of its worker taken, by name, with their outcomes."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from msgspec import ValidationError

from taskharbor.events import JobDeadLettered, JobFailed, OutcomeRefused, PolicyFailed
from taskharbor.policy.retry import RETRY_KEY, UNRECOVERABLE_KEY, Fixed
from taskharbor.tasks.failure_step import ON_FAILURE_KEY
from taskharbor.tasks.flow_metadata import BIND_KEY, JOIN_TYPE, SHAPE_KEY
from tests.odd_endings.ending import Ending, deep
from tests.odd_endings.hostile import Thing
from tests.odd_endings.test_odd_endings import check
from tests.worker.workbench import Bench, bench_test, heard_test, job

DEEP = deep(3000)

both_colours = pytest.mark.parametrize("colour", ["coroutine", "function"])


@both_colours
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        pytest.param(
            Thing(deeds={"__getattr__": "raise ValueError", "__class__": "raise ValueError"}),
            "its result cannot be stored: ValueError",
            id="a proxy with nothing behind it",
        ),
        pytest.param(
            Thing(deeds={"_compile": "answer None"}),
            "its result cannot be stored: TypeError: odd: the result: Hostile cannot be written as JSON",
            id="a model that can be compiled",
        ),
        pytest.param(
            Thing(deeds={"model_dump": "raise SystemExit"}),
            "its result cannot be stored: SystemExit",
            id="one that would end the loop",
        ),
        pytest.param(
            Thing("Workflow", {"_compile": "answer object"}),
            "its workflow cannot be stored: AttributeError",
            id="a workflow that compiles to nonsense",
        ),
        pytest.param(
            Thing("Workflow", {"_compile": "raise KeyboardInterrupt"}),
            "its workflow cannot be stored: KeyboardInterrupt",
            id="a workflow that interrupts",
        ),
    ],
)
def test_a_result_that_cannot_be_looked_at_is_refused_with_the_reason(value: Thing, reason: str, colour: str) -> None:
    info = check(Ending(colour=colour, returns=value))
    assert (info.state, info.job.attempts) == ("dlq", 1)
    assert info.job.reason.startswith(reason)


@dataclass
class Recipe:
    """A result like any other, which happens to have a method of that name."""

    name: str

    def _compile(self) -> str:
        return self.name


@bench_test
async def test_a_result_with_a_method_compile_is_a_result(bench: Bench) -> None:
    await bench.ran(lambda: Recipe("soup"), job("j"))
    assert (await bench.info("j")).job.result == b'{"name":"soup"}'


@both_colours
@pytest.mark.parametrize(
    "error",
    [
        Thing("Exception", {"__cause__": "raise ValueError"}),
        Thing("Exception", {"__class__": "raise ValueError"}),
        Thing("BaseExceptionGroup", {"exceptions": "raise ValueError"}),
        Thing("Exception", {}, {"__qualname__": "raise ValueError"}),
        Thing("Exception", {"__notes__": "raise SystemExit", "__traceback__": "raise SystemExit"}),
        Thing("Exception", {"__str__": "raise KeyboardInterrupt"}),
    ],
    ids=lambda thing: " ".join([*thing.deeds, *thing.meta]),
)
def test_an_exception_that_cannot_be_looked_at_is_retried_like_any_other(error: Thing, colour: str) -> None:
    info = check(Ending(colour=colour, raises=error))
    assert (info.state, info.job.attempts) == ("scheduled", 1)
    assert info.job.last_error.startswith("Hostile")


@pytest.mark.parametrize("deeds", [{"delay": "raise SystemExit"}, {"delay": "answer object"}], ids=str)
def test_a_snooze_without_a_delay_that_can_be_read_waits_a_minute(deeds: dict[str, str]) -> None:
    info = check(Ending(raises=Thing("Snooze", deeds)))
    assert (info.state, info.job.attempts) == ("scheduled", 0)


@pytest.mark.parametrize(
    ("key", "mark", "error"),
    [(RETRY_KEY, f'{{"type":"Fixed","x":{DEEP}}}', RecursionError), (UNRECOVERABLE_KEY, DEEP, ValidationError)],
    ids=["retry", "unrecoverable"],
)
@heard_test
async def test_a_policy_nested_without_end_counts_as_none(
    bench: Bench, key: str, mark: str, error: type[Exception]
) -> None:
    async def handler() -> None:
        raise ValueError

    await bench.ran(handler, job("j", metadata={key: mark}), retry=Fixed(100))
    info = await bench.info("j")
    assert info.job.run_at == bench.clock.now() + timedelta(seconds=100)
    assert [type(event.error) for event in bench.of(PolicyFailed)] == [error]


@bench_test
async def test_a_failure_step_nested_without_end_is_not_released_and_logged(bench: Bench) -> None:
    async def handler() -> None:
        raise ValueError

    await bench.ran(handler, job("j", max_attempts=1, metadata={ON_FAILURE_KEY: f'[{{"x":{DEEP}}}]'}))
    assert (await bench.info("j")).job.reason == "failed 1 of 1 attempts"


def unreadable(*args: Any) -> Any:
    raise MemoryError


@pytest.mark.parametrize("how", ["deep", "memory"])
@bench_test
async def test_a_bind_mark_that_cannot_be_read_is_a_damaged_record(
    bench: Bench, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = bench.worker(concurrency=4)
    worker.register("t", lambda: "fine")
    mark = f'["x",{DEEP}]' if how == "deep" else '["x"]'
    if how == "memory":
        monkeypatch.setattr("taskharbor.worker.result_binder.read_bind", unreadable)
    bad = [job(f"bad{n}", metadata={BIND_KEY: mark}) for n in range(3)]
    await bench.enqueue(*bad, *[job(f"good{n}") for n in range(5)])
    await worker.arun(until_empty=True)
    assert await bench.driver.counts(bench.clock.now()) == {"default": {"dlq": 3, "done": 5}}
    assert len(bench.of(JobDeadLettered)) == len(bench.of(JobFailed)) == 3
    assert not bench.of(OutcomeRefused)
    info = await bench.info("bad0")
    assert info.job.reason.startswith(f"its metadata {BIND_KEY} cannot be read: ")
    assert how != "deep" or info.job.reason.endswith("it is nested too deeply")


@bench_test
async def test_the_shape_of_a_join_that_cannot_be_read_holds_nobody_up(bench: Bench) -> None:
    worker = bench.worker()
    worker.register("t", lambda: 1)
    worker.register("sum", lambda numbers: sum(numbers))
    await bench.enqueue(
        job("a"),
        job("b"),
        job("x.join", JOIN_TYPE, depends_on=("a", "b"), metadata={SHAPE_KEY: DEEP}),
        job("total", "sum", depends_on=("x.join",), metadata={BIND_KEY: '["numbers",null]'}),
    )
    await worker.arun(until_empty=True)
    assert (await bench.info("total")).job.result == b"2"


@bench_test
async def test_a_job_that_was_lost_too_often_is_judged_before_its_marks_are_read(bench: Bench) -> None:
    worker = bench.worker(max_lost=3)
    worker.register("t", lambda: "fine")
    await bench.enqueue(job("j", metadata={BIND_KEY: f'["x",{DEEP}]'}))
    for _ in range(3):
        assert await bench.driver.reserve(["default"], bench.clock.now(), timedelta(seconds=1), 1)
        bench.clock.advance(1)
    await worker.arun(until_empty=True)
    assert (await bench.info("j")).job.reason == "crashed 3 times"

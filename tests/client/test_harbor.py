"""The harbor: declared tasks from enqueue to result, and nothing opened before it is needed."""

from __future__ import annotations

import asyncio
import inspect
import re
from typing import Any

import pytest

import taskharbor.store.open_drivers
from taskharbor import Client, Harbor, JobContext, JobNotFound, JsonCodec, RetryLater, Worker
from taskharbor.events import Event, JobEnqueued, JobSucceeded
from taskharbor.model.job import JobRecord
from taskharbor.testing import ManualClock
from tests.client.tools import Watched

pytestmark = pytest.mark.usefixtures("each_way")


def test_from_enqueue_to_result_blocking_and_awaited() -> None:
    seen: list[Event] = []
    around: list[str] = []

    async def middleware(ctx: JobContext, call_next: Any) -> Any:
        around.append(ctx.job.type)
        return await call_next(ctx)

    harbor = Harbor("memory://", observers=[seen.append], middleware=[middleware])

    @harbor.task(queue="mail", name="send")
    def send_email(to: str, subject: str = "Hello") -> str:
        return f"{to}: {subject}"

    @harbor.task(name="later")
    async def later(ctx: JobContext, n: int) -> int:
        if ctx.job.attempts < 2:
            raise RetryLater(0)
        return n * ctx.fence

    with harbor:
        handles = harbor.enqueue_many([send_email.s("a"), send_email.s(to="b", subject="x"), later.s(5)])
        single = send_email.options(idempotency_key="k").enqueue("c")
        assert send_email.options(idempotency_key="k").enqueue("d").existed
        harbor.worker(poll_interval=0.01).run(until_empty=True)
        assert [handle.result() for handle in handles] == ["a: Hello", "b: x", 15]
        assert single.result() == "c: Hello"
    assert sorted(around) == ["later"] * 3 + ["send"] * 3
    assert sum(isinstance(event, JobEnqueued) for event in seen) == 5
    assert sum(isinstance(event, JobSucceeded) for event in seen) == 4

    async def main() -> list[Any]:
        async with harbor:
            handles = await harbor.aenqueue_many([send_email.s("e"), later.s(1)])
            await harbor.worker(poll_interval=0.01).arun(until_empty=True)
            return [await handle.aresult(60) for handle in handles]

    assert asyncio.run(main()) == ["e: Hello", 3]


def test_making_a_harbor_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def record(dsn: str) -> Any:
        made.append(dsn)
        return Watched()

    monkeypatch.setattr(taskharbor.store.open_drivers, "open_driver", record)
    monkeypatch.delenv("TASKHARBOR_DSN", raising=False)
    harbor = Harbor()

    @harbor.task
    def nothing() -> None: ...

    assert repr(harbor) == "Harbor('sqlite:///taskharbor.db')"
    nothing.s()
    nothing.options(delay=1)
    assert made == []
    monkeypatch.setenv("TASKHARBOR_DSN", "postgresql://app:s3cret@db/jobs")
    assert repr(harbor) == "Harbor('postgresql://…@db/jobs')"
    driver = harbor.driver
    assert harbor.driver is driver is harbor._store.driver
    assert made == ["postgresql://app:s3cret@db/jobs"]
    assert isinstance(driver, Watched)
    assert driver.log == []
    monkeypatch.delenv("TASKHARBOR_DSN")
    assert isinstance(Harbor().driver, Watched)
    assert made[1:] == ["sqlite:///taskharbor.db"]


def test_a_worker_serves_all_queues_by_default_and_has_its_own_driver() -> None:
    driver = Watched()
    harbor = Harbor(driver, default_queue="home")
    harbor.task(name="a", queue="mail")(lambda: None)
    harbor.task(name="b")(lambda: None)
    harbor.task(name="c", queue="other")(lambda: None)
    for task in harbor.tasks.values():
        task.enqueue()
    harbor.worker(queues=["mail"]).run(until_empty=True)
    assert asyncio.run(driver.counts(harbor.clock.now())) == {
        "home": {"ready": 1},
        "mail": {"done": 1},
        "other": {"ready": 1},
    }
    harbor.worker().run(until_empty=True)
    assert asyncio.run(driver.counts(harbor.clock.now()))["other"] == {"done": 1}
    owners = {entry[1] for entry in driver.asked("open")}
    assert driver in owners  # the client's; the workers opened siblings
    assert len(owners) > 2
    harbor.close()


def test_flows_are_found_by_their_id() -> None:
    harbor = Harbor(Watched())
    with harbor:
        with pytest.raises(JobNotFound):
            harbor.flow("f")
        job = JobRecord(id="a", type="t", flow_id="f")
        asyncio.run(harbor.driver.sibling().enqueue([job], harbor.clock.now()))
        assert [node.job.id for node in harbor.flow("f").nodes] == ["a"]
        assert asyncio.run(harbor.aflow("f")).status == "running"


def test_codec_and_clock_are_shared_by_client_and_tasks() -> None:
    from taskharbor import JsonCodec
    from taskharbor.testing import ManualClock

    codec, clock = JsonCodec(), ManualClock()
    harbor = Harbor("memory://", codec=codec, clock=clock)
    task = harbor.task(name="a")(lambda: None)
    assert harbor.codec is codec is harbor._store.codec is task.handler.signature.codec
    assert harbor.clock is clock is harbor._store.clock


def test_a_subclass_of_the_json_codec_encodes_and_decodes_everything() -> None:
    class Wrapped(JsonCodec):
        def encode(self, value: Any) -> bytes:
            return b"#" + super().encode(value)

        def decode(self, data: bytes, type: Any = Any) -> Any:
            return super().decode(data.removeprefix(b"#"), type)

    from taskharbor.testing import drain

    harbor = Harbor("memory://", codec=Wrapped())

    @harbor.task
    def double(number: int) -> int:
        return 2 * number

    with harbor:
        handle = double.enqueue(21)
        drain(harbor)
        assert handle.result(60) == 42


def test_enqueue_many_refuses_anything_but_steps() -> None:
    harbor = Harbor("memory://")
    task = harbor.task(name="t")(lambda: None)
    with harbor, pytest.raises(TypeError, match=r"expected steps such as send_email\.s\(to=…\), got "):
        harbor.enqueue_many([task])  # type: ignore[list-item]  # wrong on purpose
    with harbor, pytest.raises(TypeError, match=r"expected a list of steps such as send_email\.s\(to=…\), got Step"):
        harbor.enqueue_many(task.s())  # type: ignore[arg-type]  # wrong on purpose


async def _through(ctx: Any, call_next: Any) -> Any:
    return await call_next(ctx)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"middleware": _through}, "middleware: expected a list of functions, got function; put it into a list"),
        ({"middleware": [3]}, "middleware: expected functions or other callables, got int"),
        ({"observers": print}, "observers: expected a list of functions, got builtin_function_or_method; put it into"),
        ({"observers": ["print"]}, "observers: expected functions or other callables, got str"),
        ({"codec": 3}, "codec: expected an object with the methods encode, decode, got int without encode"),
        ({"codec": JsonCodec}, "codec: expected an object, got the class JsonCodec; call it"),
        ({"clock": 3}, "clock: expected an object with the methods now, monotonic, sleep, got int without now"),
        ({"clock": ManualClock}, "clock: expected an object, got the class ManualClock; call it"),
    ],
)
def test_constructor_arguments_are_checked_at_once(given: dict[str, Any], told: str) -> None:
    makers: list[Any] = [Harbor, Worker, Harbor("memory://").worker]
    if "middleware" not in given:
        makers.append(Client)
    for make in makers:
        with pytest.raises(TypeError) as caught:
            make(*(() if make is makers[2] else ("memory://",)), **given)
        assert told in str(caught.value)
    with pytest.raises(TypeError, match="enqueue_middleware: expected a list of functions, got int"):
        Harbor("memory://", enqueue_middleware=3)  # type: ignore[arg-type]  # wrong on purpose


ANY_HARBOR: Any = Harbor  # type checkers refuse the calls below


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (
            lambda harbor: harbor.worker(concurency=3),
            "unknown option 'concurency'; did you mean 'concurrency'?",
        ),
        (lambda harbor: harbor.worker(queue="mail"), "use queues=["),
        (lambda harbor: ANY_HARBOR(dsn="memory://"), "unknown option 'dsn'; the store is the first argument"),
        (lambda harbor: ANY_HARBOR("memory://", queue="mail"), "default_queue= is the queue of tasks that name none"),
        (lambda harbor: ANY_HARBOR("memory://", observer=print), "did you mean 'observers'?"),
    ],
)
def test_an_unknown_option_is_refused_with_advice(make: Any, hint: str) -> None:
    with pytest.raises(TypeError, match=re.escape(hint)):
        make(Harbor("memory://"))
    assert "dsn_or_driver" in inspect.signature(Harbor).parameters


def test_a_class_is_not_a_task() -> None:
    harbor = Harbor("memory://")
    for declare in (harbor.task, harbor.task(name="t")):
        with pytest.raises(TypeError, match="got the class Ring; declare a function"):
            declare(type("Ring", (), {}))

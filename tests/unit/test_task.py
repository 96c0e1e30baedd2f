"""Tasks: declaring, options, steps, and the way from a call to a record."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskharbor import Fixed, Harbor, InvalidJob, JobContext, JobRequest, Step, Task
from taskharbor.model.codec import JsonCodec
from taskharbor.model.ids import new_id
from taskharbor.tasks.decorator import TaskRegistry
from taskharbor.tasks.options import KNOWN, change
from taskharbor.tasks.prepare import UNSET, TaskCall, prepare
from taskharbor.tasks.signature import Signature
from taskharbor.tasks.task import default_name

NOW = datetime(2030, 1, 1, tzinfo=UTC)


class Kept:
    """An enqueuer that keeps what it gets."""

    _store = None

    def __init__(self) -> None:
        self.calls: list[TaskCall] = []
        self.who = ""

    def _enqueue_calls(self, calls: Sequence[TaskCall], who: str) -> Any:
        self.calls += calls
        self.who = who
        return list(calls)

    async def _aenqueue_calls(self, calls: Sequence[TaskCall]) -> Any:
        self.calls += calls
        return list(calls)

    def _task_handle(self, id: str, type: str, signature: Signature) -> Any:
        return id, type, signature.return_type


def declaring() -> tuple[TaskRegistry, Kept]:
    kept = Kept()
    return TaskRegistry(kept, JsonCodec()), kept


def send_email(to: str, subject: str = "Hello") -> str:
    """Send one."""
    return f"{to}: {subject}"


async def fetch(ctx: JobContext, url: str) -> int:
    return len(url)


def test_a_task_is_still_its_function() -> None:
    harbor, _ = declaring()
    task = harbor.task(send_email)
    assert task("ada") == "ada: Hello"
    assert task.name == f"{__name__}.send_email"
    assert task.__doc__ == "Send one."
    assert task.__name__ == "send_email"  # type: ignore[attr-defined]  # not in its declared type
    assert repr(task) == f"Task('{__name__}.send_email')"
    assert asyncio.run(harbor.task(fetch)(JobContext(prepare(TaskCall("t", b"", UNSET), NOW, "q")), "abc")) == 3


def test_the_decorator_bare_and_with_options() -> None:
    harbor, _ = declaring()
    policy = Fixed(3)
    task = harbor.task(name="mail", queue="q", timeout=30, retry=policy, unrecoverable=[KeyError], max_attempts=7)(
        send_email
    )
    handler = harbor.handlers.get("mail")
    assert handler is task.handler
    assert handler is not None
    assert (handler.retry, handler.timeout, handler.unrecoverable) == (policy, timedelta(seconds=30), (KeyError,))
    assert harbor.tasks == {"mail": task}
    assert task.queue == "q"
    with pytest.raises(ValueError, match="two handlers named 'mail'"):
        harbor.task(name="mail")(fetch)
    with pytest.raises(TypeError, match="declare its function instead"):
        harbor.task(task)
    with pytest.raises(TypeError, match="expected a function to declare as a task, got int"):
        harbor.task(5)  # type: ignore[call-overload]  # wrong on purpose
    with pytest.raises(TypeError, match="with keyword options only"):
        harbor.task(send_email, queue="q")  # type: ignore[call-overload]  # wrong on purpose


def test_enqueue_binds_and_encodes_where_it_is_called() -> None:
    harbor, kept = declaring()
    task = harbor.task(send_email)
    task.enqueue("ada", subject="x")
    asyncio.run(task.aenqueue("bob"))
    assert [call.payload for call in kept.calls] == [b'{"to":"ada","subject":"x"}', b'{"to":"bob"}']
    assert kept.calls[0].returns is str
    assert kept.who == "send_email.enqueue"
    for wrong in (lambda: task.enqueue(), lambda: task.enqueue(5), lambda: task.s(t=1)):  # type: ignore[call-arg,arg-type]  # wrong on purpose
        with pytest.raises(TypeError, match="send_email: "):
            wrong()
    assert len(kept.calls) == 2


def test_the_context_is_not_an_argument() -> None:
    harbor, kept = declaring()
    task = harbor.task(fetch)
    task.enqueue("u")
    assert kept.calls[0].payload == b'{"url":"u"}'


def test_options_of_the_task_and_of_the_call() -> None:
    harbor, kept = declaring()
    task = harbor.task(queue="mail", priority=3, metadata={"a": "1", "b": "1"}, group="g")(send_email)
    call = task.options(queue="other", delay=1.5, metadata={"b": "2"}, idempotency_key="k", group_limit=4)
    call.enqueue("ada")
    task.enqueue("ada")
    changed, declared = (prepare(each, NOW, "default") for each in kept.calls)
    assert (declared.queue, declared.priority, declared.max_attempts, declared.run_at) == ("mail", 3, 5, None)
    assert (changed.queue, changed.priority, changed.group, changed.group_limit) == ("other", 3, "g", 4)
    assert changed.run_at == NOW + timedelta(seconds=1.5)
    assert changed.metadata == {"a": "1", "b": "2"}
    assert declared.metadata == {"a": "1", "b": "1"}
    assert changed.idempotency_key == "k"
    assert declared.created_at == NOW
    assert call.name == task.name


@pytest.mark.parametrize(
    ("options", "kind", "told"),
    [
        ({"quue": "a"}, TypeError, "unknown option 'quue'; did you mean 'queue'? expected one of: connection, delay"),
        ({"retry": lambda attempts, error: 1}, TypeError, "retry: expected Exponential(…), Fixed(…) or Linear(…), got"),
        ({"unrecoverable": ["KeyError"]}, TypeError, "unrecoverable: expected exception types, got 'KeyError'"),
        ({"unrecoverable": 3}, TypeError, "unrecoverable: expected exception types, got 3"),
        ({"name": "a{b}"}, InvalidJob, "type: expected no control characters"),
        ({"delay": 1, "run_at": NOW}, ValueError, "expected delay or run_at, got both"),
        ({"delay": -1}, ValueError, "delay: expected zero or more seconds, got -1"),
        ({"delay": "1"}, TypeError, "delay: expected seconds or a timedelta, got str"),
        ({"delay": float("nan")}, ValueError, "delay: expected at most"),
        ({"run_at": datetime(2030, 1, 1)}, ValueError, "run_at: expected a datetime with a time zone"),  # noqa: DTZ001 - that is the point
        ({"run_at": 5}, TypeError, "run_at: expected a datetime, got int"),
        ({"timeout": 0}, ValueError, "timeout: expected more than zero"),
        ({"timeout": timedelta(days=30)}, InvalidJob, "timeout: expected 1 ms to 24 days"),
        ({"priority": 1.5}, TypeError, "priority: expected a whole number, got float"),
        ({"priority": 2**40}, InvalidJob, "priority: expected"),
        ({"max_attempts": True}, TypeError, "max_attempts: expected a whole number, got bool"),
        ({"max_attempts": 0}, ValueError, "max_attempts: expected 1 or more, got 0"),
        ({"max_attempts": -1}, ValueError, "max_attempts: expected 1 or more, got -1"),
        ({"queue": 5}, TypeError, "queue: expected text, got int"),
        ({"queue": "a{b}"}, InvalidJob, "queue: expected no control characters"),
        ({"queue": ""}, InvalidJob, "queue: expected 1 to 255 bytes"),
        ({"group": ""}, InvalidJob, "group: expected 1 to 255 bytes"),
        ({"idempotency_key": "x" * 600}, InvalidJob, "idempotency_key: expected 1 to 512"),
        ({"metadata": {"a": 5}}, TypeError, "metadata: expected text to text, got int"),
        ({"metadata": [("a", "b")]}, TypeError, "metadata: expected a mapping"),
        ({"metadata": {"taskharbor.x": "1"}}, ValueError, "metadata: keys that begin with 'taskharbor.' belong"),
        ({"process": 1}, TypeError, "process: expected True or False, got int"),
    ],
)
def test_wrong_options_fail_at_once(options: Any, kind: type[Exception], told: str) -> None:
    harbor, _ = declaring()
    task = harbor.task(name="mail")(send_email)
    for make in (task.options, task.s("a").options):
        with pytest.raises(kind) as caught:
            make(**options)
        assert f"mail: {told}" in str(caught.value)
    if not {"retry", "name"} & options.keys():
        with pytest.raises(kind):
            harbor.task(name="other", **options)(send_email)
        assert harbor.handlers.get("other") is None


def test_an_unknown_option_of_a_declaration() -> None:
    harbor, _ = declaring()
    with pytest.raises(TypeError, match="unknown option 'retrys'; did you mean 'retry'"):
        harbor.task(retrys=5)(send_email)  # type: ignore[call-overload]  # wrong on purpose
    assert "retry" in KNOWN


def test_the_later_of_delay_and_run_at_counts() -> None:
    delayed = change(UNSET, {"delay": 5}, "t")
    fixed = change(delayed, {"run_at": NOW}, "t")
    assert (fixed.delay, fixed.run_at) == (None, NOW)
    again = change(fixed, {"delay": 1}, "t")
    assert (again.delay, again.run_at) == (timedelta(seconds=1), None)
    assert change(again, {"delay": None}, "t").delay is None


def test_a_call_in_a_process_of_its_own_is_marked_in_the_record() -> None:
    harbor, kept = declaring()
    task = harbor.task(send_email)
    other = harbor.task(name="process", process=True)(send_email)
    assert other.handler.process
    for each in (
        task.options(process=True, metadata={"a": "b"}),
        task.options(process=True).options(process=False),
        task,
        other,
        other.options(process=True),
        other.options(process=False),
    ):
        each.enqueue("a")
    found = [prepare(call, NOW, "q").metadata for call in kept.calls]
    assert found == [{"taskharbor.process": "1", "a": "b"}, {}, {}, {}, {}, {"taskharbor.process": "0"}]
    with pytest.raises(TypeError, match="got a lambda"):
        harbor.task(name="lambda")(lambda: None).options(process=True)


def test_steps() -> None:
    harbor, _ = declaring()
    task = harbor.task(name="mail")(send_email)
    step = task.s("secret")
    assert isinstance(step, Step)
    assert repr(step) == "Step('mail', to=…)"
    assert step._arguments == {"to": "secret"}
    assert step._lacking() == ()
    assert task.s(subject="x")._lacking() == ("to",)
    assert len({step, task.s("secret")}) == 2
    assert step._call().payload == b'{"to":"secret"}'
    assert step.options(queue="q")._call().options.queue == "q"
    with pytest.raises(TypeError, match="mail: missing parameter 'to'; its signature is"):
        task.s()._call()
    with pytest.raises(TypeError, match="mail: parameter 'to': expected str, got int"):
        task.s(5)._call()
    assert "secret" not in repr(step.options(idempotency_key="secret")._call())


def test_prepare_rounds_up_and_orders_ids() -> None:
    moment = NOW + timedelta(microseconds=1)
    fixed = TaskCall("t", b"{}", change(UNSET, {"run_at": moment}, "t"))
    assert prepare(fixed, NOW, "q").run_at == NOW + timedelta(milliseconds=1)
    delayed = TaskCall("t", b"{}", change(UNSET, {"delay": 0.0001}, "t"))
    assert prepare(delayed, NOW, "q").run_at == NOW + timedelta(milliseconds=1)
    assert prepare(TaskCall("t", b"{}", change(UNSET, {"delay": 0}, "t")), NOW, "q").run_at is None
    first, second = (prepare(fixed, NOW, "q") for _ in range(2))
    assert first.id < second.id
    assert first.id[:10] == new_id(int(NOW.timestamp() * 1000))[:10]
    assert (first.queue, first.type, first.payload, first.attempts) == ("q", "t", b"{}", 0)


def test_records_share_no_metadata() -> None:
    call = TaskCall("t", b"{}", change(UNSET, {"metadata": {"a": "b"}}, "t"))
    prepare(call, NOW, "q").metadata["a"] = "changed"
    assert prepare(call, NOW, "q").metadata == {"a": "b"}


def test_default_names(monkeypatch: pytest.MonkeyPatch) -> None:
    class Called:
        def __call__(self) -> None: ...

    assert default_name(functools.partial(send_email)) == f"{__name__}.send_email"
    assert default_name(Called()).endswith("Called")

    def script() -> None: ...

    script.__module__, script.__qualname__ = "__main__", "script"
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "__spec__", None)
    monkeypatch.setattr(main, "__file__", "/somewhere/tasks.py", raising=False)
    assert default_name(script) == "tasks.script"
    monkeypatch.delattr(main, "__file__")
    assert default_name(script) == "__main__.script"

    class Spec:
        name = "package.__main__"

    monkeypatch.setattr(main, "__spec__", Spec)
    assert default_name(script) == "package.script"


def test_a_harbor_keeps_the_tasks_it_declares() -> None:
    harbor = Harbor("memory://", default_queue="home")
    mail = harbor.task(queue="mail")(send_email)
    harbor.task(fetch)
    assert isinstance(mail, Task)
    assert harbor.declared_queues == ("home", "mail")


@pytest.mark.parametrize("name", ["taskharbor.join", "taskharbor.", "taskharbor.anything"])
def test_reserved_names_are_refused(name: str) -> None:
    """A worker acks a job of the type taskharbor.join without running anything."""
    harbor = Harbor("memory://")

    @harbor.task(name="taskharbor")  # not below it
    def fine() -> None: ...

    for ask in (
        lambda: harbor.task(name=name)(send_email),
        lambda: fine.options(name=name),
        lambda: harbor.client.enqueue(JobRequest(type=name)),
        lambda: harbor.worker().handler(name)(send_email),
    ):
        with pytest.raises(InvalidJob, match=r"names that begin with 'taskharbor\.' belong to the core"):
            ask()
    assert fine.enqueue().status() == "ready"


def test_a_job_of_a_task_is_found_by_its_id_and_typed_by_the_task() -> None:
    registry, _ = declaring()
    task = registry.task(name="mail")(send_email)
    assert task.job("01J") == ("01J", "mail", str)
    assert task.options(name="other").job("01J") == ("01J", "other", str)

"""Traces, read back from an in-memory exporter: enqueue, attempts, workflows; nothing of the user's data in them."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from taskharbor import Cancel, Harbor, JobContext, Snooze, Unrecoverable
from taskharbor.drivers import JobRecord
from taskharbor.flow import chain, chord, group
from taskharbor.model.bounds import MAX_METADATA_ENTRIES
from taskharbor.observe.opentelemetry import OpenTelemetry
from taskharbor.testing import Faults, ManualClock, drain

CANARY = "c4n4ry"


class Traced:
    """A harbor with traces, on a clock of its own, and every span that has ended."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(resource=Resource({}), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("application")
        self.clock = ManualClock()
        self.faults = Faults()
        self.harbor = Harbor(self.faults.wrap("memory://"), clock=self.clock)
        self.otel = OpenTelemetry(tracer_provider=provider, **options)
        self.otel.install(self.harbor)

    def drain(self, later: timedelta = timedelta(minutes=10)) -> None:
        drain(self.harbor)
        self.clock.advance(later)
        drain(self.harbor)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span


@pytest.fixture
def traced() -> Iterator[Traced]:
    world = Traced()
    with world.harbor:
        yield world


def context_of(span: ReadableSpan) -> trace.SpanContext:
    found = span.get_span_context()
    assert found is not None
    return found


def trace_of(span: ReadableSpan) -> int:
    return context_of(span).trace_id


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    return (
        span.parent is not None
        and span.parent.span_id == context_of(parent).span_id
        and trace_of(span) == trace_of(parent)
    )


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


# Enqueue and attempts


def test_the_first_attempt_is_a_child_of_the_enqueue_and_a_retry_is_linked_to_it(traced: Traced):
    @traced.harbor.task(name="send", queue="mail", max_attempts=3)
    def send(ctx: JobContext) -> None:
        if ctx.job.attempts < 2:
            raise ValueError(CANARY)

    with traced.tracer.start_as_current_span("request"):
        job = send.enqueue()
    traced.drain()
    traced.drain()
    request, enqueue = traced.one("request"), traced.one("enqueue mail")
    assert is_child(enqueue, request)
    assert enqueue.kind is SpanKind.PRODUCER
    first, second, third = traced.named("process mail")
    assert is_child(first, enqueue)
    assert not first.links
    for number, retry in ((2, second), (3, third)):
        assert retry.parent is None
        assert [link.context.span_id for link in retry.links] == [context_of(enqueue).span_id]
        assert [link.context.trace_id for link in retry.links] == [trace_of(enqueue)]
        assert facts(retry)["taskharbor.job.attempt"] == number
    assert len({trace_of(span) for span in (request, second, third)}) == 3
    assert [span.kind for span in (first, second, third)] == [SpanKind.CONSUMER] * 3
    assert [span.status.status_code for span in (first, second, third)] == [
        StatusCode.ERROR,
        StatusCode.ERROR,
        StatusCode.UNSET,
    ]
    assert facts(first)["error.type"] == "ValueError"
    assert facts(first)["messaging.message.id"] == facts(enqueue)["messaging.message.id"] == job.id


def test_spans_follow_the_conventions_for_messaging(traced: Traced):
    @traced.harbor.task(name="send", queue="mail")
    def send(to: str) -> None: ...

    job = send.enqueue("ada")
    traced.drain()
    assert facts(traced.one("enqueue mail")) == {
        "messaging.system": "taskharbor",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.destination.name": "mail",
        "messaging.message.id": job.id,
        "messaging.message.body.size": len(b'{"to":"ada"}'),
        "taskharbor.job.type": "send",
    }
    ran = facts(traced.one("process mail"))
    assert ran.pop("messaging.client.id")
    assert ran == {
        "messaging.system": "taskharbor",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "mail",
        "messaging.message.id": job.id,
        "messaging.message.body.size": len(b'{"to":"ada"}'),
        "taskharbor.job.type": "send",
        "taskharbor.job.attempt": 1,
        "taskharbor.job.delivery": 1,
    }


def test_many_jobs_of_one_call_share_its_span(traced: Traced):
    @traced.harbor.task(queue="mail")
    def a() -> None: ...

    @traced.harbor.task(queue="heavy")
    def b() -> None: ...

    traced.harbor.enqueue_many([a.s(), a.s()])
    traced.harbor.enqueue_many([a.s(), b.s()])
    traced.drain()
    same, mixed = traced.one("enqueue mail"), traced.one("enqueue")
    assert facts(same)["messaging.batch.message_count"] == facts(mixed)["messaging.batch.message_count"] == 2
    assert "messaging.destination.name" not in facts(mixed)
    assert "messaging.message.id" not in facts(same)
    mail = traced.named("process mail")
    assert [is_child(span, same) for span in mail] == [True, True, False]
    assert is_child(mail[2], mixed)
    assert is_child(traced.one("process heavy"), mixed)


def test_spans_and_enqueues_of_a_handler_are_children_of_its_span(traced: Traced):
    @traced.harbor.task(queue="outer")
    def plain() -> None:
        with traced.tracer.start_as_current_span("in a thread"):
            inner.enqueue()

    @traced.harbor.task(queue="inner")
    async def inner() -> None:
        await asyncio.create_task(below())

    async def below() -> None:
        with traced.tracer.start_as_current_span("in a task"):
            pass

    plain.enqueue()
    traced.drain()
    outer = traced.one("process outer")
    assert is_child(traced.one("in a thread"), outer)
    assert is_child(traced.one("enqueue inner"), traced.one("in a thread"))
    assert is_child(traced.one("process inner"), traced.one("enqueue inner"))
    assert is_child(traced.one("in a task"), traced.one("process inner"))
    assert len({trace_of(span) for span in traced.spans}) == 1


def test_an_enqueue_that_fails_is_a_failed_span(traced: Traced):
    @traced.harbor.task(queue="mail")
    def send(to: str) -> None: ...

    traced.faults.fail("enqueue", error=RuntimeError(CANARY))
    with pytest.raises(RuntimeError):
        send.enqueue(CANARY)
    enqueue = traced.one("enqueue mail")
    assert enqueue.status.status_code is StatusCode.ERROR
    assert facts(enqueue)["error.type"] == "RuntimeError"
    assert CANARY not in enqueue.to_json()


# Workflows


def test_a_workflow_is_one_trace_including_jobs_that_it_spawns(traced: Traced):
    harbor = traced.harbor

    @harbor.task(queue="fetch")
    def fetch() -> Any:
        return group(count.s(chunk=number) for number in range(3))

    @harbor.task(queue="count")
    async def count(chunk: int) -> int:
        return chunk

    @harbor.task(queue="total", max_attempts=2)
    def total(ctx: JobContext, counts: list[int]) -> Any:
        if ctx.job.attempts == 0:
            raise ValueError
        return chain(save.s(number=sum(counts)), done.s())  # from a retry, whose own span is in another trace

    @harbor.task(queue="save")
    def save(number: int) -> int:
        return number

    @harbor.task(queue="done")
    def done(number: int) -> int:
        return number

    with traced.tracer.start_as_current_span("request"):
        flow = chain(fetch.s(), total.s()).enqueue()
    traced.drain()
    assert flow.result(0) == 3
    request, enqueue = traced.one("request"), traced.one("enqueue")
    assert facts(enqueue)["messaging.message.conversation_id"] == flow.id
    counted = traced.named("process count")
    assert len(counted) == 3
    failed, retried = traced.named("process total")
    inside = [traced.one("process fetch"), *counted, failed, traced.one("process save"), traced.one("process done")]
    assert all(is_child(span, enqueue) for span in inside)
    assert trace_of(enqueue) == trace_of(request)
    assert trace_of(retried) != trace_of(request)
    assert [link.context.span_id for link in retried.links] == [context_of(enqueue).span_id]
    assert {facts(span)["messaging.message.conversation_id"] for span in [*inside, retried]} == {flow.id}


def test_the_failure_step_of_a_flow_belongs_to_its_trace(traced: Traced):
    harbor = traced.harbor

    @harbor.task
    def work(number: int) -> None:
        raise Unrecoverable("no")

    @harbor.task
    def finish(done: list[None]) -> None: ...

    @harbor.task(queue="alerts")
    def alert() -> None: ...

    chord(group(work.s(number=number) for number in range(2)), finish.s(), on_failure=alert.s()).enqueue()
    traced.drain()
    (enqueue,) = [span for span in traced.spans if span.kind is SpanKind.PRODUCER]
    assert is_child(traced.one("process alerts"), enqueue)


# How a span ends


def test_spans_show_how_a_handler_ended_and_only_failures_are_errors(traced: Traced):
    @traced.harbor.task(timeout=5)
    async def ends(how: str) -> None:
        match how:
            case "snooze":
                raise Snooze(3600)
            case "cancel":
                raise Cancel(CANARY)
            case "timeout":
                traced.clock.advance(6)
                await asyncio.Event().wait()

    told = {}
    for how in ("return", "snooze", "cancel", "timeout"):
        traced.exporter.clear()
        ends.enqueue(how)
        drain(traced.harbor)
        span = traced.one("process default")
        ended = {name: value for name, value in facts(span).items() if name.startswith(("error", "taskharbor.job.s"))}
        ended |= {name: value for name, value in facts(span).items() if name == "taskharbor.job.ended_by"}
        told[how] = (span.status.status_code, ended)
    assert told == {
        "return": (StatusCode.UNSET, {}),
        "snooze": (StatusCode.UNSET, {"taskharbor.job.ended_by": "Snooze"}),
        "cancel": (StatusCode.UNSET, {"taskharbor.job.ended_by": "Cancel"}),
        "timeout": (StatusCode.ERROR, {"error.type": "timeout", "taskharbor.job.stopped": "timeout"}),
    }


@pytest.mark.parametrize(("reason", "error"), [("lease lost", "lease lost"), ("shutdown", None), ("cancelled", None)])
def test_spans_show_interruptions_and_only_a_lost_lease_is_an_error(traced: Traced, reason: str, error: str | None):
    async def interrupted(ctx: JobContext) -> None:
        ctx.cancelled.set(reason)
        raise asyncio.CancelledError

    async def run() -> None:
        with pytest.raises(asyncio.CancelledError):
            await traced.otel.middleware(JobContext(JobRecord(id="j", type="t"), "w"), interrupted)

    asyncio.run(run())
    span = traced.one("process default")
    assert facts(span)["taskharbor.job.stopped"] == reason
    assert facts(span).get("error.type") == error
    assert (span.status.status_code is StatusCode.ERROR) is (error is not None)


# What travels, and what does not


def test_a_job_without_room_for_its_trace_is_stored_without_it(traced: Traced):
    full = {f"key{number}": "x" for number in range(MAX_METADATA_ENTRIES)}

    @traced.harbor.task(queue="many", metadata=full)
    def many() -> None: ...

    @traced.harbor.task(queue="long", metadata={"long": "é" * 8000})
    def long() -> None: ...

    many.enqueue()
    long.options(metadata={"more": "x" * 350}).enqueue()
    with traced.tracer.start_as_current_span("where the worker runs"):  # which is no parent of any job
        traced.drain()
    for name in ("many", "long"):
        span = traced.one(f"process {name}")
        assert span.parent is None
        assert not span.links


def test_a_trace_set_by_the_caller_is_kept(traced: Traced):
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    @traced.harbor.task
    def work() -> None: ...

    work.options(metadata={"traceparent": given, "tracestate": "vendor=1"}).enqueue()
    traced.drain()
    span = traced.one("process default")
    assert span.parent is not None
    assert f"{trace_of(span):032x}-{span.parent.span_id:016x}" in given


def test_an_unreadable_trace_is_ignored(traced: Traced):
    @traced.harbor.task(max_attempts=2)
    def work(ctx: JobContext) -> None:
        if ctx.job.attempts == 0:
            raise ValueError

    work.options(metadata={"traceparent": "\x00 no such thing"}).enqueue()
    traced.drain()
    for span in traced.named("process default"):
        assert span.parent is None
        assert not span.links


@pytest.mark.parametrize("errors", [False, True])
def test_nothing_of_the_users_data_is_in_a_span_unless_errors_are_asked_for(errors: bool):
    traced = Traced(errors=errors)

    @traced.harbor.task(max_attempts=2, metadata={"note": CANARY})
    def leak(secret: str) -> str:
        if secret == f"{CANARY}0":
            raise ValueError(secret)
        return secret

    @traced.harbor.task(process=False, max_attempts=1)
    async def awaited(secret: str) -> str:
        raise Unrecoverable(secret)

    with traced.harbor:
        for number in range(2):
            leak.options(idempotency_key=f"{CANARY}:{number}").enqueue(f"{CANARY}{number}")
            awaited.enqueue(CANARY)
        chain(leak.s(secret=f"{CANARY}1"), leak.s()).enqueue()
        traced.drain()
    everything = "\n".join(span.to_json() for span in traced.spans)
    assert len(traced.spans) >= 10
    assert (CANARY in everything) is errors


def test_installing_twice_changes_nothing_and_it_is_outermost(traced: Traced):
    seen = []

    async def own(ctx: JobContext, call_next: Any) -> Any:
        seen.append(trace.get_current_span().get_span_context().span_id)
        return await call_next(ctx)

    traced.harbor.middleware = (own,)
    traced.harbor._store.enqueuer.middleware = ()
    traced.otel.install(traced.harbor)
    traced.otel.install(traced.harbor)
    OpenTelemetry().install(traced.harbor)

    @traced.harbor.task
    def work() -> None: ...

    work.enqueue()
    traced.drain()
    assert len(traced.spans) == 2
    assert seen == [context_of(traced.one("process default")).span_id]

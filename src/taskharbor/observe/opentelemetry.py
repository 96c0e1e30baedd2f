"""Traces with OpenTelemetry: from the enqueue through every attempt, and through a whole workflow.

    enqueue mail (PRODUCER) ─► process mail (CONSUMER), the first attempt: a child of the enqueue
             ▲                 process mail (CONSUMER), a retry: a trace of its own, linked to the enqueue
             └ its context travels in the job's metadata, as W3C's traceparent and tracestate

All jobs of a workflow carry the context of its enqueue, including those that a job brings into being. Spans follow the
semantic conventions for messaging. They carry no payload, no result, no metadata and no text of an exception. Only the
API is needed; without an SDK spans cost almost nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from taskharbor.model.errors import Cancel, Snooze
from taskharbor.model.job import JobRecord, replace
from taskharbor.model.naming import class_name
from taskharbor.model.trace import trace_of, with_trace

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"traces need the module {error.name}: pip install 'taskharbor[opentelemetry]'", name=error.name
    ) from None

if TYPE_CHECKING:
    from taskharbor.harbor import Harbor
    from taskharbor.tasks.context import JobContext

Attributes: TypeAlias = dict[str, str | int]

__all__ = ["OpenTelemetry"]

SYSTEM = "taskharbor"
_W3C = TraceContextTextMapPropagator()


class OpenTelemetry:
    """`OpenTelemetry().install(harbor)`, before the first worker is made, is all it takes.

    `tracer_provider`: used instead of the global one. `errors=True` records exceptions with their text and traceback,
    which may quote a payload; by default a span has their class only.
    """

    def __init__(self, *, tracer_provider: trace.TracerProvider | None = None, errors: bool = False) -> None:
        from importlib.metadata import version

        self._tracer = trace.get_tracer(SYSTEM, version("taskharbor"), tracer_provider)
        self._errors = errors

    def install(self, harbor: Harbor) -> None:
        """Trace what a harbor enqueues and what its workers run. Installing a second time changes nothing."""
        if not any(isinstance(getattr(layer, "__self__", None), OpenTelemetry) for layer in harbor.middleware):
            harbor.middleware = (self.middleware, *harbor.middleware)
            enqueuer = harbor._store.enqueuer
            enqueuer.middleware = (self.enqueue_middleware, *enqueuer.middleware)

    @contextmanager
    def enqueue_middleware(self) -> Iterator[Callable[[list[JobRecord]], list[JobRecord]]]:
        """A span around the storing of jobs. The jobs carry its context."""
        with self._span("enqueue", trace.SpanKind.PRODUCER) as span:

            def stamp(records: list[JobRecord]) -> list[JobRecord]:
                _describe_batch(span, records)
                carrier: dict[str, str] = {}
                _W3C.inject(carrier)
                trace_headers = trace_of(carrier)
                return [replace(each, metadata=with_trace(each.metadata, trace_headers)) for each in records]

            try:
                yield stamp
            except BaseException as error:
                self._fail(span, class_name(error), error)
                raise

    async def middleware(self, ctx: JobContext, call_next: Callable[[JobContext], Awaitable[Any]]) -> Any:
        """A span around an execution. Spans of the handler are its children."""
        job = ctx.job
        carried = _W3C.extract(job.metadata, Context())
        enqueue = trace.get_current_span(carried).get_span_context()
        retried = job.attempts > 0
        with self._span(
            f"process {job.queue}",
            trace.SpanKind.CONSUMER,
            context=Context() if retried else carried,
            links=[trace.Link(enqueue)] if retried and enqueue.is_valid else [],
            attributes=_describe_run(ctx),
        ) as span:
            try:
                result = await call_next(ctx)
            except BaseException as error:
                self._end(span, ctx.cancelled.reason, error)
                raise
            self._end(span, ctx.cancelled.reason, None)
            return result

    def _span(self, name: str, kind: trace.SpanKind, **options: Any) -> Any:
        return self._tracer.start_as_current_span(
            name, kind=kind, record_exception=False, set_status_on_exception=False, **options
        )

    def _end(self, span: trace.Span, stopped: str | None, error: BaseException | None) -> None:
        if stopped is not None:
            span.set_attribute("taskharbor.job.stopped", stopped)
        if stopped == "timeout":  # the job has failed, whatever the handler did then
            self._fail(span, "timeout", error)
        elif issubclass(type(error), Snooze | Cancel):
            span.set_attribute("taskharbor.job.ended_by", class_name(error))
        elif error is not None and stopped is None:
            self._fail(span, class_name(error), error)
        elif stopped == "lease lost":
            self._fail(span, "lease lost", error)

    def _fail(self, span: trace.Span, kind: str, error: BaseException | None) -> None:
        span.set_attribute("error.type", kind)
        span.set_status(trace.StatusCode.ERROR)
        if self._errors and error is not None:
            span.record_exception(error)


def _describe_batch(span: trace.Span, records: list[JobRecord]) -> None:
    """Set the attributes that are the same for all jobs of the call."""
    attributes: Attributes = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
    }
    queues, types, flows = ({getattr(each, name) for each in records} for name in ("queue", "type", "flow_id"))
    if len(records) == 1:
        attributes["messaging.message.id"] = records[0].id
        attributes["messaging.message.body.size"] = len(records[0].payload)
    else:
        attributes["messaging.batch.message_count"] = len(records)
    for name, values in (
        ("messaging.destination.name", queues),
        ("messaging.message.conversation_id", flows),
        ("taskharbor.job.type", types),
    ):
        if len(values) == 1 and (value := values.pop()) is not None:
            attributes[name] = value
    span.set_attributes(attributes)
    if "messaging.destination.name" in attributes:
        span.update_name(f"enqueue {attributes['messaging.destination.name']}")


def _describe_run(ctx: JobContext) -> Attributes:
    job = ctx.job
    attributes: Attributes = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": job.queue,
        "messaging.message.id": job.id,
        "messaging.message.body.size": len(job.payload),
        "messaging.client.id": ctx.worker,
        "taskharbor.job.type": job.type,
        "taskharbor.job.attempt": job.attempts + 1,
        "taskharbor.job.delivery": job.deliveries,
    }
    if job.flow_id is not None:
        attributes["messaging.message.conversation_id"] = job.flow_id
    return attributes

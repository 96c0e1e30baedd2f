"""The password of a store and the contents of jobs: on no log line, in no metric, in no span, whatever fails."""

import asyncio
import logging
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest

from taskharbor import BackendUnavailable, Cancel, Harbor, JobContext, Snooze, Unrecoverable
from taskharbor.events import Event, StoreLost
from taskharbor.flow import chain, group
from taskharbor.observe.opentelemetry import OpenTelemetry
from taskharbor.observe.prometheus import PrometheusObserver, QueueCollector
from taskharbor.testing import Faults, ManualClock, drain
from tests.observe.conftest import Configure, Written
from tests.observe.scrape import read, value

CANARY = "c4n4ry"


class Everything:
    """A harbor with all adapters, and all that they wrote."""

    def __init__(self, written: Written, store: Any, **options: Any) -> None:
        self.written = written
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(resource=Resource({}), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.registry = CollectorRegistry()
        self.harbor = Harbor(store, observers=[PrometheusObserver(registry=self.registry)], **options)
        OpenTelemetry(tracer_provider=provider).install(self.harbor)
        self.registry.register(QueueCollector(self.harbor.driver, timeout=2))

    def told(self) -> str:
        spans = "\n".join(span.to_json() for span in self.exporter.get_finished_spans())
        return "\n".join((self.written.text, generate_latest(self.registry).decode(), spans))


@pytest.mark.parametrize("format", ["text", "json"])
def test_payloads_appear_nowhere_however_jobs_end(configure: Configure, format: str):
    clock, faults = ManualClock(), Faults()
    world = Everything(configure(format, "DEBUG"), faults.wrap("memory://"), clock=clock)
    harbor = world.harbor

    @harbor.task(name="ends", max_attempts=2, metadata={"note": CANARY}, timeout=5)
    async def ends(ctx: JobContext, how: str, secret: str) -> Any:
        logging.getLogger("application").info("at work")
        match how:
            case "fail":
                raise ValueError(secret)
            case "dead":
                raise Unrecoverable(secret)
            case "cancel":
                raise Cancel(secret)
            case "snooze" if ctx.job.deliveries == 1:
                raise Snooze(60)
            case "unstorable":
                return {secret: float("nan")}
            case "workflow":
                return group(plain.s(secret=secret), plain.s(secret=secret))
            case "timeout":
                clock.advance(6)
                await asyncio.Event().wait()
        return secret

    @harbor.task(name="plain")
    def plain(secret: str) -> str:
        return secret

    hows = ("return", "fail", "dead", "cancel", "snooze", "unstorable", "workflow", "timeout")
    with harbor:
        for how in hows:
            ends.options(idempotency_key=f"{CANARY}:{how}").enqueue(how, secret=CANARY)
        chain(plain.s(secret=CANARY), plain.s(), on_failure=plain.s(secret=CANARY)).enqueue()
        faults.fail("settle", error=RuntimeError(CANARY))
        faults.fail("reserve", error=OSError(CANARY))
        faults.fail("enqueue", error=BackendUnavailable(CANARY), times=1)
        plain.enqueue(CANARY)
        for _ in range(2):
            drain(harbor)
            clock.advance(600)
    told = world.told()
    assert value(read(world.registry), "taskharbor_jobs_dead_lettered_total", queue="default", type="ends") == 4
    assert all(kind in told for kind in ("JobSucceeded", "JobRetried", "JobDeadLettered", "StoreLost", "at work"))
    assert CANARY not in told


def test_the_password_of_an_unreachable_store_appears_nowhere(configure: Configure):
    world = Everything(configure("json", "DEBUG"), f"postgresql://app:{CANARY}@127.0.0.1:1/none?connect_timeout=2")
    harbor = world.harbor
    lost = asyncio.Event()

    def heard(event: Event) -> None:
        if isinstance(event, StoreLost):
            lost.set()

    harbor.observe(heard)

    @harbor.task
    def work() -> None: ...

    async def run() -> None:
        worker = harbor.worker()
        running = asyncio.create_task(worker.arun())
        async with asyncio.timeout(60):
            await lost.wait()
            worker.stop()
            await running

    with harbor:
        with pytest.raises(BackendUnavailable) as refused:
            work.enqueue()
        asyncio.run(run())
        told = world.told()
    assert "StoreLost" in told
    assert "taskharbor_store_up 0.0" in told
    assert CANARY not in told + str(refused.value)

"""docs/observability.md is complete: every event with its facts, every metric with its labels, every attribute."""

import re

from prometheus_client import CollectorRegistry

from taskharbor import events
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.events import Event, JobEvent
from taskharbor.model import process_events
from taskharbor.observe import opentelemetry
from taskharbor.observe.prometheus import PrometheusObserver, QueueCollector
from taskharbor.observe.prometheus.shared import PROCESS_COUNTERS, ProcessCounter
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of all table rows of a section."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in found]


def code(cell: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", cell))


def test_every_event_is_listed_with_its_fields():
    concrete = {getattr(events, name) for name in events.__all__}
    concrete -= {Event, JobEvent, events.ScheduleEvent, events.Observer}
    expected = {}
    for kind in concrete:
        fields = set(kind.__struct_fields__)
        expected[kind.__name__] = fields - {"job", "worker"} if issubclass(kind, JobEvent) else fields
    for kind in supervisor_events():
        expected[kind.__name__] = set(kind.__struct_fields__)
    told = {name: code(row[1]) for row in rows("Events") for name in code(row[0]) if row[0].startswith("`")}
    assert told == expected


def supervisor_events() -> list[type[Event]]:
    found = [each for each in vars(process_events).values() if isinstance(each, type) and issubclass(each, Event)]
    found.remove(process_events.ProcessEvent)  # the root of others
    return [kind for kind in found if kind.__module__ == process_events.__name__]


def test_events_of_a_supervisor_are_counted():
    assert PROCESS_COUNTERS.keys() <= set(supervisor_events())
    counter = ProcessCounter()
    counter(process_events.ProcessDied(1, 0, "signal 9", 0.5))
    counter(process_events.JobsReleased("w", 7))
    counter(process_events.ProcessStopped(1, 0))
    counted = {sample.name: sample.value for metric in counter.collect() for sample in metric.samples if sample.value}
    assert counted == {"taskharbor_processes_died_total": 1, "taskharbor_jobs_released_total": 7}


def test_every_metric_is_listed_with_its_labels():
    registry = CollectorRegistry()
    PrometheusObserver(registry=registry)
    registry.register(ProcessCounter())
    counted = {metric.name + ("_total" if metric.type == "counter" else "") for metric in registry.collect()}
    queues = {metric.name for metric in QueueCollector(MemoryDriver("memory://")).describe()}
    told = {row[0].strip("`"): row[1] for row in rows("Metrics") if row[0].startswith("`")}
    assert told.keys() == counted | queues
    labels = {metric: set(names.split(", ")) - {""} for metric, names in told.items()}
    assert labels["taskharbor_job_duration_seconds"] == {"queue", "type", "outcome"}
    assert labels["taskharbor_queue_jobs"] == {"queue", "state"}
    assert labels["taskharbor_queue_oldest_ready_age_seconds"] == {"queue"}
    bare = {f"{metric.name}_total" for metric in ProcessCounter().collect()}
    bare |= {"taskharbor_store_outages_total", "taskharbor_store_outage_seconds_total", "taskharbor_store_up"}
    bare |= {"taskharbor_stuck_slots"}
    bare |= {"taskharbor_schedule_lateness_seconds", "taskharbor_outbox_wait_seconds"}
    bare |= {"taskharbor_outbox_jobs_relayed_total", "taskharbor_outbox_rows_refused_total"}
    scheduled = {f"taskharbor_schedule_slots_{what}_total" for what in ("fired", "missed", "skipped")}
    assert all(labels[metric] == {"schedule"} for metric in scheduled)
    for metric in told.keys() - {"taskharbor_job_duration_seconds"} - queues - scheduled:
        assert labels[metric] == (set() if metric in bare else {"queue", "type"}), metric


def test_every_span_attribute_is_listed():
    source = (ROOT / "src" / "taskharbor" / "observe" / "opentelemetry.py").read_text(encoding="utf-8")
    written = set(re.findall(r'"((?:messaging|taskharbor|error)\.[a-z_.]+)"', source))
    told = {name for row in rows("Traces") for name in code(row[0])}
    assert told == written
    assert opentelemetry.SYSTEM == "taskharbor"

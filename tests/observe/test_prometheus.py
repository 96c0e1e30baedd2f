"""Metrics of what happens: every event counted once, durations, and a bounded number of label sets."""

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from taskharbor import Cancel, Client, Harbor, JobContext, JobRequest, Snooze, Unrecoverable, events
from taskharbor.drivers import JobRecord, LeaseExpired
from taskharbor.events import Event
from taskharbor.observe.prometheus import PrometheusObserver, install
from taskharbor.observe.prometheus.observer import BUCKETS, COUNTERS, OTHER
from taskharbor.testing import ManualClock, drain
from tests.observe.scrape import only, parse, read, value

CANARY = "c4n4ry"
NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def test_the_life_of_a_job_is_counted(registry: CollectorRegistry):
    clock = ManualClock()
    harbor = Harbor("memory://", clock=clock, observers=[PrometheusObserver(registry=registry)])

    @harbor.task(name="work", queue="mail", max_attempts=2)
    def work(ctx: JobContext, how: str) -> None:
        match how:
            case "fail":
                raise ValueError(CANARY)
            case "die":
                raise Unrecoverable(CANARY)
            case "snooze" if ctx.job.deliveries == 1:
                raise Snooze(60)
            case "cancel":
                raise Cancel(CANARY)

    with harbor:
        for how in ("done", "done", "fail", "die", "snooze", "cancel"):
            work.enqueue(how)
        work.options(idempotency_key="once").enqueue("done")
        work.options(idempotency_key="once").enqueue("done")
        harbor.client.enqueue(JobRequest(type="nobody:knows", queue="mail"))
        drain(harbor)
        clock.advance(timedelta(minutes=10))
        drain(harbor)
    samples = read(registry)
    counted = {
        name.removeprefix("taskharbor_").removesuffix("_total"): number
        for name in {name for name, _ in samples if name.endswith("_total")}
        if (number := value(samples, name, queue="mail", type="work")) is not None
    }
    assert counted == {
        "jobs_enqueued": 7,
        "jobs_deduplicated": 1,
        "jobs_reserved": 9,
        "jobs_started": 9,
        "jobs_succeeded": 4,
        "jobs_failed": 3,
        "jobs_retried": 1,
        "jobs_dead_lettered": 2,
        "jobs_snoozed": 1,
        "jobs_cancelled": 1,
    }
    assert value(samples, "taskharbor_jobs_unknown_total", queue="mail", type="nobody:knows") == 2
    duration = "taskharbor_job_duration_seconds"
    assert only(samples, f"{duration}_count") == {
        ("succeeded", "mail", "work"): 4,
        ("failed", "mail", "work"): 3,
    }


JOB = JobRecord(id=CANARY, type="t", queue="q", payload=CANARY.encode(), metadata={CANARY: CANARY}, last_error=CANARY)
ERROR = LeaseExpired(CANARY)
EVENTS: list[tuple[Event, str]] = [
    (events.JobEnqueued(JOB, ""), "jobs_enqueued"),
    (events.JobReserved(JOB, "w"), "jobs_reserved"),
    (events.JobStarted(JOB, "w"), "jobs_started"),
    (events.JobSucceeded(JOB, "w", 0.25), "jobs_succeeded"),
    (events.JobFailed(JOB, "w", ERROR, 0.25), "jobs_failed"),
    (events.JobRetried(JOB, "w", 3, NOW), "jobs_retried"),
    (events.JobDeadLettered(JOB, "w", 5, CANARY), "jobs_dead_lettered"),
    (events.JobSnoozed(JOB, "w", NOW), "jobs_snoozed"),
    (events.JobGivenBack(JOB, "w", CANARY, None), "jobs_given_back"),
    (events.JobUnknown(JOB, "w"), "jobs_unknown"),
    (events.JobCancelled(JOB, "w", CANARY), "jobs_cancelled"),
    (events.LeaseLost(JOB, "w", ERROR), "leases_lost"),
    (events.OutcomeRefused(JOB, "w", ERROR), "outcomes_refused"),
    (events.PolicyFailed(JOB, "w", ERROR), "retry_policies_failed"),
    (events.HandlerBlocked("w", JOB, 2.5, CANARY), "handlers_blocked"),
    (events.HandlerStuck(JOB, "w", CANARY, 2, 16), "handlers_stuck"),
]


@pytest.mark.parametrize(("event", "name"), EVENTS, ids=[name for _, name in EVENTS])
def test_every_event_has_its_counter_without_user_data(event: Event, name: str, registry: CollectorRegistry):
    observer = PrometheusObserver(registry=registry)
    assert observer.wants(type(event))
    observer(event)
    observer(event)
    samples = read(registry)
    counted = {name: number for (name, labels), number in samples.items() if name.endswith("_total") and labels}
    assert counted == {f"taskharbor_{name}_total": 2}
    assert CANARY not in str(samples)


def test_the_list_of_events_is_complete():
    assert {type(event) for event, _ in EVENTS} | {events.StoreLost} == set(COUNTERS)


def test_outages_and_blocked_loops_need_no_job(registry: CollectorRegistry):
    observer = PrometheusObserver(registry=registry)
    observer(events.StoreLost("w", "reserve", OSError(CANARY)))
    observer(events.StoreBack("w", 2.5))
    observer(events.HandlerBlocked("w", None, 2.5, "unknown"))
    samples = read(registry)
    assert value(samples, "taskharbor_store_outages_total") == 1
    assert value(samples, "taskharbor_store_outage_seconds_total") == 2.5
    assert value(samples, "taskharbor_handlers_blocked_total", queue="", type="") == 1


def test_an_outbox_has_counters_without_labels(registry: CollectorRegistry):
    observer = PrometheusObserver(registry=registry)
    observer(events.JobsRelayed("w", 3, 2.5))
    observer(events.RelayRefused("w", 7, CANARY))
    samples = read(registry)
    assert value(samples, "taskharbor_outbox_jobs_relayed_total") == 3
    assert value(samples, "taskharbor_outbox_rows_refused_total") == 1
    assert value(samples, "taskharbor_outbox_wait_seconds_sum") == 2.5
    assert CANARY not in str(samples)


def test_what_is_not_counted_is_not_wanted(registry: CollectorRegistry):
    observer = PrometheusObserver(registry=registry)
    unwanted: list[type[Event]] = [
        events.JobProgress,
        events.WorkerStarted,
        events.WorkerStopping,
    ]
    assert not any(observer.wants(kind) for kind in unwanted)
    before = read(registry)
    observer(events.WorkerStopping("w", 0))
    assert read(registry) == before


def test_stuck_slots_are_summed_over_running_workers(registry: CollectorRegistry):
    observer = PrometheusObserver(registry=registry)
    told: list[tuple[Event, float]] = [
        (events.HandlerStuck(JOB, "w", "timeout", 1, 2), 1),
        (events.HandlerStuck(JOB, "w", "timeout", 2, 2), 2),
        (events.HandlerStuck(JOB, "other", "lease lost", 1, 2), 3),
        (events.HandlerFreed(JOB, "w", 9.0, 1), 2),
        (events.WorkerStopped("other"), 1),
        (events.HandlerFreed(JOB, "w", 9.0, 0), 0),
        (events.WorkerStopped("w"), 0),
    ]
    for event, slots in told:
        observer(event)
        assert registry.get_sample_value("taskharbor_stuck_slots") == slots


def test_durations_fall_into_their_buckets(registry: CollectorRegistry):
    observer = PrometheusObserver(registry=registry, buckets=(0.1, 1.0))
    for seconds in (0.05, 0.5, 0.5, 5.0):
        observer(events.JobSucceeded(JOB, "w", seconds))
    samples = read(registry)
    bucket = "taskharbor_job_duration_seconds_bucket"
    found = {
        le: value(samples, bucket, queue="q", type="t", outcome="succeeded", le=le) for le in ("0.1", "1.0", "+Inf")
    }
    assert found == {"0.1": 1, "1.0": 3, "+Inf": 4}
    assert value(samples, "taskharbor_job_duration_seconds_sum", queue="q", type="t", outcome="succeeded") == 6.05
    assert len(BUCKETS) < 20


def test_label_sets_are_bounded_and_nothing_goes_uncounted(registry: CollectorRegistry):
    observer = PrometheusObserver(registry=registry, max_label_sets=10)
    for number in range(500):
        for _ in range(2):
            observer(events.JobStarted(JobRecord(id="j", type=f"t{number}", queue="q"), "w"))
    observer(events.JobStarted(JobRecord(id="j", type="t3", queue="q"), "w"))  # known ones keep their own labels
    found = only(read(registry), "taskharbor_jobs_started_total")
    assert len(found) == 11
    assert found[(OTHER, OTHER)] == 490 * 2
    assert found[("q", "t3")] == 3
    assert sum(found.values()) == 1001


def test_many_threads_count_exactly(registry: CollectorRegistry):
    observer = PrometheusObserver(registry=registry, max_label_sets=3)
    barrier = threading.Barrier(8)

    def tell() -> None:
        barrier.wait(30)
        for number in range(400):
            observer(events.JobStarted(JobRecord(id="j", type=f"t{number % 5}", queue="q"), "w"))

    threads = [threading.Thread(target=tell) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = only(read(registry), "taskharbor_jobs_started_total")
    assert sum(found.values()) == 8 * 400
    assert len(found) == 4


def test_two_on_one_registry_are_refused_and_the_error_says_what_to_do(registry: CollectorRegistry):
    PrometheusObserver(registry=registry)
    with pytest.raises(ValueError, match="a registry takes one PrometheusObserver: share it"):
        PrometheusObserver(registry=registry)
    with pytest.raises(ValueError, match="max_label_sets: expected 1 or more, got 0"):
        PrometheusObserver(registry=CollectorRegistry(), max_label_sets=0)


def test_installing_adds_one_to_client_and_workers_unless_there_is_one(
    registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
):
    made: list[Any] = []

    class Counting(PrometheusObserver):
        def __init__(self) -> None:
            super().__init__(registry=registry)
            made.append(self)

    monkeypatch.setattr("taskharbor.observe.prometheus.observer.PrometheusObserver", Counting)
    harbor = Harbor("memory://")

    @harbor.task(name="work")
    def work() -> None: ...

    install(harbor)
    install(harbor)
    with harbor:
        work.enqueue()
        drain(harbor)
    assert len(made) == 1
    samples = read(registry)
    assert value(samples, "taskharbor_jobs_enqueued_total", queue="default", type="work") == 1
    assert value(samples, "taskharbor_jobs_succeeded_total", queue="default", type="work") == 1


def test_a_client_alone_is_counted(registry: CollectorRegistry):
    with Client("memory://", observers=[PrometheusObserver(registry=registry)]) as client:
        client.enqueue(JobRequest(type="t"))
    assert only(read(registry), "taskharbor_jobs_enqueued_total") == {("default", "t"): 1}


def test_labels_with_special_characters_can_be_parsed(registry: CollectorRegistry):
    observer = PrometheusObserver(registry=registry)
    odd = 'q "\\ é\n'
    observer(events.JobStarted(JobRecord(id="j", type="t", queue=odd), "w"))
    assert parse("") == {}
    assert only(read(registry), "taskharbor_jobs_started_total") == {(odd, "t"): 1}

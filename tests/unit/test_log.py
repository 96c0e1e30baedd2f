"""The log observer: structured, plain JSON values, and nothing of the user's data on any line."""

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from taskharbor import BackendUnavailable, Cancel, Harbor, Snooze, Unrecoverable, events
from taskharbor.drivers import JobRecord, Lease, LeaseExpired
from taskharbor.events import Event, JobFailed, JobProgress, JobRetried, JobSucceeded
from taskharbor.model.audit import AuditEntry
from taskharbor.observe.log import LEVELS, LogObserver
from taskharbor.testing import ManualClock, drain

CANARY = "c4n4ry"
NOW = datetime(2030, 1, 1, tzinfo=UTC)
JOB = JobRecord(
    id="01J",
    type="email:send",
    queue="mail",
    attempts=2,
    payload=CANARY.encode(),
    metadata={CANARY: CANARY},
    result=CANARY.encode(),
    idempotency_key=CANARY,
    last_error=CANARY,
    reason=CANARY,
)


def raised(error: BaseException) -> Any:
    try:
        raise error
    except BaseException as caught:
        return caught


BROKEN = raised(LeaseExpired(CANARY))
EVENTS: list[Event] = [
    events.JobEnqueued(JOB, "", True),
    events.KeyConflict(JOB, ""),
    events.JobReserved(JOB, "w"),
    events.JobStarted(JOB, "w"),
    events.JobProgress(JOB, "w", 1.5, None, "half way"),
    events.JobSucceeded(JOB, "w", 0.25),
    events.JobFailed(JOB, "w", raised(ValueError(CANARY)), 0.25),
    events.JobRetried(JOB, "w", 3, NOW),
    events.JobDeadLettered(JOB, "w", 5, f"unrecoverable ValueError: {CANARY}"),
    events.JobSnoozed(JOB, "w", NOW),
    events.JobGivenBack(JOB, "w", "shutdown", None),
    events.JobUnknown(JOB, "w"),
    events.JobCancelled(JOB, "w", CANARY),
    events.LeaseLost(JOB, "w", BROKEN),
    events.OutcomeRefused(JOB, "w", BROKEN),
    events.PolicyFailed(JOB, "w", raised(SystemExit(CANARY))),
    events.ResultChanged(JOB, "w", "$.card", "a SecretStr is written as asterisks, and its value would be lost"),
    events.HandlerBlocked("w", JOB, 2.5, "tasks.py:7 in crunch"),
    events.HandlerBlocked("w", None, 2.5, "unknown"),
    events.HandlerStuck(JOB, "w", "timeout", 2, 16),
    events.HandlerFreed(JOB, "w", 90.5, 1),
    events.WorkerStuck("w", 16),
    events.StoreLost("w", "reserve", raised(OSError(f"postgresql://app:{CANARY}@db"))),
    events.StoreBack("w", 3.5),
    events.WorkerStarted("w", ("mail", "default")),
    events.WorkerStopping("w", 3),
    events.WorkerStopped("w"),
    events.ScheduleFired("w", "nightly", "mail", NOW, "01J", 0.25),
    events.ScheduleMissed("w", "nightly", "mail", 3),
    events.ScheduleSkipped("w", "nightly", "mail", 1),
    events.ScheduleChanged("w", "nightly", "mail", True),
    events.ScheduleEditDropped("w", "nightly", "mail"),
    events.ScheduleRefused("w", "nightly", "mail", "it is damaged"),
    events.JobsRelayed("w", 3, 0.25),
    events.RelayRefused("w", 7, "its records are damaged"),
    events.OperatorActed(
        AuditEntry(id="01J", at=NOW, by="ada", action="requeue", ids=("01H",), n=1, done=1, refused=0)
    ),
]


class Lines(logging.Handler):
    """Keeps every record, of every level, as it is written."""

    def __init__(self) -> None:
        super().__init__(logging.NOTSET)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def everything(self) -> str:
        """All that any formatter could show: the text, the attributes, the traceback."""
        formatter = logging.Formatter()
        return "\n".join(f"{formatter.format(record)} {vars(record)!r}" for record in self.records)


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler, root = Lines(), logging.getLogger()
    levels = [(name, logging.getLogger(name).level) for name in (None, "taskharbor", "asyncio")]
    root.addHandler(handler)
    for name, _ in levels:
        logging.getLogger(name).setLevel(logging.DEBUG)
    try:
        yield handler
    finally:
        root.removeHandler(handler)
        for name, level in levels:
            logging.getLogger(name).setLevel(level)


def facts(record: logging.LogRecord) -> dict[str, Any]:
    """What an event added to a record."""
    usual = vars(logging.makeLogRecord({}))
    return {name: value for name, value in vars(record).items() if name not in usual and name != "message"}


def test_an_outage_is_logged_in_its_drivers_words_and_nothing_that_a_handler_raised(lines: Lines):
    observe = LogObserver()
    away = raised(BackendUnavailable("PostgreSQL did not answer:\n  connection refused" + "!" * 1000))
    observe(events.StoreLost("w", "reserve", away))
    observe(events.JobFailed(JOB, "w", raised(BackendUnavailable(CANARY)), 0.25))
    lost, failed = (facts(record) for record in lines.records)
    assert lost["error"].startswith("BackendUnavailable: PostgreSQL did not answer: connection refused!!!")
    assert len(lost["error"]) < 400
    assert failed["error"].startswith("BackendUnavailable at ")


def test_there_is_an_example_and_a_level_for_every_event():
    abstract = {events.Event, events.JobEvent, events.ScheduleEvent}
    concrete = {getattr(events, name) for name in events.__all__} - abstract - {events.Observer}
    assert {type(event) for event in EVENTS} == concrete == LEVELS.keys() - abstract


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_nothing_of_the_users_data_is_on_a_line(event: Event, lines: Lines):
    LogObserver()(event)
    assert len(lines.records) == 1
    assert CANARY not in lines.everything()


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("errors", [False, True])
def test_every_fact_is_a_plain_json_value(event: Event, errors: bool, lines: Lines):
    LogObserver(errors=errors)(event)
    (record,) = lines.records
    found = facts(record)
    assert json.loads(json.dumps(found)) == found
    assert found["event"] == type(event).__name__
    assert record.levelno == LEVELS[type(event)]
    assert record.name == "taskharbor"
    if getattr(event, "job", None) is not None:
        assert (found["job_id"], found["job_type"], found["queue"], found["attempt"]) == (
            "01J",
            "email:send",
            "mail",
            3,
        )


def test_a_failure_is_logged_by_class_and_place(lines: Lines):
    LogObserver()(JobFailed(JOB, "w", raised(ValueError(CANARY)), 0.25))
    (record,) = lines.records
    assert facts(record)["error"].startswith("ValueError at ")
    assert "test_log.py:" in facts(record)["error"]
    assert facts(record)["seconds"] == 0.25
    LogObserver()(JobFailed(JOB, "w", ValueError(CANARY), 0.25))  # never raised: there is no place
    assert facts(lines.records[1])["error"] == "ValueError"


def test_the_text_of_errors_is_shown_on_request(lines: Lines):
    observer = LogObserver(errors=True)
    observer(JobFailed(JOB, "w", ValueError("no account"), 0.25))
    observer(events.JobDeadLettered(JOB, "w", 5, "gone"))
    observer(events.JobCancelled(JOB, "w", "not wanted"))
    assert facts(lines.records[0])["error"] == "ValueError: no account"
    assert [facts(record)["reason"] for record in lines.records[1:]] == ["gone", "not wanted"]


def test_an_error_without_a_readable_text_is_logged_by_its_class(lines: Lines):
    class Mute(Exception):
        def __str__(self) -> str:
            raise SystemExit

    LogObserver(errors=True)(JobFailed(JOB, "w", Mute(), 0.25))
    assert facts(lines.records[0])["error"].endswith("Mute")


def test_one_event_is_one_line_whatever_a_handler_says(lines: Lines):
    LogObserver()(JobProgress(JOB, "w", 1, 2, "x\nERROR forged\x1b[2J\u2028 event=JobSucceeded"))
    (record,) = lines.records
    text = record.getMessage()
    assert len(text.splitlines()) == 1
    assert "\x1b" not in text
    assert text.endswith('note="x\\nERROR forged\\u001b[2J\\u2028 event=JobSucceeded"')
    assert facts(record)["note"].startswith("x\nERROR")  # a JSON formatter quotes by itself


def test_the_line_reads_as_names_and_values(lines: Lines):
    LogObserver()(JobRetried(JOB, "w", 3, NOW))
    LogObserver()(events.WorkerStarted("w", ("mail", "default")))
    assert [record.getMessage() for record in lines.records] == [
        "event=JobRetried job_id=01J job_type=email:send queue=mail attempt=3 worker=w attempts=3 "
        "run_at=2030-01-01T00:00:00+00:00",
        "event=WorkerStarted worker=w queues=mail,default",
    ]


def test_progress_may_be_reported_in_numbers_of_any_type(lines: Lines):
    LogObserver()(JobProgress(JOB, "w", Decimal("1.5"), 2, ""))  # type: ignore[arg-type]  # wrong on purpose
    assert (facts(lines.records[0])["done"], facts(lines.records[0])["total"]) == ("1.5", 2)


def test_only_what_would_be_written_is_wanted(lines: Lines):
    observer, logger = LogObserver(), logging.getLogger("taskharbor")
    logger.setLevel(logging.WARNING)
    assert observer.wants(JobFailed)
    assert not observer.wants(JobSucceeded)
    observer(JobSucceeded(JOB, "w", 1.0))
    assert lines.records == []


def test_a_log_observer_of_ones_own_takes_the_place_of_the_default(lines: Lines):
    harbor = Harbor("memory://", observers=[LogObserver(errors=True)])

    @harbor.task(max_attempts=1)
    def broken() -> None:
        raise ValueError("no account")

    with harbor:
        broken.enqueue()
        drain(harbor)
    told = [facts(record) for record in lines.records]
    assert [each["error"] for each in told if each.get("event") == "JobFailed"] == ["ValueError: no account"]
    assert len([each for each in told if each.get("event") == "JobEnqueued"]) == 1


def test_reprs_show_none_of_the_users_data():
    lease = Lease("j", "q", CANARY, NOW)
    for value in (
        JOB,
        lease,
        *(event for event in EVENTS if not hasattr(event, "error") and not hasattr(event, "reason")),
    ):
        assert CANARY not in repr(value)


def test_a_whole_life_on_a_store_leaves_no_trace_of_the_data(lines: Lines):
    clock = ManualClock()
    harbor = Harbor("memory://", clock=clock)

    class Leaky(Exception):
        pass

    endings = {
        "return": lambda: {"result": CANARY},
        "raise": lambda: _raise(Leaky(CANARY)),
        "dead": lambda: _raise(Unrecoverable(CANARY)),
        "cancel": lambda: _raise(Cancel(CANARY)),
        "snooze": lambda: _raise(Snooze(3)),
        "unstorable": lambda: {CANARY: float("nan")},
        "huge": lambda: CANARY * 100_000,
    }

    @harbor.task(max_attempts=2, metadata={"note": CANARY})
    def ends(how: str, secret: str) -> Any:
        return endings[how]()

    @harbor.task(max_attempts=2)
    async def awaited(how: str, secret: str) -> Any:
        return endings[how]()

    with harbor:
        for how in endings:
            ends.options(idempotency_key=f"{CANARY}:{how}").enqueue(how, secret=CANARY)
            awaited.enqueue(how, secret=CANARY)
        drain(harbor)
        clock.advance(timedelta(minutes=5))
        drain(harbor)
    told = {facts(record).get("event") for record in lines.records}
    assert told >= {
        "JobEnqueued",
        "JobSucceeded",
        "JobFailed",
        "JobRetried",
        "JobDeadLettered",
        "JobCancelled",
        "JobSnoozed",
    }
    assert CANARY not in lines.everything()


def _raise(error: BaseException) -> Any:
    raise error

"""Log lines for a developer at a terminal, and what a log shows of an exception."""

import io
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from taskharbor import Harbor
from taskharbor.model import events
from taskharbor.model.job import JobRecord
from taskharbor.observe import formatting
from taskharbor.observe.formatting import application_traceback, in_colours
from taskharbor.observe.log import LogObserver, TerminalFormatter, configure_logging
from tests.observe import process_tasks

JOB = JobRecord(id="01J", type="shop.charge", attempts=0)
CANARY = "canary-4111"


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, configured, installed = (
        list(root.handlers),
        root.level,
        formatting._configuration,
        formatting._installed,
    )
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    formatting._configuration, formatting._installed = configured, installed


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def told(event: events.Event, errors: str | None = "traceback") -> list[str]:
    stream = io.StringIO()
    configure_logging("terminal", "DEBUG", stream)
    LogObserver(errors=errors)(event)
    lines = stream.getvalue().splitlines()
    assert len(lines[0].split(" ")[0]) == len("12:01:03")
    return [lines[0].partition(" ")[2], *lines[1:]]


def test_a_failure_is_a_line_and_the_traceback_below_it():
    lines = told(events.JobFailed(JOB, "w", raised(ValueError("no account")), 0.25))
    assert lines[0] == "WARNING shop.charge 01J failed after 0.25 s: ValueError: no account"
    assert lines[1] == "  Traceback (most recent call last):"
    assert lines[-1] == "  ValueError: no account"
    assert any("raise error" in line for line in lines)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (events.JobSucceeded(JOB, "w", 12.3), "INFO    shop.charge 01J succeeded after 12 s"),
        (events.JobDeadLettered(JOB, "w", 5, "gone"), "ERROR   shop.charge 01J is dead: gone"),
        (events.JobUnknown(JOB, "w", ("a", "b")), "WARNING shop.charge 01J is of an unknown type known=a,b advice="),
        (events.WorkerStarted("w", ("mail",)), "INFO    taskharbor worker started worker=w queues=mail"),
    ],
)
def test_events_are_words(event: events.Event, expected: str):
    (line,) = told(event)
    assert line.startswith(expected)


def test_a_retry_says_when():
    at = datetime(2030, 1, 1, 12, 30, 5, tzinfo=UTC)
    (line,) = told(events.JobRetried(JOB, "w", 1, at))
    assert line == f"INFO    shop.charge 01J will be retried at {at.astimezone():%H:%M:%S}"


def test_only_on_request_does_a_log_show_more_than_the_class():
    error = raised(ValueError(CANARY))
    for errors in (None, "class"):
        (line,) = told(events.JobFailed(JOB, "w", error, 0.25), errors)
        assert "ValueError at " in line
        assert CANARY not in line
    (line,) = told(events.JobFailed(JOB, "w", error, 0.25), "text")
    assert line.endswith(f"ValueError: {CANARY}")
    with pytest.raises(ValueError, match="errors: expected one of 'class', 'text', 'traceback', got 'all'"):
        LogObserver(errors="all")
    with pytest.raises(ValueError, match="errors: expected one of"):
        configure_logging("json", errors="all")


def test_the_observer_that_every_harbor_has_follows_the_configuration():
    stream = io.StringIO()
    configure_logging("json", "INFO", stream, errors="traceback")
    harbor = Harbor("memory://")

    @harbor.task(name="charge", max_attempts=1)
    def charge(card: str) -> None:
        raise ConnectionError(f"declined {card}")

    charge.enqueue(CANARY)
    harbor.worker().run(until_empty=True)
    failed = next(line for line in map(json.loads, stream.getvalue().splitlines()) if line.get("event") == "JobFailed")
    frames = [line for line in failed["exception"].splitlines() if line.startswith("  File")]
    assert len(frames) == 1, "only the frames of the application"
    assert "test_terminal.py" in frames[0]
    assert failed["exception"].endswith(f"ConnectionError: declined {CANARY}")


def test_the_frames_of_a_child_process_are_shown():
    stream = io.StringIO()
    configure_logging("terminal", "INFO", stream, errors="traceback")
    process_tasks.crunch.enqueue(fail=True)
    process_tasks.harbor.worker().run(until_empty=True)
    text = stream.getvalue()
    assert "failed after " in text
    assert 'raise ValueError("once")' in text
    assert "taskharbor/worker" not in text


def test_causes_and_groups_lose_the_frames_of_the_worker_too():
    group = raised(BaseExceptionGroup("several", [raised(KeyError("a"))]))
    group.__cause__ = raised(OSError("away"))
    text = application_traceback(group)
    assert "OSError: away" in text
    assert "KeyError: 'a'" in text


def test_an_exception_that_cannot_be_shown():
    class Odd(Exception):
        @property
        def __traceback__(self) -> Any:  # type: ignore[override]  # on purpose: an exception may do this
            raise RuntimeError

    assert "Odd" in application_traceback(Odd())


def test_no_text_passes_for_another_line_or_commands_the_terminal():
    stream = io.StringIO()
    configure_logging("terminal", "DEBUG", stream)
    logging.getLogger("shop").warning("one\n12:00:00 ERROR forged\x1b[2J\r")
    first, second = stream.getvalue().splitlines()
    assert first.endswith("WARNING shop one")
    assert second == "  12:00:00 ERROR forged\\u001b[2J\\r"
    LogObserver(errors="text")(events.JobFailed(JOB, "w", ValueError("a\nb\x1b[2J"), 1.0))
    assert "\x1b" not in stream.getvalue()
    assert stream.getvalue().splitlines()[-1].startswith("  b")


def test_colours_only_for_a_terminal_that_wants_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert in_colours(Screen())
    assert not in_colours(io.StringIO())
    screen = Screen()
    configure_logging("terminal", "INFO", screen)
    logging.getLogger("shop").warning("careful")
    assert "\x1b[33mWARNING\x1b[0m" in screen.getvalue()
    monkeypatch.setenv("TERM", "dumb")
    assert not in_colours(Screen())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not in_colours(Screen())
    closed = open(__file__)  # noqa: SIM115  closed at once, as a program may leave it
    closed.close()
    assert not in_colours(closed)


def test_a_line_of_a_handler_names_its_job():
    record = logging.makeLogRecord(
        {"name": "shop", "msg": "hello", "levelname": "INFO", "job_id": "01J", "job_type": "t"}
    )
    assert TerminalFormatter(colours=False).format(record).endswith("INFO    t 01J hello")

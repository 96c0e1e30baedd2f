"""Log lines: bound to the job whose handler wrote them, and readable by people and by programs."""

import asyncio
import io
import json
import logging
import sys
import threading
from datetime import timedelta
from typing import Any

import pytest

from taskharbor import Harbor, JobContext
from taskharbor.model import current_job
from taskharbor.observe import formatting
from taskharbor.observe.log import JobFilter, JsonFormatter, TextFormatter, configure_logging
from taskharbor.testing import ManualClock, drain
from tests.observe import process_tasks
from tests.observe.conftest import Configure

log = logging.getLogger("application")


def bound(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(line.get(name) for name in ("job_id", "job_type", "queue", "attempt"))


# Bound to the job


def test_every_line_of_a_handler_is_bound_to_its_job_in_threads_and_coroutines(configure: Configure):
    written, clock = configure(), ManualClock()
    harbor = Harbor("memory://", clock=clock)

    @harbor.task(name="plain", queue="mail", max_attempts=2)
    def plain(ctx: JobContext) -> None:
        log.info("from a thread")
        ctx.log.info("through the context")
        if ctx.job.attempts == 0:
            raise ValueError("once")

    @harbor.task(name="awaited", queue="mail")
    async def awaited() -> None:
        log.info("from a coroutine")
        await asyncio.gather(asyncio.create_task(below()), asyncio.to_thread(log.info, "from its thread"))

    async def below() -> None:
        log.info("from a task of its own")

    with harbor:
        first, second = plain.enqueue(), awaited.enqueue()
        log.info("from nobody")
        drain(harbor)
        clock.advance(timedelta(minutes=1))
        drain(harbor)
    told = {(line["message"], *bound(line)) for line in written.objects if line["logger"] != "taskharbor"}
    assert told == {
        ("from a thread", first.id, "plain", "mail", 1),
        ("through the context", first.id, "plain", "mail", 1),
        ("from a thread", first.id, "plain", "mail", 2),
        ("through the context", first.id, "plain", "mail", 2),
        ("from a coroutine", second.id, "awaited", "mail", 1),
        ("from its thread", second.id, "awaited", "mail", 1),
        ("from a task of its own", second.id, "awaited", "mail", 1),
        ("from nobody", None, None, None, None),
    }
    assert {line["event"] for line in written.of("taskharbor")} >= {"JobFailed", "JobRetried", "JobSucceeded"}


def test_extra_fields_are_kept_but_cannot_forge_the_job(configure: Configure):
    written, harbor = configure(), Harbor("memory://")

    @harbor.task
    def work(ctx: JobContext) -> None:
        ctx.log.info("one", extra={"order": 7, "job_id": "forged"})
        log.info("two", extra={"order": 8})

    with harbor:
        job = work.enqueue()
        drain(harbor)
    told = [(line["message"], line["order"], line["job_id"]) for line in written.objects if "order" in line]
    assert told == [("one", 7, job.id), ("two", 8, job.id)]


def test_jobs_that_run_at_once_do_not_mix_up_their_lines(configure: Configure):
    written = configure()
    harbor = Harbor("memory://")
    together = threading.Barrier(4)

    @harbor.task
    def plain(number: int) -> None:
        together.wait(30)
        log.info("%d", number)

    @harbor.task
    async def awaited(number: int) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
            log.info("%d", number)

    with harbor:
        ids = {number: plain.enqueue(number).id for number in range(4)}
        ids |= {number: awaited.enqueue(number).id for number in range(4, 24)}
        harbor.worker(concurrency=24).run(until_empty=True)
    told = written.of("application")
    assert len(told) == 4 + 20 * 3
    assert all(line["job_id"] == ids[int(line["message"])] for line in told)


def test_lines_of_child_processes_are_written_alike_and_bound(configure: Configure, capfd: pytest.CaptureFixture[str]):
    configure()  # keeps what there was, to be put back
    configure_logging("json")
    harbor = process_tasks.harbor
    with harbor:
        done = process_tasks.crunch.enqueue()
        again = process_tasks.crunch.enqueue(fail=True)
        harbor.worker().run(until_empty=True)
    told = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [line["message"] for line in told if line["logger"] == "application"] == ["crunching"] * 3
    of_children = {
        (line["level"], *bound(line)) for line in told if line["logger"] in ("application", "taskharbor.job")
    }
    name = process_tasks.crunch.name
    assert of_children == {
        (level, id, name, "heavy", attempt)
        for level in ("INFO", "WARNING")
        for id, attempt in ((done.id, 1), (again.id, 1), (again.id, 2))
    }


def test_a_record_with_its_own_job_id_keeps_it(configure: Configure):
    written = configure("json", "DEBUG")
    harbor, made = Harbor("memory://"), list[str]()

    @harbor.task
    async def parent() -> None:
        made.append((await child.aenqueue()).id)

    @harbor.task
    async def child() -> None:
        pass

    with harbor:
        first = parent.enqueue()
        drain(harbor)
    enqueued = [line["job_id"] for line in written.of("taskharbor") if line["event"] == "JobEnqueued"]
    assert enqueued == [first.id, *made]


def test_the_current_job_is_not_noted_without_a_filter(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(current_job, "_wanted", False)
    harbor, seen = Harbor("memory://"), list[Any]()

    @harbor.task
    async def look() -> None:
        seen.append(current_job.CURRENT.get())

    with harbor:
        look.enqueue()
        drain(harbor)
        JobFilter()
        handle = look.enqueue()
        drain(harbor)
    assert seen[0] is None
    assert seen[1].id == handle.id


def test_facts_are_available_without_log_records(configure: Configure):
    configure()
    own, harbor, seen = JobFilter(), Harbor("memory://"), list[Any]()

    @harbor.task(name="look", queue="mail")
    def look() -> None:
        seen.append(own.facts())

    with harbor:
        job = look.enqueue()
        drain(harbor)
    assert seen == [{"job_id": job.id, "job_type": "look", "queue": "mail", "attempt": 1}]
    assert own.facts() == {}


def test_a_program_that_configures_logging_itself_adds_the_filter(configure: Configure):
    configure()
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(JobFilter())
    handler.setFormatter(
        logging.Formatter("%(job_id)s/%(attempt)s %(message)s", defaults={"job_id": "", "attempt": ""})
    )
    log.addHandler(handler)
    harbor = Harbor("memory://")

    @harbor.task
    def work() -> None:
        log.info("at it")

    try:
        with harbor:
            job = work.enqueue()
            drain(harbor)
    finally:
        log.removeHandler(handler)
    assert stream.getvalue() == f"{job.id}/1 at it\n"


# What a line looks like


def record(message: str, *args: Any, **extra: Any) -> logging.LogRecord:
    made = logging.makeLogRecord(
        {"name": "application", "levelno": 20, "levelname": "INFO", "created": 1_893_456_000.5}
    )
    made.msg, made.args = message, args
    vars(made).update(extra)
    return made


FACTS = {"job_id": "01J", "job_type": "email:send", "queue": "a b", "attempt": 3}


def test_a_line_of_text_reads_from_left_to_right():
    assert TextFormatter().format(record("sent %s", "it", **FACTS)) == (
        '2030-01-01T00:00:00.500Z INFO    application sent it job_id=01J job_type=email:send queue="a b" attempt=3'
    )
    assert TextFormatter().format(record("sent")) == "2030-01-01T00:00:00.500Z INFO    application sent"


def test_an_event_line_has_each_fact_once(configure: Configure):
    written = configure("text")
    harbor = Harbor("memory://")

    @harbor.task(name="t")
    def nothing() -> None:
        pass

    with harbor:
        job = nothing.enqueue()
        drain(harbor)
    (line,) = [line for line in written.text.splitlines() if "JobSucceeded" in line]
    assert line.count(f"job_id={job.id}") == 1
    assert " INFO    taskharbor event=JobSucceeded " in line


def test_no_text_can_forge_another_line():
    text = TextFormatter().format(record("first\n2030-01-01T00:00:00.500Z ERROR forged\r\x1b[2J\u2028\udc80 end"))
    assert [line[:2] for line in text.splitlines()] == ["20", "  "]
    assert text.endswith("  2030-01-01T00:00:00.500Z ERROR forged\\r\\u001b[2J\\u2028\\udc80 end")
    text.encode()
    line = JsonFormatter().format(record("first\nsecond\u2028\udc80"))
    assert len(line.splitlines()) == 1
    assert json.loads(line)["message"] == "first\nsecond\u2028\udc80"


class Mute:
    def __str__(self) -> str:
        raise RuntimeError


def test_a_json_line_is_an_object_whatever_is_in_it():
    loop: list[Any] = []
    loop.append(loop)
    extra: dict[str, Any] = {
        **FACTS,
        "nan": float("nan"),
        "bytes": b"x",
        "nested": {"a": [1, (2, None)], 3: float("inf")},
        "mute": Mute(),
        "loop": loop,
        "huge": 10**5000,
        "level": "forged",
    }
    line = json.loads(JsonFormatter().format(record("sent %d", 2, **extra)), parse_constant=pytest.fail)
    assert list(line)[:4] == ["time", "level", "logger", "message"]
    assert (line["time"], line["level"], line["message"]) == ("2030-01-01T00:00:00.500Z", "INFO", "sent 2")
    assert {name: line[name] for name in FACTS} == FACTS
    assert (line["nan"], line["bytes"], line["nested"]) == ("nan", "b'x'", {"a": [1, [2, None]], "3": "inf"})
    assert line["mute"] == "<Mute: RuntimeError>"


def test_wrong_logging_arguments_lose_no_line():
    line = json.loads(JsonFormatter().format(record("sent %d", "it")))
    assert line["message"] == "sent %d (its arguments cannot be shown: TypeError)"


def test_tracebacks_that_a_handler_logs_are_kept_together():
    try:
        raise ValueError("broken")
    except ValueError:
        made = record("failed", exc_info=sys.exc_info())
    text = TextFormatter().format(made)
    assert all(line.startswith("  ") for line in text.splitlines()[1:])
    assert text.endswith("  ValueError: broken")
    line = json.loads(JsonFormatter().format(made))
    assert line["exception"].startswith("Traceback")
    assert "exc_info" not in line


# Configuring


def test_configuring_again_replaces_the_handler_and_leaves_others(configure: Configure):
    other = logging.NullHandler()
    logging.getLogger().addHandler(other)
    first = configure("text", "info")
    second = configure("json", "DEBUG")
    log.debug("hello")
    assert first.text == ""
    assert [line["message"] for line in second.objects] == ["hello"]
    assert other in logging.getLogger().handlers
    assert formatting.configuration() == ("json", "DEBUG", False, "class")


def test_an_unknown_format_is_refused(configure: Configure):
    with pytest.raises(ValueError, match=r"format: expected 'text', 'json' or 'terminal', got 'xml'"):
        configure("xml")
    with pytest.raises(ValueError, match="LOUD"):
        configure("json", "LOUD")
    assert formatting.configuration() is None


def test_below_the_level_nothing_is_written(configure: Configure):
    written = configure("json", "WARNING")
    log.info("quiet")
    log.warning("loud")
    assert [line["message"] for line in written.objects] == ["loud"]

"""`worker run --metrics-port`: one page for all its processes, also after some of them are gone."""

import json
import socket
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from taskharbor import JobRequest
from tests.observe.scrape import Samples, fetch, parse, value
from tests.servers.ports import free_port
from tests.supervisor.worker_run import Yard, eventually, yard

APP = "tests.observe.app:harbor"
CANARY = "c4n4ry"


@pytest.fixture
def here(tmp_path: Path, scratch: Path) -> Iterator[Yard]:
    with yard(f"sqlite:///{tmp_path}/jobs.db", tmp_path) as made:
        yield made


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where programs make their temporary folders."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def scrape(port: int) -> Samples:
    try:
        return parse(fetch(port))
    except (urllib.error.URLError, ConnectionError):
        return {}


def total(samples: Samples, what: str, type: str = "send") -> float | None:
    return value(samples, f"taskharbor_{what}_total", queue="mail", type=type)


def enqueue(here: Yard, type: str, number: int = 1, **payload: Any) -> list[str]:
    requests = [JobRequest(type=type, payload=payload, queue="mail", max_attempts=2) for _ in range(number)]
    return [handle.id for handle in here.client.enqueue_many(requests)]


def test_one_page_covers_all_processes_including_dead_ones(here: Yard):
    port = free_port()
    options = ["--metrics-port", str(port), "--log-format", "json", "--log-level", "debug", "--max-lost", "1"]
    here.start("--processes", "2", *options, app=APP)
    here.done(*enqueue(here, "send", 10, to=CANARY), *enqueue(here, "forward", 2, to=CANARY))
    eventually(lambda: total(scrape(port), "jobs_succeeded") == 12, "those, and what they enqueued, are counted")
    (dead,) = enqueue(here, "send", to=CANARY, fail=True)
    eventually(lambda: here.state(dead) == "dlq", "it failed twice")
    (killer,) = enqueue(here, "die")
    eventually(lambda: here.state(killer) == "dlq", "it took its process down")
    here.done(*enqueue(here, "send", 3, to=CANARY))
    eventually(lambda: total(scrape(port), "jobs_succeeded") == 15, "it goes on")
    eventually(lambda: value(scrape(port), "taskharbor_processes_started_total") == 3, "another one serves")
    samples = scrape(port)
    counted = {what: total(samples, what) for what in ("jobs_enqueued", "jobs_failed", "jobs_retried")}
    assert counted == {"jobs_enqueued": 2, "jobs_failed": 2, "jobs_retried": 1}  # by the jobs; this test is elsewhere
    assert total(samples, "jobs_dead_lettered") == total(samples, "jobs_dead_lettered", "die") == 1
    assert total(samples, "jobs_started", "die") == 1
    assert value(samples, "application_letters_total") == 17
    assert value(samples, "taskharbor_job_duration_seconds_count", queue="mail", type="send", outcome="succeeded") == 15
    assert value(samples, "taskharbor_store_up") == 1
    assert value(samples, "taskharbor_processes_died_total") == value(samples, "taskharbor_jobs_released_total") == 1
    assert value(samples, "taskharbor_processes_killed_total") == 0
    assert value(samples, "taskharbor_queue_jobs", queue="mail", state="ready") is not None
    assert CANARY not in fetch(port)
    lines = [json.loads(line) for line in here.log.splitlines()]
    handlers = [line for line in lines if line["logger"] == "application"]
    assert len(handlers) == 17
    assert all(line["job_type"] == "send" and line["queue"] == "mail" for line in handlers)
    assert {line["attempt"] for line in handlers if line["job_id"] == dead} == {1, 2}
    assert CANARY not in here.log


def test_the_metrics_server_ends_cleanly(here: Yard, scratch: Path):
    port = free_port()
    program = here.start("--metrics-port", str(port), app=None)
    eventually(lambda: value(scrape(port), "taskharbor_store_up") == 1, "it serves")
    assert [each.name.startswith("taskharbor-metrics-") for each in scratch.iterdir()] == [True]
    program.terminate()
    assert here.ended(program) == 0
    assert list(scratch.iterdir()) == []
    assert scrape(port) == {}


def test_a_port_that_is_taken_is_one_clear_line(here: Yard, scratch: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        program = here.start("--metrics-port", str(port), app=APP)
        assert here.ended(program) == 2
    (line,) = here.log.splitlines()
    assert line.startswith(f"taskharbor: --metrics-port {port}: 127.0.0.1:{port}: ")
    assert line.endswith("choose another")
    assert list(scratch.iterdir()) == []

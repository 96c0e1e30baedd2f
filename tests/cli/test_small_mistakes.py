"""What people mistype, and texts that they read: each error names the way out."""

import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from taskharbor import Harbor
from taskharbor.drivers import Driver, JobRecord
from taskharbor.observe.formatting import summary
from tests.cli.shell import Process, kill, reserve, store, taskharbor, within
from tests.servers import redis


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("list --app tasks.py:harbor", "leave out .py: tasks"),
        ("worker run -A tasks", "No such option '-A'; the application is --app MODULE:NAME"),
        ("inspect 01", "a prefix of an id has at least 4 characters"),
        ("schedule show nightli", "`taskharbor schedule list` shows all"),
    ],
)
def test_a_mistake_names_the_way_out(dsn: str, typed: str, expected: str):
    store(dsn, JobRecord(id="j1", type="x"))
    assert expected in taskharbor(*typed.split(), "--dsn", dsn).line


def test_a_suggested_moment_is_one_that_is_taken(dsn: str):
    line = taskharbor("enqueue", "--job", "x", "--run-at=2030-01-31", "--dsn", dsn).line
    assert "2030-01-31T00:00:00Z for UTC" in line
    assert taskharbor("enqueue", "--job", "x", "--run-at=2030-01-31T00:00:00Z", "--dsn", dsn).code == 0


def test_a_folder_in_place_of_the_file(tmp_path: Path):
    (tmp_path / "jobs.db").mkdir()
    line = taskharbor("list", "--dsn", f"sqlite:///{tmp_path}/jobs.db").line
    assert "expected a file, found a folder" in line
    assert "hard link" not in line


def test_how_long_a_job_has_been_running(dsn: str):
    store(dsn, JobRecord(id="j1", type="x"))
    reserve(dsn)
    assert "it has been running for" in taskharbor("explain", "j1", "--dsn", dsn).out


def test_a_canary_without_a_worker_says_what_it_waits_for(dsn: str):
    store(dsn, JobRecord(id="j1", type="x"))
    kill(dsn, "j1")
    with Process("dlq", "requeue", "--all", "--yes", "--canary", "1", "--dsn", dsn) as requeue:
        requeue.wait_for(
            "no worker sent a heartbeat in the last minute, and the jobs that are tried first wait for one"
        )
        requeue.interrupt()
    assert requeue.seen.count("no worker") == 1


def test_a_dry_run_names_the_option_that_the_cut_replaces(dsn: str):
    store(dsn, JobRecord(id="j1", type="x"))
    kill(dsn, "j1")
    shown = taskharbor("dlq", "delete", "--older-than", "0s", "--dry-run", "--dsn", dsn).out
    assert shown.rstrip().endswith("in place of --until or --older-than")


def test_a_log_line_has_no_exponent():
    assert summary({"event": "JobSucceeded", "seconds": 0.000025}).endswith("after 0.001 s")


def test_an_operation_over_many_jobs_is_not_listed_as_a_workflow(dsn: str):
    harbor = Harbor(dsn)
    store(dsn, JobRecord(id="j1", type="x"), JobRecord(id="f1", type="x", flow_id="flow"))
    kill(dsn, "j1")
    assert taskharbor("dlq", "requeue", "--all", "--yes", "--dsn", dsn).code == 0

    async def kept(driver: Driver, now: datetime) -> int:
        return len((await driver.flows(now=now)).items)

    assert within(dsn, kept) == 2
    assert [flow["id"] for flow in taskharbor("flow", "list", "--output", "json", "--dsn", dsn).json["flows"]] == [
        "flow"
    ]
    assert [flow.id for flow in harbor.flows()] == ["flow"]
    harbor.close()


def test_conformance_on_redis_prints_its_report_alone():
    server = redis.Server()
    try:
        command = [sys.executable, "-m", "taskharbor", "conformance", "--dsn", server.url, "--theme", "argument_bounds"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    finally:
        server.stop()
    assert (done.returncode, done.stderr) == (0, "")

"""`taskharbor queue`, `stats`, `flow`: what is going on."""

import json
from datetime import datetime

import pytest

from taskharbor.drivers import Driver, JobRecord, WorkerInfo
from tests.cli.shell import kill, program, store, taskharbor, within

STATES = ["blocked", "scheduled", "ready", "inflight", "done", "dlq", "cancelled"]


@pytest.fixture
def busy(dsn: str) -> str:
    store(
        dsn,
        JobRecord(id="a", type="fetch", flow_id="f1"),
        JobRecord(id="b", type="parse", flow_id="f1", depends_on=("a",)),
        JobRecord(id="c", type="mail", queue="mail"),
        JobRecord(id="d", type="mail", queue="mail"),
    )
    kill(dsn, "d", queue="mail")

    async def beat(driver: Driver, now: datetime) -> None:
        await driver.beat(WorkerInfo(worker="w1", queues=("mail",), running=1, started_at=now, concurrency=4), now)
        await driver.pause("paused")

    within(dsn, beat)
    return dsn


QUEUE = ["queue", "paused", "workers", "jobs", "capped", "oldest_ready_at", "oldest_known"]


def test_queue_list(busy: str):
    found = taskharbor("queue", "list", "--dsn", busy, "--output", "json").json["queues"]
    assert [list(row) for row in found] == [QUEUE] * 3
    assert [(row["queue"], row["paused"], row["workers"]) for row in found] == [
        ("default", False, 0),
        ("mail", False, 1),
        ("paused", True, 0),
    ]
    assert [list(row["jobs"]) for row in found] == [STATES] * 3
    assert found[1]["jobs"] == dict.fromkeys(STATES, 0) | {"ready": 1, "dlq": 1}
    head, *rows = taskharbor("queue", "list", "--dsn", busy).out.splitlines()
    assert head.lower().split() == ["queue", *STATES, "workers", "paused", "oldest", "wait"]
    assert rows[2].split() == ["paused", *["0"] * 8, "paused", "-"]


def test_an_empty_store(dsn: str):
    taskharbor("migrate", "--dsn", dsn)
    assert taskharbor("queue", "list", "--dsn", dsn).out == "no queues\n"
    assert taskharbor("stats", "--dsn", dsn).out == "no queues\n\nno worker sent a heartbeat in the last minute\n"


def test_pause_and_resume(busy: str):
    answer = taskharbor("queue", "pause", "mail", "default", "--dsn", busy)
    assert answer.out == "mail is paused\ndefault is paused\n"
    assert within(busy, lambda driver, now: driver.is_paused("mail"))
    answer = taskharbor("queue", "resume", "mail", "--dsn", busy, "--output", "json")
    assert answer.json == {"queues": [{"queue": "mail", "paused": False}]}
    assert not within(busy, lambda driver, now: driver.is_paused("mail"))


def test_pausing_an_unused_queue_is_done_and_reported(busy: str):
    answer = taskharbor("queue", "pause", "mial", "--dsn", busy)
    assert (answer.code, answer.out) == (0, "mial is paused\n")
    assert "the queue mial holds no jobs yet" in answer.err
    answer = taskharbor("queue", "pause", "{x}", "--dsn", busy)
    assert "braces" in answer.line
    assert answer.code == 2


def test_stats(busy: str):
    found = taskharbor("stats", "--dsn", busy, "--output", "json").json
    assert list(found) == ["at", "queues", "workers"]
    (worker,) = found["workers"]
    assert list(worker) == [
        *("worker", "queues", "running", "concurrency", "stuck", "host", "pid", "started_at", "seen_at")
    ]
    assert (worker["worker"], worker["queues"], worker["running"]) == ("w1", ["mail"], 1)
    out = taskharbor("stats", "--dsn", busy).out
    assert "w1" in out
    assert "1/4" in out


def test_stats_again_and_again(busy: str):
    answer = program("stats", "--watch", "--interval", "0.1", "--count", "3", "--dsn", busy, "--output", "json")
    looks = [json.loads(line) for line in answer.out.splitlines()]
    assert (answer.code, len(looks)) == (0, 3)
    assert looks[0]["at"] < looks[2]["at"]
    answer = taskharbor("stats", "--watch", "--interval", "0.1", "--count", "2", "--dsn", busy)
    assert answer.out.count("QUEUE ") == 2


def test_flow_show(busy: str):
    found = taskharbor("flow", "show", "f1", "--dsn", busy, "--output", "json").json
    assert list(found) == [
        *("id", "status", "created_at", "updated_at", "done", "total", "jobs", "edges", "complete", "next")
    ]
    assert (found["status"], found["done"], found["total"], found["edges"]) == ("running", 0, 2, [["a", "b"]])
    assert [job["state"] for job in found["jobs"]] == ["ready", "blocked"]
    out = taskharbor("flow", "show", "f1", "--dsn", busy).out
    assert "0 of 2 done" in out
    tree = out.partition("\n\n")[2].splitlines()
    assert [line.split() for line in tree[:2]] == [["fetch", "ready", "0", "a"], ["└─", "parse", "blocked", "0", "b"]]


def test_flow_show_by_a_job_of_it(busy: str):
    assert taskharbor("flow", "show", "b", "--dsn", busy, "--output", "json").json["id"] == "f1"
    answer = taskharbor("flow", "show", "c", "--dsn", busy)
    assert (answer.code, answer.line) == (1, "taskharbor: job c does not belong to a flow")
    answer = taskharbor("flow", "show", "nope", "--dsn", busy)
    assert (answer.code, answer.line) == (1, "taskharbor: no flow and no job has the id nope")


def test_flow_show_as_mermaid(busy: str):
    out = taskharbor("flow", "show", "f1", "--dsn", busy, "--mermaid").out
    assert out.startswith("flowchart TD\n")
    assert "n0 --> n1" in out

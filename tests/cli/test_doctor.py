"""`taskharbor doctor`, `migrate`, `conformance`, `bench`: a store and whether it will do."""

import os
import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from taskharbor.drivers import Driver, JobRecord, WorkerInfo
from tests.cli.shell import kill, program, store, taskharbor, within
from tests.drivers.redis_stores import emptied
from tests.servers import redis
from tests.servers.postgres import shared


def checks(*arguments: str) -> tuple[int, dict[str, list[tuple[str, str]]]]:
    """The exit code, and by the name of the check what it says."""
    answer = taskharbor("doctor", *arguments, "--output", "json")
    found: dict[str, list[tuple[str, str]]] = {}
    for check in answer.json["checks"]:
        assert list(check) == ["check", "status", "text"]
        found.setdefault(check["check"], []).append((check["status"], check["text"]))
    assert answer.json["ok"] == (answer.code == 0)
    return answer.code, found


def test_a_store_that_is_well(dsn: str):
    store(dsn, JobRecord(id="j1", type="x"))

    async def beat(driver: Driver, now: datetime) -> None:
        await driver.beat(WorkerInfo(worker="w1", queues=("default",), running=0, started_at=now), now)

    within(dsn, beat)
    code, found = checks("--dsn", dsn)
    assert code == 0
    assert {status for told in found.values() for status, _ in told} == {"ok"}
    assert list(found) == ["version", "dsn", "library", "store", "clock", "answer", "workers", "queues"]
    out = taskharbor("doctor", "--dsn", dsn).out
    assert "SQLite 3." in out
    assert out.count("\n") == 8


def test_queues_that_need_attention_are_warnings(dsn: str):
    store(dsn, JobRecord(id="j1", type="x"), JobRecord(id="j2", type="x", queue="mail"))
    kill(dsn, "j1")

    async def act(driver: Driver, now: datetime) -> None:
        await driver.pause("sleepy")
        await driver.beat(WorkerInfo(worker="w1", queues=("default",), running=0, started_at=now), now)

    within(dsn, act)
    code, found = checks("--dsn", dsn)
    assert code == 0, "warnings are no problems"
    assert found["queues"] == [
        ("warning", "no worker serves mail, where jobs are ready"),
        ("warning", "paused: sleepy"),
        ("warning", "1 dead job; list them: taskharbor dlq list"),
    ]


def test_a_number_at_which_counting_stopped_is_no_exact_one(dsn: str, monkeypatch: pytest.MonkeyPatch):
    store(dsn, JobRecord(id="j1", type="x"), JobRecord(id="j2", type="x"))
    kill(dsn, "j1")
    monkeypatch.setattr("taskharbor.ops.overview.MAX_EXACT_JOBS", 1)
    assert checks("--dsn", dsn)[1]["queues"][-1] == ("warning", "1 dead job or more; list them: taskharbor dlq list")


def test_no_heartbeat_of_a_worker_is_a_warning(dsn: str):
    store(dsn, JobRecord(id="j1", type="x"))
    assert checks("--dsn", dsn)[1]["workers"][0][0] == "warning"


def test_a_clock_that_is_wrong(dsn: str, monkeypatch: pytest.MonkeyPatch):
    store(dsn, JobRecord(id="j1", type="x"))
    from taskharbor.drivers.sqlite import SqliteDriver

    real = SqliteDriver.server_time

    async def ahead(self: SqliteDriver) -> datetime:
        return await real(self) + timedelta(minutes=5)

    monkeypatch.setattr(SqliteDriver, "server_time", ahead)
    ((status, text),) = checks("--dsn", dsn)[1]["clock"]
    assert (status, "300.0 s ahead of this machine's" in text) == ("warning", True)


def test_a_problem_is_exit_1_and_the_other_checks_are_printed(dsn: str):
    code, found = checks("--dsn", dsn)
    assert code == 1
    assert found["store"][0][0] == "problem"
    assert found["version"][0][0] == "ok"
    code, found = checks("--dsn", "gopher://x")
    assert (code, found["store"][0][0]) == (1, "problem")


def test_the_address_is_printed_without_secrets_and_with_its_source(dsn: str):
    code, found = checks("--dsn", "postgresql://ada:secret@127.0.0.1:1/jobs?sslmode=require")
    assert code == 1
    assert found["dsn"] == [("ok", "postgresql://…@127.0.0.1:1/jobs?… (from --dsn)")]
    answer = taskharbor("doctor", environment={"TASKHARBOR_DSN": dsn})
    assert f"{dsn} (from $TASKHARBOR_DSN)" in answer.out


def test_a_driver_warns_when_it_is_opened():
    """The test server runs with fsync off, which the driver warns of."""
    address = shared().address(shared().database())
    assert program("migrate", "--dsn", address).code == 0  # a process warns once
    code, found = checks("--dsn", address)
    assert code == 0
    assert any(status == "warning" and "fsync is off" in text for status, text in found["store"])
    assert found["library"][0][1].startswith("psycopg 3.")


def test_a_warning_about_what_redis_may_lose():
    """The test server writes nothing to its disk, which the driver warns of."""
    server = redis.Server()  # one of its own: a process warns once of each
    try:
        code, found = checks("--dsn", server.url)
    finally:
        server.stop()
    assert code == 0
    assert any(status == "warning" and "appendonly" in text for status, text in found["store"])


def test_damage_by_other_programs_is_reported_with_a_remedy():
    url = emptied()
    store(url, *(JobRecord(id=f"j{number}", type="x", queue="mail") for number in range(5)))
    assert "damage" not in checks("--dsn", url)[1]
    with redis.shared().client() as client:
        client.delete("{mail}:job:j1")
        client.set("{mail}:job:j1", "what is this")
        client.hset("{mail}:job:j2", "attempt", "many")
        client.lrem("{mail}:wait", 1, "j3")
        client.zadd("{mail}:th:returned", {"a message": 0})
        client.set("{mail}:delayed", "nor this")

        async def work(driver: Driver, now: datetime) -> None:
            await driver.reserve(["mail"], now, timedelta(seconds=30), 10)
            await driver.prune(now, 10)

        within(url, work)
        code, found = checks("--dsn", url)
        assert code == 0, "warnings are no problems"
        assert {status for status, _ in found["damage"]} == {"warning"}
        kept, restored, aside, returned = [text for _, text in found["damage"]]
        assert kept.startswith("queue mail: 2 key(s) that another program wrote over were moved out of the way: ")
        assert "{mail}:th:damaged:job:j1 (a string)" in kept
        assert "{mail}:th:damaged:delayed (a string)" in kept
        assert restored.startswith("queue mail: 1 job(s) were in no list or set and were put back in the last day; ")
        assert aside.startswith("queue mail: 2 damaged record(s) were set aside in the last day: taskharbor dlq list ")
        assert returned.startswith("queue mail: 1 message(s) to other queues cannot be delivered, ")

        client.delete("{mail}:th:damaged:job:j1", "{mail}:th:damaged:delayed", "{mail}:th:returned", "{th}:swept")
        client.hset("{mail}:th:mended", "at", 1)
        assert "damage" not in checks("--dsn", url)[1], "an operator has seen it, and a day has passed"
        within(url, work)
        assert not client.exists("{mail}:th:damaged")


def test_doctor_on_memory():
    code, found = checks("--dsn", "memory://")
    assert (code, found["store"][0][0]) == (0, "warning")


def test_an_app_that_can_run_nothing_and_jobs_that_nobody_can_run(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(tmp_path)
    source = f"from taskharbor import Harbor\nempty = Harbor({dsn!r})\nfull = Harbor({dsn!r})\n"
    (tmp_path / "doctored.py").write_text(source + "@full.task(name='known')\ndef known(): ...\n")
    jobs = [JobRecord(id=f"j{number}", type=f"shop.jobs.n{number}") for number in range(7)]
    store(dsn, JobRecord(id="j", type="known"), *jobs)
    code, found = checks("--app", "doctored:empty")
    assert (code, found["app"][0][0]) == (0, "warning")
    assert "its workers can run nothing" in found["app"][0][1]
    assert found["workers"] == [("warning", "no worker ever used this store; start one: taskharbor worker run")]
    _, found = checks("--app", "doctored:full")
    assert found["app"] == [("ok", "doctored:full declares 1 task")]
    ((status, text),) = found["tasks"]
    assert status == "warning"
    assert "does not declare: shop.jobs.n0, shop.jobs.n1, shop.jobs.n2, shop.jobs.n3, shop.jobs.n4 and 2 more" in text


# Migrate


def test_migrate_creates_a_schema_and_may_be_run_again(dsn: str):
    for _ in range(2):
        answer = taskharbor("migrate", "--dsn", dsn)
        assert (answer.code, answer.out) == (0, "the schema is up to date\n")
    assert taskharbor("migrate", "--dsn", dsn, "--output", "json").json == {"schema": "up to date"}
    assert os.path.exists(dsn.removeprefix("sqlite:///"))


def test_the_sql_for_sqlite_is_what_a_store_needs(dsn: str):
    sql = taskharbor("migrate", "--dsn", dsn, "--sql").out
    path = dsn.removeprefix("sqlite:///")
    assert not os.path.exists(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(sql)
    assert taskharbor("enqueue", "--dsn", f"{dsn}?migrate=manual", "--job", "x").code == 0
    assert taskharbor("migrate", "--dsn", dsn, "--sql", "--from", "99").out == "-- nothing to do\n"


def test_the_sql_for_postgres_is_what_a_store_needs():
    import psycopg

    address = shared().address(shared().database())
    refused = taskharbor("enqueue", "--dsn", f"{address}?migrate=manual", "--job", "x")
    assert (refused.code, "taskharbor migrate" in refused.line) == (3, True)
    sql = taskharbor("migrate", "--dsn", f"{address}?schema=jobs", "--sql").out
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(sql.encode())
    assert taskharbor("enqueue", "--dsn", f"{address}?schema=jobs&migrate=manual", "--job", "x").code == 0


# Conformance


def test_conformance_passes_on_memory():
    answer = program("conformance", "--dsn", "memory://", "--theme", "pause")
    assert (answer.code, answer.err) == (0, "")
    assert "0 failed" in answer.out
    found = taskharbor("conformance", "--dsn", "memory://", "--theme", "pause", "--output", "json").json
    assert list(found) == ["ok", "passed", "failed", "skipped", "not_offered", "cases"]
    assert (found["ok"], found["passed"]) == (True, len(found["cases"]))
    assert list(found["cases"][0]) == ["theme", "title", "verdict", "text"]


def test_conformance_does_not_count_a_feature_that_is_not_offered_as_passed(monkeypatch: pytest.MonkeyPatch):
    from taskharbor.drivers import Driver
    from taskharbor.drivers.memory import MemoryDriver

    monkeypatch.setattr(MemoryDriver, "list_audit", Driver.list_audit)
    found = taskharbor("conformance", "--dsn", "memory://", "--theme", "audit", "--output", "json").json
    assert (found["passed"], found["not_offered"]) == (0, len(found["cases"]))
    assert {case["verdict"] for case in found["cases"]} == {"not offered"}


def test_conformance_refuses_a_store_that_is_not_empty(dsn: str):
    store(dsn, JobRecord(id="j1", type="x"))
    answer = taskharbor("conformance", "--dsn", dsn, "--theme", "pause")
    assert (answer.code, "not empty" in answer.line) == (2, True)
    beside = taskharbor("conformance", "--dsn", dsn, "--theme", "pause", "--namespace", "beside-")
    assert beside.code == 0
    assert within(dsn, lambda driver, now: driver.inspect("j1", now)).job.id == "j1"


def test_conformance_wants_an_address_and_a_theme_that_exists():
    assert "--dsn" in taskharbor("conformance").line
    answer = taskharbor("conformance", "--dsn", "memory://", "--theme", "nope")
    assert (answer.code, "nope" in answer.line) == (2, True)


def test_conformance_that_fails_is_exit_1(monkeypatch: pytest.MonkeyPatch):
    from taskharbor.drivers.memory import MemoryDriver

    async def never(self: MemoryDriver, queue: str) -> None: ...

    monkeypatch.setattr(MemoryDriver, "pause", never)
    answer = taskharbor("conformance", "--dsn", "memory://", "--theme", "pause")
    assert answer.code == 1
    assert "FAILED" in answer.out


# Bench


def test_bench_leaves_nothing_behind(dsn: str):
    store(dsn, JobRecord(id="j1", type="x"))
    answer = taskharbor("bench", "--dsn", dsn, "--jobs", "20", "--output", "json")
    assert answer.code == 0, answer.err
    assert list(answer.json) == ["jobs", "enqueue_one", "enqueue_many", "run", "pickup_p50", "pickup_p99"]
    assert all(value > 0 for value in answer.json.values())
    assert within(dsn, lambda driver, now: driver.counts(now)) == {"default": {"ready": 1}}


def test_bench_for_people():
    answer = taskharbor("bench", "--jobs", "20", "--dsn", "memory://")
    assert answer.out.count("jobs per second") == 3
    assert "(p99)" in answer.out

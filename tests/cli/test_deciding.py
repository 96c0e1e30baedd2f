"""`taskharbor dlq`, `taskharbor job`: deciding over jobs, and asking before it hurts."""

from datetime import UTC, datetime, timedelta

import pytest

from taskharbor.drivers import JobInfo, JobRecord, State
from tests.cli.shell import Answer, at_terminal, kill, reserve, store, taskharbor, within


def look(dsn: str, id: str) -> JobInfo:
    return within(dsn, lambda driver, now: driver.inspect(id, now))


@pytest.fixture
def dead(dsn: str) -> str:
    """A store with three dead jobs, d1 and d2 in `default`, d3 in `mail`, and one that waits."""
    store(
        dsn,
        JobRecord(id="d1", type="x", max_attempts=3),
        JobRecord(id="d2", type="y"),
        JobRecord(id="d3", type="x", queue="mail"),
        JobRecord(id="r1", type="x", queue="other"),
    )
    kill(dsn, "d1", "d2", reason="failed 1 of 1 attempts", error="ValueError: the card was refused\n  at x.py")
    kill(dsn, "d3", queue="mail")
    return dsn


# The dead letter queue


def test_dlq_list_says_why(dead: str):
    answer = taskharbor("dlq", "list", "--dsn", dead)
    head, *rows = answer.out.splitlines()
    assert head.split() == ["ID", "TYPE", "QUEUE", "TRIES", "DIED", "REASON"]
    assert len(rows) == 3
    assert rows[0].endswith("failed 1 of 1 attempts: ValueError: the card was refused")
    jobs = taskharbor("dlq", "list", "--dsn", dead, "--queue", "mail", "--output", "json").json["jobs"]
    assert [job["id"] for job in jobs] == ["d3"]
    assert jobs[0]["last_error"] == "ValueError: no"
    assert [
        j["id"] for j in taskharbor("dlq", "list", "--dsn", dead, "--type", "y", "--output", "json").json["jobs"]
    ] == ["d2"]


def test_a_reason_that_the_error_repeats_is_printed_once(dsn: str):
    store(dsn, JobRecord(id="d1", type="x"))
    kill(dsn, "d1", reason="no such address", error="Unrecoverable: no such address\n  at x.py")
    (_, row) = taskharbor("dlq", "list", "--dsn", dsn).out.splitlines()
    assert row.split("ago")[1].strip() == "Unrecoverable: no such address"


def test_dlq_list_has_pages(dead: str):
    answer = taskharbor("dlq", "list", "--dsn", dead, "--limit", "2", "--output", "json").json
    rest = taskharbor("dlq", "list", "--dsn", dead, "--cursor", answer["cursor"], "--output", "json").json
    assert [job["id"] for job in answer["jobs"] + rest["jobs"]] == ["d1", "d2", "d3"]
    assert "--cursor" in taskharbor("dlq", "list", "--dsn", dead, "--cursor", "x").line


def test_requeue_gives_all_attempts_again_unless_asked_not_to(dead: str):
    answer = taskharbor("dlq", "requeue", "d1", "--dsn", dead)
    assert (answer.code, answer.out) == (0, "d1 was requeued\n")
    assert (look(dead, "d1").state, look(dead, "d1").job.attempts) == (State.READY, 0)
    assert taskharbor("dlq", "requeue", "d2", "--dsn", dead, "--keep-attempts").code == 0
    assert (look(dead, "d2").state, look(dead, "d2").job.attempts) == (State.READY, 1)


def test_requeue_tells_which_were_refused(dead: str):
    answer = taskharbor("dlq", "requeue", "d1", "r1", "nope", "--dsn", dead)
    assert (answer.code, answer.out) == (1, "d1 was requeued\n")
    assert [line.partition(":")[0] for line in answer.err.splitlines()] == ["taskharbor", "taskharbor"]
    answer = taskharbor("dlq", "requeue", "d1", "d2", "--dsn", dead, "--output", "json")
    assert answer.code == 1
    assert answer.json["done"] == ["d2"]
    assert answer.json["refused"][0]["id"] == "d1"
    assert answer.err == ""


def test_requeue_all(dead: str):
    answer = taskharbor("dlq", "requeue", "--all", "--queue", "mail", "--yes", "--dsn", dead)
    assert (answer.code, answer.out) == (0, "1 job was requeued\n")
    assert look(dead, "d1").state is State.DLQ
    answer = taskharbor("dlq", "requeue", "--all", "--yes", "--dsn", dead, "--output", "json")
    assert (answer.json["operation"]["status"], answer.json["operation"]["done"]) == ("done", 2)
    assert {look(dead, id).state for id in ("d1", "d2", "d3")} == {State.READY}
    assert taskharbor("dlq", "requeue", "--all", "--yes", "--dsn", dead).out == "0 jobs were requeued\n"


@pytest.mark.parametrize("arguments", [[], ["d1", "--all"], ["d1", "--queue", "mail"], ["d1", "--type", "x"]])
def test_requeue_wants_ids_or_all(dead: str, arguments: list[str]):
    answer = taskharbor("dlq", "requeue", *arguments, "--dsn", dead)
    assert "dlq requeue:" in answer.line
    assert answer.code == 2
    assert look(dead, "d1").state is State.DLQ


# Retry


def retry(dsn: str, *arguments: str) -> Answer:
    return taskharbor("job", "retry", *arguments, "--dsn", dsn)


def test_retry_takes_dead_and_cancelled(dead: str):
    within(dead, lambda driver, now: driver.cancel(["r1"], now))
    answer = retry(dead, "d1", "r1")
    assert (answer.code, answer.out) == (0, "2 jobs were made ready\n")
    assert {look(dead, id).state for id in ("d1", "r1")} == {State.READY}


def test_retry_makes_a_scheduled_job_due_now_and_keeps_what_it_is(dsn: str):
    store(dsn, JobRecord(id="j1", type="x", max_attempts=9, idempotency_key="k", priority=3))
    (held,) = reserve(dsn)
    later = datetime.now(UTC) + timedelta(hours=1)
    within(dsn, lambda driver, now: driver.retry(held.lease, now, later, attempts=4, last_error="ValueError: no"))
    assert retry(dsn, "j1", "--keep-attempts").code == 0
    info = look(dsn, "j1")
    assert (info.state, info.job.attempts, info.job.last_error) == (State.READY, 4, "ValueError: no")
    assert (info.job.run_at, info.job.idempotency_key, info.job.priority, info.job.reason) == (None, "k", 3, "")


def test_retry_of_a_scheduled_job_gives_all_attempts_again(dsn: str):
    store(dsn, JobRecord(id="j1", type="x", run_at=datetime.now(UTC) + timedelta(hours=1), attempts=2))
    assert retry(dsn, "j1").code == 0
    assert (look(dsn, "j1").state, look(dsn, "j1").job.attempts) == (State.READY, 0)


def test_retry_lets_a_job_be_that_is_due_in_a_moment(dsn: str):
    soon = datetime.now(UTC) + timedelta(seconds=4)
    store(dsn, JobRecord(id="j1", type="x", run_at=soon, attempts=1))
    assert retry(dsn, "j1").code == 0
    assert look(dsn, "j1").state in (State.SCHEDULED, State.READY)
    assert look(dsn, "j1").job.run_at is not None, "it was cancelled and brought back, which would have cleared it"


def test_retry_refuses_what_need_not_be_retried(dsn: str):
    store(
        dsn,
        JobRecord(id="done", type="x", queue="mail"),
        JobRecord(id="running", type="x", queue="busy"),
        JobRecord(id="ready", type="x"),
        JobRecord(id="blocked", type="x", depends_on=("ready",)),
    )
    (held,) = reserve(dsn, "mail")
    within(dsn, lambda driver, now: driver.ack(held.lease, now))
    reserve(dsn, "busy")
    answer = retry(dsn, "done", "running", "ready", "blocked", "nope")
    assert (answer.code, answer.out) == (1, "")
    words = ["is done", "is running", "is already ready", "waits for other jobs", "no job nope"]
    assert all(word in line for word, line in zip(words, answer.err.splitlines(), strict=True))


# Cancel


def test_cancel(dead: str):
    answer = taskharbor("job", "cancel", "r1", "--yes", "--dsn", dead)
    assert (answer.code, answer.out) == (0, "r1 was cancelled\n")
    assert look(dead, "r1").state is State.CANCELLED
    answer = taskharbor("job", "cancel", "r1", "d1", "nope", "--yes", "--dsn", dead, "--output", "json")
    assert answer.code == 1
    assert answer.json["done"] == ["r1"]
    assert [refused["id"] for refused in answer.json["refused"]] == ["d1", "nope"]


# Asking


@pytest.mark.parametrize("command", [["job", "cancel", "r1"], ["dlq", "requeue", "--all"]])
def test_nobody_there_to_ask(dead: str, command: list[str]):
    answer = taskharbor(*command, "--dsn", dead)
    assert "pass --yes" in answer.line
    assert answer.code == 2
    assert (look(dead, "r1").state, look(dead, "d1").state) == (State.READY, State.DLQ)


@pytest.mark.parametrize(("typed", "code", "state"), [(b"n\n", 1, State.READY), (b"y\n", 0, State.CANCELLED)])
def test_a_person_is_asked(dead: str, typed: bytes, code: int, state: State):
    ended, seen = at_terminal("job", "cancel", "r1", "--dsn", dead, columns=80, answer=typed)
    assert ended == code
    assert "Cancel job r1?" in seen
    assert ("nothing was changed" in seen) == (code == 1)
    assert look(dead, "r1").state is state

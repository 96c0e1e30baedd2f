"""`job attempts`, and what `inspect` says of executions, progress and times."""

from datetime import UTC, datetime, timedelta

import pytest

from taskharbor.cli.commands.list import tries
from taskharbor.drivers import Driver, JobInfo, JobRecord, State
from taskharbor.model.executions import Attempt, AttemptKind, write_trail
from taskharbor.model.outcome import Ack, Fail, Retry
from taskharbor.model.progress import Progress, write_note
from taskharbor.ops.job_view import times_of
from tests.cli.shell import MINUTE, at_terminal, store, taskharbor, within

SECRET = "canary-4711"
T = datetime(2030, 1, 1, tzinfo=UTC)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def attempt(number: int, kind: AttemptKind = AttemptKind.FAILED, **fields: str) -> Attempt:
    began = T + seconds(10 * number)
    return Attempt(number=number, kind=kind, worker=f"w{number}", began_at=began, ended_at=began + seconds(2), **fields)


@pytest.fixture
def dead(any_dsn: str) -> str:
    """A store with a job that failed twice, lost a worker in between, reported progress, and is dead."""
    store(any_dsn, JobRecord(id="j1", type="mail", payload=f'{{"to": "{SECRET}"}}'.encode(), max_attempts=2))
    first = attempt(1, error_class="ValueError", error=f"ValueError: no {SECRET}\n  File x.py", fingerprint="f1")
    third = attempt(3, error_class="KeyError", error=f"KeyError: {SECRET!r}", fingerprint="f3")

    async def work(driver: Driver, now: datetime) -> None:
        (held,) = await driver.reserve(["default"], now, MINUTE, 1, "w1")
        await driver.settle([Retry(held.lease, None, 1, first.error, now, trail=write_trail([first]))], now)
        (held,) = await driver.reserve(["default"], now, MINUTE, 1, "w2")
        await driver.release("w2", now)
        (held,) = await driver.reserve(["default"], now, MINUTE, 1, "w3")
        note = write_note(Progress(done=3, total=12, note=f"pages of {SECRET}", at=now))
        await driver.extend([held.lease], now, MINUTE, notes={held.lease.token: note})
        trail = write_trail([first, attempt(2, AttemptKind.LOST), third])
        await driver.settle(
            [
                Fail(
                    held.lease,
                    "failed 2 of 2 attempts",
                    2,
                    now,
                    third.error,
                    error_class="KeyError",
                    fingerprint="f3",
                    trail=trail,
                )
            ],
            now,
        )

    within(any_dsn, work)
    return any_dsn


def test_every_execution_with_its_end_and_error(dead: str):
    found = taskharbor("job", "attempts", "j1", "--dsn", dead, "--output", "json").json
    assert list(found) == ["id", "missing", "attempts"]
    assert (found["id"], found["missing"]) == ("j1", 0)
    rows = found["attempts"]
    assert list(rows[0]) == [
        *("number", "kind", "worker", "began_at", "ended_at", "seconds", "error_class", "error", "fingerprint")
    ]
    assert [(row["number"], row["kind"], row["worker"], row["seconds"]) for row in rows] == [
        (1, "failed", "w1", 2.0),
        (2, "lost", "w2", 2.0),
        (3, "failed", "w3", 2.0),
    ]
    assert [row["error"] for row in rows] == ["ValueError: no •••\n  File x.py", None, "KeyError: '•••'"]
    head, *lines = taskharbor("job", "attempts", "j1", "--dsn", dead).out.splitlines()
    assert head.split() == ["#", "KIND", "BEGAN", "TOOK", "WORKER", "ERROR"]
    assert lines[0].endswith("w1      ValueError: no •••")
    assert SECRET in taskharbor("job", "attempts", "j1", "--dsn", dead, "--show-payload").out


def test_inspect_shows_them_with_progress_and_times(dead: str):
    found = taskharbor("inspect", "j1", "--dsn", dead, "--output", "json").json
    assert [row["kind"] for row in found["executions"]] == ["failed", "lost", "failed"]
    assert (found["error_class"], found["fingerprint"], found["ran_on"], found["edits"]) == ("KeyError", "f3", "w3", 0)
    assert (found["progress"]["done"], found["progress"]["total"], found["progress"]["note"]) == (3, 12, "pages of •••")
    answer = taskharbor("job", "show", "j1", "--dsn", dead)
    assert SECRET not in answer.out
    assert "3 of 12 (pages of •••)" in answer.out
    assert "2 of 2, 2 failed" in answer.out
    assert "KeyError: '•••'" in answer.out
    again = taskharbor("job", "show", "j1", "--dsn", dead, "--output", "json").json
    assert again | {"ran_seconds": None} == found | {"ran_seconds": None}


def test_executions_of_which_nothing_is_kept_are_counted(any_dsn: str):
    store(any_dsn, JobRecord(id="j1", type="x"))

    async def work(driver: Driver, now: datetime) -> None:
        for _ in range(3):
            (held,) = await driver.reserve(["default"], now, MINUTE, 1, "w1")
            await driver.settle([Retry(held.lease, None, 0)], now)
        (held,) = await driver.reserve(["default"], now, MINUTE, 1, "w2")
        await driver.settle([Ack(held.lease)], now)

    within(any_dsn, work)
    found = taskharbor("job", "attempts", "j1", "--dsn", any_dsn, "--output", "json").json
    assert (found["missing"], [(row["number"], row["kind"]) for row in found["attempts"]]) == (3, [(4, "done")])
    assert "3 more of which no record is kept" in taskharbor("job", "attempts", "j1", "--dsn", any_dsn).out


def test_a_job_that_has_not_run(dsn: str):
    store(dsn, JobRecord(id="j1", type="x"))
    assert taskharbor("job", "attempts", "j1", "--dsn", dsn).out == "job j1 has not run yet\n"
    found = taskharbor("job", "attempts", "j1", "--dsn", dsn, "--output", "json").json
    assert found == {"id": "j1", "missing": 0, "attempts": []}


def test_on_a_terminal_errors_stand_below_their_rows_and_fit(dsn: str):
    store(dsn, JobRecord(id="j1", type="x"))
    long = "ValueError: " + "very " * 40 + "long"

    async def work(driver: Driver, now: datetime) -> None:
        (held,) = await driver.reserve(["default"], now, MINUTE, 1, "host:1234:abcdef")
        told = Attempt(
            number=1, kind=AttemptKind.FAILED, worker="host:1234:abcdef", began_at=now, ended_at=now, error=long
        )
        await driver.settle([Fail(held.lease, "no", 1, now, long, trail=write_trail([told]))], now)

    within(dsn, work)
    code, seen = at_terminal("job", "attempts", "j1", "--dsn", dsn, columns=80, NO_COLOR="1")
    assert code == 0
    assert all(len(line) <= 80 for line in seen.splitlines())
    assert seen.splitlines()[2].startswith("  ValueError: very very")


def info(state: State, *, trail: bytes = b"", **fields: object) -> JobInfo:
    record = JobRecord(id="j1", type="x", created_at=T, trail=trail, **fields)  # type: ignore[arg-type]  # a field's
    return JobInfo(record, state)


def test_times():
    now = T + seconds(100)
    waiting = info(State.READY)
    assert times_of(waiting, now).waited == seconds(100)
    assert times_of(waiting, now).ran is None
    assert times_of(info(State.SCHEDULED, run_at=T + seconds(500)), now).waited is None
    running = info(State.INFLIGHT, deliveries=1, began_at=T + seconds(30), run_at=T + seconds(20))
    assert (times_of(running, now).waited, times_of(running, now).ran) == (seconds(10), seconds(70))
    done = info(State.DONE, deliveries=1, began_at=T + seconds(30), finished_at=T + seconds(31))
    assert (times_of(done, now).waited, times_of(done, now).ran) == (seconds(30), seconds(1))
    again = info(State.SCHEDULED, deliveries=1, attempts=1, trail=write_trail([attempt(1)]), run_at=T + seconds(500))
    assert (times_of(again, now).waited, times_of(again, now).ran) == (None, seconds(2))
    second = info(State.INFLIGHT, deliveries=2, attempts=1, trail=write_trail([attempt(1)]), began_at=T + seconds(15))
    assert times_of(second, now).waited == seconds(3), "from the end of the execution before"
    assert times_of(info(State.DONE, deliveries=1), now).waited is None, "the store does not know when it began"


@pytest.mark.parametrize(
    ("state", "attempts", "expected"),
    [
        (State.READY, 0, "0/5"),
        (State.INFLIGHT, 0, "1/5"),
        (State.DONE, 0, "1/5"),
        (State.DONE, 2, "3/5"),
        (State.SCHEDULED, 1, "1/5"),
        (State.DLQ, 5, "5/5"),
        (State.CANCELLED, 0, "0/5"),
    ],
)
def test_tries_are_what_a_person_counts(state: State, attempts: int, expected: str):
    assert tries(info(state, attempts=attempts, max_attempts=5)) == expected

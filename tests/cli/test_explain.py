"""`taskharbor explain`: the reason that counts comes first, in words and as a code."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from taskharbor import Harbor
from taskharbor.cli.lazy import load
from taskharbor.drivers import Driver, JobInfo, JobRecord, Retry, State, WorkerInfo
from taskharbor.store.diagnose import reasons
from taskharbor.store.situation import Situation
from tests.cli.shell import Answer, kill, reserve, store, taskharbor, within

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LATER = datetime.now(UTC) + timedelta(hours=1)


def explain(dsn: str, id: str = "j1") -> tuple[list[str], str]:
    """The codes, and the text that a person reads."""
    answer = taskharbor("explain", "--dsn", dsn, id, "--output", "json")
    assert answer.code == 0, answer.err
    assert list(answer.json) == ["id", "type", "queue", "state", "schedule", "slot", "reasons"]
    return [reason["code"] for reason in answer.json["reasons"]], taskharbor("explain", "--dsn", dsn, id).out


def serve(dsn: str, *, running: int = 0, queue: str = "default") -> None:
    """Have a worker with two slots say that it is alive."""

    async def beat(driver: Driver, now: datetime) -> None:
        info = WorkerInfo(worker="w1", queues=(queue,), running=running, started_at=now, concurrency=2, seen_at=now)
        await driver.beat(info, now)

    within(dsn, beat)


def test_nothing_holds_it_up(dsn: str):
    store(dsn, JobRecord(id="j1", type="x"), JobRecord(id="j2", type="x"))
    serve(dsn)
    codes, text = explain(dsn)
    assert codes == ["next"]
    assert "a worker will take it in turn; it is the next of its queue" in text
    assert "a worker will take it in turn; 1 job of its queue comes first" in explain(dsn, "j2")[1]


def test_it_counts_no_jobs_of_the_store(dsn: str, monkeypatch: pytest.MonkeyPatch):
    """The number of queues, and of jobs in them, makes no difference to what it reads."""
    store(dsn, *(JobRecord(id=f"j{n}", type="x", queue=f"q{n % 3}", group="g" if n % 2 else None) for n in range(120)))
    store(dsn, *(JobRecord(id=f"k{n:03}", type="x", queue="long") for n in range(120)))

    async def counted(*_: object) -> None:
        raise AssertionError("every queue of the store was counted")

    monkeypatch.setattr("taskharbor.drivers.sqlite.SqliteDriver.counts", counted)
    assert explain(dsn)[0] == ["never_served"]
    serve(dsn, queue="long")
    assert explain(dsn)[0] == ["no_worker"]
    assert "40 jobs of its queue come first" in explain(dsn, "k040")[1]
    assert "100 or more jobs of its queue come first" in explain(dsn, "k110")[1]


def test_no_worker_serves_it(dsn: str):
    store(dsn, JobRecord(id="j1", type="x"))
    serve(dsn, queue="other")
    codes, text = explain(dsn)
    assert codes == ["no_worker"]
    assert "the running workers serve other" in text
    assert "taskharbor worker run --app MODULE:NAME --queues default" in text


def test_all_workers_are_busy(dsn: str):
    store(dsn, JobRecord(id="j1", type="x"))
    serve(dsn, running=2)
    assert explain(dsn)[0] == ["workers_busy"]


def test_its_queue_is_paused(dsn: str):
    store(dsn, JobRecord(id="j1", type="x"))
    serve(dsn)
    within(dsn, lambda driver, now: driver.pause("default"))
    codes, text = explain(dsn)
    assert codes == ["paused"]
    assert "taskharbor queue resume default" in text


def test_its_group_is_full(dsn: str):
    store(dsn, *(JobRecord(id=f"j{n}", type="x", group="g", group_limit=2) for n in (1, 2, 3)))
    serve(dsn)
    reserve(dsn, limit=2)
    codes, text = explain(dsn, "j3")
    assert codes == ["group_full"]
    assert "2 of 2 running (j1, j2)" in text


def test_a_group_with_room_holds_nobody_up(dsn: str):
    store(dsn, *(JobRecord(id=f"j{n}", type="x", group="g", group_limit=2) for n in (1, 2, 3)))
    serve(dsn)
    reserve(dsn, limit=1)
    assert explain(dsn, "j3")[0] == ["next"]


def test_it_is_not_due(dsn: str):
    store(dsn, JobRecord(id="j1", type="x", run_at=LATER))
    codes, text = explain(dsn)
    assert codes == ["not_due", "never_served"]
    assert "taskharbor job retry j1" in text


def test_it_waits_for_a_retry(dsn: str):
    store(dsn, JobRecord(id="j1", type="x", max_attempts=5, payload=b'{"to": "canary-4711"}'))
    (held,) = reserve(dsn)
    error = "ConnectionError: canary-4711 is away"
    within(dsn, lambda driver, now: driver.retry(held.lease, now, LATER, attempts=2, last_error=error))
    codes, text = explain(dsn)
    assert codes[0] == "retry_not_due"
    assert "failed 2 of 5 times" in text
    assert "ConnectionError: ••• is away" in text


def test_it_was_given_back(dsn: str):
    store(dsn, JobRecord(id="j1", type="strange"))
    (held,) = reserve(dsn)
    within(dsn, lambda driver, now: driver.retry(held.lease, now, LATER, attempts=0))
    codes, text = explain(dsn)
    assert codes[0] == "given_back"
    assert "handler for 'strange'" in text


def test_it_is_blocked_the_dead_first(dsn: str):
    store(
        dsn,
        JobRecord(id="j1", type="x", depends_on=("w", "d", "c"), flow_id="f"),
        JobRecord(id="w", type="x", flow_id="f", queue="slow"),
        JobRecord(id="d", type="y", flow_id="f"),
        JobRecord(id="c", type="z", flow_id="other", queue="slow"),  # what is cancelled in its own flow takes it along
    )
    kill(dsn, "d")
    within(dsn, lambda driver, now: driver.cancel(["c"], now))
    codes, text = explain(dsn)
    assert set(codes[:2]) == {"blocked_by_dead", "blocked_by_cancelled"}
    assert codes[2] == "blocked"
    assert "taskharbor dlq requeue d" in text
    assert "job w (x), which is ready" in text


def test_it_is_blocked_by_more_than_can_be_named(dsn: str):
    others = [JobRecord(id=f"d{n:03}", type="x", flow_id="f", queue="slow") for n in range(30)]
    join = JobRecord(id="j1", type="x", depends_on=tuple(job.id for job in others), flow_id="f")
    store(dsn, join, *others)
    codes, text = explain(dsn)
    assert codes[:6] == ["blocked"] * 6
    assert "and for 25 more jobs" in text


def test_a_worker_has_it(dsn: str):
    store(dsn, JobRecord(id="j1", type="x"))
    reserve(dsn, worker="north:7")
    codes, text = explain(dsn)
    assert codes == ["leased"]
    assert "worker north:7 holds its lease" in text


def test_it_has_ended(dsn: str):
    store(dsn, *(JobRecord(id=id, type="x") for id in ("done", "dead", "gone")))
    within(dsn, lambda driver, now: driver.cancel(["gone"], now))
    kill(dsn, "dead", reason="failed 1 of 1 attempts", error="KeyError: 'rate'")
    (held,) = reserve(dsn)
    within(dsn, lambda driver, now: driver.ack(held.lease, now))
    assert explain(dsn, "done")[0] == ["done"]
    codes, text = explain(dsn, "dead")
    assert codes == ["dlq"]
    assert "failed 1 of 1 attempts: KeyError: 'rate'" in text
    assert "taskharbor dlq requeue dead" in text
    codes, text = explain(dsn, "gone")
    assert codes == ["cancelled"]
    assert "taskharbor job retry gone" in text


def test_unknown(dsn: str):
    store(dsn, JobRecord(id="j1", type="x"))
    answer: Answer = taskharbor("explain", "--dsn", dsn, "nope")
    assert (answer.code, answer.line) == (1, "taskharbor: no job nope")


def test_a_dependency_without_a_record():
    info = JobInfo(JobRecord(id="j1", type="x"), State.BLOCKED, waiting_for=("gone",))
    found = reasons(Situation(info, NOW, gone=("gone",)))
    assert [reason.code for reason in found] == ["blocked", "no_worker"]


def test_every_code_is_listed_in_the_help():
    source = load("explain").help or ""
    listed = set(re.findall(r"[a-z_]+", source[source.index("one of") :].partition(".")[0])) - {"one", "of"}
    import taskharbor.store.diagnose as module

    written = set(re.findall(r'Diagnosis\(\s*"(\w+)"', Path(module.__file__).read_text()))
    assert listed == written - {"attempts", "flow", "served"}  # which are about a requeue


@pytest.mark.parametrize("paused", [True, False])
def test_a_queue_that_is_paused_comes_before_the_lack_of_workers(paused: bool):
    info = JobInfo(JobRecord(id="j1", type="x"), State.READY)
    codes = [reason.code for reason in reasons(Situation(info, NOW, paused=paused))]
    assert codes == (["paused", "no_worker"] if paused else ["no_worker"])


def test_no_worker_ever_used_this_store(dsn: str):
    """The usual beginning: a job in the store of this folder, and the workers at work on another."""
    store(dsn, JobRecord(id="j1", type="shop.mail"))
    codes, text = explain(dsn)
    assert codes == ["never_served"]
    assert f"no worker ever used this store ({dsn})" in text
    assert "taskharbor worker run --app MODULE:NAME --queues default" in text


def test_a_trace_of_a_worker_is_enough(dsn: str):
    store(dsn, JobRecord(id="j1", type="x"), JobRecord(id="j2", type="x", queue="other"))
    (held,) = reserve(dsn, "other")
    within(dsn, lambda driver, now: driver.ack(held.lease, now))
    assert explain(dsn)[0] == ["no_worker"]


def test_the_last_worker_that_served_the_queue_is_named(dsn: str):
    store(dsn, JobRecord(id="j1", type="x"))

    async def beat(driver: Driver, now: datetime) -> None:
        before = now - timedelta(minutes=90)
        info = WorkerInfo(worker="w1", queues=("default",), running=0, started_at=before, seen_at=before)
        await driver.beat(info, before)

    within(dsn, beat)
    codes, text = explain(dsn)
    assert codes == ["no_worker"]
    assert "the last one to do so sent its last heartbeat 1h 30m ago" in text


def test_a_stopped_worker_is_named_with_the_time_of_its_stop(dsn: str):
    Harbor(dsn).worker().run(until_empty=True)
    store(dsn, JobRecord(id="j1", type="x"))
    codes, text = explain(dsn)
    assert codes == ["no_worker"]
    assert re.search(r"; the last one to do so stopped [\d.]+m?s ago", text)


def test_the_app_does_not_declare_it(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "explained.py").write_text(
        f"from taskharbor import Harbor\nharbor = Harbor({dsn!r})\n@harbor.task(name='known')\ndef known(): ...\n"
    )
    store(dsn, JobRecord(id="j1", type="shop.jobs.mail"), JobRecord(id="j2", type="known"))
    unserved = taskharbor("explain", "j1", "--app", "explained:harbor").out
    assert (unserved.count("\n  - "), unserved.count("try: taskharbor worker run")) == (2, 1)  # two reasons, one remedy
    serve(dsn)
    answer = taskharbor("explain", "j1", "--app", "explained:harbor").out
    assert "explained:harbor declares no task 'shop.jobs.mail': its workers give the job back every time" in answer
    assert "try: taskharbor worker run --app explained:harbor --import shop.jobs --queues default" in answer
    known = taskharbor("explain", "j2", "--app", "explained:harbor", "--output", "json").json
    assert [reason["code"] for reason in known["reasons"]] == ["next"]


def test_a_sleeper_says_in_which_step_until_when():
    job = JobRecord(id="j1", type="x", run_at=NOW + timedelta(hours=2), deliveries=1, has_memos=True)
    info = JobInfo(job, State.SCHEDULED)
    found, *_ = reasons(Situation(info, NOW, asleep=("cool-off", NOW + timedelta(hours=1))))
    assert found.code == "asleep"
    assert found.text.startswith("it sleeps in step 'cool-off' until 2030-01-01 01:00")
    assert not found.hint


def test_what_a_sleeper_stored_is_read(dsn: str):
    until = datetime.now(UTC) + timedelta(hours=1)

    async def sleep(driver: Driver, now: datetime) -> None:
        (held,) = await driver.reserve(["default"], now, timedelta(minutes=1), 1)
        await driver.save(held.lease, "nap", b"z%d" % (until.timestamp() * 1000), now)
        await driver.settle([Retry(held.lease, until, 0)], now)

    store(dsn, JobRecord(id="j1", type="x"))
    within(dsn, sleep)
    serve(dsn)
    codes, text = explain(dsn)
    assert codes == ["asleep"]
    assert "it sleeps in step 'nap' until" in text

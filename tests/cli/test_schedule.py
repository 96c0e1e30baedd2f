"""`taskharbor schedule`: looking at schedules and changing them from the shell."""

import asyncio
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from taskharbor.drivers import ScheduleChange, StoredSchedule
from taskharbor.schedules.body import read_body, write_body
from tests.cli.shell import Answer, taskharbor, within

APP = """
from taskharbor import Harbor

harbor = Harbor()

@harbor.task(name="report", queue="reports")
def report(region: str) -> str:
    return region

harbor.schedule("nightly", report.s(region="eu"), cron="30 2 * * *", tz="Europe/Zurich")
"""


def run(dsn: str, *arguments: str) -> Answer:
    return taskharbor("schedule", *arguments, "--dsn", dsn, environment={"TASKHARBOR_BY": "ada"})


def shown(dsn: str, name: str) -> Any:
    return run(dsn, "show", name, "--output", "json").json


@pytest.fixture
def added(dsn: str) -> str:
    answer = run(dsn, "add", "ping", "--job", "echo", "--json", '{"text": "secret-text"}', "--every", "15m")
    assert answer.code == 0, answer.err
    return dsn


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "planned.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    yield "planned:harbor"
    sys.modules.pop("planned", None)
    sys.path[:] = [path for path in sys.path if path != str(tmp_path)]


def test_a_life(added: str):
    assert run(added, "list").out.splitlines()[1].split()[:4] == ["ping", "every", "15m", "in"]
    answer = run(added, "edit", "ping", "--cron", "0 4 * * *", "--tz", "Europe/Zurich", "--catch-up", "all")
    assert answer.out.startswith("ping: 0 4 * * * Europe/Zurich, next in ")
    facts = shown(added, "ping")
    assert (facts["cron"], facts["every"], facts["edited"], facts["catch_up"]) == ("0 4 * * *", None, True, "all")
    assert len(facts["upcoming"]) == 5
    assert run(added, "pause", "ping").out == "ping: 0 4 * * * Europe/Zurich, next paused\n"
    assert shown(added, "ping")["status"] == "paused"
    id = run(added, "run", "ping").out.strip()
    explained = taskharbor("explain", id, "--dsn", added)
    assert "the schedule 'ping' made it for " in " ".join(explained.out.split())
    assert taskharbor("explain", id, "--dsn", added, "--output", "json").json["schedule"] == "ping"
    assert run(added, "resume", "ping").code == 0
    assert run(added, "reset", "ping").out.startswith("ping: every 15m")
    assert run(added, "delete", "ping", "--yes").out == "ping: deleted\n"
    assert run(added, "list").err.startswith("no schedules")


def test_every_change_is_in_the_audit(added: str):
    for command in ("pause", "resume", "run", "reset"):
        run(added, command, "ping")
    run(added, "edit", "ping", "--every", "1h")
    run(added, "delete", "ping", "--yes")
    entries = taskharbor("audit", "--dsn", added, "--output", "json").json["entries"]
    assert [entry["action"].partition(".")[2] for entry in entries] == [
        *("delete", "edit", "reset", "run", "resume", "pause", "add"),
    ]
    assert {entry["by"] for entry in entries} == {"ada"}


def test_slots_are_shown_in_both_zones(added: str):
    run(added, "edit", "ping", "--cron", "30 2 * * *", "--tz", "Europe/Zurich")
    answer = run(added, "preview", "ping", "--count", "3")
    assert answer.out.splitlines()[0].split() == ["SLOT", "EUROPE/ZURICH", "FROM", "NOW"]
    assert all("02:30:00 CE" in line for line in answer.out.splitlines()[1:])
    found = run(added, "preview", "ping", "--count", "3", "--output", "json").json
    assert (found["tz"], len(found["slots"])) == ("Europe/Zurich", 3)
    run(added, "edit", "ping", "--end-at", "2001-01-01T00:00:00Z")
    assert "has no more slots" in run(added, "preview", "ping").err


def test_with_an_app_arguments_are_checked(dsn: str, app: str):
    wrong = run(dsn, "add", "eu", "--app", app, "--job", "report", "--json", '{"rejoin": 1}', "--every", "5m")
    assert (wrong.code, "rejoin" in wrong.line) == (2, True)
    unknown = run(dsn, "add", "eu", "--app", app, "--job", "repotr", "--every", "5m")
    assert "it has: report" in unknown.line
    assert (
        run(dsn, "add", "eu", "--app", app, "--job", "report", "--json", '{"region": "eu"}', "--every", "5m").code == 0
    )
    assert shown(dsn, "eu")["queue"] == "reports"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--every", "5m", "--cron", "* * * * *"], "cron"),
        ([], "expected either cron"),
        (["--cron", "61 * * * *"], "0 to 59"),
        (["--cron", "* * * * *", "--tz", "Mars/Olympus"], "Mars/Olympus"),
        (["--every", "100ms"], "every"),
        (["--every", "5m", "--start-at", "2030-01-01"], "time zone"),
    ],
)
def test_a_mistake_is_said_and_creates_no_store(tmp_path: Path, options: list[str], said: str):
    path = tmp_path / "new.db"
    answer = run(f"sqlite:///{path}", "add", "x", "--job", "echo", *options)
    assert answer.code == 2
    assert said in answer.err
    assert not path.exists()


def test_a_name_that_is_unknown(added: str):
    for command in ("show", "preview", "pause", "resume", "run", "reset"):
        answer = run(added, command, "pong")
        assert (answer.code, "'pong'" in answer.line) == (1, True)
    assert run(added, "delete", "pong", "--yes").code == 1


def test_arguments_are_never_shown(added: str):
    for command in (["list"], ["show", "ping"], ["list", "--output", "json"], ["show", "ping", "--output", "json"]):
        answer = run(added, *command)
        assert "secret-text" not in answer.out + answer.err


def test_one_that_no_code_declares_any_more(dsn: str, app: str):
    """It stays in the store, is due, and nobody fires it."""
    run(dsn, "add", "other", "--job", "echo", "--every", "5m")
    declare(dsn, "gone")
    make_overdue(dsn, "gone")
    make_overdue(dsn, "other")
    rows = {row["name"]: row for row in run(dsn, "list", "--app", app, "--output", "json").json["schedules"]}
    assert "planned:harbor does not declare it" in rows["gone"]["note"]
    assert "no worker that serves its queue default has fired it" in rows["other"]["note"]
    assert [rows[name]["status"] for name in ("gone", "other")] == ["overdue", "overdue"]
    without_app = {row["name"]: row for row in run(dsn, "list", "--output", "json").json["schedules"]}
    assert "no worker whose code declares it has fired it" in without_app["gone"]["note"]
    checks = taskharbor("doctor", "--dsn", dsn, "--app", app).out
    assert "does not declare gone (any more)" in checks
    assert "overdue: gone, other" in checks
    refused = run(dsn, "delete", "gone")
    assert (refused.code, "pass --yes" in refused.err) == (2, True)


def test_a_row_that_this_program_cannot_read(dsn: str):
    run(dsn, "add", "ping", "--job", "echo", "--every", "5m")

    async def damage(driver: Any, now: datetime) -> None:
        (row,) = (await driver.schedules(names=["ping"])).items
        to = StoredSchedule(name="ping", queue=row.queue, revision="damaged", next_at=row.next_at, body=b"?")
        await driver.change_schedules([ScheduleChange(name="ping", expect=row.revision, to=to)], now)

    within(dsn, damage)
    (row,) = run(dsn, "list", "--output", "json").json["schedules"]
    assert (row["status"], "damaged" in row["note"]) == ("unreadable", True)
    assert taskharbor("doctor", "--dsn", dsn).code == 1


@pytest.mark.parametrize("command", ["show", "preview"])
def test_a_zone_that_this_machine_does_not_know_is_said(dsn: str, command: str):
    run(dsn, "add", "ping", "--job", "echo", "--cron", "0 4 * * *")

    async def move(driver: Any, now: datetime) -> None:
        (row,) = (await driver.schedules(names=["ping"])).items
        body = write_body(read_body(row.body).with_state(edit={"tz": "Moon/Base"}))
        to = StoredSchedule(name="ping", queue=row.queue, revision="moved", next_at=row.next_at, body=body)
        await driver.change_schedules([ScheduleChange(name="ping", expect=row.revision, to=to)], now)

    within(dsn, move)
    answer = run(dsn, command, "ping")
    assert (answer.code, "Moon/Base" in answer.err, "bug" in answer.err) == (2, True, False)


def declare(dsn: str, name: str) -> None:
    """A schedule as code declares it, stored by a worker that is gone."""
    from taskharbor import Harbor
    from taskharbor.model.events import Observers
    from taskharbor.schedules.declare import declare as store

    harbor = Harbor(dsn)

    @harbor.task(name="echo")
    def echo() -> None: ...

    harbor.schedule(name, echo.s(), every=60)

    async def declared() -> None:
        driver: Any = harbor.driver.sibling()
        await driver.open()
        await store(driver, harbor.handlers.schedules, harbor.clock, Observers(()))
        await driver.close()

    asyncio.run(declared())


def make_overdue(dsn: str, name: str) -> None:
    async def move(driver: Any, now: datetime) -> None:
        (row,) = (await driver.schedules(names=[name])).items
        to = StoredSchedule(
            name=name, queue=row.queue, revision=f"{name}-late", next_at=now - timedelta(hours=1), body=row.body
        )
        assert await driver.change_schedules([ScheduleChange(name=name, expect=row.revision, to=to)], now) == [True]

    within(dsn, move)

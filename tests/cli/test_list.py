"""`taskharbor list`."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskharbor.cli.lazy import load
from taskharbor.drivers import Driver, JobRecord, Page, open_driver
from taskharbor.model.outcome import Fail
from tests.cli.shell import MINUTE, Answer, kill, reserve, store, taskharbor, within


def listed(dsn: str, *arguments: str) -> Answer:
    return taskharbor("list", "--dsn", dsn, *arguments)


def ids(answer: Answer) -> list[str]:
    return [job["id"] for job in answer.json["jobs"]]


@pytest.fixture
def busy(dsn: str) -> str:
    """A store with a job in every state."""
    later = datetime.now(UTC) + timedelta(hours=1)
    store(
        dsn,
        JobRecord(id="a-blocked", type="x", depends_on=("b-ready",), flow_id="f1"),
        JobRecord(id="b-ready", type="x", flow_id="f1", queue="slow", group="g1"),
        JobRecord(id="c-scheduled", type="y", run_at=later),
        JobRecord(id="d-dead", type="x", priority=9),
        JobRecord(id="e-done", type="x", queue="mail"),
        JobRecord(id="f-cancelled", type="x"),
        JobRecord(id="g-inflight", type="x", queue="busy"),
    )
    within(dsn, lambda driver, now: driver.cancel(["f-cancelled"], now))
    kill(dsn, "d-dead")
    (done,) = reserve(dsn, "mail")
    within(dsn, lambda driver, now: driver.ack(done.lease, now))
    reserve(dsn, "busy")
    return dsn


@pytest.mark.parametrize("state", ["blocked", "ready", "scheduled", "dlq", "done", "cancelled", "inflight"])
def test_by_state(busy: str, state: str):
    (found,) = listed(busy, "--state", state, "--output", "json").json["jobs"]
    assert found["state"] == state
    assert found["id"].endswith({"dlq": "dead"}.get(state, state))


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["--queue", "mail"], ["e-done"]),
        (["--type", "y"], ["c-scheduled"]),
        (["--group", "g1"], ["b-ready"]),
        (["--flow", "f1"], ["a-blocked", "b-ready"]),
        (["--queue", "default", "--state", "done"], []),
    ],
)
def test_by_other_filters(busy: str, filters: list[str], expected: list[str]):
    assert ids(listed(busy, *filters, "--output", "json")) == expected


def test_json_has_the_keys_that_help_names(busy: str):
    found = re.search(r"JSON: \{\"jobs\": \[\{(.*?)\}", load("list").help or "", re.DOTALL)
    assert found is not None
    for job in listed(busy, "--output", "json").json["jobs"]:
        assert list(job) == re.findall(r'"(\w+)"', found[1])


def test_pages_are_whole_and_each_job_comes_once(busy: str):
    seen: list[str] = []
    cursor: list[str] = []
    while True:
        answer = listed(busy, "--limit", "2", "--output", "json", *cursor).json
        seen += [job["id"] for job in answer["jobs"]]
        if answer["cursor"] is None:
            break
        cursor = ["--cursor", answer["cursor"]]
    assert seen == sorted(seen)
    assert len(seen) == 7


def test_a_pipe_gets_rows_and_the_cursor_beside_them(busy: str):
    answer = listed(busy, "--limit", "2")
    head, *rows = answer.out.splitlines()
    assert head.split() == ["ID", "TYPE", "QUEUE", "STATE", "TRIES", "WHEN"]
    assert [row.split()[0] for row in rows] == ["a-blocked", "b-ready"]
    cursor = answer.err.removeprefix("more jobs: --cursor ").strip()
    assert listed(busy, "--limit", "10", "--cursor", cursor).out.splitlines()[1].startswith("c-scheduled")


def test_nothing_to_show(busy: str):
    answer = listed(busy, "--queue", "nobody")
    assert (answer.code, answer.out, answer.err) == (0, "", "no jobs\n")
    assert listed(busy, "--queue", "nobody", "--output", "json").json == {"jobs": [], "cursor": None}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(["--cursor", "x"], "--cursor"), (["--state", "lost"], "--state"), (["--limit", "0"], "--limit")],
)
def test_a_mistake_is_one_line_and_exit_2(busy: str, arguments: list[str], expected: str):
    answer = listed(busy, *arguments)
    assert expected in answer.line
    assert answer.code == 2


# By error and time, newest first


@pytest.fixture
def failed(any_dsn: str) -> str:
    """A store with three dead jobs of two kinds of errors, and one that waits."""
    store(any_dsn, *(JobRecord(id=f"j{n}", type="x") for n in range(4)))

    async def work(driver: Driver, now: datetime) -> None:
        for held in await driver.reserve(["default"], now, MINUTE, 3, "w1"):
            kind = "ValueError" if held.job.id == "j1" else "KeyError"
            await driver.settle(
                [Fail(held.lease, "no", 1, now, f"{kind}: no", error_class=kind, fingerprint=f"print-{kind}")], now
            )

    within(any_dsn, work)
    return any_dsn


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["--newest"], ["j3", "j2", "j1", "j0"]),
        (["--error", "KeyError"], ["j0", "j2"]),
        (["--fingerprint", "print-ValueError"], ["j1"]),
        (["--newest", "--state", "dlq", "--since", "1h", "--error", "KeyError"], ["j2", "j0"]),
        (["--until", "1h"], []),
        (["--since", "2001-01-01T00:00:00Z", "--until", "2999-01-01T00:00:00+02:00"], ["j0", "j1", "j2", "j3"]),
    ],
)
def test_by_error_and_time(failed: str, filters: list[str], expected: list[str]):
    assert ids(listed(failed, *filters, "--output", "json")) == expected
    rows = listed(failed, *filters).out.splitlines()[1:]
    assert [row.split()[0] for row in rows] == expected
    if "--state" not in filters:
        dead = taskharbor("dlq", "list", *filters, "--dsn", failed, "--output", "json")
        assert ids(dead) == [id for id in expected if id != "j3"]


def test_pages_go_downwards_too(failed: str):
    first = listed(failed, "--newest", "--limit", "3", "--output", "json").json
    rest = listed(failed, "--newest", "--limit", "3", "--cursor", first["cursor"], "--output", "json").json
    assert [job["id"] for job in first["jobs"] + rest["jobs"]] == ["j3", "j2", "j1", "j0"]


@pytest.mark.parametrize("value", ["yesterday", "1x", "2001-01-01T00:00:00", "-5m"])
def test_an_invalid_time(dsn: str, value: str):
    store(dsn, JobRecord(id="j1", type="x"))
    answer = listed(dsn, f"--since={value}")
    assert (answer.code, "--since" in answer.line) == (2, True)


def test_a_page_that_the_store_left_short_is_filled_and_bounded(dsn: str, monkeypatch: pytest.MonkeyPatch):
    store(dsn, *(JobRecord(id=f"j{n:02}", type="y" if n % 10 == 9 else "x") for n in range(40)))
    driver = type(open_driver(dsn))
    original, calls = driver.list, []

    async def looks_at_four(self: Any, **query: Any) -> Page:
        calls.append(query)
        wanted = query.pop("type", None)
        page = await original(self, **{**query, "limit": 4})
        items = tuple(info for info in page.items if wanted in (None, info.job.type))
        return Page(items[: calls[-1]["limit"]], page.cursor)

    monkeypatch.setattr(driver, "list", looks_at_four)
    answer = listed(dsn, "--type", "y", "--limit", "2", "--output", "json").json
    assert [job["id"] for job in answer["jobs"]] == ["j09", "j19"]
    calls.clear()
    monkeypatch.setattr("taskharbor.store.pages.MAX_FILL_CALLS", 2)
    answer = listed(dsn, "--type", "y").err
    assert len(calls) == 2
    assert answer.startswith("no jobs found yet, but there are more to look at: --cursor ")


def test_payloads_are_read_only_where_errors_need_them(dsn: str, monkeypatch: pytest.MonkeyPatch):
    store(dsn, JobRecord(id="j1", type="x"))
    driver = type(open_driver(dsn))
    original, asked = driver.list, []

    async def noted(self: Any, **query: Any) -> Page:
        asked.append(query.get("payloads", True))
        return await original(self, **query)

    monkeypatch.setattr(driver, "list", noted)
    for command in ("list", "list --output json", "dlq list", "dlq requeue --all --yes"):
        taskharbor(*command.split(), "--dsn", dsn)
    assert asked[:4] == [False, True, True, False]
    assert all(asked[4:]), "the state of the operation is the payload of its newest slice"

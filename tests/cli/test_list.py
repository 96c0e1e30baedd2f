"""`taskharbor list`."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from taskharbor.cli.lazy import load
from taskharbor.drivers import JobRecord
from tests.cli.shell import Answer, kill, reserve, store, taskharbor, within


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

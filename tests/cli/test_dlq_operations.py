"""`taskharbor dlq operations`: what was begun, how far it is, stopping and going on."""

from datetime import datetime
from typing import Any

import pytest

from taskharbor.drivers import State
from tests.cli.dead_jobs import Dead, audit_of, bury, states
from tests.cli.shell import Answer, at_terminal, taskharbor, within


@pytest.fixture
def dead(dsn: str) -> str:
    bury(dsn, *(Dead(f"m{number}") for number in range(3)))
    return dsn


def run(dsn: str, *arguments: str) -> Answer:
    return taskharbor("dlq", *arguments, "--dsn", dsn, environment={"TASKHARBOR_BY": "ada"})


def begin(dsn: str) -> str:
    answer = run(dsn, "requeue", "--queue", "mail", "--yes", "--detach", "--output", "json")
    id: str = answer.json["operation"]["id"]
    return id


def test_detached_it_waits_for_workers(dead: str):
    answer = run(dead, "requeue", "--queue", "mail", "--yes", "--detach")
    assert answer.code == 0
    begun, tried = answer.out.splitlines()
    assert begun.endswith("has begun: workers carry it out")
    assert tried.startswith("try: taskharbor dlq operations show 01")
    assert "note: no worker sent a heartbeat in the last minute" in answer.err
    assert states(dead, "m0") == [State.DLQ]


def test_list_and_show(dead: str):
    assert (run(dead, "operations").out, run(dead, "operations").err) == ("", "no operations\n")
    first = begin(dead)
    assert run(dead, "operations", "resume", first).out == "3 jobs were requeued\n"
    taskharbor("queue", "pause", "other", "--dsn", dead)  # in the audit as well, and not an operation
    second = begin(dead)
    assert states(dead, "m0", "m2") == [State.READY, State.READY]
    found = run(dead, "operations", "--output", "json").json["operations"]
    assert [(row["id"], row["status"], row["done"]) for row in found] == [(second, "running", 0), (first, "done", 3)]
    assert found == run(dead, "operations", "list", "--output", "json").json["operations"]
    assert len(run(dead, "operations", "list", "--limit", "1", "--output", "json").json["operations"]) == 1
    assert run(dead, "operations", "--by", "eve", "--output", "json").json == {"operations": []}
    shown = run(dead, "operations", "show", first, "--output", "json").json
    assert list(shown) == [
        *("id", "at", "by", "action", "filter", "options", "status", "done", "skipped", "phase", "total", "failures"),
        "reason",
    ]
    assert (shown["by"], shown["action"], shown["filter"]["queue"]) == ("ada", "requeue", "mail")
    out = run(dead, "operations", "show", second).out
    assert "status  running" in out
    assert f"try: taskharbor dlq operations stop {second}" in out


def test_they_fit_a_terminal(dead: str):
    begin(dead)
    code, seen = at_terminal("dlq", "operations", "--dsn", dead, columns=80, NO_COLOR="1")
    assert code == 0
    assert max(map(len, seen.splitlines())) <= 80
    assert "queue=mail" in seen


def test_a_stopped_operation_changes_nothing_more(dead: str):
    id = begin(dead)
    answer = run(dead, "operations", "stop", id)
    assert answer.out == "stopped: 0 jobs were requeued; the others stay as they are\n"
    assert states(dead, "m0") == [State.DLQ]
    answer = run(dead, "operations", "resume", id)
    assert (answer.code, "is stopped, so it does not go on; begin a new one" in answer.err) == (1, True)
    answer = run(dead, "operations", "stop", id)
    assert (answer.code, answer.line) == (
        1,
        f"taskharbor: operation {id} is stopped already; there is nothing to stop",
    )
    assert next((entry.action, entry.by) for entry in audit_of(dead)) == ("stop", "ada")


def test_a_failed_operation_goes_on(dead: str):
    id = begin(dead)

    async def fail(driver: Any, now: datetime) -> None:
        from datetime import timedelta

        (reserved,) = await driver.reserve(["taskharbor"], now, timedelta(minutes=1), 1, "w1")
        await driver.fail(reserved.lease, now, "the disk is full", attempts=20, failed_at=now)

    within(dead, fail)
    out = run(dead, "operations", "show", id).out
    assert "failed: the disk is full; 0 jobs were requeued" in out
    assert f"try: taskharbor dlq operations resume {id}" in out
    answer = run(dead, "operations", "resume", id)
    assert (answer.code, answer.out) == (0, "3 jobs were requeued\n")
    assert states(dead, "m0", "m2") == [State.READY, State.READY]


def test_an_operation_by_the_beginning_of_its_id(dead: str):
    first, second = begin(dead), begin(dead)
    prefix = second[:25].lower()  # nearly all of it: ids of one millisecond begin alike
    shown = run(dead, "operations", "show", prefix, "--output", "json").json
    assert shown["id"] == second
    answer = run(dead, "operations", "show", second[:6])
    assert (answer.code, "is ambiguous" in answer.line, first in answer.line) == (1, True, True)
    answer = run(dead, "operations", "show", "nonesuch")
    assert (answer.code, "no operation nonesuch" in answer.line) == (1, True)

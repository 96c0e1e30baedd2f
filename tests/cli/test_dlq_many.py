"""`taskharbor dlq requeue` and `dlq delete` by filter, and the same of `taskharbor job`: nothing that was not shown."""

from typing import Any

import pytest

from taskharbor.drivers import JobRecord, State
from tests.cli.dead_jobs import Dead, audit_of, bury, die_again, look, states
from tests.cli.shell import PATIENCE, Answer, Process, at_terminal, looking_again, store, taskharbor, within

MAIL = [Dead(f"m{number}") for number in range(7)]
BILL = Dead("b1", type="bill.charge", queue="bill", error="ValueError")


@pytest.fixture
def dead(dsn: str) -> str:
    bury(dsn, *MAIL, BILL)
    return dsn


def run(dsn: str, *arguments: str) -> Answer:
    return taskharbor(*arguments, "--dsn", dsn)


def operation(dsn: str, *arguments: str) -> dict[str, Any]:
    answer = run(dsn, *arguments, "--yes", "--output", "json")
    found: dict[str, Any] = answer.json["operation"]
    return found


# Requeue


@pytest.mark.parametrize(
    "given",
    [["--queue", "bill"], ["--type", "bill.charge"], ["--error", "ValueError"], ["--fingerprint", BILL.fingerprint]],
)
def test_a_filter_brings_back_what_fits_and_nothing_else(dead: str, given: list[str]):
    answer = run(dead, "dlq", "requeue", *given, "--yes")
    assert (answer.code, answer.out) == (0, "1 job was requeued\n")
    assert states(dead, "b1", "m0", "m6") == [State.READY, State.DLQ, State.DLQ]


def test_a_filter_by_time_takes_no_others(dead: str):
    assert run(dead, "dlq", "requeue", "--until", "1h", "--yes").out == "0 jobs were requeued\n"
    assert run(dead, "dlq", "requeue", "--since", "1h", "--limit", "2", "--yes").out == "2 jobs were requeued\n"
    assert states(dead, "b1", "m0", "m1") == [State.READY, State.READY, State.DLQ]


def test_attempts_are_kept_on_request(dead: str):
    run(dead, "dlq", "requeue", "--queue", "bill", "--keep-attempts", "--yes")
    assert look(dead, "b1").job.attempts == 3


def test_a_dry_run_changes_nothing_and_says_what_it_found(dead: str):
    answer = run(dead, "dlq", "requeue", "--queue", "mail", "--canary", "2", "--spread", "10m", "--dry-run")
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[0] == "jobs   7 dead jobs in the queue mail"
    assert lines[2:4] == ["first  2 of them; if more than 0 die again, the others stay", "over   10m"]
    assert sum(line.startswith("m") for line in lines) == 5
    assert "note: no worker serves the queue mail now" in answer.err
    found = run(dead, "dlq", "requeue", "--queue", "mail", "--dry-run", "--output", "json").json
    assert list(found) == ["action", "jobs", "capped", "cut", "limit", "sample", "notes"]
    assert (found["action"], found["jobs"], found["capped"]) == ("requeue", 7, False)
    assert {*states(dead, *(job.id for job in MAIL))} == {State.DLQ}
    assert audit_of(dead) == []


def test_what_dies_after_the_dry_run_is_not_touched(dead: str):
    cut = run(dead, "dlq", "requeue", "--queue", "mail", "--dry-run", "--output", "json").json["cut"]
    bury(dead, Dead("late"))
    assert operation(dead, "dlq", "requeue", "--queue", "mail", "--until", cut)["done"] == 7
    assert states(dead, "m0", "late") == [State.READY, State.DLQ]


def test_what_dies_after_the_question_is_not_touched(dead: str, monkeypatch: pytest.MonkeyPatch):
    """The operation has the cut of the preview, not that of the answer."""
    asked: list[str] = []

    def confirm(question: str, yes: bool) -> None:
        asked.append(question)
        bury(dead, Dead("late"))

    monkeypatch.setattr("taskharbor.cli.many.confirm", confirm)
    monkeypatch.setattr("taskharbor.cli.many.expect_person", lambda yes: None)
    answer = run(dead, "dlq", "requeue", "--queue", "mail")
    assert asked == ["Requeue 7 dead jobs in the queue mail?"]
    assert answer.out.splitlines()[-1] == "7 jobs were requeued"
    assert states(dead, "m0", "late") == [State.READY, State.DLQ]


def test_a_person_sees_the_count_the_cut_and_a_sample(dead: str):
    arguments = ("dlq", "requeue", "--queue", "mail", "--limit", "3", "--dsn", dead)
    code, seen = at_terminal(*arguments, columns=80, answer=b"n\n", NO_COLOR="1")
    assert code == 1
    assert "7 dead jobs in the queue mail" in seen
    assert "what comes later is not touched" in seen
    assert seen.count("ConnectionError: the server is away") == 3
    assert "Requeue 7 dead jobs in the queue mail, at most 3 of them?" in seen
    assert "nothing was changed" in seen
    assert look(dead, "m0").state is State.DLQ
    code, seen = at_terminal(*arguments, columns=80, answer=b"y\n", NO_COLOR="1")
    assert code == 0
    assert "3 jobs were requeued" in seen
    assert states(dead, "m2", "m3") == [State.READY, State.DLQ]


def test_too_many_to_count(dead: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("taskharbor.client.jobs.COUNT_CAP_JOBS", 4)
    answer = run(dead, "dlq", "requeue", "--queue", "mail", "--dry-run")
    assert answer.out.splitlines()[0] == "jobs   4+ dead jobs in the queue mail"


def test_a_canary_that_dies_holds_the_rest(dead: str):
    begun = operation(dead, "dlq", "requeue", "--queue", "mail", "--canary", "2", "--detach")
    assert begun["status"] == "running"
    assert operation_runs(dead, begun["id"]) == 2
    die_again(dead, *MAIL)
    answer = run(dead, "dlq", "operations", "resume", begun["id"])
    assert answer.code == 1
    assert "held: 2 of the 2 jobs that were tried first died again (allowed: 0)" in answer.out
    assert {*states(dead, *(job.id for job in MAIL))} == {State.DLQ}


def operation_runs(dsn: str, id: str) -> int:
    """Run the slices of an operation that are due; returns how many jobs it has changed."""
    from taskharbor.client.client import Client
    from taskharbor.client.operation import Operation
    from taskharbor.store.bulk.runner import OperationRunner

    async def work(driver: Any, now: Any) -> int:
        client = Client(driver)
        await client._store.awaited.driver(0)
        await OperationRunner(driver, client._store.clock, "w1").run_one()
        return (await Operation(client._store, id).aprogress()).done

    return within(dsn, work)


def test_nothing_is_left_to_chance(dead: str):
    for arguments, told in (
        (["m1", "--queue", "mail"], "got ids and --queue; --queue is for a filter"),
        (["m1", "--canary", "2"], "got ids and --canary"),
        (["m1", "--limit", "2"], "got ids and --limit"),
        ([], "expected ids, or a filter such as --queue mail, or --all"),
        (["--queue", "", "--yes"], "--queue: expected 1 to 255 bytes"),
        (["--queue", "mail", "--max-failures", "2", "--yes"], "--max-failures needs --canary"),
        (["--queue", "mail", "--canary", "101", "--yes"], "101 is not in the range 1<=x<=100"),
        (["--spread", "soon", "--all", "--yes"], "expected a duration"),
        (["--queue", "mail"], "confirmation required"),
    ):
        answer = run(dead, "dlq", "requeue", *arguments)
        assert (answer.code, told in answer.line) == (2, True), (arguments, answer.err)
    assert {*states(dead, *(job.id for job in (*MAIL, BILL)))} == {State.DLQ}


def test_a_dry_run_with_ids(dead: str):
    store(dead, JobRecord(id="r1", type="x"))
    answer = run(dead, "dlq", "requeue", "m1", "m2", "r1", "nope", "--dry-run")
    assert (answer.code, answer.out) == (1, "2 jobs would be requeued\n")
    assert "job r1 is ready" in answer.err
    found = run(dead, "dlq", "delete", "m1", "--dry-run", "--output", "json").json
    assert found == {"would": ["m1"], "refused": []}
    assert {*states(dead, "m1", "m2")} == {State.DLQ}


# Delete


def test_delete_takes_dead_jobs_only(dead: str):
    store(dead, JobRecord(id="r1", type="x"))
    answer = run(dead, "dlq", "delete", "m1", "r1", "--yes")
    assert (answer.code, answer.out) == (1, "m1 was deleted\n")
    assert "job r1 is ready, not dlq" in answer.err
    assert look(dead, "r1").state is State.READY
    assert "no job m1" in run(dead, "inspect", "m1").err


def test_delete_by_age(dead: str):
    assert run(dead, "dlq", "delete", "--older-than", "1h", "--yes").out == "0 jobs were deleted\n"
    assert run(dead, "dlq", "delete", "--older-than", "0", "--queue", "mail", "--yes").out == "7 jobs were deleted\n"
    assert look(dead, "b1").state is State.DLQ
    answer = run(dead, "dlq", "delete", "--older-than", "1h", "--until", "2h", "--yes")
    assert (answer.code, answer.line) == (2, "taskharbor: dlq delete: expected only one of --until and --older-than")
    assert run(dead, "dlq", "delete", "--yes").code == 2


# Any jobs


def test_the_commands_of_job_take_filters_too(dsn: str):
    store(
        dsn, *(JobRecord(id=f"j{number}", type="x", queue="mail") for number in range(3)), JobRecord(id="k", type="y")
    )
    assert "jobs   3 jobs in the queue mail" in run(dsn, "job", "cancel", "--queue", "mail", "--dry-run").out
    assert run(dsn, "job", "cancel", "--queue", "mail", "--yes").out == "3 jobs were cancelled\n"
    assert states(dsn, "j0", "j2", "k") == [State.CANCELLED, State.CANCELLED, State.READY]
    assert "no jobs in the queue mail" in run(dsn, "job", "cancel", "--queue", "mail", "--dry-run").out
    answer = run(dsn, "job", "retry", "--state", "cancelled", "--type", "x", "--limit", "1", "--yes")
    assert answer.out == "1 job was requeued\n"
    assert run(dsn, "job", "delete", "--state", "cancelled", "--yes").out == "2 jobs were deleted\n"
    assert states(dsn, "j0", "k") == [State.READY, State.READY]


@pytest.mark.parametrize(
    ("command", "arguments", "told"),
    [
        ("retry", ["--queue", "mail"], "expected --state with a filter (dlq or cancelled), got none"),
        ("retry", ["--state", "ready"], "got --state ready"),
        ("cancel", ["--state", "done"], "got --state done"),
        ("cancel", [], "expected ids, or a filter such as --queue mail"),
        ("delete", ["--queue", "mail"], "got none"),
    ],
)
def test_a_filter_that_would_take_too_much(dsn: str, command: str, arguments: list[str], told: str):
    store(dsn, JobRecord(id="j1", type="x", queue="mail"))
    answer = run(dsn, "job", command, *arguments, "--yes")
    assert (answer.code, told in answer.line) == (2, True), answer.err
    assert look(dsn, "j1").state is State.READY


# Leaving


def test_ctrl_c_leaves_the_operation_and_says_how_to_go_on(dead: str):
    arguments = ("dlq", "requeue", "--queue", "mail", "--canary", "1", "--yes", "--dsn", dead)
    with Process(*arguments) as process:  # no worker runs the canary, so it waits
        looking_again(lambda: states(dead, "m0") == [State.READY] or None, "the canary is requeued")
        process.interrupt()
        process.wait_for("operations stop")
        assert process.process.wait(PATIENCE) == 130
    (entry,) = [each for each in audit_of(dead) if each.status]
    assert f"to go on here: taskharbor dlq operations resume {entry.id}" in process.seen
    answer = run(dead, "dlq", "operations", "stop", entry.id[:16])
    assert (answer.code, answer.out) == (0, "stopped: 1 job was requeued; the others stay as they are\n")

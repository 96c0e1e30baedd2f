"""`taskharbor dlq summary`, `dlq list` and `dlq show`: what kinds there are, and one of them from near."""

import json
from datetime import datetime

import pytest

from taskharbor.drivers import Driver, JobRecord, WorkerInfo
from taskharbor.store import summary
from tests.cli.dead_jobs import Dead, audit_of, bury
from tests.cli.shell import at_terminal, kill, store, taskharbor, within

SECRET = "secret4711"
CARD = Dead(
    "c1", type="bill.charge", queue="bill", error="shop.CardRefused", text=f"card {SECRET}", payload={"c": SECRET}
)


@pytest.fixture
def dead(dsn: str) -> str:
    """Three jobs of one kind, one of another, one of a third."""
    bury(
        dsn, *(Dead(f"m{number}") for number in range(3)), Dead("v1", error="ValueError", text="no", group="t:42"), CARD
    )
    return dsn


def rows(dsn: str, *arguments: str) -> list[tuple[str, int]]:
    found = taskharbor("dlq", "summary", *arguments, "--dsn", dsn, "--output", "json").json
    return [(row["value"], row["jobs"]) for row in found["rows"]]


def test_kinds_are_counted_the_largest_first(dead: str):
    assert rows(dead)[0] == ("mail.send-ConnectionError", 3)
    assert len(rows(dead)) == 3
    assert rows(dead, "--by", "queue") == [("mail", 4), ("bill", 1)]
    assert rows(dead, "--by", "type") == [("mail.send", 4), ("bill.charge", 1)]
    assert rows(dead, "--by", "reason") == [("failed 3 of 3 attempts", 5)]
    assert rows(dead, "--by", "error")[0] == ("ConnectionError", 3)
    found = taskharbor("dlq", "summary", "--limit", "1", "--dsn", dead, "--output", "json").json
    assert list(found) == ["by", "jobs", "complete", "rows", "more"]
    assert (found["jobs"], found["complete"], found["more"]) == (5, True, 2)
    told = taskharbor("dlq", "summary", "--limit", "1", "--dsn", dead).err
    assert "5 dead jobs, of 3 kinds\nshown: the largest 1; --limit 3 shows all\n" in told
    (row,) = found["rows"]
    assert list(row) == ["value", "jobs", "newest", "oldest", "sample"]
    assert list(row["sample"]) == ["id", "type", "queue", "error_class", "fingerprint", "reason", "last_error"]
    assert row["sample"]["id"] == "m2"


def test_only_the_jobs_of_the_filter(dead: str):
    assert rows(dead, "--queue", "bill") == [(CARD.fingerprint, 1)]
    assert rows(dead, "--error", "ValueError", "--by", "type") == [("mail.send", 1)]
    assert rows(dead, "--group", "t:42", "--by", "error") == [("ValueError", 1)]
    assert rows(dead, "--until", "1h") == []
    answer = taskharbor("dlq", "summary", "--queue", "none", "--dsn", dead)
    assert (answer.out, answer.err) == ("", "no dead jobs in the queue none\n")


def test_a_pipe_gets_rows_and_a_person_what_to_type_next(dead: str):
    answer = taskharbor("dlq", "summary", "--queue", "mail", "--dsn", dead)
    head, *lines = answer.out.splitlines()
    assert head.split()[:4] == ["JOBS", "ERROR", "TYPE", "NEWEST"]
    assert len(lines) == 2
    assert lines[0].endswith("mail.send-ConnectionError  ConnectionError: the server is away")
    assert "4 dead jobs in the queue mail, of 2 kinds" in answer.err
    assert "try: taskharbor dlq show m2\n" in answer.err
    again = "try: taskharbor dlq requeue --queue mail --fingerprint mail.send-ConnectionError --canary 5 --dry-run"
    assert again in answer.err


def test_a_command_to_type_next_can_be_pasted(dead: str):
    bury(dead, Dead("odd job", queue="two words"))
    answer = taskharbor("dlq", "summary", "--queue", "two words", "--dsn", dead)
    assert "try: taskharbor dlq show 'odd job'\n" in answer.err
    assert "try: taskharbor dlq requeue --queue 'two words' --fingerprint" in answer.err


def test_a_summary_of_the_newest_says_so(dead: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(summary, "MAX_SUMMARISED_JOBS", 2)
    answer = taskharbor("dlq", "summary", "--dsn", dead)
    assert "the newest 2 dead jobs, of " in answer.err
    assert "there are more jobs" in answer.err
    assert not taskharbor("dlq", "summary", "--dsn", dead, "--output", "json").json["complete"]


def test_no_payload_in_a_summary(dead: str):
    for by in ("fingerprint", "reason"):
        for output in ("table", "json"):
            answer = taskharbor("dlq", "summary", "--by", by, "--dsn", dead, "--output", output)
            assert SECRET not in answer.out + answer.err
    assert "card •••" in taskharbor("dlq", "summary", "--dsn", dead).out


def test_it_fits_a_terminal(dead: str):
    bury(
        dead,
        Dead(
            "01JQZ5X7T0A8C2E4G6J8M0P2R4",
            type="shop.accounting.monthly_invoices.send_reminder",
            error="shop.errors.MailServerGone",
        ),
    )
    code, seen = at_terminal("dlq", "summary", "--dsn", dead, columns=80, NO_COLOR="1")
    assert code == 0
    table = [line for line in seen.splitlines() if not line.startswith("try: ")]
    assert max(map(len, table)) <= 80
    assert "  ConnectionError: the server is away" in seen.splitlines()


# One of them


def show(dsn: str, id: str, *arguments: str) -> str:
    answer = taskharbor("dlq", "show", id, *arguments, "--dsn", dsn)
    assert answer.code == 0, answer.err
    return answer.out


def test_show_says_why_it_died_and_what_a_requeue_does(dead: str):
    out = show(dead, "m1")
    assert "It has been dead since" in out
    assert "failed 3 of 3 attempts: ConnectionError: the server is away" in out
    assert "1  failed" in out
    assert "  - it gets all 3 attempts again; with --keep-attempts 1 more attempt" in out
    assert "  - no worker serves its queue mail now: it waits for one" in out
    assert "try: taskharbor dlq requeue m1\n" in out
    assert "try: taskharbor dlq edit m1 --requeue\n" in out
    assert "try: taskharbor dlq requeue --fingerprint mail.send-ConnectionError --canary 5 --dry-run\n" in out
    found = json.loads(show(dead, "m1", "--output", "json"))
    assert [each["code"] for each in found["requeue"]] == ["attempts", "no_worker"]
    assert found["next"][0] == "taskharbor dlq requeue m1"
    assert (found["id"], found["payload"], found["hidden"]) == ("m1", None, ["payload"])


def test_show_knows_what_would_hold_the_job_up(dead: str):
    async def prepare(driver: Driver, now: datetime) -> None:
        await driver.pause("mail")
        await driver.beat(WorkerInfo(worker="w1", queues=("mail",), running=0, started_at=now, concurrency=1), now)

    within(dead, prepare)
    out = show(dead, "m1")
    assert "its queue mail is paused: it waits" in out
    assert "try: taskharbor queue resume mail" in out
    assert "1 worker serves its queue mail" in out


def test_show_counts_what_waits_for_the_job(dsn: str):
    store(
        dsn,
        JobRecord(id="a", type="x", flow_id="f"),
        JobRecord(id="b", type="y", flow_id="f", depends_on=("a",)),
        JobRecord(id="c", type="y", flow_id="f", depends_on=("a",)),
        JobRecord(id="d", type="y", flow_id="f", depends_on=("b", "c")),
    )
    kill(dsn, "a")
    assert "2 jobs of its flow wait for it, and go on when it is done" in show(dsn, "a")


def test_show_is_for_dead_jobs(dsn: str):
    store(dsn, JobRecord(id="r1", type="x"))
    answer = taskharbor("dlq", "show", "r1", "--dsn", dsn)
    assert (answer.code, answer.line) == (
        1,
        "taskharbor: job r1 is ready, not dead; `taskharbor inspect r1` shows it",
    )


def test_a_payload_is_shown_only_on_request_and_that_is_audited(dead: str):
    assert SECRET not in show(dead, "c1")
    assert audit_of(dead) == []
    assert SECRET in show(dead, "c1", "--show-payload")
    (entry,) = audit_of(dead)
    assert (entry.action, entry.ids, entry.done) == ("reveal", ("c1",), 1)


def test_list_takes_every_filter(dead: str):
    def ids(*arguments: str) -> list[str]:
        found = taskharbor("dlq", "list", *arguments, "--dsn", dead, "--output", "json").json
        return [job["id"] for job in found["jobs"]]

    assert ids("--group", "t:42") == ["v1"]
    assert ids("--error", "ConnectionError", "--newest") == ["m2", "m1", "m0"]
    assert ids("--fingerprint", CARD.fingerprint) == ["c1"]
    assert ids("--since", "1h", "--queue", "bill") == ["c1"]
    assert ids("--until", "1h") == []

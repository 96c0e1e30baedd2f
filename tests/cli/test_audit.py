"""`taskharbor audit`: every change by a command is in it, with a name."""

import os

import psycopg
import pytest

from taskharbor.drivers import JobRecord, State
from tests.cli.dead_jobs import Dead, audit_of, bury, states
from tests.cli.shell import Answer, at_terminal, store, taskharbor
from tests.servers.postgres import shared

CHANGES = {
    "dlq requeue d1": "requeue", "dlq requeue --queue mail --yes": "requeue", "dlq delete d1 --yes": "delete",
    "dlq delete --queue mail --yes": "delete", "dlq edit d1 --json {}": "amend", "job retry d1": "retry",
    "job retry --state dlq --yes": "requeue", "job cancel r1 --yes": "cancel",
    "job cancel --queue ready --yes": "cancel",
    "job delete r1 --yes": "delete", "job delete --state ready --yes": "delete",
    "job amend r1 --priority 3 --yes": "amend", "flow cancel f1 --yes": "cancel flow",
    "flow requeue f1": "requeue flow", "queue pause mail": "pause", "queue resume mail": "resume",
    "inspect d1 --show-payload": "reveal", "job show d1 --redact to": "reveal",
    "job attempts d1 --show-payload": "reveal",
    "dlq show d1 --show-payload": "reveal", "dlq export --show-payload": "export",
}  # fmt: skip
READING = (
    "inspect d1", "job show d1", "dlq show d1", "dlq list", "dlq summary", "dlq export", "dlq requeue --all --dry-run",
    "dlq delete --queue mail --dry-run", "job cancel r1 --dry-run", "dlq requeue d1 --dry-run", "dlq operations",
    "audit",
)  # fmt: skip


@pytest.fixture
def filled(dsn: str) -> str:
    bury(dsn, Dead("d1"))
    store(dsn, JobRecord(id="r1", type="x", queue="ready", flow_id="f1"))
    return dsn


def run(dsn: str, command: str, by: str = "ada") -> Answer:
    return taskharbor(*command.split(), "--dsn", dsn, environment={"TASKHARBOR_BY": by})


@pytest.mark.parametrize("command", CHANGES)
def test_every_change_is_in_the_audit_with_a_name(filled: str, command: str):
    answer = run(filled, command)
    assert answer.code == 0, answer.err
    (entry,) = audit_of(filled)
    assert (entry.by, entry.action) == ("ada", CHANGES[command])
    assert entry.refused == 0


@pytest.mark.parametrize("command", READING)
def test_looking_is_not(filled: str, command: str):
    assert run(filled, command).code == 0
    assert audit_of(filled) == []


def test_what_is_refused_is_in_it_as_refused(filled: str):
    assert run(filled, "dlq requeue r1").code == 1
    (entry,) = audit_of(filled)
    assert (entry.done, entry.refused) == (0, 1)
    assert run(filled, "audit").out.splitlines()[1].split()[-2:] == ["refused", "r1"]


def test_who_did_what(filled: str):
    run(filled, "queue pause mail")
    run(filled, "dlq requeue d1", by="eve")
    answer = run(filled, "audit")
    head, *rows = answer.out.splitlines()
    assert head.split() == ["WHEN", "BY", "ACTION", "OUTCOME", "WHAT"]
    assert [row.split()[2:] for row in rows] == [["eve", "requeue", "done", "d1"], ["ada", "pause", "done", "mail"]]
    found = run(filled, "audit --output json --by eve").json
    assert list(found) == ["entries", "cursor"]
    (entry,) = found["entries"]
    assert list(entry) == [
        *("id", "at", "by", "action", "target", "ids", "n", "filter", "options", "done", "refused", "status"),
    ]
    assert (entry["ids"], entry["n"], entry["done"], entry["status"]) == (["d1"], 1, 1, None)
    assert run(filled, "audit --until 1h --output json").json["entries"] == []
    assert len(run(filled, "audit --since 1h --output json").json["entries"]) == 2


def test_pages(filled: str):
    for queue in ("a", "b", "c"):
        run(filled, f"queue pause {queue}")
    first = run(filled, "audit --limit 2 --output json").json
    rest = run(filled, f"audit --cursor {first['cursor']} --output json").json
    assert [entry["target"] for entry in first["entries"] + rest["entries"]] == ["c", "b", "a"]
    assert "more: --cursor" in run(filled, "audit --limit 2").err
    assert "--cursor" in run(filled, "audit --cursor x").line


def test_the_user_and_the_machine_unless_a_name_is_given(filled: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TASKHARBOR_BY", raising=False)
    monkeypatch.setenv("LOGNAME", "grace")
    taskharbor("queue", "pause", "mail", "--dsn", filled)
    (entry,) = audit_of(filled)
    assert entry.by == f"grace@{os.uname().nodename}"
    answer = run(filled, "queue pause mail", by="x" * 300)
    assert (answer.code, "$TASKHARBOR_BY, the name for the audit" in answer.line) == (2, True)


def test_it_fits_a_terminal(filled: str):
    run(filled, "dlq requeue --queue mail --error ConnectionError --since 2h --yes")
    code, seen = at_terminal("audit", "--dsn", filled, columns=80, NO_COLOR="1")
    assert code == 0
    assert max(map(len, seen.splitlines())) <= 80


def test_a_payload_can_be_read_where_the_audit_cannot_be_written():
    """What a person may read is not kept from them; what they may not change is."""
    server = shared()
    address = server.address(server.database())
    bury(address, Dead("d1"))
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("drop owned by looker" if _has_role(connection, "looker") else "create role looker login")
        connection.execute("grant usage on schema taskharbor to looker")
        connection.execute("grant select on all tables in schema taskharbor to looker")
    dsn = address.replace("harbor@", "looker@")
    for command in ("inspect d1 --show-payload", "dlq show d1 --show-payload", "dlq export --show-payload"):
        answer = run(dsn, command)
        assert (answer.code, '"ada"' in answer.out) == (0, True), answer.err
        assert "note: the audit cannot be written" in answer.err
    assert run(dsn, "dlq summary").code == 0
    assert run(dsn, "dlq requeue d1").code == 3
    assert run(dsn, "dlq requeue --all --yes").code == 3
    assert states(address, "d1") == [State.DLQ]


def _has_role(connection: psycopg.Connection, name: str) -> bool:
    return connection.execute("select 1 from pg_roles where rolname = %s", (name,)).fetchone() is not None

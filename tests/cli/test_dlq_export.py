"""`taskharbor dlq export`: one record a line, and no payload that was not asked for."""

import base64
import json
from typing import Any

import pytest

from taskharbor.drivers import JobRecord
from tests.cli.dead_jobs import Dead, audit_of, bury, die_again
from tests.cli.shell import store, taskharbor

SECRET = "secret4711"
KEYS = [
    "id", "type", "queue", "state", "priority", "group", "flow_id", "idempotency_key", "created_at", "run_at",
    "began_at", "failed_at", "finished_at", "attempts", "max_attempts", "deliveries", "lost", "edits", "timeout",
    "metadata", "reason", "error_class", "fingerprint", "last_error", "payload_bytes", "payload", "payload_base64",
]  # fmt: skip


@pytest.fixture
def dead(dsn: str) -> str:
    quoting = Dead("m1", payload={"to": SECRET, "card": "4711"}, text=f"cannot reach {SECRET}")
    bury(dsn, quoting, Dead("m2"), Dead("v1", error="ValueError", queue="bill"))
    return dsn


def export(dsn: str, *arguments: str) -> list[dict[str, Any]]:
    answer = taskharbor("dlq", "export", *arguments, "--dsn", dsn)
    assert answer.code == 0, answer.err
    return [json.loads(line) for line in answer.out.splitlines()]


def test_one_record_a_line_always_with_the_same_keys(dead: str):
    found = export(dead)
    assert [list(each) for each in found] == [KEYS] * 3
    assert [each["id"] for each in found] == ["m1", "m2", "v1"]
    assert (found[0]["error_class"], found[0]["payload"], found[0]["payload_bytes"]) == ("ConnectionError", None, 36)
    assert taskharbor("dlq", "export", "--dsn", dead).err == "3 dead jobs were exported\n"


def test_only_what_was_asked_for(dead: str):
    assert [each["id"] for each in export(dead, "--queue", "mail", "--newest")] == ["m2", "m1"]
    assert [each["id"] for each in export(dead, "--error", "ValueError")] == ["v1"]
    assert [each["id"] for each in export(dead, "--limit", "1")] == ["m1"]
    assert export(dead, "--until", "1h") == []


def test_payloads_are_exported_on_request_and_that_is_audited(dead: str):
    assert SECRET not in taskharbor("dlq", "export", "--dsn", dead).out
    assert audit_of(dead) == []
    found = export(dead, "--queue", "mail", "--show-payload")
    assert found[0]["payload"] == {"to": SECRET, "card": "4711"}
    assert SECRET in found[0]["last_error"]
    (entry,) = audit_of(dead)
    assert (entry.action, entry.filter) == ("export", {"state": "dlq", "queue": "mail"})
    found = export(dead, "--queue", "mail", "--redact", "to")
    assert found[0]["payload"] == {"to": "•••", "card": "4711"}
    assert SECRET not in json.dumps(found)


def test_a_payload_as_it_was_written(dsn: str):
    payloads = {"a": b'{\n "n": 1.10,\n "big": 12345678901234567890123}', "b": b"\xff\x00", "c": b"not json"}
    store(dsn, *(JobRecord(id=id, type="x", queue="mail", payload=data) for id, data in payloads.items()))
    die_again(dsn, *map(Dead, payloads))
    lines = taskharbor("dlq", "export", "--show-payload", "--dsn", dsn).out.splitlines()
    assert '"payload":{"n":1.10,"big":12345678901234567890123}' in lines[0]
    for line, data in zip(lines[1:], (payloads["b"], payloads["c"]), strict=True):
        found = json.loads(line)
        assert (found["payload"], base64.b64decode(found["payload_base64"])) == (None, data)

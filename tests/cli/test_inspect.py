"""`taskharbor inspect`: everything about a job but what it carries, unless that is asked for."""

import json
import re
from datetime import datetime, timedelta

import pytest

from taskharbor.cli.lazy import load
from taskharbor.drivers import Driver, JobRecord
from taskharbor.model.job import replace
from taskharbor.policy.mask import MASK
from taskharbor.store.redaction import HIDDEN, Redaction
from tests.cli.shell import Answer, kill, reserve, store, taskharbor, within

SECRET = "canary-4711"
PAYLOAD = json.dumps({"to": SECRET, "card": {"number": 49927398716, "pin": "8642"}, "tags": ["blue-tag"]}).encode()


@pytest.fixture
def dead(dsn: str) -> str:
    """The id of a dead job whose error quotes its payload."""
    store(dsn, JobRecord(id="j1", type="mail", payload=PAYLOAD, max_attempts=3, metadata={"tenant": "north"}))
    kill(dsn, "j1", reason=f"ValueError: no {SECRET}", error=f"ValueError: {SECRET!r} and 49927398716\n  line 2")
    return "j1"


def inspect(dsn: str, *arguments: str) -> Answer:
    return taskharbor("inspect", "--dsn", dsn, *arguments)


def test_by_option_and_by_position(dsn: str, dead: str):
    assert inspect(dsn, "--id", dead, "--output", "json").out == inspect(dsn, dead, "--output", "json").out
    assert inspect(dsn, dead, "--id", "other").code == 2
    assert "expected the id of one job" in inspect(dsn).line


def test_the_payload_and_what_errors_quote_of_it_is_hidden(dsn: str, dead: str):
    for answer in (inspect(dsn, dead), inspect(dsn, dead, "--output", "json")):
        assert answer.code == 0
        assert SECRET not in answer.out
        assert "49927398716" not in answer.out
    out = inspect(dsn, dead).out
    assert f"last error\n    ValueError: '{MASK}' and {MASK}\n      line 2\n" in out
    assert f"({len(PAYLOAD)} bytes, hidden; use --show-payload)" in out
    assert "tenant: north" in out


def test_it_is_shown_when_it_is_asked_for(dsn: str, dead: str):
    answer = inspect(dsn, dead, "--show-payload", "--output", "json").json
    assert answer["payload"] == json.loads(PAYLOAD)
    assert answer["hidden"] == []
    assert SECRET in answer["last_error"]
    assert SECRET in inspect(dsn, dead, "--show-payload").out


def test_naming_what_to_hide_shows_the_rest(dsn: str, dead: str):
    answer = inspect(dsn, dead, "--redact", "TO", "--redact", "pin", "--output", "json").json
    assert answer["payload"] == {"to": MASK, "card": {"number": 49927398716, "pin": MASK}, "tags": ["blue-tag"]}
    assert answer["last_error"] == f"ValueError: '{MASK}' and 49927398716\n  line 2"


def test_json_has_the_keys_that_help_names(dsn: str, dead: str):
    found = re.search(r"JSON: \{(.*?)\}", load("inspect").help or "", re.DOTALL)
    assert found is not None
    assert list(inspect(dsn, dead, "--output", "json").json) == re.findall(r'"(\w+)"', found[1])


def test_a_result_is_hidden_like_a_payload(dsn: str):
    store(dsn, JobRecord(id="j1", type="mail"))
    (reserved,) = reserve(dsn)
    within(dsn, lambda driver, now: driver.ack(reserved.lease, now, json.dumps(SECRET).encode()))
    answer = inspect(dsn, "j1", "--output", "json")
    assert (answer.json["hidden"], answer.json["result_bytes"]) == (["payload", "result"], 13)
    assert SECRET not in answer.out + inspect(dsn, "j1").out
    assert inspect(dsn, "j1", "--show-payload", "--output", "json").json["result"] == SECRET


def test_a_running_job_names_its_worker(dsn: str):
    store(dsn, JobRecord(id="j1", type="mail"))
    reserve(dsn, worker="north:1")
    answer = inspect(dsn, "j1", "--output", "json").json
    assert (answer["state"], answer["worker"]) == ("inflight", "north:1")
    assert answer["lease_expires_at"].endswith("Z")


def test_unknown_is_exit_1(dsn: str, dead: str):
    answer = inspect(dsn, "nope")
    assert (answer.code, answer.line) == (1, "taskharbor: no job nope")


@pytest.mark.parametrize("payload", [b"\xff\xfe", b"not json canary-4711", b'"canary-4711"', b"[" * 5000, b""])
def test_a_payload_that_is_not_json(dsn: str, payload: bytes):
    store(dsn, JobRecord(id="j1", type="mail", payload=payload))
    kill(dsn, "j1", error=f"ValueError: {payload.decode(errors='replace')}")
    assert SECRET not in inspect(dsn, "j1").out
    assert inspect(dsn, "j1", "--show-payload").code == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('it\'s "quoted"', repr('it\'s "quoted"')),
        ("line\nbreak", repr("line\nbreak")),
        ("Grüße an alle", json.dumps("Grüße an alle")),
        (123456, "error 123456"),
        (12.345, "error 12.345"),
    ],
)
def test_values_are_found_in_every_form_an_error_may_quote(value: object, text: str):
    payload = json.dumps({"deep": [{"er": value}]}).encode()
    job = JobRecord(id="j1", type="x", payload=payload, last_error=text)
    assert HIDDEN.errors(job)[1].strip("'\"").endswith(MASK)
    assert Redaction(show=True).errors(job) == ("", text)


def test_fields_go_by_their_names_however_they_are_written():
    assert Redaction.of(False, ("PIN",)).value(b'[{"Pin": 1, "pins": 2}]') == [{"Pin": MASK, "pins": 2}]


def test_short_values_are_left_in_the_error():
    job = JobRecord(id="j1", type="x", payload=b'{"a": "on", "b": 1, "c": true, "d": null, "e": "   "}')
    job = replace(job, last_error="line 1 went on: true")
    assert HIDDEN.errors(job)[1] == "line 1 went on: true"


def save_steps(dsn: str) -> None:
    async def save(driver: Driver, now: datetime) -> None:
        (held,) = await driver.reserve(["default"], now, timedelta(minutes=1), 1)
        await driver.save(held.lease, "charge", b'v{"pin":"8642"}', now)
        await driver.save(held.lease, "taskharbor.checkpoint", b"v12", now)

    within(dsn, save)


def test_steps_are_listed_without_their_values(dsn: str):
    store(dsn, JobRecord(id="j1", type="mail"))
    assert "no step of it is stored" in inspect(dsn, "j1", "--steps").out
    save_steps(dsn)
    assert "steps" not in inspect(dsn, "j1", "--output", "json").json
    for answer in (inspect(dsn, "j1", "--steps"), inspect(dsn, "j1", "--steps", "--output", "json")):
        assert "charge" in answer.out
        assert "8642" not in answer.out
        assert "checkpoint" not in answer.out
    (step,) = inspect(dsn, "j1", "--steps", "--output", "json").json["steps"]
    assert list(step) == ["name", "at", "size", "execution", "value"]
    assert (step["name"], step["size"], step["execution"], step["value"]) == ("charge", 14, 1, None)


def test_values_of_steps_are_shown_when_they_are_asked_for(dsn: str):
    store(dsn, JobRecord(id="j1", type="mail"))
    save_steps(dsn)
    (step,) = inspect(dsn, "j1", "--steps", "--show-payload", "--output", "json").json["steps"]
    assert step["value"] == {"pin": "8642"}
    assert "8642" in inspect(dsn, "j1", "--steps", "--show-payload").out
    (step,) = inspect(dsn, "j1", "--steps", "--redact", "pin", "--output", "json").json["steps"]
    assert step["value"] == {"pin": MASK}


def test_a_fresh_requeue_forgets_the_steps(dsn: str):
    store(dsn, JobRecord(id="j1", type="mail"))
    save_steps(dsn)
    taskharbor("job", "cancel", "--dsn", dsn, "j1", "--yes")
    answer = taskharbor("dlq", "requeue", "--dsn", dsn, "j1", "--fresh", "--output", "json")
    assert (answer.code, answer.json["done"]) == (0, ["j1"])
    assert inspect(dsn, "j1", "--steps", "--output", "json").json["steps"] == []
    assert taskharbor("dlq", "requeue", "--dsn", dsn, "--all", "--fresh", "--yes").code == 2

"""Every parser of data from outside: it returns a value, or raises the error that its callers expect. Nothing else.

Damaged records of each driver are fuzzed in the conformance suite (`damage_samples`), answers of OmniQ's clients in
tests/omniq, slots of schedules against an oracle in tests/slots.
"""

import asyncio
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import click
import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from taskharbor.cli import options
from taskharbor.cli.options import read_json
from taskharbor.dashboard.pages.content import BadQuery
from taskharbor.dashboard.pages.filter_text import read_filter, write_filter
from taskharbor.drivers import StoredSchedule, cursor, dsn, open_driver
from taskharbor.drivers.postgres import options as postgres
from taskharbor.drivers.redis import options as redis
from taskharbor.drivers.redis.schedules import read_row
from taskharbor.drivers.sqlite import options as sqlite
from taskharbor.model.audit import AuditEntry, StoredAudit, read_entry
from taskharbor.model.codec import JsonCodec
from taskharbor.model.executions import Attempt, AttemptKind, read_trail, write_trail
from taskharbor.model.progress import Progress, read_note
from taskharbor.omniq.values import parsed
from taskharbor.policy.cron import parse_cron
from taskharbor.schedules.body import Schedule, UnreadableBody, read_body
from tests import lanes
from tests.dashboard.site import JSON, Site
from tests.security.mangled import data, texts

MANY = settings(max_examples=lanes.figure(test=60, full=5_000), deadline=None)
FEW = settings(max_examples=lanes.figure(test=15, full=600), deadline=None)
NOW = datetime(2030, 1, 1, tzinfo=UTC)
DEEP = b"[" * 100_000


def either(parse: Callable[[Any], object], value: Any, *allowed: type[BaseException]) -> object | None:
    """What the parser returns, or None if it refused; any other error fails the test."""
    try:
        return parse(value)
    except allowed:
        return None


# Addresses

DSNS = (
    "memory://",
    "sqlite:///jobs.db?synchronous=normal&retention=7d",
    "postgresql://ada:secret@db.example:5432/jobs?schema=x&pgbouncer=1&statement_timeout=30s",
    "postgresql:///jobs?host=/run/postgresql&sslmode=verify-full",
    "redis://ada:secret@[::1]:6379/3?timeout=5s&checks=0",
    "redis+cluster://a:1,b:2,c:3?retention=36h",
    "redis+sentinel://s1:26379,s2/mymaster/0",
    "rediss://host/0#fragment",
)


@MANY
@given(texts(*DSNS))
def test_addresses(text: str) -> None:
    for parse in (postgres.parse, redis.parse, sqlite.parse, dsn.scheme_of, dsn.redact):
        either(parse, text, ValueError, TypeError)


@FEW
@given(texts(*DSNS))
def test_an_address_opens_a_driver_or_says_why_not(text: str) -> None:
    """Nothing is connected to before `open`."""
    either(open_driver, text, ValueError, ModuleNotFoundError)


@MANY
@given(st.text(st.characters(exclude_characters="\x00", codec="utf-8"), min_size=4, max_size=20), texts(*DSNS))
def test_a_password_never_survives_redaction(password: str, text: str) -> None:
    from urllib.parse import quote

    secret = quote(password, safe="")
    if len(secret) < 6 or secret in "postgresql://ada@db.example:5432/jobs":
        return
    shown = dsn.redact(f"postgresql://ada:{secret}@db.example:5432/jobs")
    assert secret not in shown


# Times

SPANS = ("90", "90s", "15m", "2h", "1d", "500ms", "1e9d", "0.5h")
MOMENTS = (
    "2030-01-31T09:00:00Z",
    "2030-01-31T09:00+01:00",
    "2030-01-31",
    "20300131T0900Z",
    "9999-12-31T23:59:59-23:59",
)


def test_a_duration_has_plain_digits() -> None:
    """The same parser reads options of an address, of a command and of the dashboard."""
    for text, expected in (("002h", 7200), ("0h", 0), ("00", 0), (" 2h ", 7200), ("0.5m", 30), ("1ms", 0.001)):
        assert dsn.span(text, "x").total_seconds() == expected, text
    for text in (
        "²",
        "²h",
        "٣h",
        "２h",
        "1.٣h",
        "9" * 400,
        "9" * 400 + "d",
        "2 h",
        "1e9d",
        "-1h",
        "+1h",
        "h",
        "",
        "1H",
    ):
        with pytest.raises(ValueError, match="x: expected"):
            dsn.span(text, "x")


@MANY
@given(texts(*SPANS, *MOMENTS))
@example("002h")
@example("²")
@example("٣h")
@example("9" * 400)
@example("\u20032h")
def test_times_on_the_command_line(text: str) -> None:
    context, option = click.Context(click.Command("x")), click.Option(["--at"])
    for parse in (
        options.parse_moment,
        options.parse_duration,
        options.or_none(options.parse_duration),
        options.parse_time,
    ):
        found = either(lambda value, parse=parse: parse(context, option, value), text, click.BadParameter)  # type: ignore[misc]  # a default binds the loop's variable
        if isinstance(found, timedelta):
            assert found >= timedelta(0)


@MANY
@given(texts("30 2 * * *", "*/5 0-6,22 L * MON#2", "@daily", "0 0 29 2 *", "0 0 LW * 5L", "1-59/2 * * JAN-MAR SUN"))
def test_cron_expressions(text: str) -> None:
    found = either(parse_cron, text, ValueError)
    if found is not None:
        found.next_after(NOW.replace(tzinfo=None))  # type: ignore[attr-defined]  # a CronExpression


# JSON

PAYLOADS = (b'{"to": "ada", "n": [1, 2.5, null, true]}', b'"text"', b"1e400", b"-0", b'{"a": {"b": "\\ud800"}}', DEEP)


@MANY
@given(data(*PAYLOADS, b"\x80\x04\x95pickle.", b"!!python/object:os.system"))
def test_payloads(raw: bytes) -> None:
    codec = JsonCodec()
    for kind in (Any, dict[str, int], datetime, list[list[int]]):
        either(lambda value, kind=kind: codec.decode(value, kind), raw, ValueError, TypeError)  # type: ignore[misc]  # a default binds the loop's variable


@MANY
@given(data(*PAYLOADS))
def test_json_on_the_command_line(raw: bytes) -> None:
    typed = os.fsdecode(raw)  # as Python gives the words of a command line to a program
    either(lambda value: read_json(value, "--json"), "{}" if typed == "-" else typed, click.ClickException)


@MANY
@given(texts(*(raw.decode() for raw in PAYLOADS)))
def test_payloads_of_omniq_clients(text: str) -> None:
    either(parsed, text, ValueError)


# Cursors


@MANY
@given(texts(cursor.encode_cursor("01J"), cursor.encode_place(NOW, "01J"), cursor.encode_due(NOW, "nightly"), "MQ=="))
def test_cursors(text: str) -> None:
    for parse in (cursor.decode_cursor, cursor.decode_place, cursor.decode_schedule, cursor.decode_due):
        either(parse, text, ValueError)


@MANY
@given(st.text(st.characters(exclude_characters="\x00", codec="utf-8"), max_size=50))
def test_a_cursor_comes_back_as_it_was(text: str) -> None:
    assert cursor.decode_cursor(cursor.encode_cursor(text)) == text
    with pytest.raises(ValueError, match="damaged"):
        cursor.decode_schedule(cursor.encode_cursor(text))


# What core stored: a driver keeps the bytes as they are, another program may have changed them

TRAIL = write_trail([Attempt(number=1, kind=AttemptKind.LOST, worker="w", began_at=NOW, error="boom")])
ENTRY = AuditEntry(id="01J", at=NOW, by="ada", action="requeue", ids=("01H",), n=1, filter={"queue": "mail"})
NOTE = msgspec.msgpack.encode([3, 10, "half", 1_900_000_000_000])
BODY = b'{"v":1,"definition":{"rule":{"cron":"@daily"},"type":"report"},"reached":"2030-01-01T00:00:00Z"}'


@MANY
@given(data(TRAIL, msgspec.msgpack.encode([[]]), b"\x91" * 100_000))
def test_trails(raw: bytes) -> None:
    assert all(isinstance(attempt, Attempt) for attempt in read_trail(raw))


@MANY
@given(data(ENTRY.stored().data, b'{"x":' + DEEP, b'{"at":"2030-01-01"}'))
def test_entries_of_the_audit(raw: bytes) -> None:
    found = read_entry(StoredAudit(id="01J", at=NOW, by="ada", data=raw))
    assert isinstance(found, AuditEntry)


@MANY
@given(data(NOTE, b"\xde\xff\xff", b"\x91" * 100_000))
def test_notes_of_progress(raw: bytes) -> None:
    assert isinstance(read_note(raw), Progress | None)


@MANY
@given(data(BODY, b'{"v":99}', b'{"v":1,"definition":' + DEEP))
def test_bodies_of_schedules(raw: bytes) -> None:
    found = either(read_body, raw, UnreadableBody)
    assert found is None or isinstance(found, Schedule)


@MANY
@given(data(b"-" * 18 + b"r1\nreports\n{}", b"9" * 18 + b"\n\n"))
def test_rows_of_schedules_on_redis(raw: bytes) -> None:
    assert isinstance(read_row("nightly", raw), StoredSchedule | None)


# The dashboard

FILTERS = ('queue:mail state:dlq type:"send mail"', "error:ValueError since:2h", 'type:"a \\" b"', "group:a:b")


@MANY
@given(texts(*FILTERS))
@example("002h")  # looks like the beginning of an id
@example("queue:mail 002h")
@example("id:002h")
@example("0h")
@example("00")
@example("²")
@example("٣h")
@example("９９９９")
@example("ſ123")  # in capitals it would be one of ours
@example("9" * 1_900)
@example(" \u2003 0000 \t")
@example("since:'002h '")
def test_the_filter_bar(text: str) -> None:
    found = either(read_filter, text, BadQuery)
    if isinstance(found, dict):
        assert read_filter(write_filter(found)) == found
        assert found.get("id", "").isascii() or "id:" in text.lower()


@lru_cache(maxsize=1)
def site() -> tuple[asyncio.AbstractEventLoop, Site]:
    loop = asyncio.new_event_loop()
    made = Site()
    loop.run_until_complete(made.open())
    return loop, made


PLACES = ("/jobs", "/dead", "/flows", "/", "/operations/new", "/schedules", "/queues", "/jobs/x", "/workers")
NAMES = ("limit", "cursor", "state", "since", "until", "q", "status", "span", "by", "action", "queue", "type", "id")


@FEW
@given(st.sampled_from(PLACES), st.dictionaries(st.sampled_from(NAMES), texts("10", "dlq", "2h", *FILTERS), max_size=4))
@example("/jobs", {"limit": "", "cursor": "", "q": "10"})  # the beginning of an id
def test_addresses_of_the_dashboard(path: str, query: dict[str, str]) -> None:
    loop, made = site()
    safe = {name: value.encode("utf-8", "replace").decode() for name, value in query.items()}
    reply = loop.run_until_complete(made.send("GET", path, params=safe, headers=JSON))
    assert reply.status_code < 500, reply.text
    assert reply.is_redirect or isinstance(reply.json(), dict)  # an id leads to its job


FIELDS = ("priority", "max_attempts", "run_at", "timeout", "payload", "queue", "deliveries", "edits", "group")


@FEW
@given(st.dictionaries(st.sampled_from(FIELDS), texts("0", "5", "90s", "{}", "2030-01-31T09:00:00Z"), max_size=5))
def test_forms_of_the_dashboard(fields: dict[str, str]) -> None:
    loop, made = site()
    safe = {name: value.encode("utf-8", "replace").decode() for name, value in fields.items()}
    reply = loop.run_until_complete(made.post(f"/jobs/{made.scene.ready}/edit", **safe))
    assert reply.status_code < 500, reply.text


def test_the_examples_are_read_as_they_are() -> None:
    """Otherwise what is made of them would be refused at its first character."""
    assert postgres.parse(DSNS[2]).schema == "x"
    assert redis.parse(DSNS[4]).checks is False
    assert sqlite.parse(DSNS[1]).synchronous == "normal"
    assert read_trail(TRAIL)
    assert read_entry(ENTRY.stored()) == ENTRY
    assert read_filter(FILTERS[0])["queue"] == "mail"
    assert json.loads(PAYLOADS[0])

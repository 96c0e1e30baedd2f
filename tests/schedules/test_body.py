"""The body of a row: programs of two versions beside each other keep what they do not know."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from taskharbor.schedules.body import Definition, NewerBody, UnreadableBody, read_body, write_body, write_definition
from taskharbor.schedules.changes import created, declaration, ran, redeclared, with_edit
from taskharbor.schedules.plan import plan, stored
from taskharbor.schedules.rule import Rule
from taskharbor.testing.clock import START

MINUTE = timedelta(minutes=1)


def a_schedule(**options: Any) -> Any:
    definition = Definition(
        type="ping", queue="q", payload=b"{}", metadata={"b": "1", "a": "2"}, rule=Rule(every=MINUTE, **options)
    )
    return created(declaration("ping", definition, b"{}"), START, declared=False)


def of_a_later_program(schedule: Any) -> bytes:
    """The same body with fields that only a later version knows: in the state, in the definition and in the edit."""
    plain = msgspec.msgpack.decode(write_body(schedule))
    plain["new_state"] = {"x": [1, 2]}
    plain["definition"]["new_option"] = "kept"
    plain["edit"] = {**plain.get("edit", {}), "new_edit": 7, "jitter": "PT5S"}
    return msgspec.msgpack.encode(plain)


def unknown(data: bytes) -> tuple[Any, ...]:
    plain = msgspec.msgpack.decode(data)
    return plain.get("new_state"), plain["definition"].get("new_option"), plain.get("edit", {}).get("new_edit")


KEPT = ({"x": [1, 2]}, "kept", 7)


def test_what_is_written_is_read():
    schedule = a_schedule(jitter=timedelta(seconds=3), end_at=START + timedelta(days=9))
    assert read_body(write_body(schedule)) == schedule
    changed = schedule.with_state(
        paused=True,
        last_at=START,
        last_id="x",
        running=("x", "y"),
        asked=("z",),
        catch_up_to=START,
        fired=1,
        missed=2,
        skipped=3,
        calls=("c",),
    )
    assert read_body(write_body(changed)) == changed


def test_an_older_program_keeps_what_a_later_one_wrote_when_it_fires():
    schedule = read_body(of_a_later_program(a_schedule()))
    assert schedule.rule.jitter == timedelta(seconds=5)
    row = stored("ping", schedule)
    after = plan(row, schedule, START + MINUTE, running=())
    assert after.change.to is not None
    assert unknown(after.change.to.body) == KEPT
    assert read_body(after.change.to.body).body.fired == 1


def test_and_when_people_change_it():
    schedule = read_body(of_a_later_program(a_schedule()))
    assert unknown(write_body(with_edit(schedule, {"jitter": 1}, START))) == KEPT
    assert unknown(write_body(ran(schedule, "x"))) == KEPT


def test_another_declaration_replaces_the_definition_and_the_edit_as_a_whole():
    schedule = read_body(of_a_later_program(a_schedule()))
    definition = Definition(type="pong", queue="q", rule=Rule(every=MINUTE))
    after = redeclared(schedule, declaration("ping", definition, b"{}"), START)
    assert unknown(write_body(after)) == (KEPT[0], None, None)
    assert read_body(write_body(after)).definition.type == "pong"


def test_a_later_version_is_refused():
    with pytest.raises(NewerBody, match="later version of TaskHarbor wrote it"):
        read_body(write_body(a_schedule().with_state(v=2)))
    plain = {"v": 2, "something": "else"}
    with pytest.raises(NewerBody):
        read_body(msgspec.msgpack.encode(plain))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        b"\x81\xa1v\x01",
        msgspec.msgpack.encode({"v": "1"}),
        msgspec.msgpack.encode([1, 2]),
        b"\x91" * 5000,
        write_body(a_schedule())[:-3],
        write_body(a_schedule().with_state(edit={"every": "soon"})),
        write_body(a_schedule().with_state(definition=write_definition(msgspec.Raw(b"\x01")))),  # type: ignore[arg-type]  # not a definition
    ],
)
def test_a_damaged_body_is_refused(data: bytes):
    with pytest.raises(UnreadableBody, match="damaged"):
        read_body(data)


def with_rule(**options: Any) -> bytes:
    plain = msgspec.msgpack.decode(write_body(a_schedule()))
    plain["definition"]["rule"].update(options)
    return msgspec.msgpack.encode(plain)


NAIVE = "2030-01-01T00:00:00"


@pytest.mark.parametrize(
    "data",
    [
        *(with_rule(**{name: NAIVE}) for name in ("start_at", "end_at")),
        *(
            write_body(a_schedule().with_state(**{name: START.replace(tzinfo=None)}))
            for name in ("reached", "anchor", "last_at", "catch_up_to")
        ),
        write_body(a_schedule().with_state(edit={"start_at": NAIVE})),
        write_body(a_schedule().with_state(edit={"cron": "* * * * *"})),
        write_body(a_schedule().with_state(edit={"every": None})),
        with_rule(cron="* * * * *"),
        with_rule(every=None),
        with_rule(every="PT0S"),
        with_rule(every="-PT60S"),
        with_rule(jitter="-PT0.001S"),
    ],
)
def test_a_body_with_values_that_make_no_sense_is_damaged(data: bytes):
    with pytest.raises(UnreadableBody, match="damaged"):
        read_body(data)


def test_equal_definitions_have_equal_hashes_in_every_process():
    one = Definition(type="t", queue="q", metadata={"a": "1", "b": "2"}, rule=Rule(every=MINUTE))
    two = Definition(type="t", queue="q", metadata={"b": "2", "a": "1"}, rule=Rule(every=MINUTE))
    assert declaration("n", one, b"x").hash == declaration("n", two, b"x").hash
    other = msgspec.structs.replace(one, priority=1)
    assert declaration("n", one, b"x").hash != declaration("n", other, b"x").hash
    assert declaration("n", one, b"x").hash != declaration("n", one, b"y").hash
    encrypted = msgspec.structs.replace(one, payload=b"with a nonce")
    assert declaration("n", one, b"x").hash == declaration("n", encrypted, b"x").hash

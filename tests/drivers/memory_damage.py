"""Damages a record in memory as another program could in a store that is shared.

No program can do so without these functions. They let the conformance suite hold the memory driver, too, to the chapter
on damaged records. `reserve` meets the first three kinds where they are due. A record of unknown state is due nowhere,
so it is put into the line of due jobs, and the next reserve meets it there.
"""

from typing import Any, Literal, TypeAlias

from msgspec.structs import replace

from taskharbor.drivers.memory import MemoryDriver
from taskharbor.drivers.memory.records import Entry
from taskharbor.drivers.memory.store import MemoryStore

Damage: TypeAlias = Literal["type", "payload", "number", "state"]
KINDS: tuple[Damage, ...] = ("type", "payload", "number", "state")

_PLACES = {
    "run_at",
    "idempotency_key",
    "group",
    "depends_on",
    "flow_id",
    "handed_to",
    "finished_at",
    "priority",
    "keep_for",
}
_VALUES: dict[str, Any] = {
    "missing": None,
    "empty": "",
    "word": "many",
    "bytes": b"\xff\xfe",
    "negative": -1,
    "huge": 2**62,
    "fraction": 1.5,
    "infinite": float("nan"),
    "nested": [["x"]],
}
_FIELDS: dict[str, dict[str, Any]] = {
    "type": {"type": ""},
    "payload": {"payload": None},
    "number": {"attempts": "many"},
}


def damage(driver: MemoryDriver, id: str, how: Damage) -> None:
    """Damage the record of a job: its type or payload is missing, a number is a word, or its state is unknown."""
    store = driver.store
    with store.lock:
        entry = store.entries[id]
        if how != "state":
            entry.record = replace(entry.record, **_FIELDS[how])
            return
        _lose_state(store, entry)


def damage_field(driver: MemoryDriver, id: str, field: str, kind: str) -> bool:
    """Put a wrong value into a field of a record. False for one by which the store finds or orders the job: no other
    program can write to memory, so such a field is always sound."""
    store = driver.store
    with store.lock:
        entry = store.entries[id]
        if field == "state":
            _lose_state(store, entry)
        elif field in _PLACES:
            return False
        else:
            entry.record = replace(entry.record, **{field: _VALUES[kind]})
        return True


def _lose_state(store: MemoryStore, entry: Entry) -> None:
    store.leave(entry)
    entry.state = "lost"
    store.queue_of(entry).line_up(entry)

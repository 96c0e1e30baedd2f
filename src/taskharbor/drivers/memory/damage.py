"""A test hook: damage a record as a foreign program could damage one in a store that is shared.

Nothing but this module can damage a record in memory; it is here so that one suite can hold every driver to the
chapter on damaged records. `reserve` meets the first three kinds in the line. A record of unknown state stands in no
line, so it is noted as unmet, and the next reserve meets it there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec.structs import replace

from taskharbor.drivers.memory.entry import UNKNOWN, finished

if TYPE_CHECKING:
    from taskharbor.drivers.memory.driver import MemoryDriver

Damage: TypeAlias = Literal["type", "payload", "number", "state"]
KINDS: tuple[Damage, ...] = ("type", "payload", "number", "state")

_FIELDS: dict[str, dict[str, Any]] = {
    "type": {"type": ""},
    "payload": {"payload": None},
    "number": {"attempts": "many"},
}


def damage(driver: MemoryDriver, id: str, how: Damage) -> None:
    """Damage the record of a job: its type or payload is missing, a number is none, or its state is unknown."""
    store = driver.store
    with store.lock:
        entry = store.entries[id]
        if how != "state":
            entry.record = replace(entry.record, **_FIELDS[how])
            entry.tampered = True
            return
        if finished(entry):
            store.reopen(entry)
        store.stand(entry, entry.record, UNKNOWN)
        store.unmet[id] = entry

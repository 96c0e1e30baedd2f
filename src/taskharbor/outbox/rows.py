"""The rows of an outbox: written in the caller's transaction, taken in order, removed or set aside.

A row is one call that enqueued. Its records are finished: they have their ids, so that sending them again stores each
of them once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import msgspec

from taskharbor.drivers.within import POSTGRES, Caller, Within
from taskharbor.model.bounds import check_enqueue
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Enqueued
from taskharbor.model.safe_repr import shown
from taskharbor.model.times import to_us
from taskharbor.outbox.tables import OUTBOX

LAYOUT = 1
BATCH_ROWS = 500
BATCH_JOBS = 1_000
BATCH_BYTES = 4 * 2**20
HELD_S = 60  # Postgres: a relay that stands still for this long loses its batch to another one
MAX_PROBLEM_CHARS = 1_000

_FIELDS = {field.name: field.default for field in msgspec.structs.fields(JobRecord)} | {"metadata": {}}
_encode = msgspec.msgpack.Encoder().encode
_layout = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw]).decode
_records = msgspec.msgpack.Decoder(list[JobRecord]).decode

_INSERT = (
    f"insert into {OUTBOX} (job_id, jobs, at, records, problem) "
    "values (?, cast(? as integer), cast(? as bigint), ?, '')"
)
_LOOK = f"select id, jobs, length(records), at from {OUTBOX} where problem = '' and id > cast(? as bigint)"
# One relay of a database at a time, so that jobs leave in order. The lock ends with the transaction, however that ends.
_TURN = (
    "with turn as materialized (select pg_try_advisory_xact_lock(726873, "
    f"cast(cast(to_regclass('{OUTBOX}') as oid) as integer)) as mine) "
    f"{_LOOK} and (select mine from turn) order by id limit {BATCH_ROWS} for update skip locked"
)
_HELD = f"select set_config('idle_in_transaction_session_timeout', '{HELD_S}s', true)"


class Row(NamedTuple):
    """A row that a relay has taken. `records` is what it holds, not decoded."""

    id: int
    jobs: int
    at: int  # microseconds since 1970
    records: bytes

    def __repr__(self) -> str:
        return shown(self, "id", "jobs", "at")


class Unreadable(ValueError):
    """The records of a row cannot be read."""


def encoded(records: Sequence[JobRecord]) -> bytes:
    """Records as a row keeps them: of each only the fields that say something."""
    written = [
        {name: value for name, default in _FIELDS.items() if (value := getattr(record, name)) != default}
        for record in records
    ]
    return _encode((LAYOUT, written))


def decoded(data: bytes) -> list[JobRecord]:
    """The records of a row.

    >>> decoded(encoded([JobRecord(id="01J", type="ping")]))[0].type
    'ping'
    """
    try:
        layout, written = _layout(data)
        if layout != LAYOUT:
            raise Unreadable(f"expected layout {LAYOUT}, got {layout}: it was written by another version")
        return _records(written)
    except msgspec.MsgspecError:
        raise Unreadable("its records are damaged") from None


async def leave(
    inside: Within, connection: Any, records: Sequence[JobRecord], now: datetime, refusal: Exception
) -> list[Enqueued]:
    """Write jobs into the outbox of the caller's database; `refusal` if it has none."""
    check_enqueue(records)
    if not await inside(connection, _has_outbox, begins=False):
        raise refusal
    if records:
        await inside(connection, partial(_add, records, now))
    return [Enqueued(record.id, False) for record in records]


async def _has_outbox(caller: Caller) -> bool:
    return await caller.has(OUTBOX)


async def _add(records: Sequence[JobRecord], now: datetime, caller: Caller) -> None:
    await caller.ask(_INSERT, (records[0].id, len(records), to_us(now), encoded(records)))


async def take(after: int, caller: Caller) -> list[Row]:
    """The first rows behind an id, as many as may be sent at once; none while another relay has its turn."""
    if caller.database == POSTGRES:
        found = list(await caller.ask(_TURN, (after,)))
        if found:
            await caller.ask(_HELD, ())
    else:
        found = list(await caller.ask(f"{_LOOK} order by id limit {BATCH_ROWS}", (after,)))
    chosen = _bounded(found)
    if not chosen:
        return []
    held = await caller.ask(f"select id, records from {OUTBOX} where id in ({_list(chosen)})", ())
    records = {id: bytes(data) for id, data in held}
    return [Row(id, jobs, at, records[id]) for id, jobs, _, at in found if id in records]


async def finish(sent: Sequence[int], aside: Mapping[int, str], caller: Caller) -> None:
    """Remove what was sent, and note why others could not be."""
    if sent:
        await caller.ask(f"delete from {OUTBOX} where id in ({_list(sent)})", ())
    for id, problem in aside.items():
        await caller.ask(f"update {OUTBOX} set problem = ? where id = {id:d}", (problem[:MAX_PROBLEM_CHARS],))


def _bounded(found: Sequence[Sequence[Any]]) -> list[int]:
    chosen, jobs, size = list[int](), 0, 0
    for id, number, length, _ in found:
        jobs, size = jobs + number, size + length
        if chosen and (jobs > BATCH_JOBS or size > BATCH_BYTES):
            break
        chosen.append(id)
    return chosen


def _list(ids: Sequence[int]) -> str:
    return ", ".join(f"{id:d}" for id in ids)  # numbers of the table's own

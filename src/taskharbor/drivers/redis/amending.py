"""Amend: change stored jobs that are not running.

The records are read first: to find their queues, and because timeout and metadata share a field with the group limit.
The script compares the version that the editor saw. So what was read belongs to that version, or the change is refused.
Where one call changes a job several times, each change is made of the record as the change before it leaves it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from taskharbor.drivers.redis.reading import JobReader
from taskharbor.drivers.redis.records import limits, up_to_ms
from taskharbor.drivers.redis.script_args import AmendArgs
from taskharbor.drivers.redis.scripts import binary
from taskharbor.drivers.redis.store import RedisStore
from taskharbor.drivers.refusals import amended_since, no_job, not_amendable
from taskharbor.model.amendment import Amend
from taskharbor.model.bounds import check_amend
from taskharbor.model.errors import InvalidJob, TaskHarborError
from taskharbor.model.job import JobRecord, replace

MAX_CHANGED = 50  # jobs in one script
NOT_FOUND, OUTDATED = 1, 2  # what amend.lua returns for an unknown job, and for one that changed since
NO_VERSION = -1  # `edits` of no job: of a change that does not fit what was read, whatever the job is by now
DEFAULT_TIMEOUT_MS = 60_000  # what foreign clients see of a job without a timeout


async def amend(reader: JobReader, changes: Sequence[Amend], now: int) -> list[TaskHarborError | None]:
    """Change jobs, each on its own, in the order of the call; for each None or why it was refused."""
    results: dict[int, TaskHarborError | None] = {}
    for number, change in enumerate(changes):
        try:
            check_amend(change, reader.store.max_payload)
        except InvalidJob as invalid:
            results[number] = invalid
    wanted = [number for number in range(len(changes)) if number not in results]
    found = await reader.find(list(dict.fromkeys(changes[number].id for number in wanted)), now)
    queues: list[str] = []
    places: list[int] = []
    for number in wanted:
        info = found.get(changes[number].id)
        results[number] = no_job(changes[number].id) if info is None else None
        if info is not None:
            queues.append(info.job.queue)
            places.append(number)
    records = {id: info.job for id, info in found.items()}
    for home, positions in reader.store.router.by_home(queues):
        mine = [places[position] for position in positions]
        arrays = [_encoded(changes[number], records) for number in mine]
        for number, reply in zip(mine, await _run(reader.store, home, arrays, now), strict=True):
            results[number] = _error(changes[number].id, reply)
    return [results[number] for number in range(len(changes))]


async def _run(store: RedisStore, home: str, arrays: Sequence[Any], now: int) -> list[Any]:
    done: list[Any] = []
    while len(done) < len(arrays):  # a script that had to search long lists stops early
        some = arrays[len(done) : len(done) + MAX_CHANGED]
        done += await store.run(AmendArgs(now=now, home=home, changes=some), repeat=False)
    return done


def _encoded(change: Amend, records: dict[str, JobRecord]) -> tuple[Any, ...]:
    """A change as amend.lua takes it. `records`: as they read before it, and after the call as they read after it."""
    new, values, record = change.changes(), dict[str, Any](), records[change.id]
    fits = (record.deliveries, record.edits) == (change.deliveries, change.edits)
    if isinstance(change.payload, bytes):
        values["payload"] = binary(change.payload)
    if "run_at" in new:
        values["due_ms"] = up_to_ms(change.run_at) if isinstance(change.run_at, datetime) else False
    if "priority" in new:
        values["th_pri"] = change.priority
    if "max_attempts" in new:
        values["th_max"] = change.max_attempts
    if "timeout" in new or "metadata" in new:
        changed = replace(record, **{name: new[name] for name in ("timeout", "metadata") if name in new})
        timeout, _, extra = limits(changed)
        values |= {"timeout_ms": str(timeout or DEFAULT_TIMEOUT_MS), "th_x": extra or ""}
        if fits:
            records[change.id] = changed
    if fits:
        records[change.id] = replace(records[change.id], edits=record.edits + 1)
    return change.id, record.queue, change.deliveries, change.edits if fits else NO_VERSION, values


def _error(id: str, reply: Any) -> TaskHarborError | None:
    if reply == 0:
        return None
    if reply == NOT_FOUND:
        return no_job(id)
    if reply == OUTDATED:
        return amended_since(id)
    return not_amendable(id, reply.decode())

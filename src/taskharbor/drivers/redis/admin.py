"""Administration: requeue, cancel, delete and amend jobs, pause queues, heartbeats of workers.

An amend reads the records first: to find their queues, and because timeout and metadata share a field with the group
limit. The script compares the version that the editor saw. So what was read belongs to that version, or the change is
refused. Where one call changes a job several times, each change is made of the record as the change before it leaves
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from taskharbor.drivers.base import WORKER_FORGOTTEN_AFTER, WORKER_SILENCE
from taskharbor.drivers.redis.reading import JobReader
from taskharbor.drivers.redis.records import limits, seen_ms, up_to_ms
from taskharbor.drivers.redis.router import Where, ask_shared
from taskharbor.drivers.redis.scripts import ScriptCall, binary
from taskharbor.drivers.redis.store import RedisStore
from taskharbor.drivers.refusals import (
    amended_since,
    changed_since,
    no_job,
    not_amendable,
    paired,
    still_needed,
    wrong_state,
)
from taskharbor.drivers.slices import DoneSoFar, counted_changes
from taskharbor.model.amendment import Amend
from taskharbor.model.bounds import INT_MAX, check_amend
from taskharbor.model.errors import DriverError, InvalidJob, TaskHarborError
from taskharbor.model.job import JobRecord, Seen, WorkerInfo, replace

WORKERS = "{th}:workers"
TIDY_EVERY = timedelta(minutes=1)
MAX_MOVED = 100  # jobs in one script
MAX_AMENDED = 50  # jobs in one script
NOT_FOUND = 1  # what admin.lua and amend.lua return for an unknown job
CHANGED = "changed"  # and admin.lua for one that is not as it was seen
OUTDATED = 2  # and amend.lua
NO_VERSION = -1  # `edits` of no job: of a change that does not fit what was read, whatever the job is by now
DEFAULT_TIMEOUT_MS = 60_000  # what foreign clients see of a job without a timeout
Verb = Literal["requeue", "cancel", "delete"]
_worker = msgspec.msgpack.Decoder(WorkerInfo).decode


async def change(
    reader: JobReader,
    verb: Verb,
    ids: Sequence[str],
    now: int,
    seen: Sequence[Seen] | None,
    how: dict[str, Any],
) -> list[DriverError | None]:
    """Change jobs; those without a stored location are looked for in all queues: a foreign client may have published
    them."""
    conditions = [() if one is None else (_condition(one),) for _, one in paired(ids, seen)]
    store = reader.store
    with counted_changes(verb) as done:
        replies = await _run(store, verb, [(id, None) for id in ids], conditions, now, how, done) if ids else []
        missing = [id for id, reply in zip(ids, replies, strict=True) if reply == NOT_FOUND]
        queues = await reader.find_queues(missing) if missing else {}
        late = [number for number, id in enumerate(ids) if replies[number] == NOT_FOUND and id in queues]
        if late:
            where = [(ids[number], queues[ids[number]]) for number in late]
            more = await _run(store, verb, where, [conditions[number] for number in late], now, how, done)
            for number, reply in zip(late, more, strict=True):
                replies[number] = reply
    return [_error(id, reply, verb) for id, reply in zip(ids, replies, strict=True)]


def _condition(seen: Seen) -> tuple[int, int, int]:
    """What was seen of a job, as admin.lua compares it. A number that no job has stays one."""
    deliveries, edits = (min(max(int(number), -1), INT_MAX + 1) for number in (seen.deliveries, seen.edits))
    return deliveries, edits, seen_ms(seen.finished_at)


async def _run(
    store: RedisStore,
    verb: Verb,
    where: Where,
    conditions: Sequence[tuple[Any, ...]],
    now: int,
    how: dict[str, Any],
    done: DoneSoFar,
) -> list[Any]:
    """What admin.lua returns for each job. `conditions`: for each nothing, or what it has to be like."""
    replies: list[Any] = []
    for home, places in await store.router.place(where):
        if home is None:
            replies += [NOT_FOUND] * len(places)
            continue
        mine = conditions[len(replies) : len(replies) + len(places)]
        jobs = [(*place, *condition) for place, condition in zip(places, mine, strict=True)]
        given = {"now": now, "home": home, "operation": verb, **how}
        replies += await _in_slices(store, "admin", jobs, MAX_MOVED, given, done)
        await store.router.deliver([home])
    return replies


async def _in_slices(
    store: RedisStore, script: str, jobs: Sequence[Any], most: int, given: dict[str, Any], so_far: DoneSoFar
) -> list[Any]:
    """What a script returns for each job, `most` of them in one script. One that had to search long lists stops
    early."""
    done: list[Any] = []
    while len(done) < len(jobs):
        some = await store.run(ScriptCall(script, jobs=jobs[len(done) : len(done) + most], **given), repeat=False)
        done += some
        so_far.number += some.count(0)
    return done


def _error(id: str, reply: Any, verb: Verb) -> DriverError | None:
    if reply == 0:
        return None
    if reply == NOT_FOUND:
        return no_job(id)
    text = reply.decode()
    if text == CHANGED:
        return changed_since(id)
    if text.startswith("needed "):
        return still_needed(id, int(text.removeprefix("needed ")))
    assert verb != "delete", "delete refuses only what is needed, or has changed"
    return wrong_state(id, text, verb)


async def pause(store: RedisStore, queue: str, on: bool) -> None:
    await store.router.use_queues([queue])
    await store.run(ScriptCall("pause", home=store.router.home_of(queue), queue=queue, on=on))


async def is_paused(store: RedisStore, queue: str) -> bool:
    return bool(await store.endpoint.ask("EXISTS", f"{{{queue}}}:paused", key=f"{{{queue}}}"))


async def beat(store: RedisStore, info: WorkerInfo, now: datetime) -> None:
    """Store a heartbeat, and once a minute forget workers that have sent none for long."""
    data = msgspec.msgpack.encode(msgspec.structs.replace(info, seen_at=now))
    await ask_shared(store.endpoint, "HLEN", WORKERS)
    await store.endpoint.write("HSET", WORKERS, info.worker, data, key=WORKERS)
    if store.tidied_at is not None and timedelta() <= now - store.tidied_at < TIDY_EVERY:
        return
    store.tidied_at = now
    silent = [worker.worker for worker in await _workers(store) if worker.seen_at <= now - WORKER_FORGOTTEN_AFTER]
    if silent:
        await store.endpoint.ask("HDEL", WORKERS, *silent, key=WORKERS)


async def workers(store: RedisStore, now: datetime) -> list[WorkerInfo]:
    """The workers that have sent a heartbeat lately, by name."""
    alive = [worker for worker in await _workers(store) if worker.seen_at > now - WORKER_SILENCE]
    return sorted(alive, key=lambda worker: worker.worker)


async def _workers(store: RedisStore) -> list[WorkerInfo]:
    found = []
    for data in await ask_shared(store.endpoint, "HVALS", WORKERS):
        try:
            found.append(_worker(data))
        except msgspec.MsgspecError:
            continue  # another program wrote it
    return found


# Amend


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
    results |= {number: no_job(changes[number].id) for number in wanted if changes[number].id not in found}
    known = [number for number in wanted if number not in results]
    records = {id: info.job for id, info in found.items()}
    with counted_changes("amend") as done:
        for home, positions in reader.store.router.by_home([records[changes[number].id].queue for number in known]):
            mine = [known[position] for position in positions]
            arrays = [_amended(changes[number], records) for number in mine]
            replies = await _in_slices(reader.store, "amend", arrays, MAX_AMENDED, {"now": now, "home": home}, done)
            for number, reply in zip(mine, replies, strict=True):
                results[number] = _amend_error(changes[number].id, reply)
    return [results[number] for number in range(len(changes))]


def _amended(change: Amend, records: dict[str, JobRecord]) -> tuple[Any, ...]:
    """A change as amend.lua takes it. `records`: as they read before it, and after the call as they read after it."""
    new, values, record = change.changes(), dict[str, Any](), records[change.id]
    fits = (record.deliveries, record.edits) == (change.deliveries, change.edits)
    if isinstance(change.payload, bytes):
        values["payload"] = binary(change.payload)
    if "run_at" in new:
        values["due_ms"] = up_to_ms(change.run_at) if isinstance(change.run_at, datetime) else False
    names = (("last_error", "last_error"), ("reason", "th_reason"), ("trail", "th_trail"), ("note", "th_note"))
    values |= {
        field: binary(text) if isinstance(text, bytes) else text
        for name, field in names
        if isinstance(text := new.get(name), bytes | str)
    }
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


def _amend_error(id: str, reply: Any) -> TaskHarborError | None:
    if reply == 0:
        return None
    if reply == NOT_FOUND:
        return no_job(id)
    if reply == OUTDATED:
        return amended_since(id)
    return not_amendable(id, reply.decode())

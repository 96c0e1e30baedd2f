"""Administration: requeue, cancel and delete jobs, pause queues, heartbeats of workers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from taskharbor.drivers.base import WORKER_FORGOTTEN_AFTER, WORKER_SILENCE
from taskharbor.drivers.redis.reading import JobReader
from taskharbor.drivers.redis.records import seen_ms
from taskharbor.drivers.redis.router import Where
from taskharbor.drivers.redis.script_args import AdminArgs, PauseArgs
from taskharbor.drivers.redis.store import RedisStore
from taskharbor.drivers.refusals import changed_since, no_job, paired, still_needed, wrong_state
from taskharbor.model.bounds import INT_MAX
from taskharbor.model.errors import DriverError
from taskharbor.model.job import Seen, WorkerInfo

WORKERS = "{th}:workers"
MAX_MOVED = 100  # jobs in one script
NOT_FOUND = 1  # what admin.lua returns for an unknown job
CHANGED = "changed"  # and for one that is not as it was seen
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
    replies = await _run(store, verb, [(id, None) for id in ids], conditions, now, how) if ids else []
    missing = [id for id, reply in zip(ids, replies, strict=True) if reply == NOT_FOUND]
    queues = await reader.find_queues(missing) if missing else {}
    late = [number for number, id in enumerate(ids) if replies[number] == NOT_FOUND and id in queues]
    if late:
        where = [(ids[number], queues[ids[number]]) for number in late]
        more = await _run(store, verb, where, [conditions[number] for number in late], now, how)
        for number, reply in zip(late, more, strict=True):
            replies[number] = reply
    return [_error(id, reply, verb) for id, reply in zip(ids, replies, strict=True)]


def _condition(seen: Seen) -> tuple[int, int, int]:
    """What was seen of a job, as admin.lua compares it. A number that no job has stays one."""
    deliveries, edits = (min(max(int(number), -1), INT_MAX + 1) for number in (seen.deliveries, seen.edits))
    return deliveries, edits, seen_ms(seen.finished_at)


async def _run(
    store: RedisStore, verb: Verb, where: Where, conditions: Sequence[tuple[Any, ...]], now: int, how: dict[str, Any]
) -> list[Any]:
    """What admin.lua returns for each job. `conditions`: for each nothing, or what it has to be like."""
    replies: list[Any] = []
    for home, places in await store.router.place(where):
        if home is None:
            replies += [NOT_FOUND] * len(places)
            continue
        mine = conditions[len(replies) : len(replies) + len(places)]
        jobs = [(*place, *condition) for place, condition in zip(places, mine, strict=True)]
        done: list[Any] = []
        while len(done) < len(jobs):  # a script that had to search long lists stops early
            some = jobs[len(done) : len(done) + MAX_MOVED]
            done += await store.run(AdminArgs(now=now, home=home, operation=verb, jobs=some, **how), repeat=False)
        replies += done
        await store.router.deliver([home])
    return replies


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
    await store.run(PauseArgs(home=store.router.home_of(queue), queue=queue, on=on))


async def is_paused(store: RedisStore, queue: str) -> bool:
    return bool(await store.endpoint.ask("EXISTS", f"{{{queue}}}:paused", key=f"{{{queue}}}"))


async def beat(store: RedisStore, info: WorkerInfo, now: datetime) -> None:
    """Store a heartbeat, and forget workers that have sent none for long."""
    data = msgspec.msgpack.encode(msgspec.structs.replace(info, seen_at=now))
    await store.endpoint.write("HSET", WORKERS, info.worker, data, key=WORKERS)
    silent = [worker.worker for worker in await _workers(store) if worker.seen_at <= now - WORKER_FORGOTTEN_AFTER]
    if silent:
        await store.endpoint.ask("HDEL", WORKERS, *silent, key=WORKERS)


async def workers(store: RedisStore, now: datetime) -> list[WorkerInfo]:
    """The workers that have sent a heartbeat lately, by name."""
    alive = [worker for worker in await _workers(store) if worker.seen_at > now - WORKER_SILENCE]
    return sorted(alive, key=lambda worker: worker.worker)


async def _workers(store: RedisStore) -> list[WorkerInfo]:
    found = []
    for data in await store.endpoint.ask("HVALS", WORKERS, key=WORKERS):
        try:
            found.append(_worker(data))
        except msgspec.MsgspecError:
            continue  # another program wrote it
    return found

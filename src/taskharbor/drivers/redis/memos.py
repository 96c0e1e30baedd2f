"""Memos of steps: a hash beside the record, which says whether that is its own."""

from __future__ import annotations

from taskharbor.drivers.redis.leases import refusal
from taskharbor.drivers.redis.reading import JobReader
from taskharbor.drivers.redis.records import moment_of
from taskharbor.drivers.redis.scripts import ScriptCall, binary
from taskharbor.drivers.redis.store import RedisStore
from taskharbor.model.lease import Lease
from taskharbor.model.memo import Memo, memo_place


async def save(store: RedisStore, lease: Lease, name: str, value: bytes, now: int) -> None:
    """Store a memo, or raise why its lease does not hold."""
    given = {"queue": lease.queue, "id": lease.job_id, "token": lease.token, "name": name, "value": binary(value)}
    home = store.router.home_of(lease.queue)
    code = await store.run(ScriptCall("save_memo", now=now, home=home, **given), durable=True, timed=True)
    if code:
        raise refusal(lease, code)


async def steps(reader: JobReader, id: str) -> list[Memo]:
    """The memos of a job, if it has any. What another program wrote among them is left out."""
    found = (await reader.find([id], 0)).get(id)
    if found is None or not found.job.has_memos:
        return []
    queue, store = found.job.queue, reader.store
    reply = await store.run(ScriptCall("read_memos", home=store.router.home_of(queue), queue=queue, id=id))
    memos = [_memo(name, data) for name, data in zip(reply[::2], reply[1::2], strict=True)]
    return sorted((memo for memo in memos if memo is not None), key=memo_place)


def _memo(name: bytes, data: bytes) -> Memo | None:
    at, _, rest = data.partition(b" ")
    execution, space, value = rest.partition(b" ")
    moment = moment_of(at)
    if moment is None or not space or not execution.isdigit():
        return None
    return Memo(name.decode(errors="replace"), value, moment, int(execution))

"""Leases: reserve jobs, extend leases, release what a worker holds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from taskharbor.drivers.base import within_lease
from taskharbor.drivers.redis.endpoint import LOST, elapsed_ms
from taskharbor.drivers.redis.resp import monotonic
from taskharbor.drivers.redis.router import QueueGrants, sliced
from taskharbor.drivers.redis.scripts import ScriptCall, binary
from taskharbor.drivers.redis.store import RedisStore
from taskharbor.drivers.refusals import LeaseCode, lease_refusal
from taskharbor.model.errors import BackendUnavailable, DriverError
from taskharbor.model.lease import Lease
from taskharbor.model.times import from_ms

LATE_MS = 1000  # an extend that took longer may return a lease that has ended meanwhile
MAX_RELEASED = 100  # leases in one script
MAX_CODE = 1000  # the fence returns a code, or for a lease that has ended its end in ms, which is larger


async def reserve(
    store: RedisStore, queues: Sequence[str], now: int, lease_ms: int, limit: int, worker: str, tokens: Sequence[str]
) -> list[QueueGrants]:
    """What was granted in each queue, or came late of an earlier call."""
    if late := store.late.take(worker, queues, limit, now + lease_ms // 2):
        return late

    async def reserve_some(home: str, some: Sequence[str], share: int, own: Sequence[str]) -> list[QueueGrants]:
        given = {"home": home, "lease_ms": lease_ms, "limit": share, "worker": worker, "tokens": own}
        call = _reserve(store, some, now, lease_ms, given)
        return await (store.late.reserve(worker, call) if store.router.divides else call)

    return await store.router.reserve(queues, limit, tokens, reserve_some)


async def _reserve(
    store: RedisStore, queues: Sequence[str], now: int, lease_ms: int, given: dict[str, Any]
) -> list[QueueGrants]:
    """One reserve. If its reply is lost, the repeat finds by the tokens what was granted, and leases it from now on:
    the time without a reply is not taken from the lease."""
    within, began = within_lease(timedelta(milliseconds=lease_ms)), monotonic()
    try:
        if len(queues) == 1 and store.try_plain("reserve"):
            call = ScriptCall("reserve_plain", now=now, queue=queues[0], **given)
            reply = await store.run(call, repeat=False, within=within)
            if reply != b"SLOW":
                arrival, jobs = reply
                granted = [(values[-1], token, values) for values, token in zip(jobs, given["tokens"], strict=False)]
                return [QueueGrants(queues[0], arrival, granted, now + lease_ms)]
            store.skip_plain("reserve")
        replies = await store.run(ScriptCall("reserve", now=now, queues=queues, **given), repeat=False, within=within)
    except BackendUnavailable as error:
        if not isinstance(error.__cause__, LOST):
            raise
        first, now = now, now + elapsed_ms(began)
        again = ScriptCall("reserve", now=now, queues=queues, repeats=first, **given)
        replies = await store.run(again, repeat=False, within=within)
    return [
        QueueGrants(
            name.decode(), arrival, [(id, token.decode(), values) for id, token, values in jobs], now + lease_ms
        )
        for name, arrival, jobs in replies
    ]


async def extend(
    store: RedisStore, leases: Sequence[Lease], now: int, lease_ms: int, notes: Mapping[str, bytes]
) -> list[Lease | DriverError]:
    """Extend leases, or say why not. `notes`: what to store with some of them, by token."""
    began, within = monotonic(), within_lease(timedelta(milliseconds=lease_ms))

    async def extend_in(home: str, positions: Sequence[int]) -> Sequence[int]:
        mine = [_encoded(leases[position], notes) for position in positions]
        args = ScriptCall("extend", now=now, home=home, lease_ms=lease_ms, leases=mine)
        replies: Sequence[int] = await store.run(args, within=within, timed=True)
        return replies

    # For each lease its new end in ms, or minus a refusal of the fence.
    ends = await store.each_home([lease.queue for lease in leases], extend_in)
    elapsed = elapsed_ms(began)

    def result(lease: Lease, end: int | BackendUnavailable) -> Lease | DriverError:
        if isinstance(end, BackendUnavailable):
            return end
        if elapsed > LATE_MS and 0 < end <= now + elapsed:  # it ended while the server did not answer
            end = -end
        return refusal(lease, -end) if end < 0 else Lease(lease.job_id, lease.queue, lease.token, from_ms(end))

    return [result(lease, end) for lease, end in zip(leases, ends, strict=True)]


def _encoded(lease: Lease, notes: Mapping[str, bytes]) -> tuple[Any, ...]:
    """A lease as extend.lua takes it."""
    note = notes.get(lease.token)
    head = (lease.queue, lease.job_id, lease.token)
    return head if note is None else (*head, binary(note))


def refusal(lease: Lease, code: int) -> DriverError:
    """A refusal of the fence (95_fence.lua) as an error."""
    if code > MAX_CODE:
        return lease_refusal(LeaseCode.EXPIRED, lease.job_id, from_ms(code))
    return lease_refusal(code, lease.job_id)


async def release(store: RedisStore, worker: str, now: int, keep: Sequence[str]) -> int:
    """Give back what a worker holds, in the order of arrival, in slices."""
    router = store.router

    def held_in(home: str, queues: Sequence[str]) -> tuple[str, Callable[[], Awaitable[list[Any]]]]:
        return home, partial(_leases_of, store, home, queues, worker, now, keep)

    names = await router.known_queues(partly=True)
    found = await router.each([held_in(home, queues) for home, queues in router.parts(names)])
    leases = [lease for part in found if not isinstance(part, BackendUnavailable) for lease in part]
    leases.sort(key=lambda lease: int(lease[2]))
    number = 0
    for home, positions in store.router.by_home([queue for queue, _, _ in leases]):
        for some in sliced([leases[position] for position in positions], MAX_RELEASED):
            given = [(queue, binary(id)) for queue, id, _ in some]
            number += await store.run(ScriptCall("release", now=now, home=home, worker=worker, keep=keep, leases=given))
    return number


async def _leases_of(
    store: RedisStore, home: str, queues: Sequence[str], worker: str, now: int, keep: Sequence[str]
) -> list[Any]:
    """What a worker holds in these queues: queue, id, place in the order of arrival."""
    found: list[Any] = []
    number, cursor = 1, "0"
    while number:
        args = ScriptCall(
            "list_leases",
            now=now,
            home=home,
            queues=queues,
            worker=worker,
            keep=keep,
            queue_number=number,
            cursor=cursor,
        )
        some, number, following = await store.run(args)
        found += [(queue.decode(), id, arrival) for queue, id, arrival in some]
        cursor = following.decode()
    return found

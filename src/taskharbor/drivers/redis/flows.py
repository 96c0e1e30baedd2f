"""Flows: read one, cancel one, list them in pages.

Each queue has an index of the flows that have jobs in it, and for each of these its jobs, scored by their state: so
the status of a flow and its first and last job take a few probes in each of its queues, whatever its size. One call
looks at no more than MAX_SCANNED_FLOWS.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any, Literal

from taskharbor.drivers.base import FLOW_CANCELLED_REASON, MAX_SCANNED_FLOWS
from taskharbor.drivers.cursor import encode_cursor
from taskharbor.drivers.queries import FlowQuery
from taskharbor.drivers.redis.id_walk import IdWalk, JobPlace, WalkSource, found_ids
from taskharbor.drivers.redis.records import moment_of
from taskharbor.drivers.redis.router import sliced
from taskharbor.drivers.redis.scripts import ScriptCall, binary
from taskharbor.drivers.redis.store import RedisStore
from taskharbor.drivers.slices import DoneSoFar, counted_flow
from taskharbor.model.job import EPOCH, FlowInfo, FlowPage, State, flow_status

MAX_READ = 200  # records in one script
MAX_WHOLE = 500  # jobs of a flow that one script reads, of which nothing changes meanwhile


async def read_flow(store: RedisStore, flow: str) -> list[Any]:
    """The records of a flow, as th.whole_record returns them."""
    found: list[Any] = []
    for home, queues in await store.router.flow_parts(flow):
        found += await _read_part(store, flow, home, queues)
    return found


async def _read_part(store: RedisStore, flow: str, home: str, queues: list[str] | Literal[False]) -> list[Any]:
    """A large flow is read in slices until no job is new. So what a job spawned, which was read as done, is read
    too."""
    found: dict[tuple[bytes, bytes], Any] = {}
    while True:
        is_large, replies = await store.run(
            ScriptCall("read_flow", home=home, flow=flow, queues=queues, most=MAX_WHOLE)
        )
        if not is_large:
            return list(replies)
        new = [(queue, id) for queue, id in replies if (queue, id) not in found]
        if not new:
            return [record for record in found.values() if record]
        for part in sliced(new, MAX_READ):
            jobs = [(binary(id), binary(queue)) for queue, id in part]
            found |= dict(zip(part, await store.run(ScriptCall("read_jobs", home=home, jobs=jobs)), strict=True))


async def flow_ids(store: RedisStore, flow: str) -> list[JobPlace]:
    """The ids of a flow's jobs, with their queues."""
    found: list[JobPlace] = []
    for home, queues in await store.router.flow_parts(flow):
        _, replies = await store.run(ScriptCall("read_flow", home=home, flow=flow, queues=queues, most=0))
        found += [JobPlace(id.decode(errors="replace"), id, queue.decode()) for queue, id in replies]
    return found


async def cancel_flow(store: RedisStore, flow: str, now: int) -> int:
    """Cancel the jobs of a flow that are not terminal; returns how many."""
    with counted_flow(flow) as cancelled:
        await store.router.cancel_flow(flow, partial(cancel_part, store, flow, now, cancelled))
    return cancelled.number


async def cancel_part(
    store: Any,
    flow: str,
    now: int,
    cancelled: DoneSoFar,
    home: str,
    queues: Sequence[Any] | Literal[False],
    generation: str,
) -> bool:
    """Flag a flow, and cancel what is not terminal, in slices. Returns whether it has any record. `store`: whatever
    has `run`."""
    number, cursor = 1, b"0"
    while True:
        names = [one if isinstance(one, str) else binary(one) for one in queues] if queues is not False else queues
        args = ScriptCall(
            "cancel_flow",
            now=now,
            home=home,
            flow=flow,
            queues=names,
            reason=FLOW_CANCELLED_REASON,
            generation=generation,
            queue_number=number,
            cursor=binary(cursor),
        )
        some, any_record, queues, number, cursor = await store.run(args, repeat=False)
        cancelled.number += some
        if not number:
            return bool(any_record)


# Pages of flows


PAGE_SIZE = 100  # flows of one queue, or probed, in one script
MAX_LISTED_QUEUES = 50  # in one script
STATES = (State.READY, State.DONE, State.CANCELLED, State.DLQ)  # as read_steps.lua says of which there are some


class FlowPages:
    """One call of `flows`. `queues`: all that there are."""

    def __init__(self, store: RedisStore, wanted: FlowQuery, queues: Sequence[str]) -> None:
        self._store = store
        self._wanted = wanted
        after = (wanted.after or "").encode()
        self._walk = IdWalk(
            [WalkSource(queue, after) for queue in queues],
            self._fetch,
            newest=wanted.newest,
            most=max(MAX_SCANNED_FLOWS, 4 * len(queues)),
            count=wanted.limit + 1,
            page=PAGE_SIZE,
        )
        self._ahead: list[JobPlace] = []  # taken, and of the flow that comes next

    async def page(self) -> FlowPage:
        """The page. It ends with a cursor unless everything behind it was looked at."""
        items, scanned, last = list[FlowInfo](), 0, self._wanted.after
        while scanned < MAX_SCANNED_FLOWS:
            flows = await self._take(min(PAGE_SIZE, self._wanted.limit + 1, MAX_SCANNED_FLOWS - scanned))
            scanned += len(flows)
            for id, found in zip(flows, await self._read(flows), strict=True):
                if found is not None and self._wanted.fits(found):
                    if len(items) == self._wanted.limit:
                        return FlowPage(tuple(items), encode_cursor(items[-1].id))
                    items.append(found)
                last = id
            if not flows or self._is_over:
                break
        return FlowPage(tuple(items), None if self._is_over or last is None else encode_cursor(last))

    @property
    def _is_over(self) -> bool:
        return self._walk.is_over and not self._ahead

    async def _take(self, count: int) -> dict[str, list[JobPlace]]:
        """The next flows, each with the queues that it is in."""
        flows: dict[str, list[JobPlace]] = {}
        while True:
            some = self._ahead or await self._walk.take(1)
            self._ahead = []
            if not some and not self._walk.is_over and flows:
                flows.popitem()  # the walk may fetch no more: this flow may be in further queues
            if not some:
                return flows
            if some[0].text not in flows and len(flows) == count:
                self._ahead = some
                return flows
            flows.setdefault(some[0].text, []).append(some[0])

    async def _fetch(self, sources: Sequence[WalkSource], count: int) -> None:
        def args(home: str, some: list[WalkSource]) -> ScriptCall:
            return ScriptCall(
                "list_flows",
                home=home,
                queues=[source.queue for source in some],
                afters=[binary(source.after or b"") for source in some],
                newest=self._wanted.newest,
                count=count,
            )

        queues = [source.queue for source in sources]
        replies = await self._store.run_for_each(sources, queues, MAX_LISTED_QUEUES, args)
        for source, (flows, after) in zip(sources, replies, strict=True):
            source.ids, source.after = found_ids(source.queue, flows)[::-1], after

    async def _read(self, flows: dict[str, list[JobPlace]]) -> list[FlowInfo | None]:
        """How these flows are; None for one that has no jobs left."""

        def args(home: str, some: list[JobPlace]) -> ScriptCall:
            return ScriptCall(
                "read_steps", home=home, parts=[part for one in some for part in (one.queue, binary(one.data))]
            )

        places = [place for places in flows.values() for place in places]
        found = await self._store.run_for_each(places, [place.queue for place in places], PAGE_SIZE, args)
        replies = dict(zip(places, found, strict=True))
        return [_info(id, [reply for place in places if (reply := replies[place])]) for id, places in flows.items()]


def _info(id: str, parts: Sequence[Any]) -> FlowInfo | None:
    """A flow from what read_steps.lua returns for each of its queues."""
    ends: list[tuple[str, datetime]] = []
    states: set[State] = set()
    for some, found in parts:
        states.update(state for state, number in zip(STATES, some, strict=True) if number)
        ids = [one.decode(errors="replace") for one in found[::2]]
        ends += zip(ids, (moment_of(at) or EPOCH for at in found[1::2]), strict=True)
    if not ends:
        return None
    (_, created), (_, updated) = min(ends), max(ends)
    return FlowInfo(id, flow_status(list(states)), created, updated, (), ())

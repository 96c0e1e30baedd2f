"""Flows: how one stands, with the jobs outside of it that hold it up; cancelling it, and bringing its dead jobs back.

A step of a flow may be a stored job that its idempotency key led to. That job stays in its own flow, or in none, so a
store that is asked for the flow does not count it. If it is dead or cancelled, or waits for a job that is, the flow
waits for ever. So a caller that asks how the flow stands must learn of that job.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from taskharbor.drivers.base import DEPENDENCY_CANCELLED_REASON, Driver
from taskharbor.model.amendment import Amend
from taskharbor.model.errors import DriverError, JobNotFound
from taskharbor.model.job import OPERATIONS_QUEUE, FlowInfo, FlowStatus, JobInfo, State, flow_info, flow_status
from taskharbor.model.times import Duration, duration, moment, round_up
from taskharbor.store.bulk.plan import is_operation, slice_id
from taskharbor.store.pages import ItemsPage, read_items

if TYPE_CHECKING:
    from taskharbor.store.access import StoreCall

MAX_INSPECTED_JOBS = 1000  # for one call
PAGE_JOBS = 1000
MAX_FLOW_JOBS = 10_000  # of a flow for a person
MAX_EXPLAINED = 100  # dead jobs and cancelled jobs of it, each, whose reasons are read

CANCEL_IN_DOUBT = "It may or may not be cancelled; cancel it again: that does no harm"
REQUEUE_IN_DOUBT = "It, or some of its jobs, may be back already; requeue it again: that does no harm"


class Requeue(msgspec.Struct, frozen=True):
    """When a job that is brought back runs, and whether its failures and its steps are forgotten."""

    at: datetime | None = None
    after: timedelta | None = None
    reset_attempts: bool = True
    fresh: bool = False

    def run_at(self, now: datetime) -> datetime | None:
        """The moment from which on it may run; None: at once."""
        return self.at if self.after is None else round_up(now + self.after)


def checked_requeue(
    run_at: datetime | None, delay: Duration | None, reset_attempts: bool, fresh: bool = False
) -> Requeue:
    """What a caller gave, as a value; TypeError or ValueError for a value that makes no sense."""
    if run_at is not None and delay is not None:
        raise ValueError("requeue: expected delay or run_at, got both; give one")
    if not isinstance(reset_attempts, bool):
        raise TypeError(f"reset_attempts: expected True or False, got {type(reset_attempts).__name__}")
    if not isinstance(fresh, bool):
        raise TypeError(f"fresh: expected True or False, got {type(fresh).__name__}")
    return Requeue(
        None if run_at is None else moment(run_at, "run_at"),
        None if delay is None else duration(delay, "delay"),
        reset_attempts,
        fresh,
    )


async def bring_back(driver: Driver, ids: Sequence[str], again: Requeue, now: datetime) -> list[DriverError | None]:
    """Requeue dead and cancelled jobs. A fresh one is amended first, with its own payload: that forgets its steps."""
    if again.fresh:
        for id in ids:
            try:
                info = await driver.inspect(id, now)
            except JobNotFound:
                continue
            job = info.job
            if job.has_memos and info.state in (State.DLQ, State.CANCELLED):
                change = Amend(id=id, deliveries=job.deliveries, edits=job.edits, payload=job.payload)
                (refused,) = await driver.amend([change], now)
                if refused is not None:
                    raise refused
    return await driver.requeue(ids, now, again.run_at(now), again.reset_attempts)


async def flow(call: StoreCall, id: str, *, payloads: bool = True) -> FlowInfo:
    """A workflow run by its id, and the dead and cancelled jobs outside of it that its jobs wait for.

    They come last among the nodes, and count for the status. Without payloads it is read in pages, which are not of one
    moment: a job that was spawned meanwhile may be missing.
    """

    async def read(driver: Driver) -> FlowInfo:
        now = call.now()
        info = await driver.flow(id, now) if payloads else await _in_pages(driver, id, now)
        failed = await failed_externals(driver, waits_for_externals(info), now)
        if not failed:
            return info
        nodes = (*info.nodes, *failed)
        return replace(info, status=flow_status([node.state for node in nodes]), nodes=nodes)

    return await call.ask(read)


async def list_flows(driver: Driver, *, now: datetime, **query: Any) -> ItemsPage[FlowInfo]:
    """A page of the flows that programs made: an operation over many jobs is kept as one, too, and has its own list."""
    page = await driver.flows(now=now, **query)
    if not page.items or OPERATIONS_QUEUE not in await driver.queues():
        return ItemsPage(page.items, page.cursor)
    return ItemsPage([flow for flow in page.items if not await _is_operation(driver, flow.id, now)], page.cursor)


async def _is_operation(driver: Driver, flow_id: str, now: datetime) -> bool:
    try:
        return is_operation(await driver.inspect(slice_id(flow_id), now))
    except JobNotFound:
        return False


async def _in_pages(driver: Driver, id: str, now: datetime) -> FlowInfo:
    nodes, _ = await read_items(driver.list, page=PAGE_JOBS, flow_id=id, now=now, payloads=False)
    if not nodes:
        raise JobNotFound(f"no flow {id}")
    return flow_info(id, tuple(nodes))


async def read_flow(driver: Driver, id: str, now: datetime) -> tuple[FlowInfo, bool]:
    """A flow for a person, and whether that is all: at most MAX_FLOW_JOBS of its jobs, with their payloads only where
    an error is masked by them.

    Dead and cancelled jobs outside of it that its jobs wait for come last among the nodes, and count for the status.
    """
    nodes, cursor = await read_items(
        driver.list, page=PAGE_JOBS, most=MAX_FLOW_JOBS, flow_id=id, now=now, payloads=False
    )
    if not nodes:
        raise JobNotFound(f"no flow {id}")
    nodes = await _explained(driver, id, nodes, now)
    own = flow_info(id, tuple(nodes))
    externals = await failed_externals(driver, waits_for_externals(own), now) if cursor is None else []
    status = flow_status([node.state for node in (*nodes, *externals)])
    if cursor is not None and status is FlowStatus.SUCCEEDED:  # the rest was not read
        status = FlowStatus.RUNNING
    return replace(own, status=status, nodes=(*nodes, *externals)), cursor is None


async def _explained(driver: Driver, id: str, nodes: list[JobInfo], now: datetime) -> list[JobInfo]:
    """The nodes, with the payloads of those that died or were cancelled; beyond MAX_EXPLAINED without their reasons."""
    explained: dict[str, JobInfo] = {}
    for state in (State.DLQ, State.CANCELLED):
        if any(node.state is state for node in nodes):
            page = await driver.list(flow_id=id, state=state, limit=MAX_EXPLAINED, now=now)
            explained |= {info.job.id: info for info in page.items}
    return [explained.get(node.job.id) or _without_texts(node) for node in nodes]


def _without_texts(node: JobInfo) -> JobInfo:
    job = node.job
    return replace(node, job=replace(job, reason="", last_error="")) if job.reason or job.last_error else node


async def requeue_dead(driver: Driver, id: str, again: Requeue, now: datetime) -> int:
    """Bring the dead jobs of a flow back; returns their number. It goes on exactly there.

    Also the dead jobs outside of the flow that it waits for.
    """
    dead, _ = await read_items(driver.list, page=PAGE_JOBS, flow_id=id, state=State.DLQ, now=now, payloads=False)
    try:
        dead += await failed_externals(driver, waits_for_externals(await driver.flow(id, now)), now)
    except JobNotFound:
        pass
    ids = [info.job.id for info in dead if info.state is State.DLQ]
    errors = await bring_back(driver, ids, again, now)
    return sum(error is None for error in errors)


async def failed_in(driver: Driver, flow_id: str, now: datetime) -> JobInfo | None:
    """A dead or a cancelled job of a flow: one that stopped the others, not one that was cancelled with it."""
    for state in (State.DLQ, State.CANCELLED):
        found, _ = await read_items(
            driver.list, page=MAX_EXPLAINED, most=MAX_EXPLAINED, flow_id=flow_id, state=state, now=now
        )
        if found:
            return next((info for info in found if not was_cancelled_with_another(info)), found[0])
    return None


def was_cancelled_with_another(info: JobInfo) -> bool:
    """Whether it was cancelled because a job that it depends on was."""
    return info.state is State.CANCELLED and info.job.reason == DEPENDENCY_CANCELLED_REASON


def waits_for_externals(info: FlowInfo) -> list[str]:
    """The ids of jobs that are not part of the flow, and that a job of it waits for."""
    own = {node.job.id for node in info.nodes if node.job.flow_id == info.id}
    waited = (id for node in info.nodes for id in node.waiting_for if id not in own)
    return list(dict.fromkeys(waited))


async def failed_externals(driver: Driver, ids: Iterable[str], now: datetime) -> list[JobInfo]:
    """Those of these jobs, and of the jobs that they wait for, that are dead or cancelled: the dead ones first."""
    waiting, seen, failed = list(dict.fromkeys(ids)), set[str](), list[JobInfo]()
    while waiting and len(seen) < MAX_INSPECTED_JOBS:
        id = waiting.pop(0)
        if id in seen:
            continue
        seen.add(id)
        try:
            info = await driver.inspect(id, now)
        except JobNotFound:
            continue
        if info.state in (State.DLQ, State.CANCELLED):
            failed.append(info)
        elif info.job.handed_to is not None:
            waiting.append(info.job.handed_to)
        else:
            waiting += info.waiting_for
    return sorted(failed, key=lambda info: info.state is not State.DLQ)

"""One job: how it stands, what it returned, cancelling it, bringing it back, deleting it.

A job that a workflow took the place of (`handed_to`) is followed to the job that stands for it, except by `record`,
`delete` and the calls for several ids: they are about the records themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from taskharbor.drivers.base import Driver
from taskharbor.model.amendment import Amend
from taskharbor.model.codec import type_name
from taskharbor.model.errors import DriverError, JobNotFound, WrongState
from taskharbor.model.job import JobInfo, JobRecord, Seen, State
from taskharbor.store.bulk.plan import is_operation, may_be_slice
from taskharbor.store.flows import Requeue, bring_back, failed_externals, failed_in, requeue_dead
from taskharbor.tasks.flow_metadata import JOIN_TYPE
from taskharbor.tasks.payload_errors import describe
from taskharbor.tasks.results import Results, compose

if TYPE_CHECKING:
    from taskharbor.store.access import Act, StoreCall

DELETE_IN_DOUBT = "It may or may not be deleted; delete it again: that does no harm"
DUE_SOON = timedelta(seconds=5)
ENDED_BY_ITSELF = (State.DONE, State.DLQ)  # a cancelled job may have been cancelled with another one, that is to blame
_WHY_NOT = {
    State.READY: "is already ready: `taskharbor explain` says what it waits for",
    State.INFLIGHT: "is running",
    State.BLOCKED: "waits for other jobs: `taskharbor explain` says for which",
    State.DONE: "is done: enqueue a new job to run it again",
}


def no_record(id: str) -> JobNotFound:
    """The error for a job that is gone, with what may have become of it."""
    return JobNotFound(
        f"job {id} has no record: it was deleted, its transaction was rolled back, or it ended longer ago "
        "than the store keeps finished jobs (24 hours unless the DSN says retention=…)"
    )


# Reading ---------------------------------------------------------------------------------------------------------


async def record(call: StoreCall, id: str) -> JobInfo:
    """The job itself, as it is now."""
    try:
        return await call.ask(lambda driver: driver.inspect(id, call.now()))
    except JobNotFound:
        raise no_record(id) from None


async def job(call: StoreCall, id: str) -> JobInfo:
    """A job as it is now, or the one that took its place.

    If a workflow took its place and has failed or was cancelled, the job that is to blame: the one whose result stands
    for the whole would be blocked for ever.
    """

    async def read(driver: Driver) -> JobInfo:
        own, last = await _follow(driver, id, call.now())
        if last.state in ENDED_BY_ITSELF or not _is_own_flow(own.job, last.job):
            return last
        return await failed_in(driver, last.job.flow_id or "", call.now()) or last

    try:
        return await call.ask(read)
    except JobNotFound:
        raise no_record(id) from None


async def job_in_flow(call: StoreCall, id: str, flow_id: str, externals: Sequence[str]) -> JobInfo:
    """A job of a flow as it is now, or the one that took its place; or the one that made the flow fail.

    `externals`: jobs that are not part of the flow, and that it may wait for.
    """

    async def read(driver: Driver) -> JobInfo:
        now = call.now()
        _, last = await _follow(driver, id, now)
        for flow in {flow_id: None, last.job.flow_id: None}:  # they differ if it was known by its key
            if last.state not in ENDED_BY_ITSELF and flow is not None:
                last = await failed_in(driver, flow, now) or last
        if externals and not last.state.terminal:
            last = next(iter(await failed_externals(driver, externals, now)), last)
        return last

    return await call.ask(read)


async def result(call: StoreCall, job: JobRecord, returns: Any) -> Any:
    """What a job that is done returned, as that type; for a join, the list of what its jobs returned."""
    codec = call.store.codec
    if job.type != JOIN_TYPE:
        return None if job.result is None else _decoded(call, job, returns)
    results = Results()
    members = results.join(job)
    await call.ask(lambda driver: results.load(driver, members, call.now(), job.flow_id))
    data = compose(codec, results.of(job.id))
    try:
        return codec.decode(data, returns)
    except ValueError:  # a job among them handed over to one that returns something else
        return codec.decode(data)


def _decoded(call: StoreCall, job: JobRecord, returns: Any) -> Any:
    try:
        return call.store.codec.decode(job.result or b"", returns)
    except ValueError as error:
        raise ValueError(
            f"job {job.id}: its result cannot be read as {type_name(returns)}: {describe(error, ())}; its function "
            "returned something else than its annotation says; harbor.job(id).result() gives it as it is"
        ) from error


async def is_served(call: StoreCall, queue: str) -> bool:
    """Whether a worker that sent a heartbeat in the last minute serves this queue."""
    return any(queue in worker.queues for worker in await call.ask(lambda driver: driver.workers(call.now())))


async def read_records(driver: Driver, ids: Iterable[str], now: datetime) -> list[JobInfo]:
    """The jobs with these ids that have a record, with their payloads."""
    found = []
    for id in ids:
        try:
            found.append(await driver.inspect(id, now))
        except JobNotFound:
            continue
    return found


async def with_payload(driver: Driver, info: JobInfo, now: datetime) -> JobInfo:
    """A listed job with its payload: only a payload that is known can be masked in an error that quotes it. As it was
    listed if it is gone meanwhile."""
    return next(iter(await read_records(driver, [info.job.id], now)), info)


def without_content(info: JobInfo) -> JobInfo:
    """A job without its payload and result, for what may be kept."""
    job = info.job
    light = msgspec.structs.replace(job, payload=b"", result=None if job.result is None else b"")
    return msgspec.structs.replace(info, job=light)


async def _follow(driver: Driver, id: str, now: datetime) -> tuple[JobInfo, JobInfo]:
    """A job, and the one that stands for it in the end."""
    own = last = await driver.inspect(id, now)
    while last.job.handed_to is not None:
        last = await driver.inspect(last.job.handed_to, now)
    return own, last


def _is_own_flow(own: JobRecord, last: JobRecord) -> bool:
    """Whether the flow that took a job's place is all its own, not one that the job was a part of."""
    return last.flow_id is not None and last.flow_id != own.flow_id


# Cancelling and deleting -----------------------------------------------------------------------------------------


def cancel(call: StoreCall, id: str) -> Act[None]:
    """What cancels a job, or the workflow that took its place, even if it takes it at this moment."""

    async def act(driver: Driver) -> None:
        while True:
            own, last = await _follow(driver, id, call.now())
            if _is_own_flow(own.job, last.job):
                await driver.cancel_flow(last.job.flow_id or "", call.now())
                return
            error = (await driver.cancel([last.job.id], call.now()))[0]
            if error is None:
                return
            if (await driver.inspect(last.job.id, call.now())).job.handed_to is None:
                raise error

    return act


def delete(id: str) -> Act[None]:
    """What forgets a job. A try whose reply was lost may have deleted it: then the next one finds it gone, and
    succeeds."""
    is_repeated = False

    async def act(driver: Driver) -> None:
        nonlocal is_repeated
        may_be_gone, is_repeated = is_repeated, True
        error = (await driver.delete([id]))[0]
        if isinstance(error, JobNotFound):
            if not may_be_gone:
                raise no_record(id)
        elif error is not None:
            raise error

    return act


async def delete_in(driver: Driver, id: str, now: datetime, state: State) -> DriverError | None:
    """Delete one job that is in this state, and has not changed since that was read."""
    try:
        info = await driver.inspect(id, now)
    except JobNotFound as error:
        return error
    if info.state is not state:
        return WrongState(f"job {id} is {info.state}, not {state}: `taskharbor job delete` deletes it in any state")
    return (await driver.delete([id], [Seen.of(info)]))[0]


# Bringing back ---------------------------------------------------------------------------------------------------


def requeue(call: StoreCall, id: str, again: Requeue) -> Act[None]:
    """What brings a dead or cancelled job back; if a workflow took its place and failed, the dead jobs of that one.

    A try whose reply was lost may have brought it back: the next try finds it so, and that is a success.
    """
    was_ended = False

    async def act(driver: Driver) -> None:
        nonlocal was_ended
        now, is_repeated = call.now(), was_ended
        own, last = await _follow(driver, id, now)
        if _is_own_flow(own.job, last.job):
            flow_id = last.job.flow_id or ""
            was_ended = was_ended or await failed_in(driver, flow_id, now) is not None
            if not await requeue_dead(driver, flow_id, again, now) and not is_repeated:
                raise WrongState(f"job {id}: no job is dead in the workflow that took its place")
            return
        was_ended = was_ended or last.state in (State.DLQ, State.CANCELLED)
        error = (await bring_back(driver, [last.job.id], again, now))[0]
        if error is not None and not (is_repeated and isinstance(error, WrongState)):
            raise error

    return act


async def requeue_each(driver: Driver, ids: Sequence[str], now: datetime, again: Requeue) -> list[DriverError | None]:
    """Bring dead and cancelled jobs back; an error in the place of each that is neither."""
    slices = await slices_among(driver, ids, now)
    others = [id for id in ids if id not in slices]
    errors = iter(await bring_back(driver, others, again, now) if others else ())
    return [part_of_operation(id) if id in slices else next(errors) for id in ids]


async def make_ready(driver: Driver, id: str, now: datetime, reset_attempts: bool) -> DriverError | None:
    """Make one dead, cancelled or scheduled job ready; the error that says why it cannot be."""
    try:
        info = await driver.inspect(id, now)
    except JobNotFound as error:
        return error
    if is_operation(info):
        return part_of_operation(id)
    if info.state in _WHY_NOT:
        return WrongState(f"job {id} {_WHY_NOT[info.state]}")
    if info.state is State.SCHEDULED:
        if not (reset_attempts and info.job.attempts):  # an amendment keeps the count of failures
            change = Amend(id=id, deliveries=info.job.deliveries, edits=info.job.edits, run_at=None)
            refused = (await driver.amend([change], now))[0]
            assert refused is None or isinstance(refused, DriverError)  # not InvalidJob: run_at=None is valid
            return refused
        if info.job.run_at is not None and info.job.run_at - now < DUE_SOON:
            return None  # it becomes due by itself; cancelling it might hit a job that has just begun to run
        refused = (await driver.cancel([id], now))[0]
        if refused is not None:
            return refused
    return (await driver.requeue([id], now, reset_attempts=reset_attempts))[0]


async def slices_among(driver: Driver, ids: Sequence[str], now: datetime) -> set[str]:
    """Those of these jobs that are part of an operation: it goes on only as a whole, with its own permission."""
    found = set()
    for id in filter(may_be_slice, ids):
        try:
            if is_operation(await driver.inspect(id, now)):
                found.add(id)
        except JobNotFound:
            continue
    return found


def part_of_operation(id: str) -> WrongState:
    """The error for a slice of an operation that was to be changed by itself."""
    return WrongState(
        f"job {id} is part of an operation, which is neither amended nor requeued; `taskharbor dlq operations` lists "
        "and resumes operations"
    )

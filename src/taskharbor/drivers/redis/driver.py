"""The face of the Redis driver: the calls of the contract, each one script on one server.

An opened driver may be cancelled at any await: a call that was sent is carried out, its reply is thrown away.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from redis.exceptions import ResponseError

from taskharbor.drivers.contract import WORKER_SILENCE, SingleVerbs
from taskharbor.drivers.redis import damage, records
from taskharbor.drivers.redis.cluster_commands import ClusterCommands
from taskharbor.drivers.redis.cluster_endpoint import ClusterEndpoint
from taskharbor.drivers.redis.commands import StandaloneCommands
from taskharbor.drivers.redis.endpoint import LOST, Endpoint, passed_since, refuse_large, refused
from taskharbor.drivers.redis.housekeeping import Housekeeper
from taskharbor.drivers.redis.options import parse
from taskharbor.drivers.redis.reading import JobReader, info_of
from taskharbor.drivers.redis.sentinel import SentinelEndpoint
from taskharbor.drivers.redis.sweeping import Sweeper
from taskharbor.drivers.redis.wait import ArrivalHints
from taskharbor.drivers.unstorable import accepts_any_name
from taskharbor.model.bounds import check_job, check_moment, check_name
from taskharbor.model.errors import (
    BackendUnavailable,
    DriverError,
    InvalidJob,
    JobNotFound,
    JobNotInflight,
    LeaseExpired,
    LeaseMismatch,
    TaskHarborError,
    WrongState,
)
from taskharbor.model.ids import new_tokens
from taskharbor.model.job import FlowInfo, JobInfo, JobRecord, Page, State, WorkerInfo, flow_status
from taskharbor.model.lease import Enqueued, Lease, Reserved
from taskharbor.model.outcome import Outcome
from taskharbor.model.times import MILLISECOND, from_ms, to_ms

WORKERS = "{th}:workers"
LATE = 1000  # ms: an extend that took longer may answer with a lease that is over
ENDED = 4  # the refusal of lua/lib/95_fence.lua for a lease that has ended
STATES = ("ready", "scheduled", "inflight", "blocked", "done", "dlq", "cancelled")
_worker = msgspec.msgpack.Decoder(WorkerInfo).decode


@accepts_any_name
class RedisDriver(SingleVerbs):
    """Jobs in Redis.

    >>> RedisDriver("redis://localhost/0").retention
    datetime.timedelta(days=1)
    """

    def __init__(self, dsn: str) -> None:
        self.options = parse(dsn)
        self._dsn = dsn
        self._commands: StandaloneCommands | None = None
        self._hints: ArrivalHints | None = None
        self._reader: JobReader | None = None
        self._sweeper: Sweeper | None = None
        self._housekeeper: Housekeeper | None = None

    @property
    def retention(self) -> timedelta:
        return self.options.retention

    async def open(self) -> None:
        if self._commands is not None:
            return
        endpoint = self._endpoint()
        try:
            await endpoint.open()
        except BaseException:
            await endpoint.close()
            raise
        self._commands = ClusterCommands(endpoint) if self.options.cluster else StandaloneCommands(endpoint)
        self._hints = ArrivalHints(endpoint.connection, self._arrivals, self.options.database)
        self._reader = JobReader(self._commands)
        self._sweeper = Sweeper(self._commands)
        self._housekeeper = Housekeeper(self._commands)

    def _endpoint(self) -> Endpoint:
        kind = (
            ClusterEndpoint
            if self.options.cluster
            else SentinelEndpoint
            if self.options.service is not None
            else Endpoint
        )
        return kind(self.options, self._dsn)

    async def denied(self) -> builtins.list[str]:
        """What this user may not do on the server and would have to, a sentence each. The driver need not be open."""
        endpoint = self._endpoint()
        try:
            return await endpoint.denied()
        except LOST as error:
            raise endpoint.unavailable(error) from error
        except ResponseError as error:
            raise refused(endpoint, error) from error
        finally:
            await endpoint.close()

    async def damaged(self) -> builtins.list[str]:
        """What other programs damaged in this store, and what to do about it, a sentence each."""
        return await damage.report(self.commands, await self.reader.queues())

    async def close(self) -> None:
        commands, hints, housekeeper = self._commands, self._hints, self._housekeeper
        self._commands = self._hints = self._reader = self._sweeper = self._housekeeper = None
        if housekeeper is not None:
            await housekeeper.close()
        if hints is not None:
            await hints.close()
        if commands is not None:
            await commands.endpoint.close()

    def sibling(self) -> RedisDriver:
        return RedisDriver(self._dsn)

    @property
    def commands(self) -> StandaloneCommands:
        if self._commands is None:
            raise BackendUnavailable("the driver is not open; await driver.open() first")
        return self._commands

    @property
    def reader(self) -> JobReader:
        self.commands  # noqa: B018 - raises if it is not open
        assert self._reader is not None
        return self._reader

    async def server_time(self) -> datetime:
        seconds, micros = await self.commands.endpoint.ask("TIME")
        return datetime.fromtimestamp(int(seconds), UTC) + timedelta(milliseconds=int(micros) // 1000)

    # The four verbs

    async def enqueue(self, jobs: Sequence[JobRecord], now: datetime) -> builtins.list[Enqueued]:
        for job in jobs:
            check_job(job, self.options.max_payload)
        refuse_large(sum([len(job.payload) for job in jobs]))  # before it is copied
        return await self.commands.enqueue(jobs, to_ms(now)) if jobs else []

    async def reserve(
        self, queues: Sequence[str], now: datetime, lease_for: timedelta, limit: int, worker: str = ""
    ) -> builtins.list[Reserved]:
        if worker:
            check_name(worker, "worker")
        names = [name for name in dict.fromkeys(queues) if _can_exist(name)]
        if limit < 1 or not names:
            return []
        commands, moment, housekeeper = self.commands, to_ms(now), self._housekeeper
        assert housekeeper is not None
        housekeeper.serve(names, moment)
        granted = await self._reserve(commands, names, moment, lease_for, limit, worker)
        if not granted and await housekeeper.first_look():
            granted = await self._reserve(commands, names, moment, lease_for, limit, worker)
        return granted

    async def _reserve(
        self,
        commands: StandaloneCommands,
        names: Sequence[str],
        moment: int,
        lease_for: timedelta,
        limit: int,
        worker: str,
    ) -> builtins.list[Reserved]:
        span, tokens = lease_for // MILLISECOND, list(new_tokens(limit))
        granted = []
        for grants in await commands.reserve(names, moment, span, limit, worker, tokens):
            if grants.arrival is not None and self._hints is not None:
                self._hints.drained(grants.queue, int(grants.arrival))
            granted += records.reserved(grants.queue, grants.jobs, from_ms(grants.end))
        return granted

    async def extend(
        self, leases: Sequence[Lease], now: datetime, lease_for: timedelta
    ) -> builtins.list[Lease | DriverError]:
        if not leases:
            return []
        moment, began = to_ms(now), asyncio.get_running_loop().time()
        ends = await self.commands.extend(leases, moment, lease_for // MILLISECOND)
        passed = passed_since(began)
        if passed > LATE:  # what has ended while nobody answered is not held
            ends = [-ENDED if 0 < end <= moment + passed else end for end in ends]
        return [
            refusal(lease, -end) if end < 0 else Lease(lease.job_id, lease.queue, lease.token, from_ms(end))
            for lease, end in zip(leases, ends, strict=True)
        ]

    async def settle(self, outcomes: Sequence[Outcome], now: datetime) -> builtins.list[TaskHarborError | None]:
        if not outcomes:
            return []
        answers = await self.commands.settle(outcomes, to_ms(now))
        if not any(answers):
            return [None] * len(answers)
        return [
            answer if isinstance(answer, InvalidJob) else refusal(outcome.lease, answer) if answer else None
            for outcome, answer in zip(outcomes, answers, strict=True)
        ]

    # Beside the verbs

    async def results(self, ids: Sequence[str]) -> dict[str, bytes | None]:
        found: dict[str, JobRecord | None] = {}
        missing = list(dict.fromkeys(ids))
        while missing:
            infos = await self.commands.read([(id, None) for id in missing])
            for id, answer in zip(missing, infos, strict=True):
                found[id] = info_of(answer, 0).job if answer else None
            heirs = (job.handed_to for job in found.values() if job is not None)
            missing = [id for id in dict.fromkeys(heirs) if id is not None and id not in found]
        return {id: _last(found, id) for id in ids}

    async def release(self, worker: str, now: datetime, keep: Sequence[str] = ()) -> int:
        return await self.commands.release(worker, to_ms(now), list(keep))

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        self.commands  # noqa: B018 - raises if it is not open
        assert self._hints is not None
        return await self._hints.wait([name for name in queues if _can_exist(name)], timeout)

    async def _arrivals(self, queues: Sequence[str]) -> dict[str, int]:
        return await self.commands.arrivals(queues)

    # Pause

    async def pause(self, queue: str) -> None:
        check_name(queue, "queue")
        await self.commands.pause(queue, True)

    async def resume(self, queue: str) -> None:
        await self.commands.pause(queue, False)

    async def is_paused(self, queue: str) -> bool:
        return bool(await self.commands.endpoint.ask("EXISTS", f"{{{queue}}}:paused", key=f"{{{queue}}}"))

    # Admin

    async def inspect(self, id: str, now: datetime) -> JobInfo:
        found = await self.reader.find([id], to_ms(now))
        if id not in found:
            raise JobNotFound(f"no job {id}")
        return found[id]

    async def list(
        self,
        *,
        now: datetime,
        queue: str | None = None,
        state: State | str | None = None,
        type: str | None = None,
        group: str | None = None,
        flow_id: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page:
        if limit < 1:
            raise ValueError(f"limit: expected at least 1, got {limit}")
        wanted = State(state) if state is not None else None

        def fits(found: JobInfo) -> bool:
            return (
                (type is None or found.job.type == type)
                and (group is None or found.job.group == group)
                and (wanted is None or found.state is wanted)
            )

        return await self.reader.page(to_ms(now), queue, flow_id, cursor, limit, fits)

    async def counts(self, now: datetime) -> dict[str, dict[str, int]]:
        names = await self.reader.queues()
        answer = {}
        for name, numbers in zip(names, await self.reader.counts(names, to_ms(now)), strict=True):
            found = {state: number for state, number in zip(STATES, numbers, strict=False) if number}
            if found:
                answer[name] = found
        return answer

    async def queues(self) -> builtins.list[str]:
        names = await self.reader.queues()
        return [name for name, numbers in zip(names, await self.reader.counts(names, 0), strict=True) if any(numbers)]

    async def requeue(
        self, ids: Sequence[str], now: datetime, run_at: datetime | None = None, reset_attempts: bool = False
    ) -> builtins.list[DriverError | None]:
        if run_at is not None:
            check_moment(run_at, "run_at")
        at = records.up_to_ms(run_at) if run_at is not None else None
        return await self._each(ids, "requeue takes dlq and cancelled", "requeue", to_ms(now), at, reset_attempts)

    async def cancel(self, ids: Sequence[str], now: datetime) -> builtins.list[DriverError | None]:
        return await self._each(ids, "cancel takes what is not terminal", "cancel", to_ms(now))

    async def delete(self, ids: Sequence[str]) -> builtins.list[DriverError | None]:
        return await self._each(ids, "", "delete")

    async def _each(
        self, ids: Sequence[str], takes: str, operation: str, *how: Any
    ) -> builtins.list[DriverError | None]:
        if not ids:
            return []
        call = getattr(self.commands, operation)
        answers = await call([(id, None) for id in ids], *how)
        if 1 in answers:  # perhaps a foreign client published it
            where = await self.reader.seek([id for id, answer in zip(ids, answers, strict=True) if answer == 1])
            late = [number for number, id in enumerate(ids) if answers[number] == 1 and id in where]
            if late:
                more = await call([(ids[number], where[ids[number]]) for number in late], *how)
                for number, answer in zip(late, more, strict=True):
                    answers[number] = answer
        return [_judged(id, answer, takes) for id, answer in zip(ids, answers, strict=True)]

    async def prune(self, before: datetime, limit: int) -> int:
        if limit <= 0:
            return 0
        self.commands  # noqa: B018 - raises if it is not open
        assert self._sweeper is not None
        return await self._sweeper.prune(records.up_to_ms(before), limit)

    async def flow(self, flow_id: str, now: datetime) -> FlowInfo:
        moment = to_ms(now)
        nodes = sorted(
            [info_of(each, moment) for each in await self.commands.flow(flow_id)], key=lambda node: node.job.id
        )
        if not nodes:
            raise JobNotFound(f"no flow {flow_id}")
        jobs = [node.job for node in nodes]
        times = [at for job in jobs for at in (job.created_at, job.failed_at, job.finished_at) if at is not None]
        return FlowInfo(
            flow_id,
            flow_status([node.state for node in nodes]),
            min(job.created_at for job in jobs),
            max(times),
            tuple(nodes),
            tuple((dependency, job.id) for job in jobs for dependency in job.depends_on),
        )

    async def cancel_flow(self, flow_id: str, now: datetime) -> int:
        return await self.commands.cancel_flow(flow_id, to_ms(now))

    async def beat(self, info: WorkerInfo, now: datetime) -> None:
        check_name(info.worker, "worker")
        endpoint = self.commands.endpoint
        data = msgspec.msgpack.encode(msgspec.structs.replace(info, seen_at=now))
        await endpoint.write("HSET", WORKERS, info.worker, data, key=WORKERS)
        silent = [worker.worker for worker in await self._heard() if worker.seen_at <= now - 10 * WORKER_SILENCE]
        if silent:
            await endpoint.ask("HDEL", WORKERS, *silent, key=WORKERS)

    async def workers(self, now: datetime) -> builtins.list[WorkerInfo]:
        heard = [worker for worker in await self._heard() if worker.seen_at > now - WORKER_SILENCE]
        return sorted(heard, key=lambda worker: worker.worker)

    async def _heard(self) -> builtins.list[WorkerInfo]:
        found = []
        for data in await self.commands.endpoint.ask("HVALS", WORKERS, key=WORKERS):
            try:
                found.append(_worker(data))
            except msgspec.MsgspecError:
                continue  # another program wrote it
        return found


def refusal(lease: Lease, number: int) -> DriverError:
    """A refusal of the fence as the contract names it."""
    if number == 1:
        return JobNotFound(f"no job {lease.job_id}")
    if number == 2:
        return JobNotInflight(f"job {lease.job_id} is not inflight")
    if number == 3:
        return LeaseMismatch(f"job {lease.job_id} was reserved again: another lease holds it")
    return LeaseExpired(f"the lease on job {lease.job_id} ended")


def _judged(id: str, answer: Any, takes: str) -> DriverError | None:
    if answer == 0:
        return None
    if answer == 1:
        return JobNotFound(f"no job {id}")
    text = answer.decode()
    if text.startswith("needed "):
        return WrongState(f"job {id} is needed: {text.removeprefix('needed ')} unfinished job(s) depend on it")
    return WrongState(f"job {id} is {text}; {takes}")


def _last(found: dict[str, JobRecord | None], id: str) -> bytes | None:
    job = found.get(id)
    while job is not None and job.handed_to is not None and (heir := found.get(job.handed_to)) is not None:
        job = heir
    return job.result if job is not None else None


def _can_exist(queue: str) -> bool:
    """Whether a queue may have this name: no braces, and no lone surrogate, which is in no UTF-8."""
    if not queue or "{" in queue or "}" in queue:
        return False
    return queue.isascii() or queue.encode("utf-8", "ignore").decode() == queue

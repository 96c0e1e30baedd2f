"""The calls of a handle that are about the job's own record: looking at it, and mending it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from taskharbor.model.errors import JobNotFound
from taskharbor.model.job import JobInfo
from taskharbor.model.times import Duration

if TYPE_CHECKING:
    from taskharbor.client.access import StoreAccess
    from taskharbor.client.budget import Budget
    from taskharbor.client.client import Client
    from taskharbor.client.job_control import Amendment
    from taskharbor.model.attempts import Attempt
    from taskharbor.model.progress import Progress
    from taskharbor.tasks.signature import Signature


class JobRecordCalls:
    """A job by its id: its record as the store keeps it. If a workflow took its place, the record stays, and these
    calls go on being about it."""

    __slots__ = ("_client", "_signature", "_type", "id")

    _client: Client
    _type: str | None  # with `_signature`: those of the task that the handle came from
    _signature: Signature | None
    id: str

    def info(self, *, call_timeout: Duration | None = None) -> JobInfo:
        """The job as it is now: its record (`.job`), state, worker, end of the lease, and the jobs it waits for.

        JobNotFound if there is no record. Blocks for one read of the store. The record holds the payload, the result
        and the error text as they are stored; a repr shows none of them.
        """
        return self._client.blocking(lambda access: self._info(access, call_timeout), "handle.info", call_timeout)

    async def ainfo(self, *, call_timeout: Duration | None = None) -> JobInfo:
        """The same, awaited."""
        return await self._info(self._client.awaited, call_timeout)

    def attempts(self, *, call_timeout: Duration | None = None) -> list[Attempt]:
        """Every execution of the job that is known, oldest first; at most 25 that have ended, and the newest.

        Error texts are without the values of the job's payload. A gap in the numbers: an execution was lost with no
        worker left to tell, or it was left out of a long list.
        """
        return self._client.blocking(
            lambda access: self._attempts(access, call_timeout), "handle.attempts", call_timeout
        )

    async def aattempts(self, *, call_timeout: Duration | None = None) -> list[Attempt]:
        """The same, awaited."""
        return await self._attempts(self._client.awaited, call_timeout)

    def progress(self, *, call_timeout: Duration | None = None) -> Progress | None:
        """What the handler reported last with `ctx.progress`; None if it reported nothing. Stored with the heartbeat,
        so it may be some seconds old; `at` says when it was reported."""
        return self._client.blocking(
            lambda access: self._progress(access, call_timeout), "handle.progress", call_timeout
        )

    async def aprogress(self, *, call_timeout: Duration | None = None) -> Progress | None:
        """The same, awaited."""
        return await self._progress(self._client.awaited, call_timeout)

    def amend(
        self,
        *,
        payload: Mapping[str, Any] | UnsetType = UNSET,
        run_at: datetime | UnsetType | None = UNSET,
        priority: int | UnsetType = UNSET,
        max_attempts: int | UnsetType = UNSET,
        timeout: Duration | UnsetType | None = UNSET,
        metadata: Mapping[str, str | None] | UnsetType = UNSET,
        expect: JobInfo | None = None,
        by: str | None = None,
        call_timeout: Duration | None = None,
    ) -> None:
        """Change a job that is neither running nor done (WrongState). What is not given stays as it is.

        `payload`: arguments to replace, by name; the others stay. The handle of a task checks them against its
        signature. `run_at`: another moment; None: at once. `timeout`: another limit; None: no limit. `priority` and
        `max_attempts`: another number. `metadata`: entries to replace, None removes one.
        `expect`: what `info()` returned; WrongState if the job was reserved or amended since. Without it a job that
        changes meanwhile is read again, five times at most. `by`: who does it, for the audit; else the user of this
        process.
        """
        made = self._amendment(payload, run_at, priority, max_attempts, timeout, metadata, expect)
        self._client.blocking(
            lambda access: self._amend(access, made, by, call_timeout),
            "handle.amend",
            call_timeout,
        )

    async def aamend(
        self,
        *,
        payload: Mapping[str, Any] | UnsetType = UNSET,
        run_at: datetime | UnsetType | None = UNSET,
        priority: int | UnsetType = UNSET,
        max_attempts: int | UnsetType = UNSET,
        timeout: Duration | UnsetType | None = UNSET,
        metadata: Mapping[str, str | None] | UnsetType = UNSET,
        expect: JobInfo | None = None,
        by: str | None = None,
        call_timeout: Duration | None = None,
    ) -> None:
        """The same, awaited."""
        made = self._amendment(payload, run_at, priority, max_attempts, timeout, metadata, expect)
        await self._amend(self._client.awaited, made, by, call_timeout)

    def delete(self, *, by: str | None = None, call_timeout: Duration | None = None) -> None:
        """Forget the job, in whatever state it is; WrongState while unfinished jobs depend on it.

        What a running handler returns is then refused. A workflow that took the job's place goes on. `by`: who does
        it, for the audit; else the user of this process.
        """
        self._client.blocking(lambda access: self._delete(access, by, call_timeout), "handle.delete", call_timeout)

    async def adelete(self, *, by: str | None = None, call_timeout: Duration | None = None) -> None:
        """The same, awaited."""
        await self._delete(self._client.awaited, by, call_timeout)

    async def _info(self, access: StoreAccess, call_timeout: Duration | None, what: str = "info") -> JobInfo:
        from taskharbor.client.job_control import read_record

        return await read_record(self._client, self.id, self._client.budget(access, call_timeout, what))

    async def _attempts(self, access: StoreAccess, call_timeout: Duration | None) -> list[Attempt]:
        from taskharbor.model.attempts import attempts_of
        from taskharbor.policy.mask import without_payload

        info = await self._info(access, call_timeout, "attempts")
        found = attempts_of(info)
        texts = without_payload(info.job, *(attempt.error for attempt in found))
        return [replace(attempt, error=text) for attempt, text in zip(found, texts, strict=True)]

    async def _progress(self, access: StoreAccess, call_timeout: Duration | None) -> Progress | None:
        from taskharbor.model.progress import read_note

        return read_note((await self._info(access, call_timeout, "progress")).job.note)

    async def _delete(self, access: StoreAccess, by: str | None, call_timeout: Duration | None) -> None:
        from taskharbor.client.job_control import delete_record

        budget = self._client.budget(access, call_timeout, "delete")
        await self._audited("delete", by, budget, lambda: delete_record(self.id, budget))

    async def _amend(self, access: StoreAccess, made: Amendment, by: str | None, call_timeout: Duration | None) -> None:
        budget = self._client.budget(access, call_timeout, "amend")
        await self._audited("amend", by, budget, lambda: made.make(budget))

    async def _audited(self, action: str, by: str | None, budget: Budget, act: Callable[[], Awaitable[None]]) -> None:
        from taskharbor.client.audit import audited

        await audited(self._client, action, by, budget, act, ids=(self.id,))

    def _amendment(
        self,
        payload: Mapping[str, Any] | UnsetType,
        run_at: datetime | UnsetType | None,
        priority: int | UnsetType,
        max_attempts: int | UnsetType,
        timeout: Duration | UnsetType | None,
        metadata: Mapping[str, str | None] | UnsetType,
        expect: JobInfo | None,
    ) -> Amendment:
        from taskharbor.client.job_changes import check_expected, checked_changes
        from taskharbor.client.job_control import Amendment

        check_expected(expect, self.id)
        changes = checked_changes(
            payload=payload,
            run_at=run_at,
            priority=priority,
            max_attempts=max_attempts,
            timeout=timeout,
            metadata=metadata,
        )
        return Amendment(self._client, self.id, changes, expect, self._type, self._signature)


def no_record(id: str) -> JobNotFound:
    """The error for a job that is gone, with what may have become of it."""
    return JobNotFound(
        f"job {id} has no record: it was deleted, its transaction was rolled back, or it ended longer ago "
        "than the store keeps finished jobs (24 hours unless the DSN says retention=…)"
    )

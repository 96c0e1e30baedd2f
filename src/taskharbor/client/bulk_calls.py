"""What a filter of jobs can do with all of them: requeue, cancel, delete, and count them by what they have in common.

Acting on many jobs is an operation (`Operation`): small jobs that workers carry out, which survive crashes. The filter
is frozen when the operation is made: what ends or is enqueued later is not touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

import msgspec

from taskharbor.model.error_class import full_error_name
from taskharbor.model.times import Duration

if TYPE_CHECKING:
    from datetime import datetime

    from taskharbor.bulk.plan import FrozenFilter, OperationPlan
    from taskharbor.client.access import StoreAccess
    from taskharbor.client.client import Client
    from taskharbor.client.operation import DryRun, Operation
    from taskharbor.client.summary import Summary, SummaryKey
    from taskharbor.model.job import State

DRY_RUN_SAMPLE = 20


class BulkCalls:
    """The actions of `Jobs`."""

    __slots__ = ()

    if TYPE_CHECKING:
        _client: Client
        state: State | None
        queue: str | None
        type: str | None
        group: str | None
        flow: str | None
        error: str | None
        fingerprint: str | None
        since: datetime | None
        until: datetime | None

    def given(self) -> dict[str, str]:
        """What was given of the filter, as text, by name: as the audit keeps it."""
        return self._filter().given()

    # Summary -----------------------------------------------------------------------------------------------------

    def summary(self, by: SummaryKey = "fingerprint", *, call_timeout: Duration | None = None) -> Summary:
        """How many of the newest 10,000 jobs have the same fingerprint, error, type, reason or queue: the largest
        group first, each with its newest, its oldest and a sample."""
        return self._client.blocking(lambda access: self._summary(access, by, call_timeout), "jobs.summary", polls=True)

    async def asummary(self, by: SummaryKey = "fingerprint", *, call_timeout: Duration | None = None) -> Summary:
        """The same, awaited."""
        return await self._summary(self._client.awaited, by, call_timeout)

    # Requeue -----------------------------------------------------------------------------------------------------

    @overload
    def requeue(
        self,
        *,
        reset_attempts: bool = True,
        spread: Duration | None = None,
        canary: int = 0,
        max_failures: int = 0,
        limit: int | None = None,
        dry_run: Literal[False] = False,
        by: str | None = None,
        call_timeout: Duration | None = None,
    ) -> Operation: ...
    @overload
    def requeue(
        self,
        *,
        reset_attempts: bool = True,
        spread: Duration | None = None,
        canary: int = 0,
        max_failures: int = 0,
        limit: int | None = None,
        dry_run: Literal[True],
        by: str | None = None,
        call_timeout: Duration | None = None,
    ) -> DryRun: ...
    def requeue(
        self,
        *,
        reset_attempts: bool = True,
        spread: Duration | None = None,
        canary: int = 0,
        max_failures: int = 0,
        limit: int | None = None,
        dry_run: bool = False,
        by: str | None = None,
        call_timeout: Duration | None = None,
    ) -> Operation | DryRun:
        """Bring all of them back: a filter with `state="dlq"` or `state="cancelled"`.

        `spread`: over how long they start; without it at once. `canary`: how many to try first, at most 100; if more
        than `max_failures` of those die again, the operation is held and the rest stays dead. `limit`: at most this
        many, the oldest ids first. `reset_attempts=False`: keep the count of failures. `by`: who acts, for the audit.
        `dry_run=True`: change nothing, and return what would be touched.
        """
        return self._blocking_begin(
            "requeue",
            dry_run,
            by,
            call_timeout,
            reset_attempts=reset_attempts,
            spread=spread,
            canary=canary,
            max_failures=max_failures,
            limit=limit,
        )

    @overload
    async def arequeue(
        self,
        *,
        reset_attempts: bool = True,
        spread: Duration | None = None,
        canary: int = 0,
        max_failures: int = 0,
        limit: int | None = None,
        dry_run: Literal[False] = False,
        by: str | None = None,
        call_timeout: Duration | None = None,
    ) -> Operation: ...
    @overload
    async def arequeue(
        self,
        *,
        reset_attempts: bool = True,
        spread: Duration | None = None,
        canary: int = 0,
        max_failures: int = 0,
        limit: int | None = None,
        dry_run: Literal[True],
        by: str | None = None,
        call_timeout: Duration | None = None,
    ) -> DryRun: ...
    async def arequeue(
        self,
        *,
        reset_attempts: bool = True,
        spread: Duration | None = None,
        canary: int = 0,
        max_failures: int = 0,
        limit: int | None = None,
        dry_run: bool = False,
        by: str | None = None,
        call_timeout: Duration | None = None,
    ) -> Operation | DryRun:
        """The same, awaited."""
        return await self._awaited_begin(
            "requeue",
            dry_run,
            by,
            call_timeout,
            reset_attempts=reset_attempts,
            spread=spread,
            canary=canary,
            max_failures=max_failures,
            limit=limit,
        )

    # Cancel and delete -------------------------------------------------------------------------------------------

    @overload
    def cancel(
        self,
        *,
        limit: int | None = None,
        dry_run: Literal[False] = False,
        by: str | None = None,
        call_timeout: Duration | None = None,
    ) -> Operation: ...
    @overload
    def cancel(
        self,
        *,
        limit: int | None = None,
        dry_run: Literal[True],
        by: str | None = None,
        call_timeout: Duration | None = None,
    ) -> DryRun: ...
    def cancel(
        self,
        *,
        limit: int | None = None,
        dry_run: bool = False,
        by: str | None = None,
        call_timeout: Duration | None = None,
    ) -> Operation | DryRun:
        """Cancel all of them that have not ended. `limit`, `dry_run` and `by` are as for `requeue`."""
        return self._blocking_begin("cancel", dry_run, by, call_timeout, limit=limit)

    @overload
    async def acancel(
        self,
        *,
        limit: int | None = None,
        dry_run: Literal[False] = False,
        by: str | None = None,
        call_timeout: Duration | None = None,
    ) -> Operation: ...
    @overload
    async def acancel(
        self,
        *,
        limit: int | None = None,
        dry_run: Literal[True],
        by: str | None = None,
        call_timeout: Duration | None = None,
    ) -> DryRun: ...
    async def acancel(
        self,
        *,
        limit: int | None = None,
        dry_run: bool = False,
        by: str | None = None,
        call_timeout: Duration | None = None,
    ) -> Operation | DryRun:
        """The same, awaited."""
        return await self._awaited_begin("cancel", dry_run, by, call_timeout, limit=limit)

    @overload
    def delete(
        self,
        *,
        limit: int | None = None,
        dry_run: Literal[False] = False,
        by: str | None = None,
        call_timeout: Duration | None = None,
    ) -> Operation: ...
    @overload
    def delete(
        self,
        *,
        limit: int | None = None,
        dry_run: Literal[True],
        by: str | None = None,
        call_timeout: Duration | None = None,
    ) -> DryRun: ...
    def delete(
        self,
        *,
        limit: int | None = None,
        dry_run: bool = False,
        by: str | None = None,
        call_timeout: Duration | None = None,
    ) -> Operation | DryRun:
        """Forget all of them, for good: a filter with a state. `limit`, `dry_run` and `by` are as for `requeue`.

        A job that an unfinished one depends on is skipped.
        """
        return self._blocking_begin("delete", dry_run, by, call_timeout, limit=limit)

    @overload
    async def adelete(
        self,
        *,
        limit: int | None = None,
        dry_run: Literal[False] = False,
        by: str | None = None,
        call_timeout: Duration | None = None,
    ) -> Operation: ...
    @overload
    async def adelete(
        self,
        *,
        limit: int | None = None,
        dry_run: Literal[True],
        by: str | None = None,
        call_timeout: Duration | None = None,
    ) -> DryRun: ...
    async def adelete(
        self,
        *,
        limit: int | None = None,
        dry_run: bool = False,
        by: str | None = None,
        call_timeout: Duration | None = None,
    ) -> Operation | DryRun:
        """The same, awaited."""
        return await self._awaited_begin("delete", dry_run, by, call_timeout, limit=limit)

    # Awaited and blocking ----------------------------------------------------------------------------------------

    def _blocking_begin(
        self, action: str, dry_run: bool, by: str | None, call_timeout: Duration | None, **options: Any
    ) -> Operation | DryRun:
        plan = self._plan(action, by, options)
        return self._client.blocking(
            lambda access: self._begin(access, plan, dry_run, call_timeout),
            f"jobs.{action}",
            call_timeout,
            polls=True,
        )

    async def _awaited_begin(
        self, action: str, dry_run: bool, by: str | None, call_timeout: Duration | None, **options: Any
    ) -> Operation | DryRun:
        return await self._begin(self._client.awaited, self._plan(action, by, options), dry_run, call_timeout)

    def _plan(self, action: str, by: str | None, options: dict[str, Any]) -> OperationPlan:
        from taskharbor.bulk.plan import Action
        from taskharbor.client.audit import actor
        from taskharbor.client.operation import checked_plan

        return checked_plan(Action(action), self._filter(), actor(by), **options)

    def _filter(self) -> FrozenFilter:
        from taskharbor.bulk.plan import FrozenFilter

        return FrozenFilter(**{name: getattr(self, name) for name in FrozenFilter.__struct_fields__})

    async def _begin(
        self, access: StoreAccess, plan: OperationPlan, dry_run: bool, call_timeout: Duration | None
    ) -> Operation | DryRun:
        from taskharbor.client.operation import begin

        jobs: Any = self
        await jobs._refuse_bare_error(access, call_timeout)
        if dry_run:
            return await self._dry_run(access, plan, call_timeout)
        return await begin(self._client, access, plan, call_timeout)

    async def _dry_run(self, access: StoreAccess, plan: OperationPlan, call_timeout: Duration | None) -> DryRun:
        from taskharbor.bulk.slices import is_meant
        from taskharbor.client.jobs import COUNT_CAP_JOBS, PAGE_IDS, Count
        from taskharbor.client.operation import DryRun

        jobs: Any = self
        cut = self.until or self._client.clock.now()
        error = None if self.error is None else full_error_name(self.error)
        frozen = msgspec.structs.replace(jobs, until=min(cut, self._client.clock.now()), error=error)
        found, more = await frozen._some(access, COUNT_CAP_JOBS, PAGE_IDS, call_timeout)
        meant = [info for info in found if is_meant(plan, info)]
        return DryRun(plan.action.value, Count(len(meant), more), meant[:DRY_RUN_SAMPLE], frozen.until)

    async def _summary(self, access: StoreAccess, by: SummaryKey, call_timeout: Duration | None) -> Summary:
        from taskharbor.client.summary import read_summary

        jobs: Any = self
        return await read_summary(jobs, access, by, call_timeout)

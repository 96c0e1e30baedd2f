"""Jobs by filter: `harbor.jobs(…)`, to iterate, to count, and to requeue, cancel or delete all of them.

Acting on many jobs is an operation (`Operation`): small jobs that workers carry out, which survive crashes. The filter
is frozen when the operation is made: what ends or is enqueued later is not touched.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict, Unpack, overload

import msgspec

from taskharbor.client.access import StoreAccess
from taskharbor.client.budget import Budget
from taskharbor.client.listing import Listing, at_least_one, one_of
from taskharbor.client.retries import with_retries
from taskharbor.client.twins import both
from taskharbor.drivers.base import Driver
from taskharbor.model.bounds import check_label, check_name
from taskharbor.model.error_class import error_class_of, error_query, full_error_name, is_bare
from taskharbor.model.job import JobInfo, State
from taskharbor.model.times import Duration, moment
from taskharbor.tasks.task import Task

if TYPE_CHECKING:
    from taskharbor.bulk.plan import FrozenFilter, OperationPlan
    from taskharbor.client.client import Client
    from taskharbor.client.operation import DryRun, Operation
    from taskharbor.client.summary import Summary, SummaryKey

PAGE_JOBS = 100  # whole records, with their payloads
PAGE_IDS = 1000  # records without payloads
COUNT_CAP_JOBS = 10_000
DRY_RUN_SAMPLE = 20


class ActionOptions(TypedDict, total=False):
    """Options of an action on all jobs of a filter, which `Jobs.requeue` explains."""

    limit: int | None
    by: str | None


class RequeueOptions(ActionOptions, total=False):
    """Options of a requeue of all jobs of a filter, which `Jobs.requeue` explains."""

    reset_attempts: bool
    spread: Duration | None
    canary: int
    max_failures: int


class Count(msgspec.Struct, frozen=True):
    """How many there are. `capped`: counting stopped, and there may be more.

    >>> print(Count(12, False), Count(10_000, True))
    12 10000+
    """

    n: int  # the number
    capped: bool

    def __str__(self) -> str:
        return f"{self.n}+" if self.capped else str(self.n)


class BareErrorName(ValueError):
    """A change was asked for by a bare name, and the jobs have errors of classes with a module. `names` are the full
    ones, one of which was meant."""

    def __init__(self, name: str, names: Sequence[str]) -> None:
        super().__init__(
            f"error: expected the full name of one class, because jobs would be changed, got {name!r}; "
            f"there are {', '.join(map(repr, names))}"
        )
        self.names = tuple(names)


class Jobs(Listing[JobInfo], msgspec.Struct, frozen=True, kw_only=True):
    """A filter for jobs, made by `harbor.jobs(…)`: a value, which reads nothing until it is asked.

    Iterate it with `for` or `async for`: each item is a `JobInfo`. Its fields are the options of `harbor.jobs`.

    >>> from taskharbor import Harbor
    >>> with Harbor("memory://") as harbor:
    ...     @harbor.task(name="ping", queue="net")
    ...     def ping(host: str) -> None: ...
    ...     handles = harbor.enqueue_many([ping.s("a"), ping.s("b")])
    ...     waiting = harbor.jobs(type=ping, state="ready")
    ...     print(waiting.count(), [info.job.queue for info in waiting], len(waiting.ids(1)))
    2 ['net', 'net'] 1
    """

    _name: ClassVar[str] = "jobs"
    _called: ClassVar[str] = "jobs"
    _page_size: ClassVar[int] = PAGE_JOBS

    _client: Client
    state: State | None = None
    queue: str | None = None
    type: str | None = None
    group: str | None = None
    flow: str | None = None
    error: str | None = None
    fingerprint: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    newest: bool = False

    def __repr__(self) -> str:
        names = [name for name in self.__struct_fields__[1:] if getattr(self, name) not in (None, False)]
        return f"Jobs({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    # Looking -------------------------------------------------------------------------------------------------------

    @both(polls=True)
    async def count(self, budget: Budget, cap: int = COUNT_CAP_JOBS) -> Count:
        """How many there are; counting stops at `cap`."""
        found, more = await self._some(budget, at_least_one(cap, "cap"), PAGE_IDS)
        return Count(len(found), more)

    acount = count.awaited

    @both(polls=True)
    async def ids(self, budget: Budget, limit: int) -> list[str]:
        """The ids of the first `limit` jobs."""
        found, _ = await self._some(budget, at_least_one(limit, "limit"), PAGE_IDS)
        return [info.job.id for info in found]

    aids = ids.awaited

    @both(polls=True)
    async def preview(self, budget: Budget, limit: int = 20) -> list[JobInfo]:
        """The first `limit` jobs, without their payloads, results and trails."""
        found, _ = await self._some(budget, at_least_one(limit, "limit"), PAGE_IDS)
        return found

    apreview = preview.awaited

    @both(polls=True)
    async def summary(self, budget: Budget, by: SummaryKey = "fingerprint") -> Summary:
        """How many of the newest 10,000 jobs have the same fingerprint, error, type, reason or queue: the largest
        group first, each with its newest, its oldest and a sample."""
        from taskharbor.client.summary import read_summary

        return await read_summary(self, budget, by)

    asummary = summary.awaited

    # Acting on all of them -----------------------------------------------------------------------------------------

    @overload
    def requeue(self, *, dry_run: Literal[False] = False, **options: Unpack[RequeueOptions]) -> Operation: ...
    @overload
    def requeue(self, *, dry_run: Literal[True], **options: Unpack[RequeueOptions]) -> DryRun: ...
    def requeue(self, *, dry_run: bool = False, **options: Unpack[RequeueOptions]) -> Operation | DryRun:
        """Bring all of them back: a filter with `state="dlq"` or `state="cancelled"`.

        `spread`: over how long they start; without it at once. `canary`: how many to try first, at most 100; if more
        than `max_failures` of those die again, the operation is held and the rest stays dead. `limit`: at most this
        many, the oldest ids first. `reset_attempts=False`: keep the count of failures. `by`: who acts, for the audit.
        `dry_run=True`: change nothing, and return what would be touched.
        """
        return self._begin(self._plan("requeue", **options), dry_run)

    @overload
    async def arequeue(self, *, dry_run: Literal[False] = False, **options: Unpack[RequeueOptions]) -> Operation: ...
    @overload
    async def arequeue(self, *, dry_run: Literal[True], **options: Unpack[RequeueOptions]) -> DryRun: ...
    async def arequeue(self, *, dry_run: bool = False, **options: Unpack[RequeueOptions]) -> Operation | DryRun:
        """The same, awaited."""
        return await self._abegin(self._plan("requeue", **options), dry_run)

    @overload
    def cancel(self, *, dry_run: Literal[False] = False, **options: Unpack[ActionOptions]) -> Operation: ...
    @overload
    def cancel(self, *, dry_run: Literal[True], **options: Unpack[ActionOptions]) -> DryRun: ...
    def cancel(self, *, dry_run: bool = False, **options: Unpack[ActionOptions]) -> Operation | DryRun:
        """Cancel all of them that have not ended. `limit`, `dry_run` and `by` are as for `requeue`."""
        return self._begin(self._plan("cancel", **options), dry_run)

    @overload
    async def acancel(self, *, dry_run: Literal[False] = False, **options: Unpack[ActionOptions]) -> Operation: ...
    @overload
    async def acancel(self, *, dry_run: Literal[True], **options: Unpack[ActionOptions]) -> DryRun: ...
    async def acancel(self, *, dry_run: bool = False, **options: Unpack[ActionOptions]) -> Operation | DryRun:
        """The same, awaited."""
        return await self._abegin(self._plan("cancel", **options), dry_run)

    @overload
    def delete(self, *, dry_run: Literal[False] = False, **options: Unpack[ActionOptions]) -> Operation: ...
    @overload
    def delete(self, *, dry_run: Literal[True], **options: Unpack[ActionOptions]) -> DryRun: ...
    def delete(self, *, dry_run: bool = False, **options: Unpack[ActionOptions]) -> Operation | DryRun:
        """Forget all of them, for good: a filter with a state. `limit`, `dry_run` and `by` are as for `requeue`.

        A job that an unfinished one depends on is skipped.
        """
        return self._begin(self._plan("delete", **options), dry_run)

    @overload
    async def adelete(self, *, dry_run: Literal[False] = False, **options: Unpack[ActionOptions]) -> Operation: ...
    @overload
    async def adelete(self, *, dry_run: Literal[True], **options: Unpack[ActionOptions]) -> DryRun: ...
    async def adelete(self, *, dry_run: bool = False, **options: Unpack[ActionOptions]) -> Operation | DryRun:
        """The same, awaited."""
        return await self._abegin(self._plan("delete", **options), dry_run)

    def _plan(self, action: str, *, by: str | None = None, **options: Any) -> OperationPlan:
        from taskharbor.bulk.plan import Action
        from taskharbor.client.audit import actor
        from taskharbor.client.operation import checked_plan

        known = (RequeueOptions if action == "requeue" else ActionOptions).__annotations__
        for name in options:
            if name not in known:
                raise TypeError(f"jobs.{action}() got an unexpected keyword argument {name!r}")
        return checked_plan(Action(action), self.frozen(), actor(by), **options)

    def frozen(self) -> FrozenFilter:
        """The filter, as an operation keeps it."""
        from taskharbor.bulk.plan import FrozenFilter

        return FrozenFilter(**{name: getattr(self, name) for name in FrozenFilter.__struct_fields__})

    def _begin(self, plan: OperationPlan, dry_run: bool) -> Operation | DryRun:
        return self._client.blocking(
            lambda access: self._begun(access, plan, dry_run), f"jobs.{plan.action}", polls=True
        )

    async def _abegin(self, plan: OperationPlan, dry_run: bool) -> Operation | DryRun:
        return await self._begun(self._client.awaited, plan, dry_run)

    async def _begun(self, access: StoreAccess, plan: OperationPlan, dry_run: bool) -> Operation | DryRun:
        from taskharbor.client.operation import begin

        budget = self._client.budget(access, plan.action)
        await self._refuse_bare_error(budget)
        return await (self._dry_run(budget, plan) if dry_run else begin(self._client, budget.again(), plan))

    async def _dry_run(self, budget: Budget, plan: OperationPlan) -> DryRun:
        from taskharbor.bulk.slices import is_meant
        from taskharbor.client.operation import DryRun

        now = self._client.clock.now()
        cut = min(self.until or now, now)
        error = None if self.error is None else full_error_name(self.error)
        found, more = await msgspec.structs.replace(self, until=cut, error=error)._some(
            budget, COUNT_CAP_JOBS, PAGE_IDS
        )
        meant = [info for info in found if is_meant(plan, info)]
        return DryRun(plan.action.value, Count(len(meant), more), meant[:DRY_RUN_SAMPLE], cut)

    # Reading ---------------------------------------------------------------------------------------------------------

    async def _page(
        self, budget: Budget, cursor: str | None, limit: int, whole: bool
    ) -> tuple[Sequence[JobInfo], str | None]:
        named = {} if self.error is None else error_query(self.error)
        return await self._listed(budget, cursor, limit, whole, named)

    async def _listed(
        self, budget: Budget, cursor: str | None, limit: int, whole: bool, error: dict[str, str]
    ) -> tuple[Sequence[JobInfo], str | None]:
        """A page of the jobs with this error, which fit the rest of the filter."""
        client = self._client
        if (self.error is not None or self.fingerprint is not None) and client.driver.unkept:
            raise client.driver.missing("error= or fingerprint=")

        async def read(driver: Driver) -> tuple[Sequence[JobInfo], str | None]:
            page = await driver.list(
                now=client.clock.now(),
                queue=self.queue,
                state=self.state,
                type=self.type,
                group=self.group,
                flow_id=self.flow,
                **error,
                fingerprint=self.fingerprint,
                since=self.since,
                until=self.until,
                order="-id" if self.newest else "id",
                payloads=whole,
                cursor=cursor,
                limit=limit,
            )
            return page.items, page.cursor

        return await with_retries(read, budget)

    async def _refuse_bare_error(self, budget: Budget) -> None:
        """BareErrorName if jobs that fit the rest of the filter died of a class that the bare name may mean as well.

        All of them are looked at: what is changed must not depend on what a page happens to hold.
        """
        if self.error is None or not is_bare(self.error):
            return
        found: set[str] = set()
        cursor: str | None = None
        while True:
            named = {"error_name": self.error}
            items, cursor = await self._listed(budget.again("jobs"), cursor, PAGE_IDS, False, named)
            found |= {info.job.error_class for info in items}
            if cursor is None:
                break
        if found:
            own = full_error_name(self.error)
            of_own, _ = await msgspec.structs.replace(self, error=own)._some(budget, 1, 1)
            raise BareErrorName(self.error, [*([own] if of_own else []), *sorted(found)])


def checked_jobs(
    client: Client,
    *,
    state: State | str | None,
    queue: str | None,
    type: str | Task[..., Any] | None,
    group: str | None,
    flow: str | None,
    error: str | builtins.type[BaseException] | None,
    fingerprint: str | None,
    since: datetime | None,
    until: datetime | None,
    newest: bool,
) -> Jobs:
    """What a caller gave, as a filter; TypeError or ValueError for a value that makes no sense."""
    job_type = type.name if isinstance(type, Task) else type
    for what, name in {"queue": queue, "type": job_type, "group": group, "flow": flow}.items():
        if name is not None:
            check_name(name, what)
    error_name = full_error_name(error_class_of(error)) if isinstance(error, builtins.type) else error
    for what, name in {"error": error_name, "fingerprint": fingerprint}.items():
        if name is not None:
            check_label(name, what)
    if not isinstance(newest, bool):
        raise TypeError(f"newest: expected True or False, got {builtins.type(newest).__name__}")
    return Jobs(
        _client=client,
        state=None if state is None else one_of(State, state, "state"),
        queue=queue,
        type=job_type,
        group=group,
        flow=flow,
        error=error_name,
        fingerprint=fingerprint,
        since=None if since is None else moment(since, "since"),
        until=None if until is None else moment(until, "until"),
        newest=newest,
    )

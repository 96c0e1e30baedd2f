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

from taskharbor.client.listing import Bound, Listing, bound, check_flag
from taskharbor.client.twins import both
from taskharbor.drivers.base import Driver
from taskharbor.model.bounds import check_label, check_name
from taskharbor.model.error_class import error_class_of, error_query, full_error_name, is_bare
from taskharbor.model.job import JobInfo, State
from taskharbor.model.times import Duration
from taskharbor.model.validation import at_least_one, one_of
from taskharbor.store.pages import AnyPage, read_items
from taskharbor.tasks.task import Task

if TYPE_CHECKING:
    from taskharbor.client.operation import DryRun, Operation
    from taskharbor.store.access import StoreCall
    from taskharbor.store.bulk.plan import FrozenFilter, OperationPlan
    from taskharbor.store.session import Store
    from taskharbor.store.summary import Summary, SummaryKey

PAGE_IDS = 1000  # records without payloads
COUNT_CAP_JOBS = 10_000
DRY_RUN_SAMPLE = 20
_READ_TO_COUNT = ("type", "group", "flow", "error", "fingerprint", "since", "until")


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

    _store: Store
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

    __repr__ = Listing.__repr__

    # Looking -------------------------------------------------------------------------------------------------------

    @both(polls=True)
    async def count(self, call: StoreCall, cap: int = COUNT_CAP_JOBS) -> Count:
        """How many there are; counting stops at `cap`.

        Without another filter than `state` and `queue` no job is read: it is what `harbor.counts` says. With one, at
        most 100,000 are counted, whatever `cap` is.
        """
        most = at_least_one(cap, "cap")
        if any(getattr(self, name) is not None for name in _READ_TO_COUNT):
            found, more = await self._some(call, most, PAGE_IDS)
            return Count(len(found), more)
        once = call.again(self._name)
        counted = await once.ask(lambda driver: driver.counts(once.now(), most + 1))
        queues = counted.values() if self.queue is None else [counted.get(self.queue, {})]
        number = sum(n for states in queues for state, n in states.items() if self.state in (None, state))
        return Count(min(number, most), number > most)

    acount = count.awaited

    @both(polls=True)
    async def ids(self, call: StoreCall, limit: int) -> list[str]:
        """The ids of the first `limit` jobs."""
        found, _ = await self._some(call, at_least_one(limit, "limit"), PAGE_IDS)
        return [info.job.id for info in found]

    aids = ids.awaited

    @both(polls=True)
    async def preview(self, call: StoreCall, limit: int = 20) -> list[JobInfo]:
        """The first `limit` jobs, without their payloads, results and trails."""
        found, _ = await self._some(call, at_least_one(limit, "limit"), PAGE_IDS)
        return found

    apreview = preview.awaited

    @both(polls=True)
    async def summary(self, call: StoreCall, by: SummaryKey = "fingerprint") -> Summary:
        """How many of the newest 10,000 jobs have the same fingerprint, error, type, reason or queue: the largest
        group first, each with its newest, its oldest and a sample."""
        from taskharbor.store.summary import MAX_SUMMARISED_JOBS, check_key, summarise

        check_key(by)
        newest = msgspec.structs.replace(self, newest=True)
        found, more = await newest._some(call, MAX_SUMMARISED_JOBS, PAGE_IDS)
        return summarise(found, by, complete=not more)

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
        from taskharbor.store.audit import actor
        from taskharbor.store.bulk.operations import checked_plan
        from taskharbor.store.bulk.plan import Action

        known = (RequeueOptions if action == "requeue" else ActionOptions).__annotations__
        for name in options:
            if name not in known:
                raise TypeError(f"jobs.{action}() got an unexpected keyword argument {name!r}")
        return checked_plan(Action(action), self._frozen(), actor(by), **options)

    def _frozen(self) -> FrozenFilter:
        """The filter, as an operation keeps it."""
        from taskharbor.store.bulk.plan import FrozenFilter

        return FrozenFilter(**{name: getattr(self, name) for name in FrozenFilter.__struct_fields__})

    def _begin(self, plan: OperationPlan, dry_run: bool) -> Operation | DryRun:
        return self._store.blocking(
            lambda call: self._begun(call, plan, dry_run), plan.action, f"jobs.{plan.action}", polls=True
        )

    async def _abegin(self, plan: OperationPlan, dry_run: bool) -> Operation | DryRun:
        return await self._begun(self._store.call(plan.action), plan, dry_run)

    async def _begun(self, call: StoreCall, plan: OperationPlan, dry_run: bool) -> Operation | DryRun:
        from taskharbor.client.operation import Operation
        from taskharbor.store.bulk.operations import begin

        await self._refuse_bare_error(call)
        return await self._dry_run(call, plan) if dry_run else Operation(self._store, await begin(call.again(), plan))

    async def _dry_run(self, call: StoreCall, plan: OperationPlan) -> DryRun:
        from taskharbor.client.operation import DryRun
        from taskharbor.store.bulk.slices import is_target

        now = call.now()
        cut = min(self.until or now, now)
        error = None if self.error is None else full_error_name(self.error)
        found, more = await msgspec.structs.replace(self, until=cut, error=error)._some(call, COUNT_CAP_JOBS, PAGE_IDS)
        targets = [info for info in found if is_target(plan, info)]
        return DryRun(plan.action.value, Count(len(targets), more), targets[:DRY_RUN_SAMPLE], cut)

    # Reading ---------------------------------------------------------------------------------------------------------

    async def _read(
        self, driver: Driver, now: datetime, cursor: str | None, limit: int, whole: bool
    ) -> AnyPage[JobInfo]:
        named = {} if self.error is None else error_query(self.error)
        return await self._listed(driver, now, cursor, limit, whole, named)

    async def _listed(
        self, driver: Driver, now: datetime, cursor: str | None, limit: int, whole: bool, error: dict[str, str]
    ) -> AnyPage[JobInfo]:
        """A page of the jobs with this error, which fit the rest of the filter."""
        if (self.error is not None or self.fingerprint is not None) and driver.unkept:
            raise driver.missing("error= or fingerprint=")
        query = {**self._frozen().query(), "error_class": None, **error}
        order = "-id" if self.newest else "id"
        return await driver.list(now=now, order=order, payloads=whole, cursor=cursor, limit=limit, **query)

    async def _refuse_bare_error(self, call: StoreCall) -> None:
        """BareErrorName if jobs that fit the rest of the filter died of a class that the bare name may mean as well.

        All of them are looked at: what is changed must not depend on what a page happens to hold.
        """
        if self.error is None or not is_bare(self.error):
            return
        named = {"error_name": self.error}

        async def read(cursor: str | None, limit: int) -> AnyPage[JobInfo]:
            page = call.again("jobs")
            return await page.ask(lambda driver: self._listed(driver, page.now(), cursor, limit, False, named))

        others, _ = await read_items(read, page=PAGE_IDS)
        found = {info.job.error_class for info in others}
        if found:
            own = full_error_name(self.error)
            of_own, _ = await msgspec.structs.replace(self, error=own)._some(call, 1, 1)
            raise BareErrorName(self.error, [*([own] if of_own else []), *sorted(found)])


def checked_jobs(
    store: Store,
    *,
    state: State | str | None,
    type: str | Task[..., Any] | None,
    error: str | builtins.type[BaseException] | None,
    since: Bound,
    until: Bound,
    newest: bool,
    **names: str | None,
) -> Jobs:
    """What a caller gave, as a filter; TypeError or ValueError for a value that makes no sense."""
    names["type"] = type.name if isinstance(type, Task) else type
    names["error"] = full_error_name(error_class_of(error)) if isinstance(error, builtins.type) else error
    for what, name in names.items():
        if name is not None:
            (check_label if what in ("error", "fingerprint") else check_name)(name, what)
    check_flag(newest, "newest")
    return Jobs(
        _store=store,
        state=None if state is None else one_of(State, state, "state"),
        since=bound(store, since, "since"),
        until=bound(store, until, "until"),
        newest=newest,
        **names,
    )

"""Jobs by filter: `harbor.jobs(…)`."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from taskharbor.client.bulk_calls import BulkCalls
from taskharbor.client.listing import Listing, at_least_one, one_of
from taskharbor.client.retries import with_retries
from taskharbor.drivers.base import Driver
from taskharbor.model.bounds import check_label, check_name
from taskharbor.model.error_class import error_class_of, error_query, full_error_name, is_bare
from taskharbor.model.job import JobInfo, State
from taskharbor.model.times import Duration, duration, moment
from taskharbor.tasks.task import Task

if TYPE_CHECKING:
    from taskharbor.client.access import StoreAccess
    from taskharbor.client.client import Client

PAGE_JOBS = 100  # whole records, with their payloads
PAGE_IDS = 1000  # records without payloads
COUNT_CAP_JOBS = 10_000


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


class Jobs(BulkCalls, Listing[JobInfo], msgspec.Struct, frozen=True, kw_only=True):
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
    call_timeout: Duration | None = None

    def __repr__(self) -> str:
        names = [name for name in self.__struct_fields__[1:] if getattr(self, name) not in (None, False)]
        return f"Jobs({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def count(self, cap: int = COUNT_CAP_JOBS, *, call_timeout: Duration | None = None) -> Count:
        """How many there are; counting stops at `cap`."""
        at_least_one(cap, "cap")
        return self._client.blocking(lambda access: self._count(access, cap, call_timeout), "jobs.count", polls=True)

    async def acount(self, cap: int = COUNT_CAP_JOBS, *, call_timeout: Duration | None = None) -> Count:
        """The same, awaited."""
        at_least_one(cap, "cap")
        return await self._count(self._client.awaited, cap, call_timeout)

    def ids(self, limit: int, *, call_timeout: Duration | None = None) -> list[str]:
        """The ids of the first `limit` jobs."""
        at_least_one(limit, "limit")
        return self._client.blocking(lambda access: self._ids(access, limit, call_timeout), "jobs.ids", polls=True)

    async def aids(self, limit: int, *, call_timeout: Duration | None = None) -> list[str]:
        """The same, awaited."""
        at_least_one(limit, "limit")
        return await self._ids(self._client.awaited, limit, call_timeout)

    def preview(self, limit: int = 20, *, call_timeout: Duration | None = None) -> list[JobInfo]:
        """The first `limit` jobs, without their payloads, results and trails."""
        at_least_one(limit, "limit")
        return self._client.blocking(
            lambda access: self._preview(access, limit, call_timeout), "jobs.preview", polls=True
        )

    async def apreview(self, limit: int = 20, *, call_timeout: Duration | None = None) -> list[JobInfo]:
        """The same, awaited."""
        at_least_one(limit, "limit")
        return await self._preview(self._client.awaited, limit, call_timeout)

    async def _count(self, access: StoreAccess, cap: int, call_timeout: Duration | None) -> Count:
        found, more = await self._some(access, cap, PAGE_IDS, call_timeout)
        return Count(len(found), more)

    async def _ids(self, access: StoreAccess, limit: int, call_timeout: Duration | None) -> list[str]:
        found, _ = await self._some(access, limit, PAGE_IDS, call_timeout)
        return [info.job.id for info in found]

    async def _preview(self, access: StoreAccess, limit: int, call_timeout: Duration | None) -> list[JobInfo]:
        found, _ = await self._some(access, limit, PAGE_IDS, call_timeout)
        return found

    async def _page(
        self, access: StoreAccess, cursor: str | None, limit: int, call_timeout: Duration | None, whole: bool
    ) -> tuple[Sequence[JobInfo], str | None]:
        named = {} if self.error is None else error_query(self.error)
        return await self._listed(access, cursor, limit, call_timeout, whole, named)

    async def _listed(
        self,
        access: StoreAccess,
        cursor: str | None,
        limit: int,
        call_timeout: Duration | None,
        whole: bool,
        error: dict[str, str],
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

        timeout = self.call_timeout if call_timeout is None else call_timeout
        return await with_retries(read, client.budget(access, timeout, "jobs"))

    async def _refuse_bare_error(self, access: StoreAccess, call_timeout: Duration | None) -> None:
        """BareErrorName if jobs that fit the rest of the filter died of a class that the bare name may mean as well.

        All of them are looked at: what is changed must not depend on what a page happens to hold.
        """
        if self.error is None or not is_bare(self.error):
            return
        found: set[str] = set()
        cursor: str | None = None
        while True:
            named = {"error_name": self.error}
            items, cursor = await self._listed(access, cursor, PAGE_IDS, call_timeout, False, named)
            found |= {info.job.error_class for info in items}
            if cursor is None:
                break
        if found:
            own = full_error_name(self.error)
            of_own, _ = await msgspec.structs.replace(self, error=own)._some(access, 1, 1, call_timeout)
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
    call_timeout: Duration | None,
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
        call_timeout=None if call_timeout is None else duration(call_timeout, "call_timeout", zero=False),
    )

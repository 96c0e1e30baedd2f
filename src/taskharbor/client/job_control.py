"""Reading, amending and deleting the record of one job, each call within a budget and repeated if the store fails.

These calls are about the record itself: they do not follow it to a workflow that took the job's place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskharbor.client.handle import no_record
from taskharbor.client.job_changes import Changes, is_applied
from taskharbor.client.retries import with_retries
from taskharbor.drivers.base import Driver
from taskharbor.model.errors import InvalidJob, JobNotFound, WrongState
from taskharbor.model.job import JobInfo

if TYPE_CHECKING:
    from taskharbor.client.budget import Budget
    from taskharbor.client.client import Client
    from taskharbor.model.amendment import Amend
    from taskharbor.tasks.signature import Signature

MAX_TRIES = 5
"""How often an amendment is made anew because the job changed between the read and the write."""

AMEND_IN_DOUBT = "It may or may not be amended; info().job.edits counts up with each amendment"
DELETE_IN_DOUBT = "It may or may not be deleted; delete it again: that does no harm"


async def read_record(client: Client, id: str, budget: Budget) -> JobInfo:
    """The job itself, as it is now."""
    try:
        return await with_retries(lambda driver: driver.inspect(id, client.clock.now()), budget)
    except JobNotFound:
        raise no_record(id) from None


async def delete_record(id: str, budget: Budget) -> None:
    """Forget a job. A try whose reply was lost may have deleted it: then the next one finds it gone, and succeeds."""
    is_repeated = False

    async def delete(driver: Driver) -> None:
        nonlocal is_repeated
        may_be_gone, is_repeated = is_repeated, True
        error = (await driver.delete([id]))[0]
        if isinstance(error, JobNotFound):
            if not may_be_gone:
                raise no_record(id)
        elif error is not None:
            raise error

    budget.doubt = lambda: DELETE_IN_DOUBT
    await with_retries(delete, budget)


class Amendment:
    """One call of `amend`. `job_type` and `signature` are those of the task that the handle came from, if it did."""

    def __init__(
        self,
        client: Client,
        id: str,
        changes: Changes,
        expect: JobInfo | None,
        job_type: str | None,
        signature: Signature | None,
    ) -> None:
        self._client = client
        self._id = id
        self._changes = changes
        self._expect = expect
        self._type = job_type
        self._signature = signature
        self._sent: tuple[Amend, JobInfo] | None = None  # by the last try, of which no reply came

    async def make(self, budget: Budget) -> None:
        """Read the job and change it; WrongState if it cannot be changed, or is not as expected."""
        budget.doubt = lambda: AMEND_IN_DOUBT
        await with_retries(self._make, budget)

    async def _make(self, driver: Driver) -> None:
        amender: Driver = driver
        for left in reversed(range(MAX_TRIES)):
            info = await self._read(amender)
            if self._sent is not None and is_applied(self._sent[0], self._sent[1].job, info.job):
                return
            self._refuse_unexpected(info)
            change = self._changes.of(info.job, self._client.codec, self._signature)
            self._sent = change, info
            error = (await amender.amend([change], self._client.clock.now()))[0]
            self._sent = None
            if error is None:
                return
            if not left or self._expect is not None or not isinstance(error, WrongState):
                raise error
            again = await self._read(amender)
            if (again.job.deliveries, again.job.edits) == (info.job.deliveries, info.job.edits):
                raise error  # its state is the reason

    async def _read(self, driver: Driver) -> JobInfo:
        try:
            return await driver.inspect(self._id, self._client.clock.now())
        except JobNotFound:
            raise no_record(self._id) from None

    def _refuse_unexpected(self, info: JobInfo) -> None:
        job, expect = info.job, self._expect
        if expect is not None and (job.deliveries, job.edits) != (expect.job.deliveries, expect.job.edits):
            raise WrongState(f"job {self._id} was reserved or amended since it was read; read it again")
        if self._changes.payload is not None and self._type is not None and job.type != self._type:
            raise InvalidJob(
                f"job {self._id} is a {job.type!r}, not a {self._type!r}: amend its payload through its own task, or "
                "with harbor.job(id), which checks no arguments"
            )

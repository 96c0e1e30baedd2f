"""The result binder: puts the results that a workflow step waits for into its payload, before the job starts.

It reads the results for a whole batch in one call, and only for jobs with the metadata key `BIND_KEY`. The executor
gets complete payloads, so neither it nor a child process knows about workflows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TypeAlias

from taskharbor.model.errors import JobNotFound
from taskharbor.model.job import JobRecord, replace
from taskharbor.model.lease import Reserved
from taskharbor.model.naming import class_name
from taskharbor.model.refusal import Refusal
from taskharbor.tasks.flow_metadata import BIND_KEY, MAX_RESULTS_BYTES, Bind, read_bind, taken
from taskharbor.tasks.results import NoResult, Results, TooMuch, complete
from taskharbor.worker.parts import Part, WorkerParts

GONE = "its record was deleted or pruned, or the store has lost it; run the workflow again"

Wanted: TypeAlias = dict[str, tuple[Bind, tuple[str, ...]]]
"""By the token of a lease: the parsed metadata of its job, and the ids of the jobs whose results it takes."""


class Unready(Exception):
    """The job gets its results once a job that it waits for is done; the text says which."""


class ResultBinder(Part):
    """Completes payloads, and returns for the others why that failed, by the token of the lease.

    A job never gets a value that nobody returned. If the store has no result of a job before it, that one is looked
    at: if its record is gone, the result is gone for good (Refusal); if it is there and not done, because the store
    has lost what came later, it runs again (Unready). A store that cannot tell says so by raising.
    """

    def __init__(self, parts: WorkerParts) -> None:
        super().__init__(parts)
        self._codec = parts.codec

    async def bind(self, batch: Sequence[Reserved]) -> tuple[list[Reserved], dict[str, Exception]]:
        """Return the batch with complete payloads, and the problems: Refusal, Unready, or what the store raised."""
        wanted: Wanted = {}
        problems: dict[str, Exception] = {}
        for reserved in batch:
            mark = reserved.job.metadata.get(BIND_KEY)
            # A job that was lost too often is not run. Reading its results may be what crashed its workers.
            if mark is not None and reserved.job.lost < self._settings.max_lost:
                try:
                    wanted[reserved.lease.token] = _parsed(reserved.job, mark)
                except Exception as error:
                    reason = f"its metadata {BIND_KEY} cannot be read: {error}"
                    problems[reserved.lease.token] = Refusal(reason)
        bound = []
        try:
            together = await self._together(batch, wanted)
            for reserved in batch:
                wants = wanted.get(reserved.lease.token)
                if wants is not None:
                    try:
                        results = together or await self._alone(reserved.job, wants[1])
                        job = await self._completed(reserved.job, *wants, results)
                        reserved = Reserved(job, reserved.lease, reserved.lost_by)
                    except (Refusal, Unready) as error:
                        problems[reserved.lease.token] = error
                bound.append(reserved)
        except Exception as error:
            self._outage.failed("results", error)
            problems.update((token, error) for token in wanted)
            return list(batch), problems
        self._outage.answered("results")
        return bound, problems

    async def _together(self, batch: Sequence[Reserved], wanted: Wanted) -> Results | None:
        """The results of all jobs in one call; None if they are so large that each is better read alone."""
        flow_ids = {reserved.job.flow_id for reserved in batch if reserved.lease.token in wanted}
        results = Results(MAX_RESULTS_BYTES)
        try:
            ids = chain.from_iterable(members for _, members in wanted.values())
            await results.load(self._driver, ids, self._clock.now(), flow_ids.pop() if len(flow_ids) == 1 else None)
        except TooMuch:
            return None
        return results

    async def _alone(self, job: JobRecord, ids: tuple[str, ...]) -> Results:
        results = Results(MAX_RESULTS_BYTES)
        try:
            await results.load(self._driver, ids, self._clock.now(), job.flow_id)
        except TooMuch:
            reason = f"the results it waits for have over {MAX_RESULTS_BYTES} bytes together"
            raise Refusal(f"{reason}; keep them elsewhere and return references") from None
        return results

    async def _completed(self, job: JobRecord, mark: Bind, ids: tuple[str, ...], results: Results) -> JobRecord:
        handler = self._handlers.get(job.type)
        codec = self._codec if handler is None else handler.signature.codec
        try:
            payload = complete(codec, job.payload, mark.into, results.tree(mark.shape, ids))
        except NoResult as missing:
            raise await self._why_missing(missing.job_id) from None
        except Exception as error:
            raise Refusal(f"the results it waits for cannot be read: {class_name(error)}") from error
        return replace(job, payload=payload)

    async def _why_missing(self, id: str) -> Refusal | Unready:
        now, passed = self._clock.now(), dict.fromkeys([id])
        try:
            info = await self._driver.inspect(id, now)
            while (heir := info.job.handed_to) is not None and heir not in passed:
                passed[heir] = None
                info = await self._driver.inspect(heir, now)
        except JobNotFound:
            chain = " → ".join(passed)  # it and those that took its place
            return Refusal(f"the result of job {chain} is gone: {GONE}")
        return Unready(f"the result of job {info.job.id} ({info.job.type}) is not there: that job is {info.state}")


def _parsed(job: JobRecord, text: str) -> tuple[Bind, tuple[str, ...]]:
    mark = read_bind(text)
    number = taken(mark.shape)
    if number > len(job.depends_on):
        raise ValueError(f"expected at most {len(job.depends_on)} results, got {number}")
    return mark, job.depends_on[:number]

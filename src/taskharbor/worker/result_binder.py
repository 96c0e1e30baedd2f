"""The result binder: puts the results that a workflow step waits for into its payload, before the job starts.

It reads the results for a whole batch in one call, and only for jobs with the metadata key `BIND_KEY`. The executor
gets complete payloads, so neither it nor a child process knows about workflows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TypeAlias

from taskharbor.drivers.contract import Driver
from taskharbor.model.clock import Clock
from taskharbor.model.codec import Codec
from taskharbor.model.job import JobRecord, replace
from taskharbor.model.lease import Reserved
from taskharbor.model.naming import class_name
from taskharbor.model.refusal import Refusal
from taskharbor.tasks.flow_metadata import BIND_KEY, MAX_RESULTS_BYTES, Bind, read_bind, taken
from taskharbor.tasks.handler import HandlerRegistry
from taskharbor.tasks.results import Results, TooMuch, complete
from taskharbor.worker.outage import Outage

Wanted: TypeAlias = dict[str, tuple[Bind, tuple[str, ...]]]
"""By the token of a lease: the parsed metadata of its job, and the ids of the jobs whose results it takes."""


class Unbindable(Exception):
    """The job can never get its results; `refusal` says why."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


class ResultBinder:
    """Completes payloads, and returns for the others why that failed, by the token of the lease."""

    def __init__(
        self,
        *,
        driver: Driver,
        clock: Clock,
        handlers: HandlerRegistry,
        codec: Codec,
        outage: Outage,
        max_lost: int,
    ) -> None:
        self._driver = driver
        self._clock = clock
        self._handlers = handlers
        self._codec = codec
        self._outage = outage
        self._max_lost = max_lost

    async def bind(self, batch: Sequence[Reserved]) -> tuple[list[Reserved], dict[str, Exception]]:
        """Return the batch with complete payloads, and the problems: an Unbindable, or what the store raised."""
        wanted: Wanted = {}
        problems: dict[str, Exception] = {}
        for reserved in batch:
            mark = reserved.job.metadata.get(BIND_KEY)
            # A job that was lost too often is not run. Reading its results may be what crashed its workers.
            if mark is not None and reserved.job.lost < self._max_lost:
                try:
                    wanted[reserved.lease.token] = _parsed(reserved.job, mark)
                except Exception as error:
                    reason = f"its metadata {BIND_KEY} cannot be read: {error}"
                    problems[reserved.lease.token] = Unbindable(Refusal(reason))
        bound = []
        together: Results | None = None
        for reserved in batch:
            wants = wanted.get(reserved.lease.token)
            if wants is not None:
                try:
                    if together is None:
                        together = await self._together(batch, wanted)
                    results = (
                        together if together.found or together.joins else await self._alone(reserved.job, wants[1])
                    )
                    reserved = Reserved(
                        self._completed(reserved.job, *wants, results), reserved.lease, reserved.lost_by
                    )
                except Unbindable as error:
                    problems[reserved.lease.token] = error
                except Exception as error:
                    self._outage.failed("results", error)
                    problems.update((token, error) for token in wanted)
                    return list(batch), problems
            bound.append(reserved)
        self._outage.answered("results")
        return bound, problems

    async def _together(self, batch: Sequence[Reserved], wanted: Wanted) -> Results:
        """The results of all jobs in one call; nothing if they are so large that each is better read alone."""
        flow_ids = {reserved.job.flow_id for reserved in batch if reserved.lease.token in wanted}
        results = Results(MAX_RESULTS_BYTES)
        try:
            ids = chain.from_iterable(members for _, members in wanted.values())
            await results.load(self._driver, ids, self._clock.now(), flow_ids.pop() if len(flow_ids) == 1 else None)
        except TooMuch:
            return Results()
        return results

    async def _alone(self, job: JobRecord, ids: tuple[str, ...]) -> Results:
        results = Results(MAX_RESULTS_BYTES)
        try:
            await results.load(self._driver, ids, self._clock.now(), job.flow_id)
        except TooMuch:
            reason = f"the results it waits for have over {MAX_RESULTS_BYTES} bytes together"
            raise Unbindable(Refusal(f"{reason}; keep them elsewhere and return references")) from None
        return results

    def _completed(self, job: JobRecord, mark: Bind, ids: tuple[str, ...], results: Results) -> JobRecord:
        handler = self._handlers.get(job.type)
        codec = self._codec if handler is None else handler.signature.codec
        try:
            payload = complete(codec, job.payload, mark.into, results.tree(mark.shape, ids))
        except Exception as error:
            raise Unbindable(Refusal(f"the results it waits for cannot be read: {class_name(error)}")) from error
        return replace(job, payload=payload)


def _parsed(job: JobRecord, text: str) -> tuple[Bind, tuple[str, ...]]:
    mark = read_bind(text)
    number = taken(mark.shape)
    if number > len(job.depends_on):
        raise ValueError(f"expected at most {len(job.depends_on)} results, got {number}")
    return mark, job.depends_on[:number]

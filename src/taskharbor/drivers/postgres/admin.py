"""What operators and clients do to stored jobs and queues: requeue, cancel, amend, delete, pause."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from taskharbor.drivers.base import CANCELLED_REASON
from taskharbor.drivers.postgres.calls import PostgresCalls
from taskharbor.drivers.postgres.records import optional_us, to_json
from taskharbor.drivers.postgres.statement import array
from taskharbor.drivers.postgres.tries import ADMIN_S, JobLocked, Pauses, ask_again
from taskharbor.drivers.refusals import (
    amended_since,
    changed_since,
    no_job,
    not_amendable,
    paired,
    still_needed,
    wrong_state,
)
from taskharbor.drivers.slices import DoneSoFar, change_in_slices, counted_flow
from taskharbor.model.amendment import Amend
from taskharbor.model.bounds import check_amend, check_moment, check_name
from taskharbor.model.errors import DriverError, InvalidJob, TaskHarborError
from taskharbor.model.job import Seen
from taskharbor.model.times import MICROSECOND, to_us


class PostgresAdmin(PostgresCalls):
    """The calls that change stored jobs, one by one as far as each allows it."""

    async def requeue(
        self,
        ids: Sequence[str],
        now: datetime,
        run_at: datetime | None = None,
        reset_attempts: bool = False,
        seen: Sequence[Seen] | None = None,
    ) -> list[DriverError | None]:
        if run_at is not None:
            check_moment(run_at, "run_at")
        function = "requeue(text, bigint, bigint, boolean, text)"
        return await self._change_each(function, ids, seen, to_us(now), optional_us(run_at), reset_attempts)

    async def cancel(
        self, ids: Sequence[str], now: datetime, seen: Sequence[Seen] | None = None
    ) -> list[DriverError | None]:
        return await self._change_each("cancel(text, bigint, text, text)", ids, seen, to_us(now), CANCELLED_REASON)

    async def cancel_flow(self, flow_id: str, now: datetime) -> int:
        pauses = None
        with counted_flow(flow_id) as cancelled:
            while locked := await self._cancel_unlocked(flow_id, to_us(now), cancelled):
                pauses = pauses or Pauses(self._runner(), ADMIN_S)
                if not await pauses.sleep():
                    break
        if locked:
            raise JobLocked(
                f"flow {flow_id}: cancelled {cancelled.number} job(s), but {locked} more are locked by a transaction "
                "that is still open; cancel it again later"
            )
        return cancelled.number

    async def _cancel_unlocked(self, flow_id: str, now: int, cancelled: DoneSoFar) -> int:
        """Cancel in slices what is not locked; returns how many jobs are."""
        function, all_locked = "cancel_flow(text, bigint, text)", 0
        place: str | None = ""
        while place is not None:
            rows = await self._call(function, flow_id, now, place, columns="changed, locked, last", repeat=False)
            ((some, locked, place),) = rows
            cancelled.number += some
            all_locked += int(locked)
        return all_locked

    async def amend(self, changes: Sequence[Amend], now: datetime) -> list[TaskHarborError | None]:
        """Change jobs that are not running, each if it is as its editor saw it."""
        results: dict[int, TaskHarborError | None] = {}
        sound: list[Amend] = []
        for place, change in enumerate(changes):
            try:
                check_amend(change, self._options.max_payload)
                sound.append(change)
            except InvalidJob as error:
                results[place] = error

        async def ask(some: Sequence[Amend]) -> list[DriverError | None]:
            given = to_json([_amendment(change) for change in some])
            texts = await self._value("amend(text, bigint)", given, to_us(now))
            return [_refusal("amend", change.id, text) for change, text in zip(some, texts, strict=True)]

        if sound:
            answers = iter(await ask_again(sound, ask, ADMIN_S, self._runner()))
        return [results[place] if place in results else next(answers) for place in range(len(changes))]

    async def delete(self, ids: Sequence[str], seen: Sequence[Seen] | None = None) -> list[DriverError | None]:
        return await self._change_each("delete_jobs(text, text)", ids, seen)

    async def pause(self, queue: str) -> None:
        check_name(queue, "queue")
        await self._execute(
            f"insert into {self._table('queues')} (queue, paused) values (?, true) "
            "on conflict (queue) do update set paused = true",
            queue,
        )

    async def resume(self, queue: str) -> None:
        await self._execute(f"update {self._table('queues')} set paused = false where queue = ? and paused", queue)
        await self._call("hint_queue(text)", queue)

    async def _until_unlocked(self, patience: float, function: str, *parameters: Any) -> tuple[int, int]:
        """Call a function again and again: how many jobs it has changed, and how many were still locked after
        `patience` seconds."""
        changed, pauses = 0, None
        while True:
            ((more, locked),) = await self._call(function, *parameters, columns="changed, locked", repeat=False)
            changed += more
            pauses = pauses or Pauses(self._runner(), patience)
            if not locked or not await pauses.sleep():
                return changed, locked

    async def _change_each(
        self, function: str, ids: Sequence[str], seen: Sequence[Seen] | None, *parameters: Any
    ) -> list[DriverError | None]:
        """Call one of the functions of sql/functions/admin for these ids, and again for those that are locked."""
        verb = function.partition("(")[0]

        async def ask(some: Sequence[tuple[str, Seen | None]]) -> list[DriverError | None]:
            expected = None if seen is None else array([_seen_text(was) for _, was in some if was is not None])
            texts = await self._value(function, array([id for id, _ in some]), *parameters, expected)
            return [_refusal(verb, id, text) for (id, _), text in zip(some, texts, strict=True)]

        async def change(ids: Sequence[str], seen: Sequence[Seen] | None) -> list[DriverError | None]:
            return await ask_again(paired(ids, seen), ask, ADMIN_S, self._runner())

        return await change_in_slices(verb.removesuffix("_jobs"), ids, seen, change)


def _seen_text(seen: Seen) -> str:
    """What was seen of a job, as sql/functions/admin/seen_of.sql writes it."""
    end = seen.finished_at
    if end is None:
        at = "-"
    else:
        at = str(to_us(end)) if end.utcoffset() is not None else "naive"  # no job has ended at such a moment
    return f"{seen.deliveries:d} {seen.edits:d} {at}"


_REFUSALS: dict[str, Callable[[str], DriverError]] = {
    "unknown": no_job,
    "locked": JobLocked.job,
    "changed": changed_since,
    "amended": amended_since,
}


def _refusal(function: str, id: str, text: str | None) -> DriverError | None:
    """The error for what a function of sql/functions/admin returned for a job."""
    if text is None:
        return None
    if text in _REFUSALS:
        return _REFUSALS[text](id)
    if text.startswith("needed "):
        return still_needed(id, int(text.removeprefix("needed ")))
    if function == "amend":
        return not_amendable(id, text)
    return wrong_state(id, text, "cancel" if function == "cancel" else "requeue")


def _amendment(change: Amend) -> dict[str, Any]:
    """An amendment that was checked, as the function `amend` takes it."""
    stored = change.changes()
    for name, value in stored.items():
        if isinstance(value, datetime):
            stored[name] = to_us(value)
        elif isinstance(value, timedelta):
            stored[name] = value // MICROSECOND
        elif isinstance(value, dict):
            stored[name] = to_json(value) if value else None
        elif isinstance(value, bytes):
            stored[name] = f"\\x{value.hex()}"
    return {"id": change.id, "deliveries": change.deliveries, "edits": change.edits, **stored}

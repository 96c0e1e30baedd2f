"""Changing a stored job: what a caller asked for, checked before the store is asked, and the change itself.

A change never overwrites what it has not seen. It is sent with the version of the record that it was made from
(`deliveries`, `edits`), and the store refuses it if the job was reserved or amended since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, UnsetType

from taskharbor.drivers.base import Driver
from taskharbor.model.amendment import Amend
from taskharbor.model.bounds import INT_MIN, check_number, clean_error
from taskharbor.model.codec import Codec
from taskharbor.model.errors import DriverError, InvalidJob, JobNotFound, WrongState
from taskharbor.model.executions import read_trail, write_trail
from taskharbor.model.job import JobInfo, JobRecord, Seen
from taskharbor.model.progress import read_note, write_note
from taskharbor.model.times import Duration, duration, moment
from taskharbor.policy.mask import without_payload
from taskharbor.store.bulk.plan import is_operation
from taskharbor.store.jobs import no_record, part_of_operation
from taskharbor.store.redaction import QUOTED_KEY
from taskharbor.tasks.flow_metadata import RESERVED
from taskharbor.tasks.payload_edit import edit_payload
from taskharbor.tasks.signature import Signature

if TYPE_CHECKING:
    from taskharbor.store.access import StoreCall

MAX_TRIES = 5
"""How often a change is made anew because the job changed between the read and the write."""
AMEND_IN_DOUBT = "It may or may not be amended; info().job.edits counts up with each amendment"
_NAMES = "payload=, run_at=, priority=, max_attempts=, timeout= or metadata="


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What to change. `fields` are values that replace the old ones; payload and metadata are merged over them."""

    fields: dict[str, Any]
    payload: dict[str, Any] | None
    metadata: dict[str, str | None] | None

    def __repr__(self) -> str:
        return f"Changes({', '.join(f'{name}=…' for name in self.names())})"

    def names(self) -> list[str]:
        """The names of the fields to change."""
        merged = [name for name in ("payload", "metadata") if getattr(self, name) is not None]
        return [*merged, *self.fields]

    def of(self, job: JobRecord, codec: Codec, signature: Signature | None) -> Amend:
        """The amendment of this record."""
        fields = dict(self.fields)
        if self.payload is not None:
            fields["payload"] = edit_payload(job, self.payload, codec, signature)
        if self.metadata is not None:
            merged = {**job.metadata, **self.metadata}
            fields["metadata"] = {key: value for key, value in merged.items() if value is not None}
        return Amend(id=job.id, deliveries=job.deliveries, edits=job.edits, **fields)


def with_masked_texts(change: Amend, job: JobRecord) -> Amend:
    """The change; if it replaces the payload, the stored texts are masked for good with the values of the old one.

    A person who may not see a payload reads these texts with the values of the stored one masked. Values that a change
    takes away would be masked no longer. The idempotency key and metadata have to stay as they are: if they quote the
    old payload, a mark hides them.
    """
    if change.payload is UNSET or change.payload == job.payload:
        return change
    names = [job.idempotency_key or "", *job.metadata.values()]
    if QUOTED_KEY not in job.metadata and without_payload(job, *names) != names:
        entries = job.metadata if change.metadata is UNSET else change.metadata
        change = msgspec.structs.replace(change, metadata={**entries, QUOTED_KEY: ""})
    trail, note = read_trail(job.trail), read_note(job.note)
    texts = [job.last_error, job.reason, note.note if note else "", *(each.error for each in trail)]
    masked = without_payload(job, *texts)
    if masked == texts:
        return change
    last_error, reason, words, *errors = masked
    fields: dict[str, Any] = {"last_error": clean_error(last_error), "reason": clean_error(reason)}
    if note:
        fields["note"] = write_note(msgspec.structs.replace(note, note=words))
    if trail:
        pairs = zip(trail, errors, strict=True)
        fields["trail"] = write_trail([msgspec.structs.replace(each, error=error) for each, error in pairs])
    return msgspec.structs.replace(change, **fields)


def checked_changes(
    *,
    payload: Mapping[str, Any] | UnsetType,
    run_at: datetime | UnsetType | None,
    priority: int | UnsetType,
    max_attempts: int | UnsetType,
    timeout: Duration | UnsetType | None,
    metadata: Mapping[str, str | None] | UnsetType,
) -> Changes:
    """What a caller gave, as a value; TypeError or ValueError for a value that makes no sense."""
    fields: dict[str, Any] = {}
    if run_at is not UNSET:
        fields["run_at"] = None if run_at is None else moment(run_at, "run_at")
    if priority is not UNSET:
        fields["priority"] = _whole(priority, "priority")
    if max_attempts is not UNSET:
        fields["max_attempts"] = _whole(max_attempts, "max_attempts", 1)
    if timeout is not UNSET:
        fields["timeout"] = None if timeout is None else duration(timeout, "timeout", zero=False)
    changes = Changes(
        fields=fields,
        payload=None if payload is UNSET else _arguments(payload),
        metadata=None if metadata is UNSET else _entries(metadata),
    )
    if not changes.names():
        raise TypeError(f"amend: expected at least one change: {_NAMES}")
    return changes


def check_expected(expect: JobInfo | None, id: str) -> None:
    """TypeError or ValueError if this cannot be what the caller saw of the job."""
    if expect is None:
        return
    if not isinstance(expect, JobInfo):
        raise TypeError(f"expect: expected the JobInfo that info() returned, got {type(expect).__name__}")
    if expect.job.id != id:
        raise ValueError(f"expect: expected what was read of job {id}, got that of job {expect.job.id}")


def is_applied(change: Amend, before: JobRecord, now: JobRecord) -> bool:
    """Whether the record shows that this change was made, and nothing else since: then a lost reply was a success."""
    is_next = now.edits == before.edits + 1 and now.deliveries == before.deliveries
    return is_next and all(getattr(now, name) == value for name, value in change.changes().items())


def _whole(value: Any, name: str, minimum: int = INT_MIN) -> int:
    if type(value) is not int:
        raise TypeError(f"{name}: expected a whole number, got {type(value).__name__}")
    check_number(value, name, minimum)
    return int(value)


def _arguments(payload: Any) -> dict[str, Any]:
    if not isinstance(payload, Mapping):
        raise TypeError(
            f"payload: expected the arguments to replace by name, such as {{'to': …}}, got {type(payload).__name__}"
        )
    for name in payload:
        if not isinstance(name, str):
            raise TypeError(f"payload: expected names of arguments, got a key of type {type(name).__name__}")
    return dict(payload)


def _entries(metadata: Any) -> dict[str, str | None]:
    if not isinstance(metadata, Mapping):
        raise TypeError(f"metadata: expected a mapping of text to text or None, got {type(metadata).__name__}")
    for key, value in metadata.items():
        if not isinstance(key, str) or not (value is None or isinstance(value, str)):
            wrong = value if isinstance(key, str) else key
            raise TypeError(f"metadata: expected text to text or None, got {type(wrong).__name__}")
        if key.startswith(RESERVED):
            raise InvalidJob(f"metadata: keys that begin with {RESERVED!r} belong to the core, got {key!r}")
    return dict(metadata)


@dataclass(repr=False)
class Amendment:
    """One call of `handle.amend`. `job_type` and `signature` are those of the task that the handle came from, if it
    did."""

    call: StoreCall
    id: str
    changes: Changes
    expect: JobInfo | None
    job_type: str | None
    signature: Signature | None
    sent: tuple[Amend, JobInfo] | None = None  # by the last try, of which no reply came

    async def send(self, driver: Driver) -> None:
        """Read the job and change it; WrongState if it cannot be changed, or is not as expected."""
        for left in reversed(range(MAX_TRIES)):
            info = await self._read(driver)
            if self.sent is not None and is_applied(self.sent[0], self.sent[1].job, info.job):
                return
            self._refuse_unexpected(info)
            change = self.changes.of(info.job, self.call.store.codec, self.signature)
            change = with_masked_texts(change, info.job)
            self.sent = change, info
            error = (await driver.amend([change], self.call.now()))[0]
            self.sent = None
            if error is None:
                return
            if not left or self.expect is not None or not isinstance(error, WrongState):
                raise error
            again = await self._read(driver)
            if (again.job.deliveries, again.job.edits) == (info.job.deliveries, info.job.edits):
                raise error  # its state is the reason

    async def _read(self, driver: Driver) -> JobInfo:
        try:
            return await driver.inspect(self.id, self.call.now())
        except JobNotFound:
            raise no_record(self.id) from None

    def _refuse_unexpected(self, info: JobInfo) -> None:
        job, expect = info.job, self.expect
        if expect is not None and (job.deliveries, job.edits) != (expect.job.deliveries, expect.job.edits):
            raise WrongState(f"job {self.id} was reserved or amended since it was read; read it again")
        if self.changes.payload is not None and self.job_type is not None and job.type != self.job_type:
            raise InvalidJob(
                f"job {self.id} is a {job.type!r}, not a {self.job_type!r}: amend its payload through its own task, or "
                "with harbor.job(id), which checks no arguments"
            )


async def amend_as_seen(driver: Driver, change: Amend, now: datetime) -> None:
    """Make a change that was made from a record which a person saw; WrongState if the job is another one now."""
    info = await driver.inspect(change.id, now)
    if is_operation(info):  # its payload says what is done, and in whose name
        raise part_of_operation(change.id)
    masked = await asyncio.to_thread(with_masked_texts, change, info.job)  # a page's loop must not wait for it
    (refused,) = await driver.amend([masked], now)
    if refused is not None:
        raise refused


async def requeue_amended(driver: Driver, change: Amend, now: datetime) -> list[DriverError | None]:
    """Requeue a job if it is as its amendment left it: another operator may have been as fast."""
    info = await driver.inspect(change.id, now)
    seen = Seen(change.deliveries, change.edits + 1, info.job.finished_at)
    return await driver.requeue([change.id], now, None, True, seen=[seen])

"""Changes of a job that a person typed into fields, as an amendment of the record that they saw."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from taskharbor.client.job_changes import checked_changes
from taskharbor.drivers.dsn import span
from taskharbor.drivers.refusals import not_amendable
from taskharbor.model.amendment import Amend
from taskharbor.model.codec import Codec, JsonCodec
from taskharbor.model.errors import TaskHarborError, WrongState
from taskharbor.model.job import JobInfo, State
from taskharbor.tasks.signature import Signature

if TYPE_CHECKING:
    from taskharbor.harbor import Harbor


class BadEdit(TaskHarborError):
    """What was typed into a field makes no sense."""


def edit_of(harbor: Harbor, info: JobInfo, typed: Mapping[str, str]) -> Amend:
    """The amendment; an empty field stays as it is.

    `deliveries` and `edits` say which version of the job the person saw: WrongState for another one.
    """
    job = info.job
    if info.state in (State.DONE, State.INFLIGHT):
        raise not_amendable(job.id, info.state)
    seen = (typed.get("deliveries", ""), typed.get("edits", ""))
    if seen != (str(job.deliveries), str(job.edits)):
        raise WrongState(f"job {job.id} was changed since you saw it; nothing was changed: look at it again")
    given: dict[str, Any] = dict.fromkeys(("payload", "run_at", "priority", "max_attempts", "timeout"), UNSET)
    given |= {name: read(text, name) for name, read in _READ.items() if (text := typed.get(name, "").strip())}
    try:
        changes = checked_changes(metadata=UNSET, **given)
        codec, signature = _codec_of(harbor, job.type) if given["payload"] is not UNSET else (JsonCodec(), None)
        return changes.of(job, codec, signature)
    except (TypeError, ValueError) as error:
        raise BadEdit(str(error)) from error


def _codec_of(harbor: Harbor, type: str) -> tuple[Codec, Signature | None]:
    task = harbor.tasks.get(type)
    return (JsonCodec(), None) if task is None else (harbor.codec, task.handler.signature.of_json())


def _whole(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadEdit(f"{name}: expected a whole number") from None


def moment_of(text: str, name: str, nothing: str) -> datetime | None:
    """A moment that a person typed; None for the word `nothing`. BadEdit for anything else."""
    if text == nothing:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise BadEdit(f"{name}: expected {nothing}, or a moment with a time zone such as 2030-01-31T09:00:00Z")
    return found


def _span(text: str, name: str) -> object:
    if text == "none":
        return None
    try:
        return span(text, name)
    except ValueError:
        raise BadEdit(f"{name}: expected none, or a duration such as 90s, 15m or 2h") from None


def _payload(text: str, name: str) -> object:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise BadEdit('payload: expected the arguments to replace as a JSON object, such as {"to": "ada"}')
    return found


_READ: dict[str, Any] = {
    "payload": _payload,
    "run_at": lambda text, name: moment_of(text, name, "now"),
    "priority": _whole,
    "max_attempts": _whole,
    "timeout": _span,
}

"""Changes of a job that a person typed into fields, as an amendment of the record that they saw."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from taskharbor.drivers.dsn import span
from taskharbor.drivers.refusals import not_amendable
from taskharbor.model.amendment import Amend
from taskharbor.model.codec import Codec, JsonCodec
from taskharbor.model.errors import TaskHarborError, WrongState
from taskharbor.model.job import JobInfo, State
from taskharbor.store.amend import checked_changes
from taskharbor.tasks.signature import Signature

if TYPE_CHECKING:
    from taskharbor.harbor import Harbor

_FIELDS = ("payload", "run_at", "priority", "max_attempts", "timeout", "metadata")


class BadEdit(TaskHarborError):
    """What was typed into a field makes no sense."""


def edit_of(harbor: Harbor, info: JobInfo, typed: Mapping[str, str]) -> Amend:
    """The amendment; an empty field stays as it is.

    `deliveries` and `edits` say which version of the job the person saw: WrongState for another one.
    """
    job = info.job
    expect_amendable(info)
    seen = (typed.get("deliveries", ""), typed.get("edits", ""))
    if seen != (str(job.deliveries), str(job.edits)):
        raise WrongState(f"job {job.id} was changed since you saw it; nothing was changed: look at it again")
    given = {name: read(text, name) for name, read in _READ.items() if (text := typed.get(name, "").strip())}
    return amendment(harbor, info, given)


def expect_amendable(info: JobInfo) -> None:
    """WrongState for a job that runs or is done."""
    if info.state in (State.DONE, State.INFLIGHT):
        raise not_amendable(info.job.id, info.state)


def amendment(harbor: Harbor | None, info: JobInfo, given: Mapping[str, Any]) -> Amend:
    """The amendment of the record that a person saw; BadEdit for values that make no sense.

    `given`: the new values by field. A field without one stays as it is.
    """
    try:
        changes = checked_changes(**{**dict.fromkeys(_FIELDS, UNSET), **given})
        return changes.of(info.job, *(codec_of(harbor, info.job.type) if "payload" in given else (JsonCodec(), None)))
    except (TypeError, ValueError) as error:
        raise BadEdit(str(error)) from error


def codec_of(harbor: Harbor | None, type: str) -> tuple[Codec, Signature | None]:
    """What reads and writes the arguments of a job: its task, else JSON."""
    task = None if harbor is None else harbor.tasks.get(type)
    if harbor is None or task is None:
        return JsonCodec(), None
    return harbor.codec, task.handler.signature.of_json()


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

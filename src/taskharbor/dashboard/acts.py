"""What a person does on a page: each is one call of `taskharbor.ops.actions`, and one sentence about its outcome.

Nothing is decided here. `Actions` checks the permission and writes the audit; the route asks before the form is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from taskharbor.client.operation import Operation
from taskharbor.dashboard.answers import json_bytes
from taskharbor.dashboard.pages.operations import ACTIONS, checked_filter
from taskharbor.dashboard.pages.shown import Asked, BadQuery, quoted
from taskharbor.drivers.dsn import span
from taskharbor.harbor import Harbor
from taskharbor.model.errors import DriverError, TaskHarborError
from taskharbor.model.job import JobInfo
from taskharbor.ops.job_edit import edit_of
from taskharbor.ops.operation_words import PAST
from taskharbor.ops.redaction import Redaction
from taskharbor.ops.room import OperatorRoom
from taskharbor.ops.schedule_edit import rule_edit_of

MAX_IDS = 500  # of one page
MAX_SHOWN_BYTES = 64 * 1024  # of a payload in a page: more is a download


@dataclass(frozen=True, repr=False)
class Deed:
    """What was asked for: by whom, on what, and the fields of the form."""

    room: OperatorRoom
    harbor: Harbor
    path: Mapping[str, str]
    form: Sequence[tuple[str, str]]
    redact: tuple[str, ...] = ()

    def field(self, name: str) -> str:
        """A field of the form; empty if it is not there."""
        return next((value for key, value in self.form if key == name), "")

    def fields(self, name: str) -> list[str]:
        """All values of a field."""
        return [value for key, value in self.form if key == name]


@dataclass(frozen=True, repr=False)
class Done:
    """How it ended, in one sentence. `location`: the page to go to; `template`: a part of a page to show."""

    text: str
    location: str | None = None
    template: str | None = None
    view: dict[str, Any] = field(default_factory=dict)
    refused: bool = False


async def pause(deed: Deed) -> Done:
    """Pause a queue."""
    await deed.room.actions.pause(deed.path["queue"])
    return Done(f"queue {deed.path['queue']} is paused; what runs goes on")


async def resume(deed: Deed) -> Done:
    """Resume a queue."""
    await deed.room.actions.resume(deed.path["queue"])
    return Done(f"queue {deed.path['queue']} is resumed")


async def retry_job(deed: Deed) -> Done:
    """Make a job ready now."""
    return _told(await deed.room.actions.retry([deed.path["id"]]), "is ready")


async def cancel_job(deed: Deed) -> Done:
    """Cancel a job."""
    return _told(await deed.room.actions.cancel([deed.path["id"]]), "was cancelled")


async def delete_job(deed: Deed) -> Done:
    """Delete a job."""
    done = _told(await deed.room.actions.delete([deed.path["id"]]), "was deleted")
    return done if done.refused else Done(done.text, location="/jobs")


async def act_on_jobs(deed: Deed) -> Done:
    """Retry, cancel or delete the jobs that were selected."""
    ids, action = deed.fields("id"), deed.field("action")
    if not ids or len(ids) > MAX_IDS:
        raise BadQuery(f"expected 1 to {MAX_IDS} selected jobs, got {len(ids)}")
    actions = deed.room.actions
    verbs: dict[str, tuple[Any, str]] = {
        "retry": (actions.retry, "ready"),
        "cancel": (actions.cancel, "cancelled"),
        "delete": (actions.delete, "deleted"),
    }
    if action not in verbs:
        raise BadQuery(f"action: expected one of {', '.join(verbs)}, got {quoted(action)}")
    verb, past = verbs[action]
    return _told_all(await verb(ids), past)


async def edit_job(deed: Deed) -> Done:
    """Change a job that is not running, if it is still as the person saw it."""
    info = await _info(deed)
    change = edit_of(deed.harbor, info, dict(deed.form))
    requeue = deed.field("requeue") == "yes"
    await deed.room.actions.amend(change, requeue=requeue)
    return Done(f"the job was changed{' and requeued' if requeue else ''}", location=None)


async def reveal_job(deed: Deed) -> Done:
    """Show the payload and the result of a job; that is in the audit."""
    info = await _info(deed)
    await deed.room.actions.reveal([info.job.id])
    redaction = Redaction.of(True, deed.redact)
    parts = [("payload", info.job.payload), ("result", info.job.result)]
    shown = [(name, *_readable(redaction, data)) for name, data in parts if data is not None]
    return Done("this is in the audit", template="reveal.html", view={"shown": shown, "id": info.job.id})


async def download_job(deed: Deed) -> Done:
    """The payload or the result as a file, for what is too large for a page."""
    info = await _info(deed)
    await deed.room.actions.reveal([info.job.id])
    data = info.job.result if deed.field("part") == "result" else info.job.payload
    if data is None:
        raise BadQuery("the job has no result")
    value = Redaction.of(True, deed.redact).value(data)
    return Done("", view={"download": json_bytes(value)})


async def begin_operation(deed: Deed) -> Done:
    """Begin an operation on exactly what a preview showed: the filter with its cut."""
    action = deed.field("action")
    if action not in ACTIONS:
        raise BadQuery(f"action: expected one of {', '.join(ACTIONS)}, got {quoted(action)}")
    asked = Asked(dict(deed.form))
    if asked.text("until") is None:
        raise BadQuery("until: expected the moment of the preview; go back to it")
    options = _options(asked) if action == "requeue" else {}
    arguments = await deed.room.look(lambda sight: _checked(asked, sight))
    jobs = deed.harbor.client.jobs(**arguments)
    try:
        begun: Operation = await deed.room.actions.begin(jobs, action, **options)
    except (TypeError, ValueError) as error:
        if isinstance(error, TaskHarborError):
            raise
        raise BadQuery(str(error)) from error
    return Done(f"the operation has begun: workers carry it out ({PAST[action]})", location=f"/operations#{begun.id}")


async def stop_operation(deed: Deed) -> Done:
    """Let an operation do no more."""
    await deed.room.actions.stop(deed.path["id"])
    return Done("the operation stops after the slice under way")


async def resume_operation(deed: Deed) -> Done:
    """Let a failed operation go on."""
    await deed.room.actions.go_on(deed.path["id"])
    return Done("the operation goes on")


async def cancel_flow(deed: Deed) -> Done:
    """Cancel what has not ended in a workflow."""
    number = await deed.room.actions.cancel_flow(deed.path["id"])
    return Done(f"{_jobs(number)} cancelled")


async def requeue_flow(deed: Deed) -> Done:
    """Bring the dead jobs of a workflow back."""
    number = await deed.room.actions.requeue_flow(deed.path["id"])
    return Done(f"{_jobs(number)} requeued: the workflow goes on where it failed")


async def run_schedule(deed: Deed) -> Done:
    """Make a job of a schedule now."""
    id = await deed.room.actions.run_schedule(deed.path["name"])
    return Done(f"job {id} was enqueued")


async def pause_schedule(deed: Deed) -> Done:
    """Let a schedule make no jobs."""
    await deed.room.actions.pause_schedule(deed.path["name"])
    return Done(f"schedule {deed.path['name']} is paused")


async def resume_schedule(deed: Deed) -> Done:
    """Let it make jobs again."""
    await deed.room.actions.resume_schedule(deed.path["name"])
    return Done(f"schedule {deed.path['name']} is resumed")


async def edit_schedule(deed: Deed) -> Done:
    """Change when a schedule comes: what differs from what the person saw."""
    given = rule_edit_of(dict(deed.form))
    if not given:
        raise BadQuery("nothing was changed: expected at least one field with another value")
    try:
        await deed.room.actions.edit_schedule(deed.path["name"], **given)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, TaskHarborError):
            raise
        raise BadQuery(str(error)) from error
    return Done(f"schedule {deed.path['name']} was changed: {', '.join(given)}")


async def reset_schedule(deed: Deed) -> Done:
    """Drop what was edited."""
    await deed.room.actions.reset_schedule(deed.path["name"])
    return Done(f"schedule {deed.path['name']} is as it was declared")


async def delete_schedule(deed: Deed) -> Done:
    """Delete a schedule."""
    await deed.room.actions.delete_schedule(deed.path["name"])
    return Done(f"schedule {deed.path['name']} was deleted", location="/schedules")


async def _info(deed: Deed) -> JobInfo:
    return await deed.room.look(lambda sight: sight.driver.inspect(deed.path["id"], sight.now))


async def _checked(asked: Asked, sight: Any) -> dict[str, Any]:
    return checked_filter(asked, sight)


def _options(asked: Asked) -> dict[str, Any]:
    options: dict[str, Any] = {"reset_attempts": asked.text("keep_attempts") is None}
    if asked.text("canary") is not None:
        options["canary"] = asked.whole("canary", 1, 100)
        options["max_failures"] = asked.whole("max_failures", 0, 100, least=0)
    spread = asked.text("spread")
    if spread is not None:
        try:
            options["spread"] = span(spread, "spread")
        except ValueError:
            raise BadQuery("spread: expected a duration such as 90s, 15m or 2h") from None
    return options


def _readable(redaction: Redaction, data: bytes) -> tuple[str | None, int]:
    """Stored bytes for a page: None if they are too large for one; and their size."""
    if len(data) > MAX_SHOWN_BYTES:
        return None, len(data)
    value = redaction.value(data)
    if isinstance(value, str):
        return value, len(data)
    encoded = bytes(value) if isinstance(value, msgspec.Raw) else msgspec.json.encode(value)
    try:
        plain = data if not redaction.fields else encoded  # numbers stay as they are written
        return msgspec.json.format(plain, indent=2).decode(), len(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return encoded.decode(errors="replace"), len(data)


def _told(errors: Sequence[DriverError | None], past: str) -> Done:
    (error,) = errors
    return Done(f"the job {past}") if error is None else Done(str(error), refused=True)


def _told_all(errors: Sequence[DriverError | None], past: str) -> Done:
    refused = [error for error in errors if error is not None]
    text = f"{_jobs(len(errors) - len(refused))} {past}"
    if not refused:
        return Done(text)
    return Done(f"{text}; {len(refused)} refused, the first: {refused[0]}", refused=len(refused) == len(errors))


def _jobs(number: int) -> str:
    return f"{number:,} job{'' if number == 1 else 's'}"

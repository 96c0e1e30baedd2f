"""What a person does on a page: each is one call of `taskharbor.ops.actions`, and one sentence about its outcome.

Nothing is decided here. `Actions` checks the permission and writes the audit; the route asks before the form is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from taskharbor.dashboard.answers import json_bytes
from taskharbor.dashboard.pages.content import BadQuery, PageQuery, as_bad_query, quoted
from taskharbor.dashboard.pages.operations import ACTIONS, checked_filter
from taskharbor.drivers.dsn import span
from taskharbor.harbor import Harbor
from taskharbor.model.errors import DriverError
from taskharbor.model.job import JobInfo
from taskharbor.ops.actions import Actions
from taskharbor.ops.job_edit import edit_of
from taskharbor.ops.operations import PAST
from taskharbor.ops.operator import OperatorSession
from taskharbor.ops.schedule_edit import rule_edit_of
from taskharbor.store.redaction import Redaction
from taskharbor.store.text import plural

MAX_IDS = 500  # of one page
MAX_SHOWN_BYTES = 64 * 1024  # of a payload in a page: more is a download


@dataclass(frozen=True, repr=False)
class ActionRequest:
    """An action that a person asked for: by whom, on what, and the fields of the form."""

    session: OperatorSession
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
class ActionResult:
    """How an action ended, in one sentence. `location`: the page to go to; `template`: a part of a page to show."""

    text: str
    location: str | None = None
    template: str | None = None
    view: dict[str, Any] = field(default_factory=dict)
    refused: bool = False


ActionFunction = Callable[[ActionRequest], Awaitable[ActionResult]]


def on_one(
    act: Callable[[Actions, str], Awaitable[object]], name: str, text: str, location: str | None = None
) -> ActionFunction:
    """An action on the thing that the address names; `text` has its name in the place of {}."""

    async def do(request: ActionRequest) -> ActionResult:
        target = request.path[name]
        await act(request.session.actions, target)
        return ActionResult(text.format(target), location=location)

    return do


pause = on_one(Actions.pause, "queue", "queue {} is paused; what runs goes on")
resume = on_one(Actions.resume, "queue", "queue {} is resumed")
stop_operation = on_one(Actions.stop, "id", "the operation stops after the slice under way")
resume_operation = on_one(Actions.go_on, "id", "the operation goes on")
pause_schedule = on_one(Actions.pause_schedule, "name", "schedule {} is paused")
resume_schedule = on_one(Actions.resume_schedule, "name", "schedule {} is resumed")
reset_schedule = on_one(Actions.reset_schedule, "name", "schedule {} is as it was declared")
delete_schedule = on_one(Actions.delete_schedule, "name", "schedule {} was deleted", "/schedules")


async def retry_job(request: ActionRequest) -> ActionResult:
    """Make a job ready now."""
    return _result_of(await request.session.actions.retry([request.path["id"]]), "is ready")


async def cancel_job(request: ActionRequest) -> ActionResult:
    """Cancel a job."""
    return _result_of(await request.session.actions.cancel([request.path["id"]]), "was cancelled")


async def delete_job(request: ActionRequest) -> ActionResult:
    """Delete a job."""
    done = _result_of(await request.session.actions.delete([request.path["id"]]), "was deleted")
    return done if done.refused else ActionResult(done.text, location="/jobs")


async def act_on_jobs(request: ActionRequest) -> ActionResult:
    """Retry, cancel or delete the jobs that were selected."""
    ids, action = request.fields("id"), request.field("action")
    if not ids or len(ids) > MAX_IDS:
        raise BadQuery(f"expected 1 to {MAX_IDS} selected jobs, got {len(ids)}")
    actions = request.session.actions
    verbs: dict[str, tuple[Any, str]] = {
        "retry": (actions.retry, "ready"),
        "cancel": (actions.cancel, "cancelled"),
        "delete": (actions.delete, "deleted"),
    }
    if action not in verbs:
        raise BadQuery(f"action: expected one of {', '.join(verbs)}, got {quoted(action)}")
    verb, past = verbs[action]
    return _result_of_all(await verb(ids), past)


async def edit_job(request: ActionRequest) -> ActionResult:
    """Change a job that is not running, if it is still as the person saw it."""
    info = await _info(request)
    change = edit_of(request.harbor, info, dict(request.form))
    requeue = request.field("requeue") == "yes"
    await request.session.actions.amend(change, requeue=requeue)
    return ActionResult(f"the job was changed{' and requeued' if requeue else ''}", location=None)


async def reveal_job(request: ActionRequest) -> ActionResult:
    """Show the payload and the result of a job; that is in the audit."""
    info = await _info(request)
    await request.session.actions.reveal([info.job.id])
    redaction = Redaction.of(True, request.redact)
    parts = [("payload", info.job.payload), ("result", info.job.result)]
    shown = [(name, *_readable(redaction, data)) for name, data in parts if data is not None]
    return ActionResult("this is in the audit", template="reveal.html", view={"shown": shown, "id": info.job.id})


async def download_job(request: ActionRequest) -> ActionResult:
    """The payload or the result as a file, for what is too large for a page."""
    info = await _info(request)
    await request.session.actions.reveal([info.job.id])
    data = info.job.result if request.field("part") == "result" else info.job.payload
    if data is None:
        raise BadQuery("the job has no result")
    redaction = Redaction.of(True, request.redact)
    download = await asyncio.to_thread(lambda: json_bytes(redaction.value(data)))  # a megabyte takes a while
    return ActionResult("", view={"download": download})


async def begin_operation(request: ActionRequest) -> ActionResult:
    """Begin an operation on exactly what a preview showed: the filter with its cut."""
    action = request.field("action")
    if action not in ACTIONS:
        raise BadQuery(f"action: expected one of {', '.join(ACTIONS)}, got {quoted(action)}")
    query = PageQuery(dict(request.form))
    if query.text("until") is None:
        raise BadQuery("until: expected the moment of the preview; go back to it")
    options = _options(query) if action == "requeue" else {}
    arguments = await request.session.read(lambda reading: _checked(query, reading))
    jobs = request.harbor.jobs(**arguments)
    with as_bad_query(TypeError, ValueError):
        begun = await request.session.actions.begin(jobs, action, **options)
    return ActionResult(
        f"the operation has begun: workers carry it out ({PAST[action]})", location=f"/operations#{begun.id}"
    )


async def cancel_flow(request: ActionRequest) -> ActionResult:
    """Cancel what has not ended in a workflow."""
    number = await request.session.actions.cancel_flow(request.path["id"])
    return ActionResult(f"{plural(number, 'job', ',')} cancelled")


async def requeue_flow(request: ActionRequest) -> ActionResult:
    """Bring the dead jobs of a workflow back."""
    number = await request.session.actions.requeue_flow(request.path["id"])
    return ActionResult(f"{plural(number, 'job', ',')} requeued: the workflow goes on where it failed")


async def run_schedule(request: ActionRequest) -> ActionResult:
    """Make a job of a schedule now."""
    id = await request.session.actions.run_schedule(request.path["name"])
    return ActionResult(f"job {id} was enqueued")


async def edit_schedule(request: ActionRequest) -> ActionResult:
    """Change when a schedule comes: what differs from what the person saw."""
    given = rule_edit_of(dict(request.form))
    if not given:
        raise BadQuery("nothing was changed: expected at least one field with another value")
    with as_bad_query(TypeError, ValueError, OverflowError):
        await request.session.actions.edit_schedule(request.path["name"], **given)
    return ActionResult(f"schedule {request.path['name']} was changed: {', '.join(given)}")


async def _info(request: ActionRequest) -> JobInfo:
    return await request.session.read(lambda reading: reading.driver.inspect(request.path["id"], reading.now))


async def _checked(query: PageQuery, reading: Any) -> dict[str, Any]:
    return checked_filter(query, reading)


def _options(query: PageQuery) -> dict[str, Any]:
    options: dict[str, Any] = {"reset_attempts": query.text("keep_attempts") is None}
    if query.text("canary") is not None:
        options["canary"] = query.whole("canary", 1, 100)
        options["max_failures"] = query.whole("max_failures", 0, 100, least=0)
    spread = query.text("spread")
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


def _result_of(errors: Sequence[DriverError | None], past: str) -> ActionResult:
    (error,) = errors
    return ActionResult(f"the job {past}") if error is None else ActionResult(str(error), refused=True)


def _result_of_all(errors: Sequence[DriverError | None], past: str) -> ActionResult:
    refused = [error for error in errors if error is not None]
    text = f"{plural(len(errors) - len(refused), 'job', ',')} {past}"
    if not refused:
        return ActionResult(text)
    return ActionResult(f"{text}; {len(refused)} refused, the first: {refused[0]}", refused=len(refused) == len(errors))

"""Amendments as the function `amend` takes them, and what it refuses as errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from taskharbor.drivers.postgres.lock_retry import JobLocked
from taskharbor.drivers.postgres.records import to_json
from taskharbor.drivers.refusals import amended_since, no_job, not_amendable
from taskharbor.model.amendment import Amend
from taskharbor.model.errors import DriverError
from taskharbor.model.times import MICROSECOND, to_us


def amendments(changes: Sequence[Amend]) -> str:
    """Amendments that were checked, as JSON; bytes become base64."""
    return to_json([_row(change) for change in changes])


def _row(change: Amend) -> dict[str, Any]:
    stored = {name: _STORED.get(name, _as_it_is)(value) for name, value in change.changes().items()}
    return {"id": change.id, "deliveries": change.deliveries, "edits": change.edits, **stored}


def _as_it_is(value: Any) -> Any:
    return value


def _moment(value: datetime | None) -> int | None:
    return None if value is None else to_us(value)


def _duration(value: timedelta | None) -> int | None:
    return None if value is None else value // MICROSECOND


def _metadata(value: dict[str, str]) -> str | None:
    return to_json(value) if value else None


_STORED: dict[str, Callable[[Any], Any]] = {"run_at": _moment, "timeout": _duration, "metadata": _metadata}


def amend_refusal(id: str, text: str | None) -> DriverError | None:
    """The error for what `amend` returned for a job."""
    if text is None:
        return None
    if text == "unknown":
        return no_job(id)
    if text == "locked":
        return JobLocked.job(id)
    if text == "amended":
        return amended_since(id)
    return not_amendable(id, text)

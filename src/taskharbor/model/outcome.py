"""Outcomes: the four ways in which a delivery is settled. Illegal mixes cannot be built."""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

import msgspec

from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Lease


class Ack(msgspec.Struct, frozen=True, gc=False):
    """Done, with what the handler returned. `spawn` is stored and `handover` applied in the same transaction."""

    lease: Lease
    result: bytes | None = None
    spawn: tuple[JobRecord, ...] = ()
    handover: str | None = None


class Retry(msgspec.Struct, frozen=True, gc=False):
    """Back to ready or scheduled. With unchanged attempts it is a give-back: no failure is recorded."""

    lease: Lease
    run_at: datetime | None
    attempts: int
    last_error: str = ""
    failed_at: datetime | None = None


class Fail(msgspec.Struct, frozen=True, gc=False):
    """To the dead letter queue with its reason."""

    lease: Lease
    reason: str
    attempts: int
    failed_at: datetime | None
    last_error: str = ""
    spawn: tuple[JobRecord, ...] = ()


class Cancelled(msgspec.Struct, frozen=True, gc=False):
    """To cancelled, with its reason."""

    lease: Lease
    reason: str


Outcome: TypeAlias = Ack | Retry | Fail | Cancelled

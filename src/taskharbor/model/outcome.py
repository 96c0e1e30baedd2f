"""Outcomes: the four ways in which a delivery is settled. Illegal mixes cannot be built.

`trail` replaces the record's list of earlier executions; an empty one leaves it as it is.
"""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

import msgspec

from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Lease
from taskharbor.model.safe_repr import shows


@shows("lease", "spawn", "handover")
class Ack(msgspec.Struct, frozen=True, gc=False):
    """Done, with what the handler returned. `spawn` is stored and `handover` applied in the same transaction."""

    lease: Lease
    result: bytes | None = None
    spawn: tuple[JobRecord, ...] = ()
    handover: str | None = None
    trail: bytes = b""


@shows("lease", "run_at", "attempts")
class Retry(msgspec.Struct, frozen=True, gc=False):
    """Back to ready or scheduled. With unchanged attempts it is a give-back: no failure is recorded."""

    lease: Lease
    run_at: datetime | None
    attempts: int
    last_error: str = ""
    failed_at: datetime | None = None
    error_class: str = ""
    fingerprint: str = ""
    trail: bytes = b""


@shows("lease", "attempts", "spawn")
class Fail(msgspec.Struct, frozen=True, gc=False):
    """To the dead letter queue with its reason."""

    lease: Lease
    reason: str
    attempts: int
    failed_at: datetime | None
    last_error: str = ""
    spawn: tuple[JobRecord, ...] = ()
    error_class: str = ""
    fingerprint: str = ""
    trail: bytes = b""


@shows("lease")
class Cancelled(msgspec.Struct, frozen=True, gc=False):
    """To cancelled, with its reason."""

    lease: Lease
    reason: str
    trail: bytes = b""


Outcome: TypeAlias = Ack | Retry | Fail | Cancelled

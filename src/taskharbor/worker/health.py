"""The health answer of a worker: for probes and for people."""

from __future__ import annotations

import msgspec


class Health(msgspec.Struct, frozen=True):
    """How a worker is. `ok` means: it serves, and the store has answered a poll within the last polls' time."""

    worker: str
    state: str  # "new", "running", "stopping", "stopped"
    ok: bool
    running: int
    busy: bool  # every slot is taken, so there is no need to poll
    polled_seconds_ago: float | None
    store_lost_for: float
    store_error: str

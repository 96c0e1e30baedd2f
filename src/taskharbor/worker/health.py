"""The health answer of a worker: for probes and for people."""

from __future__ import annotations

import msgspec


class Health(msgspec.Struct, frozen=True):
    """How a worker is.

    `ok` means: it serves, the store has answered a poll within the last polls' time or every slot is taken, its event
    loop turns, and not every slot is stuck.
    """

    worker: str
    state: str  # "new", "running", "stopping", "stopped"
    ok: bool
    running: int
    busy: bool  # every slot is taken, so there is no need to poll
    polled_seconds_ago: float | None
    store_lost_for: float
    store_error: str
    slots: int = 0  # how many jobs it may run at once
    stuck: int = 0  # slots held by handlers whose job was decided without them: they are free when those end
    blocked_for: float = 0.0  # seconds that the event loop has not turned, when that was noticed

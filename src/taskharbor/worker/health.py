"""The health report of a worker: for probes and for people."""

from __future__ import annotations

import msgspec


class Health(msgspec.Struct, frozen=True):
    """The health of a worker.

    `ok`: it serves, its event loop is not blocked, not every slot is stuck, and the store has answered a recent poll or
    every slot is taken.
    """

    worker: str  # the id of the worker
    state: str  # "new", "starting", "running", "stopping", "stopped"
    ok: bool
    running: int  # how many jobs it runs
    busy: bool  # every slot is taken, so there is no need to poll
    polled_seconds_ago: float | None  # since the store answered a poll; None: not yet
    store_lost_for: float  # seconds since the store went away; 0 while it is there
    store_error: str  # the class of the error with which it went away
    slots: int = 0  # its concurrency
    stuck: int = 0  # slots of handlers that go on although their job was decided without them
    blocked_for: float = 0.0  # seconds for which the event loop has been blocked

"""What the parts of a worker share from one start to one stop.

`held` has every delivery from its reserve until its outcome is recorded or refused. The heart renews what is in there.
"""

from __future__ import annotations

import msgspec

from taskharbor.drivers.base import Driver
from taskharbor.model.clock import Clock
from taskharbor.model.codec import Codec, JsonCodec
from taskharbor.model.events import Observers
from taskharbor.model.safe_repr import shown
from taskharbor.policy.retry import DEFAULT_RETRY, RetryPolicy
from taskharbor.tasks.handler import HandlerRegistry
from taskharbor.worker.delivery import Delivery, OutcomeQueue
from taskharbor.worker.figures import FigureCounter
from taskharbor.worker.injector import Injector
from taskharbor.worker.middleware import CallMiddleware, Middleware
from taskharbor.worker.outage import Outage
from taskharbor.worker.progress_notes import ProgressNotes
from taskharbor.worker.settings import WorkerSettings


class WorkerParts(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Made once for each start of a worker, and handed to every part."""

    settings: WorkerSettings
    driver: Driver
    handlers: HandlerRegistry
    clock: Clock
    observers: Observers
    outage: Outage
    outcomes: OutcomeQueue
    middleware: tuple[Middleware, ...] = ()
    call_middleware: tuple[CallMiddleware, ...] = ()
    injector: Injector = msgspec.field(default_factory=Injector)
    child_processes: bool = True  # False: a handler with process=True stays in this process
    retry: RetryPolicy = DEFAULT_RETRY
    codec: Codec = msgspec.field(default_factory=JsonCodec)
    figures: FigureCounter | None = None  # None: the store keeps none
    notes: ProgressNotes | None = None  # None: the store keeps no progress
    outbox: str | None = None  # the address of a database with an outbox
    held: dict[str, Delivery] = msgspec.field(default_factory=dict)  # by the token of its lease

    def __repr__(self) -> str:
        return shown(self)


class Part:
    """A part of a worker. Its attributes are what all parts share; `_worker` is the name of the worker."""

    def __init__(self, parts: WorkerParts) -> None:
        super().__init__()
        self._settings, self._worker = parts.settings, parts.settings.name
        self._driver, self._outage = parts.driver, parts.outage
        self._clock, self._observers = parts.clock, parts.observers
        self._handlers, self._held = parts.handlers, parts.held
        self._outcomes, self._figures, self._notes = parts.outcomes, parts.figures, parts.notes

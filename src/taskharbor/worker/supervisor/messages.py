"""The messages between the supervisor and a worker process: one JSON object a line, over a socket of their own.

    parent → child   Setup (the first line), Serve (to a spare), Kept, Keeping, Release, ProcessOrder
    child → parent   Waiting (a spare), Ready or StartFailed, Declared, Taken, SuspectTaken, Tick, StoppedServing

The socket is private to the two, so the store's address may travel here with its password, which an argument would
show in every list of processes. No payload ever travels here; what a handler says about its progress does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from taskharbor.model.lease import Lease, Lost
from taskharbor.model.safe_repr import shown
from taskharbor.worker.health import Health

MAX_LINE_BYTES = 64 * 1024 * 1024  # more than a hundred thousand leases


class Setup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker process should do."""

    app: str | None = None
    imports: tuple[str, ...] = ()  # modules that declare tasks, and that the app does not import by itself
    dsn: str | None = None
    driver: str | None = None
    queues: tuple[str, ...] | None = None
    concurrency: int = 16
    lease: float = 30.0
    heartbeat: float | None = None
    poll_interval: float = 1.0
    shutdown_timeout: float = 30.0
    max_lost: int = 3
    max_jobs: int | None = None
    schedules: bool = True  # store those that the app declares, and fire what is due
    outbox: str | None = None  # the address of a database whose outbox it empties
    log_format: str = "text"
    log_level: str = "info"
    log_errors: str = "class"
    alone: bool = True  # it is the only process that serves
    metrics: bool = False  # count what happens, for the supervisor to serve
    waits: bool = False  # it is a spare: import everything, open nothing, and wait for Serve

    def __repr__(self) -> str:
        return shown(self, "app", "queues", "concurrency", "alone", "waits")


class TakenLease(msgspec.Struct, frozen=True, array_like=True):
    """A lease with what is needed to give its job back without counting a failure."""

    lease: Lease
    attempts: int
    limit: float | None  # seconds that the job may run
    lost_by: Lost | None = None  # the execution before, if it was lost


class Serve(msgspec.Struct, frozen=True, tag=True):
    """To a spare: open the store and serve. `suspect`: run only that job, which another worker took, and end."""

    suspect: TakenLease | None = None


class Kept(msgspec.Struct, frozen=True, tag=True):
    """Leases that were renewed, and those that are lost (token, error, its text)."""

    renewed: list[Lease]
    lost: list[tuple[str, str, str]]

    def __repr__(self) -> str:
        return shown(self)


class Keeping(msgspec.Struct, frozen=True, tag=True):
    """Whether the supervisor has a connection to the store and renews leases."""

    renews: bool


class Release(msgspec.Struct, frozen=True, tag=True):
    """A process that ran a job of this worker has died: give back what is held neither here nor elsewhere (`keep`)."""

    keep: list[str]

    def __repr__(self) -> str:
        return shown(self)


class ProcessOrder(msgspec.Struct, frozen=True, tag=True):
    """What the worker is to do now.

    declare: store the schedules that the app declares; one process does so, when the supervisor starts.
    retire: take no more jobs, and end when the last one has ended, however long that takes.
    stop: take no more jobs, finish within the grace period and give back the rest; hurry: without a grace period.
    """

    what: Literal["declare", "retire", "stop", "hurry"]


class Waiting(msgspec.Struct, frozen=True, tag=True):
    """A spare has imported everything."""


class Abilities(msgspec.Struct, frozen=True):
    """What a worker process can run, for the person who started it."""

    store: str  # its address without what may be secret
    queues: tuple[str, ...]
    tasks: tuple[str, ...]
    used: tuple[str, ...]  # the queues that its tasks name
    private: bool = False  # no other process can reach its store
    notes: tuple[str, ...] = ()  # on stores that are named elsewhere, and not used


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The worker serves. `dsn` None: its store is private to it, so the supervisor cannot renew its leases.

    `schedules`: its app declares some, which are not stored before a Declare.
    """

    worker: str
    dsn: str | None
    abilities: Abilities | None = None
    schedules: bool = False

    def __repr__(self) -> str:
        return shown(self, "worker")


class Declared(msgspec.Struct, frozen=True, tag=True):
    """The schedules that the app declares are stored."""


class Taken(msgspec.Struct, frozen=True, tag=True):
    """Leases that the worker took, and the tokens of those it no longer holds. `all`: it holds these and no others."""

    leases: list[TakenLease]
    gone: list[str]
    all: bool = False

    def __repr__(self) -> str:
        return shown(self, "leases", "all")


class SuspectTaken(msgspec.Struct, frozen=True, tag="Suspect"):
    """A job that may take its process down: another process should run it, alone."""

    lease: TakenLease


class Tick(msgspec.Struct, frozen=True, tag=True):
    """A heartbeat, about once a second: the health of the worker, how many seconds its jobs may still run, and their
    progress as the store keeps it, where it is new."""

    health: Health
    gone: list[str]
    due: list[tuple[str, float]]
    notes: list[tuple[str, bytes]] = []

    def __repr__(self) -> str:
        return shown(self, "health")


class StoppedServing(msgspec.Struct, frozen=True, tag="Left"):
    """The worker has stopped serving and holds nothing: it only has to exit."""


class StartFailed(msgspec.Struct, frozen=True, tag="Failed"):
    """The process cannot start: one line that says why, and the exit code for it."""

    text: str
    code: int


ToChild: TypeAlias = Serve | Kept | Keeping | Release | ProcessOrder
ToParent: TypeAlias = Waiting | Ready | Declared | Taken | SuspectTaken | Tick | StoppedServing | StartFailed

_encode = msgspec.json.Encoder().encode
read_setup = msgspec.json.Decoder(Setup).decode  # the first line that a child receives
read_by_child: Callable[[bytes], ToChild] = msgspec.json.Decoder(ToChild).decode  # a message of the parent
read_by_parent: Callable[[bytes], ToParent] = msgspec.json.Decoder(ToParent).decode  # a message of a child


def line(message: Setup | ToChild | ToParent) -> bytes:
    """Encode a message."""
    return _encode(message) + b"\n"

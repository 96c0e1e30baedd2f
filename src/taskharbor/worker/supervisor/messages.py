"""What the parent and a worker process say to each other: one JSON object a line, over a socket of their own.

    parent → child   Setup (the first line), Serve (to a spare), Kept, Release, Retire, StopOrder
    child → parent   Waiting (a spare), Ready or StartFailed, Taken, SuspectTaken, Tick, StoppedServing

The socket is private to the two, so an address with its password may travel here, and does not stand in a list of
processes. No payload ever does.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from taskharbor.model.safe_repr import shown

LIMIT = 64 * 1024 * 1024  # bytes of a line: a hundred thousand leases and more


class Setup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker process is to do."""

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
    log_format: str = "text"
    log_level: str = "info"
    alone: bool = True  # no other process serves beside it
    metrics: bool = False  # count what happens, for the supervisor to serve
    waits: bool = False  # a spare: import everything, open nothing, and wait for Serve

    def __repr__(self) -> str:
        return shown(self, "app", "queues", "concurrency", "alone", "waits")


class TakenLease(msgspec.Struct, frozen=True, array_like=True):
    """A lease as it is handed over: with what is needed to give the job back without blaming it."""

    job_id: str
    queue: str
    token: str
    expires_ms: int
    attempts: int
    limit: float | None  # seconds that the job may run

    def __repr__(self) -> str:
        return shown(self, "job_id", "queue", "expires_ms")


class Serve(msgspec.Struct, frozen=True, tag=True):
    """A spare's turn has come: open the store and work. `suspect`: run that job, which another worker took, and end."""

    suspect: TakenLease | None = None


class Kept(msgspec.Struct, frozen=True, tag=True):
    """Leases that were renewed (token, new end in milliseconds), and those that are lost (token, error, its text)."""

    renewed: list[tuple[str, int]]
    lost: list[tuple[str, str, str]]

    def __repr__(self) -> str:
        return shown(self)


class Release(msgspec.Struct, frozen=True, tag=True):
    """A process has died that ran a job of this worker's: give back what is not held here, nor anywhere (`keep`)."""

    keep: list[str]

    def __repr__(self) -> str:
        return shown(self)


class Retire(msgspec.Struct, frozen=True, tag=True):
    """Take no more jobs, and end when the last one has ended, however long that takes."""


class StopOrder(msgspec.Struct, frozen=True, tag="Stop"):
    """Take no more jobs, finish within the grace period and give back the rest; `hurry`: without a grace period."""

    hurry: bool = False


class Waiting(msgspec.Struct, frozen=True, tag=True):
    """A spare has imported everything."""


class Offer(msgspec.Struct, frozen=True):
    """What a worker process can do, for whoever started it."""

    store: str  # its address without what may be secret
    queues: tuple[str, ...]
    tasks: tuple[str, ...]
    used: tuple[str, ...]  # the queues that its tasks name
    private: bool = False  # nobody else can reach its store


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The worker serves. `dsn` None: its store is private to it, so nobody else can keep its leases."""

    worker: str
    dsn: str | None
    offer: Offer | None = None

    def __repr__(self) -> str:
        return shown(self, "worker")


class Taken(msgspec.Struct, frozen=True, tag=True):
    """Leases that the worker took, and the tokens of those it holds no longer. `all`: these, and no others."""

    leases: list[TakenLease]
    gone: list[str]
    all: bool = False

    def __repr__(self) -> str:
        return shown(self, "leases", "all")


class SuspectTaken(msgspec.Struct, frozen=True, tag="Suspect"):
    """A lease of a job that may take its process down: another process is to run it, alone."""

    lease: TakenLease


class Tick(msgspec.Struct, frozen=True, tag=True):
    """A sign of life, about once a second: how the worker is, and how many seconds its jobs may still run."""

    ok: bool
    state: str
    busy: bool
    running: int
    polled_seconds_ago: float | None
    store_error: str
    gone: list[str]
    due: list[tuple[str, float]]
    slots: int = 0
    stuck: int = 0
    blocked_for: float = 0.0

    def __repr__(self) -> str:
        return shown(self, "ok", "state", "busy", "running", "store_error", "slots", "stuck", "blocked_for")


class StoppedServing(msgspec.Struct, frozen=True, tag="Left"):
    """The worker has stopped serving and holds nothing any more: all that is left to do is to exit."""


class StartFailed(msgspec.Struct, frozen=True, tag="Failed"):
    """The process cannot start: one line that says why, and the exit code that goes with it."""

    text: str
    code: int


ToChild: TypeAlias = Serve | Kept | Release | Retire | StopOrder
ToParent: TypeAlias = Waiting | Ready | Taken | SuspectTaken | Tick | StoppedServing | StartFailed

_encoder = msgspec.json.Encoder()
_setup = msgspec.json.Decoder(Setup)
_to_child: msgspec.json.Decoder[ToChild] = msgspec.json.Decoder(ToChild)
_to_parent: msgspec.json.Decoder[ToParent] = msgspec.json.Decoder(ToParent)


def line(message: Setup | ToChild | ToParent) -> bytes:
    """A message as it travels."""
    return _encoder.encode(message) + b"\n"


def read_setup(text: bytes) -> Setup:
    """The first line that a child hears."""
    return _setup.decode(text)


def read_by_child(text: bytes) -> ToChild:
    """What the parent said."""
    return _to_child.decode(text)


def read_by_parent(text: bytes) -> ToParent:
    """What a child said."""
    return _to_parent.decode(text)

"""What happens to worker processes, as typed events for the log: the same form as the events of jobs."""

from __future__ import annotations

import logging

from taskharbor.model.events import Event, Observers
from taskharbor.observe.log import LEVELS, LogObserver


class SupervisorServing(Event, frozen=True, gc=False):
    """The first worker process serves, or one whose tasks have changed: what it works on and what it can run."""

    store: str
    app: str
    queues: tuple[str, ...]
    tasks: tuple[str, ...]
    processes: int
    concurrency: int


class ProcessStarted(Event, frozen=True, gc=False):
    """A worker process serves."""

    pid: int
    slot: int
    worker: str


class ProcessWaiting(Event, frozen=True, gc=False):
    """A spare process has imported the application, and waits to take the place of one that dies."""

    pid: int


class SpareDied(Event, frozen=True, gc=False):
    """The spare process ended by itself, or was killed; it held nothing. Another one follows later."""

    pid: int
    cause: str


class ProcessEnded(Event, frozen=True, gc=False):
    """A worker process ended because it was told to, and gave back what it held."""

    pid: int
    slot: int
    cause: str


class ProcessDied(Event, frozen=True, gc=False):
    """A worker process ended by itself, or was killed; another one starts in `again_in` seconds."""

    pid: int
    slot: int
    cause: str
    again_in: float


class ProcessNotStarted(Event, frozen=True, gc=False):
    """The system gave no process: too many of them, or no memory. It is tried again."""

    slot: int
    error: BaseException


class ProcessKilled(Event, frozen=True, gc=False):
    """The supervisor killed a worker process that did not end in time; `why`: what it had not done."""

    pid: int
    slot: int
    why: str


class ProcessReplaced(Event, frozen=True, gc=False):
    """A worker process takes no more jobs because another one has taken its place; `why`: what it had reached."""

    pid: int
    slot: int
    why: str


class ProcessStopped(Event, frozen=True, gc=False):
    """A worker process is stopped (SIGSTOP): its leases are not renewed until it goes on."""

    pid: int
    slot: int


class ProcessContinued(Event, frozen=True, gc=False):
    """A stopped worker process goes on."""

    pid: int
    slot: int


class ProcessSilent(Event, frozen=True, gc=False):
    """A worker process gives no sign of life: a handler holds its interpreter. Its leases are kept."""

    pid: int
    slot: int
    seconds: float
    jobs: tuple[str, ...]


class SuspectStarted(Event, frozen=True, gc=False):
    """A job that was lost twice is run in a process of its own."""

    pid: int
    job_id: str


class SuspectDied(Event, frozen=True, gc=False):
    """The process that ran nothing but this job has died: it is the job that takes processes down."""

    pid: int
    job_id: str
    cause: str


class JobsReleased(Event, frozen=True, gc=False):
    """What a dead worker held was given back."""

    worker: str
    jobs: int


class LeasesNotKept(Event, frozen=True, gc=False):
    """The supervisor could not renew leases; it goes on trying."""

    doing: str
    error: BaseException


class StoreDiffers(Event, frozen=True, gc=False):
    """The supervisor's store knows neither a worker nor its jobs: it is another one. The worker keeps its leases."""

    pid: int
    slot: int
    worker: str


class SourcesChanged(Event, frozen=True, gc=False):
    """A source file has changed: all worker processes start anew."""

    path: str


class SignalIgnored(Event, frozen=True, gc=False):
    """A signal has come that means nothing here, though a program without a handler for it would have ended."""

    cause: str
    expected: str = "TERM, INT or HUP to drain, QUIT to give back at once"


class SupervisorStopping(Event, frozen=True, gc=False):
    """A signal has come: all worker processes stop."""

    cause: str


LEVELS.update(
    {
        ProcessDied: logging.ERROR,
        ProcessNotStarted: logging.ERROR,
        ProcessKilled: logging.WARNING,
        ProcessStopped: logging.WARNING,
        SignalIgnored: logging.WARNING,
        SpareDied: logging.WARNING,
        SuspectDied: logging.ERROR,
        ProcessSilent: logging.WARNING,
        JobsReleased: logging.WARNING,
        LeasesNotKept: logging.ERROR,
        StoreDiffers: logging.ERROR,
    }
)

_observers = Observers((LogObserver(),))

tell = _observers.emit
"""Say that something has happened."""

listen = _observers.add
"""Have one more observer hear it, for the rest of this process."""

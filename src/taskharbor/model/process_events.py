"""What happens to worker processes, as events: a supervisor emits them, its log and its metrics observe them."""

from __future__ import annotations

import logging

from taskharbor.model.events import Event


class SupervisorServing(Event, frozen=True, gc=False):
    """The first worker process serves, or one whose tasks differ from before: what it works on and what it can run."""

    store: str
    app: str
    queues: tuple[str, ...]
    tasks: tuple[str, ...]
    processes: int
    concurrency: int


class ProcessEvent(Event, frozen=True, gc=False):
    """Something that happened to one worker process: its process id, and which of the processes it is."""

    pid: int
    slot: int


class ProcessStarted(ProcessEvent, frozen=True, gc=False):
    """A worker process serves."""

    worker: str


class ProcessWaiting(Event, frozen=True, gc=False):
    """A spare process has imported the application, and waits to replace a process that dies."""

    pid: int


class SpareDied(Event, frozen=True, gc=False):
    """The spare process exited or was killed. It held nothing; another one follows later."""

    level = logging.WARNING

    pid: int
    cause: str


class ProcessEnded(ProcessEvent, frozen=True, gc=False):
    """A worker process ended on request, and gave back what it held."""

    cause: str


class ProcessDied(ProcessEvent, frozen=True, gc=False):
    """A worker process exited or was killed; another one starts in `again_in` seconds."""

    level = logging.ERROR

    cause: str
    again_in: float


class ProcessNotStarted(Event, frozen=True, gc=False):
    """The system could not start a process (process limit or memory); the supervisor tries again."""

    level = logging.ERROR

    slot: int
    error: BaseException


class ProcessKilled(ProcessEvent, frozen=True, gc=False):
    """The supervisor killed a worker process that did not end in time; `why`: what it had not done."""

    level = logging.WARNING

    why: str


class ProcessReplaced(ProcessEvent, frozen=True, gc=False):
    """A worker process takes no more jobs because another one has replaced it; `why`: the limit that it reached."""

    why: str


class ProcessStopped(ProcessEvent, frozen=True, gc=False):
    """A worker process is stopped (SIGSTOP): its leases are not renewed until it goes on."""

    level = logging.WARNING


class ProcessContinued(ProcessEvent, frozen=True, gc=False):
    """A stopped worker process goes on."""


class ProcessSilent(ProcessEvent, frozen=True, gc=False):
    """A worker process sends no heartbeat: a handler holds its interpreter. The supervisor renews its leases."""

    level = logging.WARNING

    seconds: float
    jobs: tuple[str, ...]


class SuspectStarted(Event, frozen=True, gc=False):
    """A job that was lost twice runs in a process of its own."""

    pid: int
    job_id: str


class SuspectDied(Event, frozen=True, gc=False):
    """The process that ran only this job has died: it is the job that takes processes down."""

    level = logging.ERROR

    pid: int
    job_id: str
    cause: str


class JobsReleased(Event, frozen=True, gc=False):
    """What a dead worker held was given back."""

    level = logging.WARNING

    worker: str
    jobs: int


class LeasesNotKept(Event, frozen=True, gc=False):
    """The supervisor could not renew leases; it goes on trying."""

    level = logging.ERROR

    doing: str
    error: BaseException


class StoreDiffers(ProcessEvent, frozen=True, gc=False):
    """The supervisor's store knows neither a worker nor its jobs, so it is a different store. The worker renews its
    own leases.
    """

    level = logging.ERROR

    worker: str


class SourcesChanged(Event, frozen=True, gc=False):
    """A source file has changed: all worker processes restart."""

    path: str


class SignalIgnored(Event, frozen=True, gc=False):
    """A signal arrived that means nothing here, although it would have ended a program without a handler for it."""

    level = logging.WARNING

    cause: str
    expected: str = "TERM, INT or HUP to drain, QUIT to give back at once"


class SupervisorStopping(Event, frozen=True, gc=False):
    """A signal arrived: all worker processes stop."""

    cause: str

"""`task_finished`: sent when the store has recorded how a job ended, from a thread of its own.

Receivers may use the ORM, which an event loop cannot call, and may be slow. So the worker's observer only notes the
end; one thread sends the signals, in that order. Python waits for it when the process ends.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from django.db import close_old_connections

from taskharbor.django import registry
from taskharbor.django.api import signals, task_finished
from taskharbor.django.results import result_of
from taskharbor.model.errors import DriverError
from taskharbor.model.events import Event, JobCancelled, JobDeadLettered, JobEvent, JobSucceeded
from taskharbor.model.job import JobInfo, JobRecord, State, replace

if TYPE_CHECKING:
    from taskharbor.django.harbors import DjangoHarbor

logger = logging.getLogger("taskharbor.django")

ENDS: dict[type[Event], State] = {
    JobSucceeded: State.DONE,
    JobDeadLettered: State.DLQ,
    JobCancelled: State.CANCELLED,
}


class SignalThread:
    """Runs functions one after the other, in a thread that is started by the first; in a forked child by another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._pid = 0

    def submit(self, function: Callable[[], object]) -> None:
        """Run a function soon."""
        with self._lock:
            if self._executor is None or self._pid != os.getpid():
                self._executor = ThreadPoolExecutor(1, "taskharbor-django-signals")
                self._pid = os.getpid()
            self._executor.submit(_with_fresh_connections, function)


def _with_fresh_connections(function: Callable[[], object]) -> None:
    close_old_connections()
    try:
        function()
    finally:
        close_old_connections()


_thread = SignalThread()


class FinishedSignals:
    """The observer of a harbor's workers that sends `task_finished`."""

    def __init__(self, harbor: DjangoHarbor) -> None:
        self._harbor = harbor
        self.deliver: Callable[[Callable[[], object]], None] = _thread.submit

    def wants(self, event_type: type[Event]) -> bool:
        """Whether it is the end of a job."""
        return event_type in ENDS

    def __call__(self, event: Event) -> None:
        if isinstance(event, JobEvent) and registry.find(event.job.type) is not None:
            state = ENDS[type(event)]
            self.deliver(lambda: self._send(event.job, state))

    def _send(self, job: JobRecord, state: State) -> None:
        declared = registry.find(job.type)
        if declared is None:
            return
        try:
            info = (
                JobInfo(replace(job, finished_at=self._harbor.clock.now()), state)
                if _is_only_logged()
                else self._read(job)
            )
            result = result_of(info, declared, self._harbor.backend.alias)
            task_finished.send_robust(sender=type(result.task.get_backend()), task_result=result)
        except Exception as error:  # by class alone: its text may quote a payload
            logger.error("task_finished was not sent for job %s: %s", job.id, type(error).__name__)

    def _read(self, job: JobRecord) -> JobInfo:
        try:
            return self._harbor.job(job.id).info()
        except DriverError:
            logger.warning("job %s is gone from the store; task_finished is not sent for it", job.id)
            raise


def _is_only_logged() -> bool:
    """Whether Django's own receiver, which writes id, path and status to the log, is the only one: then nothing else of
    the result has to be read."""
    receivers = task_finished.receivers
    return len(receivers) == 1 and receivers[0][0][0] == id(signals.log_task_finished)

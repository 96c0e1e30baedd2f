"""How a handler ended, as the outcome to settle: the bridge from values and exceptions to `policy.decide`.

It touches no storage and starts nothing; it tells observers of failures, because only here they are seen whole.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from taskharbor.model.clock import Clock
from taskharbor.model.errors import Cancel, Snooze, TaskHarborError
from taskharbor.model.events import JobFailed, Observers, PolicyFailed
from taskharbor.model.outcome import Ack, Fail, Outcome
from taskharbor.policy import decide
from taskharbor.policy.describe import summary
from taskharbor.policy.retry import RetryPolicy
from taskharbor.tasks.failure import ON_FAILURE_KEY, with_failure_steps
from taskharbor.tasks.handler import PayloadMismatch
from taskharbor.tasks.workflow import Workflow
from taskharbor.worker.conceal import concealed, described
from taskharbor.worker.run import Run
from taskharbor.worker.settings import Settings
from taskharbor.worker.settler import SNOOZED


class Refusal(TaskHarborError):
    """A failure that core itself found: it is final, and its text is the reason."""


class Endings:
    """Turns endings into outcomes, by the worker's settings and the handler's own terms."""

    def __init__(self, *, settings: Settings, retry: RetryPolicy, clock: Clock, observers: Observers) -> None:
        self._settings = settings
        self._retry = retry
        self._clock = clock
        self._observers = observers

    def returned(self, run: Run, value: Any) -> Outcome:
        """The handler returned: done, or dead if what it returned cannot be stored."""
        if value is None:
            return Ack(run.lease)
        try:
            return self._ack(run, value)
        except Refusal as refusal:
            return self.failed(run, refusal)

    def timed_out(self, run: Run, error: BaseException | None = None) -> Outcome:
        """The handler outlived its timeout; `error` is what it raised when it was told to stop."""
        handler = run.handler
        limit = run.job.timeout or (handler.timeout if handler else None) or timedelta()
        timeout = TimeoutError(f"timed out after {limit.total_seconds():g} s")
        if error is not None and not isinstance(error, asyncio.CancelledError):
            timeout.__cause__ = error
        return self.failed(run, timeout)

    def failed(self, run: Run, error: BaseException) -> Outcome:
        """The handler raised, or core refuses to go on with the job."""
        job, now, handler = run.job, self._clock.now(), run.handler
        if not isinstance(error, Snooze | Cancel):
            self._observers.emit(JobFailed(job, self._settings.name, error, run.seconds))
        if isinstance(error, PayloadMismatch | Refusal):
            return self.final(run, decide.refuse(job, run.lease, str(error), now))
        if isinstance(error, Snooze):
            run.why = SNOOZED
        declared = decide.Terms(
            handler.retry if handler and handler.retry else self._retry,
            self._settings.max_attempts,
            handler.unrecoverable if handler else (),
        )
        terms, unreadable = decide.terms_of(job, declared, error)
        verdict = decide.on_error(job, run.lease, error, terms, now)
        for problem in (unreadable, verdict.policy_error):
            if problem is not None:
                self._observers.emit(PolicyFailed(job, self._settings.name, problem))
        outcome = verdict.outcome if handler is None else concealed(job, handler.signature.codec, verdict.outcome)
        return self.final(run, outcome)

    def final(self, run: Run, outcome: Outcome) -> Outcome:
        """The outcome, with the failure step of the job's flow if it is to release one."""
        if type(outcome) is Fail and ON_FAILURE_KEY in run.job.metadata and run.handler is not None:
            return with_failure_steps(run.job, outcome, run.handler.signature.codec, self._clock.now())
        return outcome

    def _ack(self, run: Run, value: Any) -> Ack:
        handler, limit = run.handler, self._settings.max_result
        assert handler is not None
        if hasattr(value, "compile") and isinstance(value, Workflow):
            try:
                spawned = value.compile(run.job, self._clock.now())
            except Exception as error:
                raise Refusal(f"its workflow cannot be stored: {summary(error)}") from error
            return Ack(run.lease, None, spawned.jobs, spawned.handover)
        try:
            result = handler.encode_result(value)
        except Exception as error:
            raise Refusal(f"its result cannot be stored: {described(error, value)}") from error
        if result is not None and len(result) > limit:
            raise Refusal(
                f"its result of {len(result)} bytes is over the limit of {limit}; "
                "keep it elsewhere and return a reference"
            )
        return Ack(run.lease, result)

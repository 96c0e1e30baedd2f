"""Turns what a handler returned or raised into an outcome: the bridge to `policy.decide`.

It touches no storage and starts nothing. It emits JobFailed, because only here the exception is at hand.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from taskharbor.model.errors import Cancel, Snooze
from taskharbor.model.events import JobFailed, PolicyFailed, ResultChanged
from taskharbor.model.job import JobRecord
from taskharbor.model.naming import class_name
from taskharbor.model.outcome import Ack, Fail, Outcome
from taskharbor.model.refusal import Refusal
from taskharbor.policy import decide
from taskharbor.policy.describe import blamed, summary
from taskharbor.policy.fingerprint import cause_of
from taskharbor.tasks.context import Shutdown
from taskharbor.tasks.failure_step import ON_FAILURE_KEY, with_failure_steps
from taskharbor.tasks.handler import PayloadMismatch
from taskharbor.tasks.workflow import Spawned, Workflow, is_workflow
from taskharbor.worker.delivery import SHUTDOWN, SNOOZED, Delivery
from taskharbor.worker.error_masking import masked_on_dead, masked_outcome, masked_summary
from taskharbor.worker.parts import Part, WorkerParts

WORKFLOW_REFUSED = "its workflow cannot be stored"


class OutcomeBuilder(Part):
    """Builds outcomes from the worker's settings and the handler's own terms."""

    def __init__(self, parts: WorkerParts) -> None:
        super().__init__(parts)
        self._deaths, self._retry = parts.handlers.deaths, parts.retry

    def returned(self, delivery: Delivery, value: Any) -> Outcome:
        """The handler returned: an Ack, or a failure if its value cannot be stored."""
        if value is None:
            return Ack(delivery.lease)
        try:
            return self._ack(delivery, value)
        except Refusal as refused:
            return self.failed(delivery, refused)

    def timed_out(self, delivery: Delivery, error: BaseException | None = None) -> Outcome:
        """The handler outlived its timeout; `error`: what it raised when it was cancelled."""
        handler = delivery.handler
        limit = delivery.job.timeout or (handler.timeout if handler else None) or timedelta()
        timeout = TimeoutError(f"timed out after {limit.total_seconds():g} s")
        if error is not None and not issubclass(type(error), asyncio.CancelledError):
            timeout.__cause__ = error
        elif error is not None:
            for note in getattr(error, "__notes__", ()):  # what could not be closed after the cancellation
                timeout.add_note(note)
        return self.failed(delivery, timeout)

    def failed(self, delivery: Delivery, error: BaseException) -> Outcome:
        """The handler raised, or the job cannot be run."""
        job, now, handler = delivery.job, self._clock.now(), delivery.handler
        kind = type(error)  # not isinstance: that would use a `__class__` of its own, which may even raise
        cause = None
        if not issubclass(kind, Snooze | Cancel):
            blame = blamed(error)
            cause = cause_of(job.type, blame, None if handler is None else handler.function)
            failed = JobFailed(job, self._worker, blame, delivery.seconds, cause.error_class, cause.fingerprint)
            self._observers.emit(failed)
        if issubclass(kind, PayloadMismatch | Refusal):
            return self.final(delivery, decide.refuse(job, delivery.lease, _text(error), now, cause))
        if issubclass(kind, Snooze):
            delivery.why = SHUTDOWN if issubclass(kind, Shutdown) else SNOOZED
        declared = decide.Terms(
            handler.retry if handler and handler.retry else self._retry,
            self._settings.max_attempts,
            handler.unrecoverable if handler else (),
        )
        terms, unreadable = decide.terms_of(job, declared, error)
        decision = decide.on_error(job, delivery.lease, error, terms, now, cause)
        for problem in (unreadable, decision.policy_error):
            if problem is not None:
                self._observers.emit(PolicyFailed(job, self._worker, problem))
        outcome = decision.outcome
        if handler is not None:
            outcome = masked_outcome(job, handler.signature.codec, outcome)
            if self._deaths.is_death_task(job.type):
                outcome = masked_on_dead(job, handler.signature.codec, outcome)
        return self.final(delivery, outcome)

    def final(self, delivery: Delivery, outcome: Outcome) -> Outcome:
        """The outcome; a job that dies, together with the failure step of its flow and what `on_dead` starts."""
        if type(outcome) is not Fail:
            return outcome
        if ON_FAILURE_KEY in delivery.job.metadata and delivery.handler is not None:
            outcome = with_failure_steps(delivery.job, outcome, delivery.handler.signature.codec, self._clock.now())
        return self._deaths.with_death_jobs(delivery.job, outcome, self._clock.now()) if self._deaths else outcome

    def _ack(self, delivery: Delivery, value: Any) -> Ack:
        """An Ack with the returned value, which may be anything, and may raise whatever is done with it."""
        handler, limit = delivery.handler, self._settings.max_result
        assert handler is not None
        if is_workflow(value):
            spawned = self._compiled(delivery, value)
            return Ack(delivery.lease, None, spawned.jobs, spawned.handover)
        try:
            result = handler.encode_result(value)
        except BaseException as error:
            raise refusal("its result cannot be stored", error, masked_summary(error, value)) from error
        if result is None:
            return Ack(delivery.lease)
        if type(result) is not bytes:
            raise Refusal(f"its result cannot be stored: its codec returned {class_name(result)}, expected bytes")
        if len(result) > limit:
            raise Refusal(
                f"its result of {len(result)} bytes is over the limit of {limit}; "
                "keep it elsewhere and return a reference"
            )
        changed = delivery.changed or handler.change_of(value, result)
        if changed is not None:
            self._observers.emit(ResultChanged(delivery.job, self._worker, *changed))
        return Ack(delivery.lease, result)

    def _compiled(self, delivery: Delivery, workflow: Workflow) -> Spawned:
        try:
            spawned = workflow._compile(delivery.job, self._clock.now())
            jobs = tuple(spawned.jobs)
            if not all(type(job) is JobRecord for job in jobs) or type(spawned.handover) is not str:
                raise TypeError("expected job records and the id of one of them")
            return Spawned(jobs, spawned.handover)
        except BaseException as error:
            raise refusal(WORKFLOW_REFUSED, error) from error


def refusal(what: str, error: BaseException, text: str | None = None) -> Refusal:
    """A Refusal caused by an exception. The text of the exception goes into the reason, but not into the log."""
    return Refusal(f"{what}: {summary(error) if text is None else text}", f"{what}: {class_name(error)}")


def _text(error: BaseException) -> str:
    """The text of an error; a handler may raise a subclass whose `__str__` raises."""
    try:
        return str.__str__(str(error))
    except BaseException:
        return class_name(error)

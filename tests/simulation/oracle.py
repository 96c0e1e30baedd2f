"""What the journal expects: what explains a lease that ended, and which outcome fits how an execution ended.

Strict on purpose: a single failed call explains nothing, because core promises to repeat it.
"""

import json
from datetime import datetime

from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Lease
from taskharbor.model.outcome import Ack, Cancelled, Fail, Outcome, Retry
from taskharbor.tasks.flow_metadata import BIND_KEY
from tests.simulation.machine import Process
from tests.simulation.plan import Plan, Spec

GRACE = 5.0  # what core gives a cancelled coroutine
SLACK = 0.05
SUSPECT = 2  # losses after which a job runs alone; one is an accident


class Known:
    """A job as the journal knows it."""

    def __init__(self, record: JobRecord, spec: Spec | None, deps: tuple[str, ...]) -> None:
        self.id = record.id
        self.label = label(record)
        self.record = record
        self.queue = record.queue
        self.group = record.group
        self.limit = record.group_limit or 1
        self.spec = spec
        self.deps = deps
        self.run_at = record.run_at
        self.state = "pending"  # until done, dlq, cancelled or deleted
        self.reason = ""
        self.attempts = record.attempts
        self.lost = 0
        self.blamed = 0  # losses since the last outcome that a poison beside it caused
        self.requeues = 0
        self.handed_to: str | None = None
        self.deliveries: list[Delivery] = []
        self.held: Delivery | None = None

    @property
    def terminal(self) -> bool:
        return self.state != "pending"

    @property
    def gone(self) -> bool:
        return self.state == "deleted"

    def __str__(self) -> str:
        return self.label


class Execution:
    """One call of a handler. `how` is empty while it runs."""

    def __init__(self, process: Process, started: float) -> None:
        self.process = process
        self.started = started
        self.ended: float | None = None
        self.how = ""


class Delivery:
    """One reservation, seen at the store. Its epoch is the journal's own."""

    def __init__(self, known: Known, epoch: int, lease: Lease, process: Process, at: float) -> None:
        self.known = known
        self.epoch = epoch
        self.token = lease.token
        self.expires_at: datetime = lease.expires_at
        self.process = process
        self.at = at
        self.renewed = at
        self.losses = known.lost
        self.lost = self.least = known.lost  # the most and the fewest crashes that its worker may count among them
        self.with_suspect = False  # reserved in one call with a suspect
        self.heard = False  # whether the reply reached the process
        self.given_up = False  # its worker reported that it gave the outcome up
        self.ended = ""
        self.settled: type | None = None
        self.told: float | None = None  # when its process learned that it lost the lease
        self.execution: Execution | None = None

    @property
    def suspect(self) -> bool:
        """Whether it has to run alone."""
        return self.least >= SUSPECT

    @property
    def may_be_suspect(self) -> bool:
        return self.lost >= SUSPECT

    def weigh(self, cut_off: set[tuple[str, int]]) -> None:
        """Its worker has read which executions were cut off; of those that were its own it may know more."""
        lost = [each for each in self.known.deliveries[: self.epoch - 1] if each.ended == "expired"][-self.losses :]
        said = [each for each in lost if (self.known.id, each.epoch) in cut_off]
        own = [each for each in lost if each not in said and each.process is self.process]
        self.lost = self.losses - len(said)
        self.least = self.lost - len(own)

    def __str__(self) -> str:
        return f"{self.known.label}#{self.epoch}"


def number(record: JobRecord) -> int:
    """Which job of the plan it is; -1 for children and spawned ones."""
    return int(json.loads(record.payload).get("n", -1))


def label(record: JobRecord) -> str:
    return str(json.loads(record.payload).get("name", record.id))


def describe(outcome: Outcome) -> str:
    if isinstance(outcome, Retry):
        return f"Retry(attempts={outcome.attempts})"
    if isinstance(outcome, Fail):
        return f"Fail({outcome.reason!r})"
    return type(outcome).__name__


def why_expired(last: Delivery, plan: Plan, now: float) -> str:
    """What explains that a lease ended without an outcome; empty: nothing does."""
    process, since = last.process, last.renewed - SLACK
    if not last.heard:
        return "the reply to its reserve was lost"
    if last.given_up:  # and an extend that was on its way has kept the lease since
        return "its outcome was given up" if _troubled(last, plan) else ""
    if process.died_at is not None and last.expires_at > process.died_at:
        return f"killed by {process.killed_by}"
    if process.frozen or process.suffered("frozen", "thawed", since=since):
        return "frozen"
    if process.suffered("slow", since=since - plan.lease):
        return "slow calls"
    # An extend may have succeeded while the settler, which did not know, gave the lease up.
    if process.suffered("extend failed", "settle failed", since=since - plan.lease) >= 3:
        return "calls failed again and again"
    if plan.own_clock:
        return "clocks disagree"
    return ""


def _troubled(last: Delivery, plan: Plan) -> bool:
    since = last.at - plan.lease
    kinds = ("extend failed", "settle failed", "slow", "frozen", "thawed", "clock stepped")
    return plan.own_clock or bool(last.process.suffered(*kinds, since=since))


def may_extend(held: Delivery, plan: Plan, now: float) -> bool:
    """Whether a lease may still be renewed: while its handler runs, and while its outcome is on the way."""
    execution = held.execution
    if execution is None or execution.ended is None:
        return True
    process = held.process
    since = execution.ended - plan.lease
    return now - execution.ended < plan.lease + 2 or bool(
        process.suffered("settle failed", "slow", "frozen", "thawed", since=since)
    )


def objection(held: Delivery, outcome: Outcome, plan: Plan, now: float) -> str:
    """Why an outcome does not fit how the execution ended; empty: it fits."""
    known, execution = held.known, held.execution
    how = execution.how if execution is not None else "never started"
    if isinstance(outcome, Ack):
        return "" if how == "returned" else f"acked, but it {how or 'still runs'}"
    if isinstance(outcome, Cancelled):
        return "" if how == "cancel" else f"cancelled, but it {how or 'still runs'}"
    spec = known.spec
    if isinstance(outcome, Fail) and outcome.reason.startswith("the result of job "):
        # Only an operator deletes what a step needs: the step was cancelled then, and requeued later.
        fits = execution is None and known.requeues and BIND_KEY in known.record.metadata
        return "" if fits else "its results are not gone"
    if isinstance(outcome, Fail) and outcome.reason.startswith("crashed"):
        if execution is not None or held.lost < plan.max_lost or outcome.attempts != known.attempts:
            return f"called crashed with {held.lost} losses, and it {how}"
        return ""
    if outcome.attempts == known.attempts and isinstance(outcome, Retry):
        return _given_back(held, how)
    if outcome.attempts != known.attempts + 1:
        return f"attempts go from {known.attempts} to {outcome.attempts}"
    limit = known.record.max_attempts or 5
    if outcome.attempts > limit + known.requeues:
        return f"{outcome.attempts} attempts of {limit}"
    if how == "returned":
        return (
            ""
            if spec is not None and spec.kind == "badflow" and isinstance(outcome, Fail)
            else "failed, but it returned"
        )
    if not _failed(held, how, now, plan):
        return f"failed, but it {how or 'still runs'}"
    final = how == "unrecoverable" or outcome.attempts >= limit
    if isinstance(outcome, Fail) != final:
        return f"attempt {outcome.attempts} of {limit} after it {how}"
    return ""


def _given_back(held: Delivery, how: str) -> str:
    if how == "snooze" or held.process.stopping:
        return ""
    if how == "never started":
        unknown = held.known.record.type not in held.process.types
        is_bound = BIND_KEY in held.known.record.metadata
        unread = is_bound and held.process.suffered("results failed", since=held.at)
        return "" if unknown or unread or held.may_be_suspect or held.with_suspect else "given back for no reason"
    return f"given back, but it {how or 'still runs'}"


def _failed(held: Delivery, how: str, now: float, plan: Plan) -> bool:
    """Whether a recorded failure fits: it raised, or it was interrupted by its timeout."""
    if how in ("failed", "unrecoverable"):
        return True
    execution, timeout = held.execution, held.known.record.timeout
    if execution is None or timeout is None or how not in ("", "interrupted"):
        return False
    grace = 0.0 if how else GRACE
    return plan.own_clock or now - execution.started >= timeout.total_seconds() * (1 - 0.01) + grace - SLACK


def overdue(held: Delivery, execution: Execution, plan: Plan) -> str:
    """What an execution that has ended should have done long before; empty: nothing."""
    spec, ended, process = held.known.spec, execution.ended, held.process
    if ended is None or (spec is not None and spec.kind == "stubborn"):
        return ""
    if process.suffered("frozen", "thawed", since=execution.started):
        return ""
    if held.told is not None and ended - held.told > 1.0:
        return f"went on for {ended - held.told:.1f} s after its worker had learned that the lease was lost"
    timeout = held.known.record.timeout
    if timeout is not None and not plan.own_clock and ended - execution.started > timeout.total_seconds() + 1.0:
        return f"ran for {ended - execution.started:.1f} s, its timeout is {timeout.total_seconds():.1f} s"
    return ""

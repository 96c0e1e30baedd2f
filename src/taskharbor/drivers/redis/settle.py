"""Outcomes as settle.lua wants them. What is wrong with one beyond its lease is InvalidJob, and nothing is applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from taskharbor.drivers.redis.records import up_to_ms
from taskharbor.drivers.redis.scripts import binary
from taskharbor.model.bounds import check_job, check_moment, check_number, check_spawn, clean_error
from taskharbor.model.errors import InvalidJob
from taskharbor.model.outcome import Ack, Cancelled, Fail, Outcome, Retry
from taskharbor.model.safe_repr import shown
from taskharbor.model.times import to_ms

if TYPE_CHECKING:
    from taskharbor.drivers.redis.cluster_flows import FlowEntry


class PlannedSpawn(NamedTuple):
    """A spawn that was planned."""

    jobs: Sequence[Any] | bool = False
    needed: Sequence[Any] = ()
    flows: dict[str, FlowEntry] | Literal[False] = False
    heir: str | bool = False
    heir_queue: str = ""

    def __repr__(self) -> str:
        return shown(self, "flows", "heir", "heir_queue")


NOTHING = PlannedSpawn()
KINDS: dict[type, str] = {Ack: "a", Retry: "r", Fail: "f", Cancelled: "c"}


def check(outcome: Outcome, max_payload: int) -> InvalidJob | None:
    """Why an outcome cannot be applied whatever the store holds."""
    try:
        if isinstance(outcome, Ack | Fail):
            check_spawn(outcome.spawn)
            for job in outcome.spawn:
                check_job(job, max_payload)
        if isinstance(outcome, Ack):
            if outcome.result is not None and type(outcome.result) is not bytes:
                raise InvalidJob(
                    f"result: expected bytes or None, got {type(outcome.result).__name__}; encode it with a codec"
                )
        elif isinstance(outcome, Retry | Fail):
            check_number(outcome.attempts, "attempts", 0)
            if outcome.failed_at is not None:
                check_moment(outcome.failed_at, "failed_at")
            if isinstance(outcome, Retry) and outcome.run_at is not None:
                check_moment(outcome.run_at, "run_at")
        elif not isinstance(outcome, Cancelled):
            raise InvalidJob(f"outcome: expected Ack, Retry, Fail or Cancelled, got {type(outcome).__name__}")
    except InvalidJob as invalid:
        return invalid
    return None


def spelled(outcome: Outcome, spawn: PlannedSpawn = NOTHING) -> tuple[Any, ...]:
    """An outcome as an array."""
    lease = outcome.lease
    head = (lease.queue, lease.job_id, lease.token)
    if isinstance(outcome, Ack):
        result = binary(outcome.result) if outcome.result is not None else False
        return (*head, "a", result) if spawn is NOTHING else (*head, "a", result, *spawn)
    if isinstance(outcome, Retry):
        run_at = up_to_ms(outcome.run_at) if outcome.run_at is not None else False
        failed_at = to_ms(outcome.failed_at) if outcome.failed_at is not None else False
        return (*head, "r", run_at, outcome.attempts, clean_error(outcome.last_error), failed_at)
    if isinstance(outcome, Fail):
        failed_at = to_ms(outcome.failed_at) if outcome.failed_at is not None else False
        reason, error = clean_error(outcome.reason), clean_error(outcome.last_error)
        return (*head, "f", reason, outcome.attempts, failed_at, error, *spawn[:3])
    return (*head, "c", clean_error(outcome.reason))


def plain(outcomes: Sequence[Outcome]) -> list[Any] | None:
    """Outcomes as ack_plain.lua wants them, all values by turns; None unless all are acks and nothing more."""
    flat: list[Any] = []
    for outcome in outcomes:
        if type(outcome) is not Ack or outcome.spawn or outcome.handover is not None:
            return None
        lease, result = outcome.lease, outcome.result
        if result is None:
            flat += (lease.queue, lease.job_id, lease.token, False)
        elif type(result) is bytes:
            flat += (lease.queue, lease.job_id, lease.token, binary(result))
        else:
            return None
    return flat


def question(outcome: Outcome) -> tuple[Any, ...]:
    """The same kind of outcome, not to be applied: answered with the refusal for the lease, or "plan again"."""
    lease = outcome.lease
    return (lease.queue, lease.job_id, lease.token, "?" + KINDS.get(type(outcome), ""))

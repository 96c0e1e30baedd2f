"""Operations as entries of the audit: one entry for each, under the id of the operation, replaced when it ends."""

from __future__ import annotations

from datetime import datetime

from taskharbor.bulk.plan import OperationPlan, OperationState, OperationStatus
from taskharbor.model.audit import AuditEntry


def begun_entry(operation_id: str, plan: OperationPlan, now: datetime) -> AuditEntry:
    """The entry of an operation that begins."""
    return _entry(operation_id, plan, now, OperationStatus.RUNNING, None, None)


def ended_entry(operation_id: str, state: OperationState, status: OperationStatus) -> AuditEntry:
    """The entry of an operation that ends: `at` stays the moment at which it began."""
    return _entry(operation_id, state.plan, state.began_at, status, state.done, state.skipped)


def _entry(
    operation_id: str,
    plan: OperationPlan,
    at: datetime,
    status: OperationStatus,
    done: int | None,
    refused: int | None,
) -> AuditEntry:
    return AuditEntry(
        id=operation_id,
        at=at,
        by=plan.by,
        action=plan.action,
        filter=plan.filter.given(),
        options=plan.options(),
        done=done,
        refused=refused,
        status=status,
    )

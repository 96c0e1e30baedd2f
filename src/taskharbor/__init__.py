"""Background jobs for Python: one API, pluggable drivers, the same semantics on each.

Public names only. Events are in `taskharbor.events`, drivers in `taskharbor.drivers`, workflows in `taskharbor.flow`.
Names load lazily: code that only enqueues never imports the worker, and short commands of the command line import
neither.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taskharbor.client import Client, JobHandle, JobRequest
    from taskharbor.client.jobs import Count, Jobs
    from taskharbor.client.listing import Audit, Flows
    from taskharbor.client.operation import DryRun, Operation
    from taskharbor.client.schedules import Schedules
    from taskharbor.harbor import Harbor
    from taskharbor.model.audit import AuditEntry
    from taskharbor.model.clock import Clock
    from taskharbor.model.codec import Codec, JsonCodec
    from taskharbor.model.errors import (
        BackendUnavailable,
        BlockingCall,
        Cancel,
        DriverError,
        FeatureMissing,
        InvalidJob,
        JobCancelled,
        JobDead,
        JobNotFound,
        JobNotInflight,
        LeaseExpired,
        LeaseMismatch,
        LifespanFailed,
        RetryLater,
        ScheduleNotFound,
        Snooze,
        StepRefused,
        StoreMissing,
        TaskHarborError,
        TransactionFailed,
        Unrecoverable,
        WrongConnection,
        WrongState,
    )
    from taskharbor.model.executions import Attempt, AttemptKind
    from taskharbor.model.job import FlowInfo, FlowStatus, JobInfo, JobRecord, State, WorkerInfo
    from taskharbor.model.memo import StepInfo
    from taskharbor.model.progress import Progress
    from taskharbor.policy.retry import Exponential, Fixed, Linear
    from taskharbor.store.bulk.operations import OperationProgress
    from taskharbor.store.bulk.plan import OperationStatus
    from taskharbor.store.queues import QueueInfo
    from taskharbor.store.schedules import ScheduleInfo
    from taskharbor.store.summary import Summary, SummaryRow
    from taskharbor.tasks.context import JobContext
    from taskharbor.tasks.injected import Depends, Given
    from taskharbor.tasks.task import Step, Task
    from taskharbor.worker import Worker

__all__ = [
    "Attempt",
    "AttemptKind",
    "Audit",
    "AuditEntry",
    "BackendUnavailable",
    "BlockingCall",
    "Cancel",
    "Client",
    "Clock",
    "Codec",
    "Count",
    "Depends",
    "DriverError",
    "DryRun",
    "Exponential",
    "FeatureMissing",
    "Fixed",
    "FlowInfo",
    "FlowStatus",
    "Flows",
    "Given",
    "Harbor",
    "InvalidJob",
    "JobCancelled",
    "JobContext",
    "JobDead",
    "JobHandle",
    "JobInfo",
    "JobNotFound",
    "JobNotInflight",
    "JobRecord",
    "JobRequest",
    "Jobs",
    "JsonCodec",
    "LeaseExpired",
    "LeaseMismatch",
    "LifespanFailed",
    "Linear",
    "Operation",
    "OperationProgress",
    "OperationStatus",
    "Progress",
    "QueueInfo",
    "RetryLater",
    "ScheduleInfo",
    "ScheduleNotFound",
    "Schedules",
    "Snooze",
    "State",
    "Step",
    "StepInfo",
    "StepRefused",
    "StoreMissing",
    "Summary",
    "SummaryRow",
    "Task",
    "TaskHarborError",
    "TransactionFailed",
    "Unrecoverable",
    "Worker",
    "WorkerInfo",
    "WrongConnection",
    "WrongState",
    "__version__",
]

__version__: str

_HOMES = {
    "taskharbor.client": ("Client", "JobHandle", "JobRequest"),
    "taskharbor.client.jobs": ("Count", "Jobs"),
    "taskharbor.client.listing": ("Audit", "Flows"),
    "taskharbor.client.operation": ("DryRun", "Operation"),
    "taskharbor.client.schedules": ("Schedules",),
    "taskharbor.harbor": ("Harbor",),
    "taskharbor.model.executions": ("Attempt", "AttemptKind"),
    "taskharbor.model.audit": ("AuditEntry",),
    "taskharbor.model.clock": ("Clock",),
    "taskharbor.model.codec": ("Codec", "JsonCodec"),
    "taskharbor.model.job": ("FlowInfo", "FlowStatus", "JobInfo", "JobRecord", "State", "WorkerInfo"),
    "taskharbor.model.memo": ("StepInfo",),
    "taskharbor.model.progress": ("Progress",),
    "taskharbor.policy.retry": ("Exponential", "Fixed", "Linear"),
    "taskharbor.store.bulk.operations": ("OperationProgress",),
    "taskharbor.store.bulk.plan": ("OperationStatus",),
    "taskharbor.store.queues": ("QueueInfo",),
    "taskharbor.store.schedules": ("ScheduleInfo",),
    "taskharbor.store.summary": ("Summary", "SummaryRow"),
    "taskharbor.tasks.context": ("JobContext",),
    "taskharbor.tasks.injected": ("Depends", "Given"),
    "taskharbor.tasks.task": ("Step", "Task"),
    "taskharbor.worker": ("Worker",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    found: Any
    if name == "__version__":
        found = import_module("importlib.metadata").version("taskharbor")  # 20 ms, so only when it is read
    elif name in __all__:
        found = getattr(import_module(_HOME_OF.get(name, "taskharbor.model.errors")), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Stores for jobs: the contract that every driver fulfils, and the way from a DSN to a driver."""

from taskharbor.drivers.contract import (
    CANCELLED_REASON,
    DAMAGED_PREFIX,
    DEFAULT_RETENTION,
    FLOW_CANCELLED_REASON,
    WORKER_SILENCE,
    Driver,
    SingleVerbs,
    SqlDriver,
    Transaction,
    TransactionSync,
)
from taskharbor.drivers.registry import open_driver
from taskharbor.model.errors import (
    BackendUnavailable,
    DriverError,
    InvalidJob,
    JobNotFound,
    JobNotInflight,
    LeaseExpired,
    LeaseMismatch,
    TaskHarborError,
    WrongState,
)
from taskharbor.model.job import FlowInfo, FlowStatus, JobInfo, JobRecord, Page, State, WorkerInfo, flow_status, replace
from taskharbor.model.lease import Enqueued, Lease, Reserved
from taskharbor.model.limits import check_job, check_name, check_spawn, clean_error
from taskharbor.model.outcome import Ack, Cancelled, Fail, Outcome, Retry

__all__ = [
    "CANCELLED_REASON",
    "DAMAGED_PREFIX",
    "DEFAULT_RETENTION",
    "FLOW_CANCELLED_REASON",
    "WORKER_SILENCE",
    "Ack",
    "BackendUnavailable",
    "Cancelled",
    "Driver",
    "DriverError",
    "Enqueued",
    "Fail",
    "FlowInfo",
    "FlowStatus",
    "InvalidJob",
    "JobInfo",
    "JobNotFound",
    "JobNotInflight",
    "JobRecord",
    "Lease",
    "LeaseExpired",
    "LeaseMismatch",
    "Outcome",
    "Page",
    "Reserved",
    "Retry",
    "SingleVerbs",
    "SqlDriver",
    "State",
    "TaskHarborError",
    "Transaction",
    "TransactionSync",
    "WorkerInfo",
    "WrongState",
    "check_job",
    "check_name",
    "check_spawn",
    "clean_error",
    "flow_status",
    "open_driver",
    "replace",
]

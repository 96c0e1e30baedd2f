"""Background jobs for Python: one API, pluggable drivers, the same semantics on each.

Public names only. Events are in `taskharbor.events`, drivers in `taskharbor.drivers`, workflows in `taskharbor.flow`.
The worker is loaded when it is first asked for: a program that only enqueues does not pay for it.
"""

from typing import TYPE_CHECKING, Any

from taskharbor.client import Client, JobHandle, JobRequest
from taskharbor.harbor import Harbor
from taskharbor.model.clock import Clock
from taskharbor.model.codec import Codec, JsonCodec
from taskharbor.model.errors import (
    BackendUnavailable,
    BlockingCall,
    Cancel,
    DriverError,
    InvalidJob,
    JobCancelled,
    JobDead,
    JobNotFound,
    JobNotInflight,
    LeaseExpired,
    LeaseMismatch,
    RetryLater,
    Snooze,
    TaskHarborError,
    Unrecoverable,
    WrongState,
)
from taskharbor.model.job import State
from taskharbor.policy.retry import Exponential, Fixed, Linear
from taskharbor.tasks.context import JobContext
from taskharbor.tasks.task import Step, Task

if TYPE_CHECKING:
    from taskharbor.worker import Worker

__all__ = [
    "BackendUnavailable",
    "BlockingCall",
    "Cancel",
    "Client",
    "Clock",
    "Codec",
    "DriverError",
    "Exponential",
    "Fixed",
    "Harbor",
    "InvalidJob",
    "JobCancelled",
    "JobContext",
    "JobDead",
    "JobHandle",
    "JobNotFound",
    "JobNotInflight",
    "JobRequest",
    "JsonCodec",
    "LeaseExpired",
    "LeaseMismatch",
    "Linear",
    "RetryLater",
    "Snooze",
    "State",
    "Step",
    "Task",
    "TaskHarborError",
    "Unrecoverable",
    "Worker",
    "WrongState",
    "__version__",
]

__version__: str


def __getattr__(name: str) -> Any:
    if name == "Worker":
        from taskharbor.worker import Worker

        globals()["Worker"] = Worker
        return Worker
    if name == "__version__":
        from importlib.metadata import version  # 20 ms that only who asks for it pays

        globals()["__version__"] = found = version("taskharbor")
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

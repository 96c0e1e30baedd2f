"""Background jobs for Python: one API, pluggable drivers, the same semantics on each.

Public names only. Events are in `taskharbor.events`, drivers in `taskharbor.drivers`, workflows in `taskharbor.flow`.
Names load lazily: code that only enqueues never imports the worker, and short commands of the command line import
neither.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taskharbor.client import Client, JobHandle, JobRequest
    from taskharbor.harbor import Harbor
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
        RetryLater,
        Snooze,
        StoreMissing,
        TaskHarborError,
        TransactionFailed,
        Unrecoverable,
        WrongConnection,
        WrongState,
    )
    from taskharbor.model.job import State
    from taskharbor.policy.retry import Exponential, Fixed, Linear
    from taskharbor.tasks.context import JobContext
    from taskharbor.tasks.task import Step, Task
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
    "FeatureMissing",
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
    "StoreMissing",
    "Task",
    "TaskHarborError",
    "TransactionFailed",
    "Unrecoverable",
    "Worker",
    "WrongConnection",
    "WrongState",
    "__version__",
]

__version__: str

_HOMES = {
    "taskharbor.client": ("Client", "JobHandle", "JobRequest"),
    "taskharbor.harbor": ("Harbor",),
    "taskharbor.model.clock": ("Clock",),
    "taskharbor.model.codec": ("Codec", "JsonCodec"),
    "taskharbor.model.job": ("State",),
    "taskharbor.policy.retry": ("Exponential", "Fixed", "Linear"),
    "taskharbor.tasks.context": ("JobContext",),
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

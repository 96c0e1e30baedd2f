"""The public names, and what importing them costs."""

import json
import subprocess
import sys

import taskharbor

NAMES = {
    "Attempt", "AttemptKind", "Audit", "AuditEntry", "BackendUnavailable", "BlockingCall", "Cancel", "Client",
    "Clock", "Codec", "Count", "Depends", "DriverError", "DryRun", "Exponential", "FeatureMissing", "Fixed",
    "FlowInfo", "FlowStatus", "Flows", "Given", "Harbor", "InvalidJob", "JobCancelled", "JobContext", "JobDead",
    "JobHandle", "JobInfo", "JobNotFound", "JobNotInflight", "JobRecord", "JobRequest", "Jobs", "JsonCodec",
    "LeaseExpired", "LeaseMismatch", "LifespanFailed", "Linear", "Operation", "OperationProgress", "OperationStatus",
    "Progress", "QueueInfo", "RetryLater", "ScheduleInfo", "ScheduleNotFound", "Schedules", "Snooze", "State", "Step",
    "StepInfo", "StepRefused", "StoreMissing", "Summary", "SummaryRow", "Task", "TaskHarborError", "TransactionFailed",
    "Unrecoverable", "Worker", "WorkerInfo", "WrongConnection", "WrongState", "__version__",
}  # fmt: skip


def test_the_public_names_are_these_and_all_exist() -> None:
    assert set(taskharbor.__all__) == NAMES
    assert taskharbor.__all__ == sorted(taskharbor.__all__)
    for name in NAMES:
        assert getattr(taskharbor, name) is not None
        assert name in dir(taskharbor)
    assert not hasattr(taskharbor, "Nothing")


def test_every_error_of_the_tree_is_public() -> None:
    def below(kind: type[BaseException]) -> set[str]:
        kinds = [each for each in kind.__subclasses__() if each.__module__ == "taskharbor.model.errors"]
        return {kind.__name__}.union(*(below(each) for each in kinds))

    assert below(taskharbor.TaskHarborError) <= NAMES


def test_importing_loads_msgspec_and_nothing_else_of_third_parties() -> None:
    code = """
import sys, json
import msgspec  # with what it loads itself
before = set(sys.modules)
from taskharbor import Client, Exponential, Harbor, JobContext, TaskHarborError
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(json.dumps([sorted(new - set(sys.stdlib_module_names) - {"taskharbor"}), sorted(sys.modules)]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    foreign, everything = json.loads(done.stdout)
    assert foreign == []
    # What only a worker, or only a program that opens a store, needs.
    for name in ("taskharbor.worker", "taskharbor.drivers.memory", "importlib.metadata", "multiprocessing", "pydantic"):
        assert name not in everything

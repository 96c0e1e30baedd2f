"""For the tests of programs that use TaskHarbor: a clock to move, a store for a test, jobs run on the spot, faults."""

from taskharbor.testing.clock import ManualClock
from taskharbor.testing.context import context
from taskharbor.testing.crash_points import CrashFault, CrashReport, crash_points
from taskharbor.testing.crash_tracing import CrashPoint
from taskharbor.testing.drain import adrain, aenqueued, drain, enqueued
from taskharbor.testing.faults import Faults
from taskharbor.testing.isolated import isolated

__all__ = [
    "CrashFault",
    "CrashPoint",
    "CrashReport",
    "Faults",
    "ManualClock",
    "adrain",
    "aenqueued",
    "context",
    "crash_points",
    "drain",
    "enqueued",
    "isolated",
]

"""For the tests of programs that use TaskHarbor: a clock to move, jobs run on the spot, faults on demand."""

from taskharbor.testing.clock import ManualClock
from taskharbor.testing.drain import adrain, aenqueued, drain, enqueued
from taskharbor.testing.faults import Faults

__all__ = ["Faults", "ManualClock", "adrain", "aenqueued", "drain", "enqueued"]

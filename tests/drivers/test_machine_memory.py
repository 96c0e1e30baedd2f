"""Memory against memory: the machine, its comparison and its oracle agree with the reference they follow."""

import pytest

from taskharbor.conformance import DriverMachine
from taskharbor.drivers.memory import MemoryDriver
from tests import lanes


@pytest.mark.lane("machine-memory")
class TestMachine(DriverMachine):
    machine_runs = lanes.figure(test=20, full=600)
    machine_shrinks = lanes.shrinks()
    machine_shares_store = False

    def make_driver(self):
        return MemoryDriver("memory://")

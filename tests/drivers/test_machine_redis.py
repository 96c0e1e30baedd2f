"""Redis against memory, step by step: TASKHARBOR_MACHINE_RUNS says how many walks."""

import pytest

from taskharbor.conformance import DriverMachine
from taskharbor.drivers.redis import RedisDriver
from tests import lanes
from tests.drivers.redis_stores import emptied


@pytest.mark.lane("machine-redis")
class TestMachine(DriverMachine):
    machine_runs = lanes.figure(test=40, chaos=1000)

    def make_driver(self):
        return RedisDriver(f"{emptied()}?checks=0")

    def clean(self, driver):
        emptied()

"""The memory driver keeps the contract: every case of the suite, each on a store of its own."""

import pytest

from taskharbor.conformance import DriverCases
from taskharbor.drivers.memory import MemoryDriver
from tests import lanes
from tests.drivers.memory_damage import damage, damage_field


class MemoryCases(DriverCases):
    """For each way to run them a class of its own."""

    def make_driver(self):
        return MemoryDriver("memory://")

    def damage(self, driver, id, how):
        damage(driver, id, how)

    def damage_field(self, driver, id, field, kind):
        return damage_field(driver, id, field, kind)


@pytest.mark.lane("conformance-memory")
class TestMemory(MemoryCases):
    damage_samples = lanes.figure(test=20, full=200, chaos=1_000)

"""Postgres against memory, step by step: TASKHARBOR_MACHINE_RUNS is the number of walks."""

import functools

import pytest

from taskharbor.conformance import DriverMachine
from taskharbor.drivers.postgres import PostgresDriver
from tests import lanes
from tests.servers import postgres


@functools.cache
def store() -> str:
    return postgres.shared().database()


@pytest.mark.lane("machine-postgres")
class TestMachine(DriverMachine):
    machine_runs = lanes.figure(test=8, full=300)
    machine_shrinks = lanes.shrinks()

    def make_driver(self):
        return PostgresDriver(postgres.shared().address(store()))

    def clean(self, driver):
        postgres.empty(postgres.shared().address(store()))

"""SQLite against memory: the state machine walks both, and an oracle watches."""

import itertools

import pytest

from taskharbor.conformance import DriverMachine
from taskharbor.drivers.sqlite import SqliteDriver
from tests import lanes
from tests.drivers.sqlite_files import fast_folder

_number = itertools.count()
fast_sqlite_folder = fast_folder


@pytest.mark.lane("machine-sqlite")
class TestMachine(DriverMachine):
    machine_runs = lanes.figure(test=12, full=400)
    machine_shrinks = lanes.shrinks()
    machine_shares_store = True

    @pytest.fixture(autouse=True)
    def _folder(self, fast_sqlite_folder):
        self.folder = fast_sqlite_folder

    def make_driver(self):
        return SqliteDriver(f"sqlite:///{self.folder}/machine-{next(_number)}.db?synchronous=normal")

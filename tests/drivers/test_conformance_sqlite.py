"""The SQLite driver keeps the contract: every case of the suite, each on a file of its own."""

import itertools

import pytest

from taskharbor.conformance import DriverCases
from taskharbor.drivers.sqlite import SqliteDriver
from tests import lanes
from tests.drivers.sqlite_files import damage, damage_field, fast_folder

_number = itertools.count()


class SqliteCases(DriverCases):
    """For each way to run them a class of its own."""

    @pytest.fixture(autouse=True)
    def _folder(self, fast_sqlite_folder):
        self.folder = fast_sqlite_folder

    def make_driver(self):
        return SqliteDriver(f"sqlite:///{self.folder}/{next(_number)}.db?synchronous=normal")

    def damage(self, driver, id, how):
        damage(driver.options.path, id, how)

    def damage_field(self, driver, id, field, kind):
        return damage_field(driver.options.path, id, field, kind)


fast_sqlite_folder = fast_folder


@pytest.mark.lane("conformance-sqlite")
class TestSqlite(SqliteCases):
    damage_samples = lanes.figure(test=10, full=200, chaos=1_000)

"""System checks: each mistake has its id, and no text repeats a secret."""

import sys
from typing import Any
from unittest import mock

from django.core.checks import run_checks
from django.db import connections
from django.test import SimpleTestCase, TestCase

BACKEND = "taskharbor.django.TaskHarborBackend"
SECRET = "hunter2"


class Checks(SimpleTestCase):
    databases = {"default"}

    def found(self, options: Any, **params: Any) -> list[Any]:
        with self.settings(TASKS={"default": {"BACKEND": BACKEND, "OPTIONS": options, **params}}):
            found = [each for each in run_checks() if each.id.startswith("taskharbor.")]
        for each in found:
            self.assertNotIn(SECRET, str(each))
            self.assertTrue(each.hint, each)
        return found

    def ids(self, options: Any, **params: Any) -> list[str]:
        return [each.id for each in self.found(options, **params)]

    def test_nothing_is_wrong(self) -> None:
        self.assertEqual(self.ids({"database": "default"}), [])
        self.assertEqual(self.ids({"dsn": "memory://", "enqueue": "now"}), [])

    def test_options(self) -> None:
        for wrong in (
            {},
            {"database": "default", "dsn": f"redis://:{SECRET}@h"},
            {"databse": "default"},
            {"database": "default", "enqueue": "now"},
            {"dsn": f"redis://:{SECRET}@h", "migrate": "auto"},
            {"dsn": "redis://h", "enqueue": "sometimes"},
            {"database": "default", "store": [1]},
            {"database": ""},
            {"database": 3},
            {"database": "default", "defaults": {"max_attemps": 3}},
            {"database": "default", "defaults": {"max_attempts": 0}},
            [1],
        ):
            with self.subTest(wrong):
                self.assertEqual(self.ids(wrong), ["taskharbor.E001"])
        (found,) = self.found({"databse": "default"})
        self.assertIn("did you mean 'database'", found.msg)

    def test_database(self) -> None:
        self.assertEqual(self.ids({"database": "nowhere"}), ["taskharbor.E002"])
        self.assertEqual(self.ids({"dsn": "memory://", "using": "nowhere"}), ["taskharbor.E002"])
        with mock.patch.object(connections["default"], "vendor", "mysql"):
            self.assertEqual(self.ids({"database": "default"}), ["taskharbor.E003"])
        with mock.patch.dict(connections["default"].settings_dict, NAME="file:x.db?mode=rw"):
            self.assertEqual(self.ids({"database": "default"}), ["taskharbor.E005"])

    def test_postgres(self) -> None:
        from django.db.backends.postgresql import psycopg_any
        from django.db.backends.postgresql.base import DatabaseWrapper

        given = {**connections.settings["default"], "ENGINE": "django.db.backends.postgresql", "NAME": "x", "USER": "u"}
        given |= {"PASSWORD": SECRET, "OPTIONS": {"assume_role": "boss"}}
        with mock.patch.object(connections._connections, "default", DatabaseWrapper(given, "default")):
            with mock.patch.object(psycopg_any, "is_psycopg3", False):
                self.assertEqual(self.ids({"database": "default"}), ["taskharbor.E004", "taskharbor.W010"])
            wrong = {"database": "default", "store": {"shema": "x"}}
            self.assertEqual(self.ids(wrong), ["taskharbor.W010", "taskharbor.E006"])

    def test_a_strict_isolation(self) -> None:
        from django.db.backends.postgresql.base import DatabaseWrapper

        for level, expected in ((None, []), (2, []), (3, ["taskharbor.W014"]), (4, ["taskharbor.W014"])):
            given = {**connections.settings["default"], "ENGINE": "django.db.backends.postgresql", "NAME": "x"}
            given["OPTIONS"] = {} if level is None else {"isolation_level": level}
            with mock.patch.object(connections._connections, "default", DatabaseWrapper(given, "default")):
                self.assertEqual(self.ids({"database": "default"}), expected)

    def test_transactions_of_sqlite_that_do_not_wait(self) -> None:
        settings = connections["default"].settings_dict
        for options, expected in (
            ({}, ["taskharbor.W013"]),
            ({"transaction_mode": "deferred"}, ["taskharbor.W013"]),
            ({"transaction_mode": "IMMEDIATE"}, []),
        ):
            with mock.patch.dict(settings, NAME="/nowhere/to/be/found.sqlite3", OPTIONS=options):
                self.assertEqual(self.ids({"database": "default"}), expected)

    def test_addresses(self) -> None:
        for dsn in (
            f"redis://:{SECRET}@h/x?y=1",
            f"nothing://u:{SECRET}@h",
            f"{SECRET}",
            f"postgresql://u:{SECRET}#@h/x",
        ):
            with self.subTest(dsn):
                self.assertEqual(self.ids({"dsn": dsn}), ["taskharbor.E006"])

    def test_lifespan(self) -> None:
        self.assertEqual(self.ids({"database": "default", "lifespan": "supply.resources.opened"}), [])
        for wrong in ("supply.resources.nothing", "shop.nowhere.opened", "opened", "supply.resources.note"):
            with self.subTest(wrong):
                self.assertEqual(self.ids({"database": "default", "lifespan": wrong}), ["taskharbor.E012"])

    def test_queues(self) -> None:
        for queues in ("mail", ["a{"], ["taskharbor"], [""]):
            with self.subTest(queues):
                self.assertEqual(self.ids({"database": "default"}, QUEUES=queues), ["taskharbor.E007"])

    def test_the_app_is_not_installed(self) -> None:
        with self.modify_settings(INSTALLED_APPS={"remove": "taskharbor.django"}):
            self.assertEqual(self.ids({"database": "default"}), ["taskharbor.W008"])

    def test_a_network_disk(self) -> None:
        from taskharbor.drivers.sqlite import connection

        immediate = {"transaction_mode": "IMMEDIATE"}
        named = mock.patch.dict(connections["default"].settings_dict, NAME=__file__, OPTIONS=immediate)
        with named, mock.patch.object(connection, "network_mount", lambda path: "nfs4"):
            self.assertEqual(self.ids({"database": "default"}), ["taskharbor.W009"])


class Stores(TestCase):
    def test_a_store_that_is_not_migrated(self) -> None:
        tasks = {"default": {"BACKEND": BACKEND, "OPTIONS": {"database": "default"}}}
        named = mock.patch.dict(connections["default"].settings_dict, NAME="/nowhere/to/be/found.sqlite3")
        with self.settings(TASKS=tasks), named, mock.patch.object(sys, "argv", ["manage.py", "check"]):
            found = [each for each in run_checks(databases=["default"]) if each.id == "taskharbor.W011"]
        self.assertEqual([each.hint for each in found], ["Run `python manage.py migrate`."])

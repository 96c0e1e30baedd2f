"""Runs Django's own tests of the tasks API against our backend, in the role of each of Django's two.

python run_upstream.py FOLDER LEFT_OUT      LEFT_OUT: names of tests as JSON, "Class.test" or "Class.*"
"""

import importlib
import json
import logging
import os
import sys
import unittest
from typing import Any

os.environ.setdefault("SITE_DATABASE", ":memory:")
os.environ["DJANGO_SETTINGS_MODULE"] = "site_settings"

import django

if django.VERSION < (6, 0):  # the tests name django.tasks: let them find the backport
    import django_tasks
    import django_tasks.backends.dummy
    import django_tasks.backends.immediate
    import django_tasks.exceptions

    django_tasks.exceptions.InvalidTask = django_tasks.exceptions.InvalidTaskError
    django_tasks.exceptions.InvalidTaskBackend = django_tasks.exceptions.InvalidTaskBackendError
    django_tasks.Task = django_tasks.base.Task
    for name in ("", ".base", ".exceptions", ".backends", ".backends.base", ".backends.dummy", ".backends.immediate"):
        sys.modules[f"django.tasks{name}"] = sys.modules[f"django_tasks{name}"]

django.setup()

if django.VERSION < (6, 0):
    django_tasks.signals.logger = logging.getLogger("django.tasks")

from django.test import SimpleTestCase
from django.test.runner import DiscoverRunner

from taskharbor.django import TaskHarborBackend
from taskharbor.django.settings import read_options
from taskharbor.django.setup import discover
from taskharbor.django.stores import empty
from taskharbor.django.testing import drain

OPTIONS = {"database": "default", "defaults": {"max_attempts": 1}}


class Keeping(TaskHarborBackend):
    """In the role of DummyBackend: it stores jobs, and a test looks at them."""

    def __init__(self, alias: str, params: Any) -> None:
        super().__init__(alias, params)
        self.results: list[Any] = []  # as they are in the store; a test may look on an event loop, where we cannot

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        self.results.append(self.get_result(result.id))
        return result

    def clear(self) -> None:
        for result in self.results:
            self.harbor.job(result.id).delete()
        self.results.clear()


class Running(TaskHarborBackend):
    """In the role of ImmediateBackend: a worker has run the job when `enqueue` returns."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        drain(self.alias)
        result.refresh()
        return result


ROLES = {"dummy.DummyBackend": Keeping, "immediate.ImmediateBackend": Running}


def ours(tasks: dict[str, Any]) -> dict[str, Any]:
    """TASKS of a test with our backends in the place of Django's."""
    found = {}
    for alias, params in tasks.items():
        role = next((role for name, role in ROLES.items() if params["BACKEND"].endswith(name)), None)
        path = params["BACKEND"] if role is None else f"{role.__module__}.{role.__qualname__}"
        found[alias] = {**params, "BACKEND": path, **({} if role is None else {"OPTIONS": OPTIONS})}
    return found


def against_ours(case: type[SimpleTestCase]) -> type[SimpleTestCase]:
    """A test case of Django's that may use the database, and whose settings name our backends."""
    settings = dict(case._overridden_settings or {})
    if "TASKS" in settings:
        settings["TASKS"] = ours(settings["TASKS"])

    def set_up(self: Any) -> None:
        empty(read_options("default", {"OPTIONS": OPTIONS}))  # a SimpleTestCase cleans no database
        case.setUp(self)

    own = {"databases": {"default"}, "_overridden_settings": settings, "setUp": set_up}
    return type(case.__name__, (case,), own)


def main(folder: str, left_out: list[str]) -> int:
    discover()  # with the settings that our own tasks are written for
    sys.path.insert(0, folder)
    sys.modules["run_upstream"] = sys.modules["__main__"]
    Keeping.__module__ = Running.__module__ = "run_upstream"
    from django.test.utils import override_settings

    init = override_settings.__init__

    def with_ours(self: Any, **given: Any) -> None:  # tests change the settings inside of themselves, too
        init(self, **{**given, **({"TASKS": ours(given["TASKS"])} if "TASKS" in given else {})})

    override_settings.__init__ = with_ours
    suite = unittest.TestSuite()
    for name in ("test_tasks", "test_dummy_backend", "test_immediate_backend", "test_custom_backend"):
        module = importlib.import_module(f"tasks.{name}")
        for case in vars(module).values():
            if not (isinstance(case, type) and issubclass(case, SimpleTestCase)) or case.__module__ != module.__name__:
                continue
            for test in unittest.defaultTestLoader.getTestCaseNames(case):
                if not {f"{case.__name__}.{test}", f"{case.__name__}.*"} & set(left_out):
                    suite.addTest(against_ours(case)(test))
    runner = DiscoverRunner(verbosity=1, interactive=False)
    runner.setup_test_environment()
    databases = runner.setup_databases()
    result = runner.run_suite(suite)
    runner.teardown_databases(databases)
    print(f"{result.testsRun} tests of Django's, {len(result.failures) + len(result.errors)} failed")
    return 1 if result.failures or result.errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.loads(sys.argv[2])))

"""What the lifespan of the settings gives to handlers in a test, and what a test gives instead."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from django.test import TestCase, override_settings

from supply.resources import Supplier, opened
from supply.tasks import supplied
from taskharbor import LifespanFailed
from taskharbor.django import harbor
from taskharbor.django.testing import drain

BACKEND = "taskharbor.django.TaskHarborBackend"


@asynccontextmanager
async def fake() -> AsyncIterator[Supplier]:
    yield Supplier("fake", 0)


class Resources(TestCase):
    def name_given(self) -> str:
        result = supplied.enqueue("x")
        drain()
        result.refresh()
        found: str = result.return_value[1]
        return found

    def test_what_the_lifespan_gave(self) -> None:
        self.assertEqual(self.name_given(), "shop")

    def test_what_a_test_gives_instead(self) -> None:
        with harbor.override({opened: fake}):
            self.assertEqual(self.name_given(), "fake")
        self.assertEqual(self.name_given(), "shop")

    @override_settings(TASKS={"default": {"BACKEND": BACKEND, "OPTIONS": {"database": "default"}}})
    def test_without_a_lifespan(self) -> None:
        with self.assertRaisesRegex(LifespanFailed, "parameter 'supplier' of supply.tasks.supplied"):
            self.name_given()

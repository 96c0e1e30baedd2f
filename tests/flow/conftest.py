"""Fixtures of the flow tests: a harbor on each store, and the tasks that flows here are made of."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from taskharbor import Harbor
from taskharbor.testing import ManualClock
from tests.coroutines import pytest_pyfunc_call as pytest_pyfunc_call
from tests.flow.stores import NAMES, STORES, MakeHarbor
from tests.flow.tasks import Tasks


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logger = logging.getLogger("taskharbor")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(level)


def each_store() -> list[Any]:
    """Memory and SQLite each time; the stores behind a server in `make full`."""
    larger = pytest.mark.left_to("full")
    return [name if name in ("memory", "sqlite") else pytest.param(name, marks=larger) for name in NAMES]


@pytest.fixture(params=each_store())
def dsn(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    found = STORES[request.param](tmp_path)
    assert found is not None, f"{request.param} cannot run here"
    return found


@pytest.fixture
def harbor_on() -> Iterator[MakeHarbor]:
    """Makes a harbor that is closed at the end, however the test ends: what stays open would fail another test."""
    made: list[Harbor] = []

    def make(driver: Any, **options: Any) -> Harbor:
        made.append(Harbor(driver, **options))
        return made[-1]

    yield make
    for harbor in made:
        harbor.close()


@pytest.fixture
def harbor(dsn: str, harbor_on: MakeHarbor) -> Harbor:
    return harbor_on(dsn, clock=ManualClock())


@pytest.fixture
def tasks(harbor: Harbor) -> Any:
    return Tasks(harbor)

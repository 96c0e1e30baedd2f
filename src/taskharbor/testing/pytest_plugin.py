"""Fixtures for pytest, available as soon as TaskHarbor is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from taskharbor.testing import CrashReport, Faults, ManualClock


@pytest.fixture
def manual_clock() -> ManualClock:
    """A clock that moves only when the test moves it: pass it to a Harbor as `clock=`."""
    from taskharbor.testing import ManualClock

    return ManualClock()


@pytest.fixture
def faults() -> Faults:
    """A plan of faults: `Harbor(faults.wrap("memory://"))`."""
    from taskharbor.testing import Faults

    return Faults()


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        "crash_points(limit=200, repeats=2, process=False): options of the fixture `crash_points`, "
        "which ends a handler at every point in turn",
    )


@pytest.fixture
def crash_points(request: pytest.FixtureRequest) -> Callable[..., CrashReport]:
    """`taskharbor.testing.crash_points` with the options of the marker; the test fails if it finds something."""
    from taskharbor.testing import crash_points

    marker = request.node.get_closest_marker("crash_points")
    given = {} if marker is None else marker.kwargs

    def check(task: Any, **options: Any) -> CrashReport:
        report = crash_points(task, **{**given, **options})
        if not report:
            pytest.fail(str(report), pytrace=False)
        return report

    return check

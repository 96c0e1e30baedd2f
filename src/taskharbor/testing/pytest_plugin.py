"""Fixtures for pytest, available as soon as TaskHarbor is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from taskharbor.testing import Faults, ManualClock


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

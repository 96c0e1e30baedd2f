"""One build for all tests of a process."""

import pytest

from tests.release import distribution
from tests.release.distribution import Distribution


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Distribution:
    return distribution.build(tmp_path_factory.mktemp("built"))

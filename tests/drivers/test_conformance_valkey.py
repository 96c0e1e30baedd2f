"""The contract on Valkey 9."""

import pytest

from tests.drivers import versions
from tests.drivers.test_conformance_redis import RedisCases


@pytest.mark.lane("conformance-valkey")
@pytest.mark.left_to("matrix", except_for=versions.every_call)
class TestValkey(RedisCases):
    kind = "valkey"

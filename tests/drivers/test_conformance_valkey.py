"""The contract on Valkey 9."""

import pytest

from tests.drivers.test_conformance_redis import RedisCases


@pytest.mark.lane("conformance-valkey")
class TestValkey(RedisCases):
    kind = "valkey"

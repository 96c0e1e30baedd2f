"""What every reader says of a store that nobody arranged is what the records say, on every kind of store."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from taskharbor import Harbor
from taskharbor.conformance.environment import opened
from taskharbor.drivers import open_driver
from taskharbor.ops import operator
from taskharbor.testing import ManualClock
from tests import lanes
from tests.drivers.head_stores import PLACES
from tests.ops.readers import READERS, Reader, Seen
from tests.ops.unarranged import Unarranged


async def asked(reader: Reader, seen: Seen) -> list[str]:
    try:
        wrong = await reader(seen)
    except Exception as error:
        wrong = [f"{type(error).__name__}: {error}"]
    return [f"{reader.__name__}: {each}" for each in wrong]


@pytest.mark.timeout(3600)  # 200,000 jobs are stored and read one by one in `make full`
@pytest.mark.parametrize(
    "place", [pytest.param(each, marks=pytest.mark.lane(PLACES[each].lane)) for each in ("sqlite", "postgres", "redis")]
)
def test_every_reader_says_what_the_records_say(place: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    read_as = operator.read_as
    monkeypatch.setattr(operator, "read_as", lambda harbor, access, read, timeout: read_as(harbor, access, read, 600.0))
    monkeypatch.setattr("taskharbor.store.pages.FILL_S", 600.0)
    dsn = PLACES[place].empty(tmp_path)
    now = datetime.now(UTC).replace(microsecond=0)  # commands know no other time

    async def story() -> list[str]:
        async with opened(open_driver(dsn)) as driver:
            filled = Unarranged(driver, now, jobs=lanes.figure(test=1_200, full=200_000))
            truth = await filled.fill(Harbor(driver, clock=ManualClock(now)))
            seen = Seen(truth, filled, driver, dsn)
            return [each for reader in READERS for each in await asked(reader, seen)]

    wrong = asyncio.run(story())
    assert not wrong, "\n".join(wrong[:40])

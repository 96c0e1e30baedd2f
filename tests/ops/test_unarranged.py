"""What every reader says of a store that nobody arranged is what the records say, on every kind of store."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from taskharbor import Harbor
from taskharbor.conformance.environment import opened
from taskharbor.dashboard.routes import PAGES
from taskharbor.drivers import State, open_driver
from taskharbor.ops import operator
from taskharbor.testing import ManualClock
from tests import lanes
from tests.cli.shell import leaves
from tests.cli.test_changes_nothing import MAY_CREATE, SERVING, WITHOUT_A_STORE
from tests.drivers.head_stores import PLACES
from tests.ops.read_by_command import COMMAND_READERS
from tests.ops.read_by_harbor import HARBOR_READERS
from tests.ops.read_by_page import PAGE_READERS
from tests.ops.seen import Seen
from tests.ops.unarranged import Unarranged

CHANGING = {
    "job amend", "job cancel", "job delete", "job retry", "dlq delete", "dlq edit", "dlq operations resume",
    "dlq operations stop", "dlq requeue", "queue pause", "queue resume", "flow cancel", "flow requeue",
    "schedule delete", "schedule edit", "schedule pause", "schedule reset", "schedule resume", "schedule run",
}  # fmt: skip


async def asked(reader: Any, seen: Seen) -> list[str]:
    try:
        wrong = await reader(seen)
    except Exception as error:
        wrong = [f"{type(error).__name__}: {error}"]
    return [f"{reader.__module__.rpartition('.')[2]}.{reader.__name__}: {each}" for each in wrong]


@pytest.mark.timeout(3600)  # 200,000 jobs are stored and read one by one in `make full`
@pytest.mark.left_to("full", except_for=lanes.Chosen("memory", "sqlite", "postgres", "redis"))
@pytest.mark.parametrize("place", [pytest.param(each, marks=pytest.mark.lane(PLACES[each].lane)) for each in PLACES])
def test_every_reader_says_what_the_records_say(place: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    read_as = operator.read_as
    monkeypatch.setattr(operator, "read_as", lambda harbor, access, read, timeout: read_as(harbor, access, read, 600.0))
    monkeypatch.setattr("taskharbor.store.pages.FILL_S", 600.0)
    dsn = PLACES[place].empty(tmp_path)
    now = datetime.now(UTC).replace(microsecond=0)  # commands know no other time
    readers = [*HARBOR_READERS, *PAGE_READERS, *(COMMAND_READERS if place != "memory" else ())]

    async def story() -> tuple[list[str], Seen]:
        async with opened(open_driver(dsn)) as driver:
            store = Unarranged(driver, now, jobs=lanes.figure(test=1_200, full=200_000))
            truth = await store.fill(Harbor(driver, clock=ManualClock(now)))
            for queue in store.names():
                assert truth.counts[queue].keys() == {state.value for state in State}, queue
            seen = Seen(truth, store, driver, dsn, patience=600)
            return [each for reader in readers for each in await asked(reader, seen)], seen

    wrong, seen = asyncio.run(story())
    assert not wrong, "\n".join(wrong[:40])
    pages = {name.split()[1].partition("?")[0] for name in seen.asked if name.startswith("page ")}
    assert pages == {page.path for page in PAGES}
    commands = {each for each in leaves() if any(f"{name} ".startswith(f"taskharbor {each} ") for name in seen.asked)}
    looking = {*leaves()} - {*CHANGING, *MAY_CREATE, *SERVING, *WITHOUT_A_STORE}
    assert commands == (looking if place != "memory" else set())
    if lanes.run() == "test":
        assert not seen.unknown

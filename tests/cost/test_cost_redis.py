"""The cost of a call does not grow with the rest of the store: the backlog, jobs that are due, leased or dead, other
queues.

Each row is measured with little and with much in the store. `make test` compares commands, which no busy machine
changes; the larger runs compare the server's processor time too, and hold the bounds of docs/driver-redis.md by that of
the longest script.
"""

import asyncio
from collections.abc import Iterator

import pytest

from tests import lanes
from tests.cost.meter import SEARCHING, Row, bounds, measured, rows
from tests.servers.redis import Server

HOT = lanes.Chosen(
    *("`enqueue` of 100", "`reserve` of 10", "`reserve` of 10 and their acks", "`reserve` of 10, after leases ended"),
    *(
        "10 retries",
        "`upcoming` of 1,000 queues",
        "`prune` with nothing to prune",
        "`due_schedules` of 1,000 queues, none due",
    ),
)
"""What every job or every idle worker asks for: the others run in `make full`."""
TIMED = lanes.run() in ("full", "soak")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server("redis7")
    yield made
    made.stop()


@pytest.mark.timeout(1200)
@pytest.mark.left_to("full", except_for=HOT)
@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_a_call_costs_the_same_in_a_large_store(server: Server, row: Row) -> None:
    little = asyncio.run(measured(server, row, row.small))
    much = asyncio.run(measured(server, row, row.large))
    if row.sliced:
        little, much = [cost.of_one_script() for cost in little], [cost.of_one_script() for cost in much]
    dearest = max(much, key=lambda cost: cost.commands)
    allowed = 2 * max(cost.commands for cost in little)
    assert dearest.commands <= allowed, f"{dearest.commands} commands, allowed are {allowed}: {dearest.names}"
    most = max(cost.most for cost in much)
    assert most <= 2 * max(cost.most for cost in little), f"{most} commands in one script"
    if not row.searches:
        found = {name for cost in (*little, *much) for name in cost.names} & SEARCHING
        assert not found, f"{row.name} searches with {sorted(found)}"
    if TIMED:  # the least of several calls: a busy machine makes the others longer
        ms = {
            "little": min(cost.micros for cost in little) / 1000,
            "much": min(cost.micros for cost in much) / 1000,
            "longest": min(cost.longest for cost in much) / 1000,
        }
        print(f"{row.name}: {ms}")
        if not row.searches:
            assert ms["much"] <= 2 * ms["little"] + 1, f"processor time grows with the store: {ms}"
        assert ms["longest"] <= bounds()[row.name], f"above its bound of {bounds()[row.name]} ms: {ms}"


def test_the_table_and_the_rows_have_the_same_names() -> None:
    assert sorted(bounds()) == sorted(row.name for row in rows())

"""Records that another program damaged: no other job suffers from them."""

import sqlite3
from contextlib import closing

import pytest

from taskharbor.drivers import Ack, LeaseExpired
from tests.drivers.sqlite_files import LEASE, NOW, damage, job, opened_driver

pytestmark = pytest.mark.lane("sqlite")
driver = opened_driver


@pytest.fixture
def path(tmp_path):
    return tmp_path / "jobs.db"


@pytest.mark.parametrize("column", ["created_at", "failed_at", "finished_at", "run_at", "timeout", "time", "moment"])
@pytest.mark.parametrize("value", [2**62, -(2**62), "soon", 1.5])
async def test_a_damaged_moment_costs_no_other_job_its_lease(driver, path, column, value):
    await driver.enqueue([job("a"), job("damaged"), job("b")], NOW)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"UPDATE taskharbor_jobs SET {column} = ? WHERE id = 'damaged'", (value,))
    taken = {item.job.id: item.job.lost for item in await driver.reserve(["default"], NOW, LEASE, 5)}
    assert {"a": 0, "b": 0}.items() <= taken.items()
    assert len((await driver.list(now=NOW)).items) == 3
    await driver.inspect("damaged", NOW)
    assert await driver.delete(["damaged"]) == [None]


@pytest.mark.parametrize("value", [2**62, -(2**62), "soon", 1.5, None])
async def test_a_damaged_end_of_a_lease_costs_no_other_job_its_lease(driver, path, value):
    await driver.enqueue([job("damaged"), job("b")], NOW)
    leases = [item.lease for item in await driver.reserve(["default"], NOW, LEASE, 5)]
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE taskharbor_jobs SET moment = ? WHERE id = 'damaged'", (value,))
    connection.close()
    refused, extended = await driver.extend(leases, NOW, LEASE)
    assert (type(refused), extended) == (LeaseExpired, leases[1])
    _, settled = await driver.settle([Ack(lease) for lease in leases], NOW)
    assert settled is None


async def test_an_unknown_state_gives_its_slot_back(driver, path):
    await driver.enqueue([job("a", group="g"), job("b", group="g"), job("c", run_at=NOW + LEASE)], NOW)
    assert [item.job.id for item in await driver.reserve(["default"], NOW, LEASE, 5)] == ["a"]
    damage(str(path), "a", "state")
    damage(str(path), "c", "state")
    assert [item.job.id for item in await driver.reserve(["default"], NOW, LEASE, 5)] == ["b"]
    states = await driver.database.read(
        lambda session: session.all("SELECT id, state, reason FROM taskharbor_jobs ORDER BY id")
    )
    assert states == [
        ("a", 4, "damaged record: unknown state"),
        ("b", 2, ""),
        ("c", 4, "damaged record: unknown state"),
    ]


@pytest.mark.parametrize("column", ["metadata", "depends_on", "created_at", "rank", "run_at", "idempotency_key"])
async def test_any_field_may_be_damaged(driver, path, column):
    await driver.enqueue([job("a"), job("b")], NOW)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"UPDATE taskharbor_jobs SET {column} = x'ff' WHERE id = 'a'")
    connection.close()
    assert len((await driver.list(now=NOW)).items) == 2
    held = await driver.reserve(["default"], NOW, LEASE, 5)
    assert "b" in [item.job.id for item in held]
    await driver.inspect("a", NOW)
    assert await driver.delete(["a", "b"]) == [None, None]
    assert await driver.counts(NOW) == {}


@pytest.mark.parametrize("column", ["payload", "result", "trail", "note"])
async def test_text_is_never_taken_for_bytes(driver, path, column):
    """Not even if it could be bytes in base64."""
    await driver.enqueue([job("a", metadata={"more": "than a payload"}), job("b")], NOW)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"UPDATE taskharbor_jobs SET {column} = 'many' WHERE id = 'a'")
    assert [item.job.id for item in await driver.reserve(["default"], NOW, LEASE, 5)] == ["b"]
    info = await driver.inspect("a", NOW)
    assert (info.state, info.job.reason) == ("dlq", f"damaged record: {column} is missing or wrong")

"""Found by the state machine: what a group's grant had written was passed over twice, and so were jobs behind it."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from taskharbor.drivers import JobRecord, open_driver

pytestmark = pytest.mark.lane("sqlite")

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def test_grouped_jobs_between_do_not_make_ungrouped_ones_be_passed_over(tmp_path):
    async def main():
        driver = open_driver(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal")
        await driver.open()
        plain = [JobRecord(id=f"p{n}", type="t", queue="a") for n in range(20)]
        grouped = [JobRecord(id=f"g{n}", type="t", queue="a", group=f"g{n}") for n in range(3)]
        other = [JobRecord(id="o", type="t", queue="b")]
        await driver.enqueue([*plain, *grouped, *other], NOW)
        taken = await driver.reserve(["a", "b"], NOW, timedelta(seconds=30), 12)
        await driver.close()
        return [reserved.job.id for reserved in taken]

    order = asyncio.run(main())
    assert len(order) == 12
    assert [id for id in order if id.startswith("p")] == [f"p{n}" for n in range(8)]

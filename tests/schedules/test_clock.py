"""A clock that was ahead and is corrected, or behind: schedules go by the right time again, and no slot runs twice."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from taskharbor.ops import doctor
from taskharbor.schedules.firing import PASSED_FOR_S
from taskharbor.testing import adrain
from tests.schedules.bench import Bench

YEAR = 365 * 24 * 3600.0
DAY = 24 * 3600.0
RULES: list[dict[str, Any]] = [
    {"every": 3600},
    {"cron": "0 * * * *"},
    {"every": 3600, "catch_up": "all"},
    {"cron": "0 0 1 6 *"},
    {"cron": "0 * * * *", "end_at": "half a year"},
]


async def ahead(bench: Bench, rule: dict[str, Any], *, declared: bool = False, added_ahead: bool = False) -> None:
    """A schedule on whose store the clock was a year ahead for one look."""
    if "end_at" in rule:
        rule = {**rule, "end_at": bench.clock.now() + timedelta(days=180)}
    bench.clock.step(YEAR if added_ahead else 0)
    if declared:
        bench.harbor.schedule("ping", bench.ping.s(), overlap="allow", **rule)
        await bench.declare()
    else:
        await bench.harbor.schedules.aadd("ping", bench.ping.s(), overlap="allow", **rule)
    bench.clock.step(0 if added_ahead else YEAR)
    await bench.fire()
    bench.clock.step(-YEAR)


async def per_hour(bench: Bench, hours: int = 5) -> list[int]:
    """How many jobs each of some hours brings."""
    return [await bench.fired_after(3600) for _ in range(hours)]


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("added_ahead", [True, False])
@pytest.mark.parametrize("rule", RULES[:3])
async def test_a_worker_notices_by_itself(bench: Bench, rule: dict[str, Any], added_ahead: bool, declared: bool):
    await ahead(bench, rule, declared=declared, added_ahead=added_ahead)
    await bench.fire()
    assert await per_hour(bench) == [1] * 5


async def test_a_worker_that_runs_notices_within_a_minute(bench: Bench):
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), cron="* * * * *", overlap="allow")
    runner, fired = bench.runner(), 0
    await runner.fire_due()
    bench.clock.step(YEAR)
    await runner.fire_due()
    bench.clock.step(-YEAR)
    for _ in range(20):
        bench.clock.advance(PASSED_FOR_S / 4)
        fired += (await runner.fire_due()).fired
    assert fired == 5  # one a minute, none of them missed


async def test_a_yearly_one_comes_this_year(bench: Bench):
    await ahead(bench, RULES[3], added_ahead=True)
    await bench.fire()
    next_at = (await bench.row("ping")).next_at
    assert next_at is not None
    assert next_at < bench.clock.now() + timedelta(seconds=YEAR)


async def test_drain_notices_too(bench: Bench):
    await ahead(bench, RULES[0], declared=True)
    await adrain(bench.harbor)
    bench.clock.advance(3600)
    assert await adrain(bench.harbor) == 1


async def test_only_those_that_it_may_fire(bench: Bench):
    await ahead(bench, RULES[0])
    before = await bench.row("ping")
    await bench.fire(queues=["elsewhere"])
    assert await bench.row("ping") == before


async def test_a_paused_one_stays_as_it_is(bench: Bench):
    await ahead(bench, RULES[0])
    await bench.harbor.schedules.apause("ping")
    before = await bench.row("ping")
    await bench.fire()
    assert await bench.row("ping") == before


def jitter(bench: Bench) -> Awaitable[Any]:
    return bench.harbor.schedules.aedit("ping", jitter=1)


def slots(bench: Bench) -> Awaitable[Any]:
    return bench.harbor.schedules.aedit("ping", cron="30 * * * *")


def resume(bench: Bench) -> Awaitable[Any]:
    return bench.harbor.schedules.aresume("ping")


def reset(bench: Bench) -> Awaitable[Any]:
    return bench.harbor.schedules.areset("ping")


@pytest.mark.parametrize("rule", [RULES[0], RULES[1], RULES[2], RULES[4]])
@pytest.mark.parametrize("act", [jitter, slots, resume, reset])
@pytest.mark.parametrize("paused", [False, True])
async def test_a_person_begins_it_anew(
    bench: Bench, act: Callable[[Bench], Awaitable[Any]], rule: dict[str, Any], paused: bool
):
    """Also by a call that changes nothing else, and of one that a worker does not see."""
    await ahead(bench, rule)
    if paused:
        await bench.harbor.schedules.apause("ping")
    await act(bench)
    if paused and act is not resume:
        await resume(bench)
    row = await bench.row("ping")
    assert row.next_at is not None
    assert row.next_at <= bench.clock.now() + timedelta(hours=1)
    assert await per_hour(bench) == [1] * 5


async def test_slots_that_got_a_job_get_no_other(bench: Bench):
    """A clock that was three hours ahead for an hour: the jobs of that hour exist when their time comes."""
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=3600, overlap="allow")
    bench.clock.step(3 * 3600)
    await per_hour(bench, 1)
    bench.clock.step(-3 * 3600)
    await bench.fire()  # notices it
    await bench.fire()  # and finds the slot of this moment due
    await per_hour(bench, 6)
    assert await bench.slots() == [3600 * hour for hour in range(1, 8)]


@pytest.mark.parametrize("catch_up", ["latest", "all"])
async def test_a_clock_that_was_behind_brings_nothing_back(bench: Bench, catch_up: Any):
    """Even if no record is left of the jobs; and slots that came meanwhile are not lost."""
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=3600, overlap="allow", catch_up=catch_up)
    await per_hour(bench, 48)
    for job in await bench.jobs():
        await bench.harbor.job(job.job.id).acancel()
    await bench.driver.prune(bench.clock.now() + timedelta(days=9), 100)
    bench.clock.step(-YEAR)
    await bench.fire()
    bench.clock.advance(10)
    await bench.fire()
    bench.clock.step(YEAR - DAY)  # not yet right
    assert (await bench.fire()).fired == 1
    bench.clock.step(DAY)
    assert await bench.fired_after(0) == 0
    assert await per_hour(bench) == [1] * 5


async def test_a_small_step_leaves_all_as_it_is(bench: Bench):
    """Workers' clocks differ: none may begin anew what the other has done."""
    await bench.harbor.schedules.aadd("ping", bench.ping.s(), every=1, overlap="allow")
    await bench.fired_after(59)
    before = await bench.row("ping")
    bench.clock.step(-59)
    await bench.fire()
    assert await bench.row("ping") == before


async def test_doctor_reports_it(bench: Bench):
    await ahead(bench, RULES[0])
    (check,) = await doctor.check_schedules(bench.driver, None, "", bench.clock.now())
    assert check.status == "warning"
    assert "far ahead of the store's clock, which was wrong: ping;" in check.text
    await bench.harbor.schedules.aresume("ping")
    (check,) = await doctor.check_schedules(bench.driver, None, "", bench.clock.now())
    assert check.text == "1 schedule, none overdue"

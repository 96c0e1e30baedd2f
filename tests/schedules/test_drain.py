"""drain fires what is due by the manual clock: declared and added schedules, as workers in production do."""

import pytest

from taskharbor import FeatureMissing, Harbor, JobContext
from taskharbor.testing import ManualClock, adrain, drain
from tests.drivers.small_driver import SmallDriver
from tests.schedules.bench import Bench


def test_an_hour_in_a_test():
    clock = ManualClock()
    harbor = Harbor("memory://", clock=clock)
    ran: list[float] = []

    @harbor.task(name="report")
    def report(ctx: JobContext) -> None:
        assert ctx.slot is not None
        ran.append((ctx.slot - ctx.slot.replace(hour=0, minute=0)).total_seconds())

    harbor.schedule("half-hourly", report.s(), cron="*/30 * * * *")
    assert drain(harbor) == 0  # declared: from here on it has slots
    for _ in range(4):
        clock.advance(30 * 60)
        assert drain(harbor) == 1
        assert drain(harbor) == 0
    assert ran == [1800, 3600, 5400, 7200]
    clock.advance(3600 * 5)  # as if no worker had run for five hours
    assert drain(harbor) == 1
    info = harbor.schedules.get("half-hourly")
    assert (info.fired, info.missed) == (5, 9)


@pytest.mark.parametrize(("catch_up", "runs"), [("latest", 1), ("all", 5), ("none", 1)])
def test_late_slots_are_caught_up_as_in_production(bench: Bench, catch_up: str, runs: int):
    options: dict[str, str] = {"catch_up": catch_up}
    bench.harbor.schedule("ping", bench.ping.s(), every=60, **options)  # type: ignore[arg-type]  # one of three texts
    drain(bench.harbor)
    bench.clock.advance(300)
    assert drain(bench.harbor) == runs


async def test_added_ones_of_any_queue_are_fired(bench: Bench):
    await bench.harbor.schedules.aadd("sum", bench.add.s(a=1), every=60)
    bench.clock.advance(60)
    assert await adrain(bench.harbor) == 1


async def test_what_other_code_declares_is_left_to_it():
    bench, other = Bench(), Bench()
    other.harbor.schedule("ping", other.ping.s(), every=60)
    await bench.declare(other.harbor)
    bench.clock.advance(60)
    assert await adrain(bench.harbor) == 0


def test_jobs_with_jitter_wait_for_their_moment(bench: Bench):
    bench.harbor.schedule("ping", bench.ping.s(), every=60, jitter=30)
    drain(bench.harbor)
    bench.clock.advance(60)
    early = drain(bench.harbor)
    bench.clock.advance(30)
    assert early + drain(bench.harbor) == 1


def test_a_driver_without_schedules():
    bench = Bench(SmallDriver())
    bench.ping.enqueue()
    assert drain(bench.harbor) == 1
    bench.harbor.schedule("ping", bench.ping.s(), every=60)
    with pytest.raises(FeatureMissing):
        drain(bench.harbor)

"""A nightly report on a schedule: one job for each night, also for the night in which no worker ran.

Time is moved by hand here. The clocks of Zurich go forward in the second night: 02:30 does not exist, and the report
comes at 03:00.
"""

import logging
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from taskharbor import Harbor, JobContext
from taskharbor.testing import ManualClock, drain

ZURICH = ZoneInfo("Europe/Zurich")
clock = ManualClock(datetime(2026, 3, 27, 12, tzinfo=UTC))
harbor = Harbor("memory://", clock=clock)


@harbor.task(queue="reports")
def report(ctx: JobContext, region: str) -> None:
    assert ctx.slot is not None  # the moment this run stands for, however late it runs
    print(f"  report for {region}, {ctx.slot.astimezone(ZURICH):%a %d %b %H:%M}")


harbor.schedule("nightly", report.s(region="eu"), cron="30 2 * * *", tz="Europe/Zurich", catch_up="all")


def main() -> None:
    logging.getLogger("taskharbor").setLevel(logging.CRITICAL)  # the output below is the story
    drain(harbor)  # a worker starts and stores the schedule
    print("the next nights:", ", ".join(f"{slot:%d %b %H:%M} UTC" for slot in harbor.schedules.preview("nightly", 3)))
    print("Saturday morning:")
    clock.advance(20 * 3600)
    drain(harbor)
    print("Monday morning, after a weekend without workers:")
    clock.advance(48 * 3600)
    drain(harbor)
    harbor.schedules.edit("nightly", cron="0 6 * * MON-FRI", by="ada")
    info = harbor.schedules.get("nightly")
    print(
        f"edited without a deployment: {info.cron}, next {info.next_at:%a %d %b %H:%M} UTC, {info.fired} reports so far"
    )
    harbor.close()


if __name__ == "__main__":
    main()

"""Schedules: declared, and changed at run time."""

from datetime import UTC, date, datetime, timedelta
from typing import Any, assert_type

from taskharbor import Harbor, JobContext, JobHandle, JobRequest, ScheduleInfo, Schedules, Worker
from taskharbor.flow import chain, group

harbor = Harbor("memory://")


@harbor.task
def report(ctx: JobContext, region: str = "eu") -> int:
    assert_type(ctx.slot, datetime | None)
    return len(region)


@harbor.task
async def total(numbers: list[int]) -> int:
    return sum(numbers)


harbor.schedule("nightly", report.s(region="eu"), cron="30 2 * * *", tz="Europe/Zurich")
harbor.schedule("often", report.s(), every=15, jitter=3, overlap="allow")
harbor.schedule("span", report.s(), every=timedelta(minutes=5), catch_up="all", end_at=date(2027, 1, 1))
harbor.schedule("from", report.s(), every=15, start_at=datetime.now(UTC), catch_up="none", overlap="skip")
harbor.schedule("chain", chain(report.s(), report.s()), every=15)
harbor.schedule("group", group(report.s(), report.s()), every=15)
assert_type(harbor.declared_schedules, tuple[str, ...])
assert_type(harbor.worker(schedules=False), Worker)

schedules = assert_type(harbor.schedules, Schedules)
info = assert_type(schedules.add("sync", report.s(), every=3600, by="ada"), ScheduleInfo)
schedules.add("flow", chain(report.s(), report.s()), cron="@daily")
schedules.add("job", JobRequest(type="email:send"), cron="@daily")
assert_type(schedules.get("sync"), ScheduleInfo)
assert_type(schedules.edit("sync", cron="0 4 * * *", tz="UTC", end_at=None, by="ada"), ScheduleInfo)
assert_type(schedules.pause("sync"), ScheduleInfo)
assert_type(schedules.resume("sync"), ScheduleInfo)
assert_type(schedules.reset("sync"), ScheduleInfo)
assert_type(schedules.delete("sync"), ScheduleInfo)
assert_type(schedules.run("sync"), JobHandle[Any])
assert_type(schedules.preview("sync", 5), list[datetime])
for each in schedules.list(queue="reports"):
    assert_type(each, ScheduleInfo)
assert_type(info.every, timedelta | None)
assert_type(info.next_at, datetime | None)
assert_type(info.last_id, str | None)


async def awaited() -> None:
    assert_type(await schedules.aadd("sync", report.s(), every=3600), ScheduleInfo)
    assert_type(await schedules.aget("sync"), ScheduleInfo)
    assert_type(await schedules.aedit("sync", every=5, overlap="allow"), ScheduleInfo)
    assert_type(await schedules.apause("sync"), ScheduleInfo)
    assert_type(await schedules.aresume("sync"), ScheduleInfo)
    assert_type(await schedules.areset("sync"), ScheduleInfo)
    assert_type(await schedules.adelete("sync"), ScheduleInfo)
    assert_type(await schedules.arun("sync"), JobHandle[Any])
    assert_type(await schedules.apreview("sync"), list[datetime])
    async for each in schedules.list():
        assert_type(each, ScheduleInfo)


harbor.schedule("task", report, every=15)  # E: arg-type
harbor.schedule("type", "report", every=15)  # E: arg-type
harbor.schedule("positional", report.s(), "30 2 * * *")  # E: call-arg
harbor.schedule("every", report.s(), every="15")  # E: arg-type
harbor.schedule("catch_up", report.s(), every=15, catch_up="some")  # E: arg-type
harbor.schedule("overlap", report.s(), every=15, overlap=True)  # E: arg-type
harbor.schedule("zone", report.s(), every=15, zone="UTC")  # E: call-arg
schedules.add("sync", every=15)  # E: call-arg
schedules.add("sync", report.s(), evry=15)  # E: call-arg
schedules.edit("sync", every="15")  # E: arg-type
schedules.edit("sync", step=report.s())  # E: call-arg
schedules.edit("sync", catch_up="some")  # E: arg-type
schedules.preview("sync", "5")  # E: arg-type
schedules.run()  # E: call-arg
text: str = schedules.get("sync").next_at  # E: assignment
Worker("memory://", schedules="no")  # E: arg-type

"""About: the store, the driver, what the checks of `taskharbor doctor` say."""

from __future__ import annotations

from taskharbor.dashboard.pages.content import PageContent, PageQuery
from taskharbor.ops import doctor
from taskharbor.ops.operator import StoreReading

MAX_QUEUES = 50  # that are looked at
MAX_SCHEDULES = 500


async def about(reading: StoreReading, query: PageQuery) -> PageContent:
    """What this dashboard looks at."""
    driver, now = reading.driver, reading.now
    checks = [
        doctor.check_version(),
        *await doctor.check_clock(driver),
        *await doctor.check_queues(driver, now, MAX_QUEUES),
        *await doctor.check_types(driver, reading.declared, "this application", now),
        *await doctor.check_schedules(driver, None, "", now, MAX_SCHEDULES),
        *await doctor.check_reports(driver),
    ]
    data = {
        "ok": all(check.status != "problem" for check in checks),
        "checks": [{"check": check.name, "status": check.status, "text": check.text} for check in checks],
    }
    view = {
        "checks": checks,
        "place": reading.place,
        "driver": type(driver).__name__,
        "lacks": sorted(driver.lacks()),
        "types": None if reading.declared is None else sorted(reading.declared),
    }
    return PageContent("about.html", "About", data, view)

"""About: the store, the driver, what the checks of `taskharbor doctor` say."""

from __future__ import annotations

from taskharbor.dashboard.pages.shown import Asked, Shown
from taskharbor.ops import doctor
from taskharbor.ops.room import Sight

MAX_QUEUES = 50  # that are looked at
MAX_SCHEDULES = 500


async def about(sight: Sight, asked: Asked) -> Shown:
    """What this dashboard looks at."""
    driver, now = sight.driver, sight.now
    checks = [
        doctor.versions(),
        *await doctor.pace(driver),
        *await doctor.life(driver, now, MAX_QUEUES),
        *await doctor.strangers(driver, sight.declared, "this application", now),
        *await doctor.schedules(driver, None, "", now, MAX_SCHEDULES),
        *await doctor.damage(driver),
    ]
    data = {
        "ok": all(check.status != "problem" for check in checks),
        "checks": [{"check": check.name, "status": check.status, "text": check.text} for check in checks],
    }
    view = {
        "checks": checks,
        "place": sight.place,
        "driver": type(driver).__name__,
        "lacks": sorted(driver.lacks()),
        "types": None if sight.declared is None else sorted(sight.declared),
    }
    return Shown("about.html", "About", data, view)

"""Checks of an opened store, each with a status and one sentence. They change nothing and show no secrets."""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from taskharbor.drivers.base import Driver
from taskharbor.model.errors import TaskHarborError
from taskharbor.ops.overview import read_overview
from taskharbor.store.diagnose import named
from taskharbor.store.pages import read_items
from taskharbor.store.situation import SINCE_EVER, undeclared_types
from taskharbor.store.text import one_line, plural, safe_text

MAX_CLOCK_SKEW_S = 1.0
SLOW_REPLY_S = 0.1
MAX_SCHEDULES = 10_000  # that are looked at
PAGE_SCHEDULES = 1_000


@dataclass(frozen=True)
class Check:
    """The result of one check. `status`: ok, warning or problem."""

    name: str
    status: str
    text: str


def check_version() -> Check:
    """This package and this Python."""
    import taskharbor

    return Check("version", "ok", f"taskharbor {taskharbor.__version__}, Python {platform.python_version()}")


async def check_reports(driver: Driver) -> list[Check]:
    """What other programs did to the store, and what keeps it from working well, if the driver can tell."""
    checks = []
    for name, verb in (("damage", "damaged"), ("store", "hindered")):
        if (read := getattr(driver, verb, None)) is not None:
            checks += [Check(name, "warning", safe_text(text)) for text in await read()]
    return checks


async def check_permissions(driver: Driver) -> list[Check]:
    """Whether the database user has the permissions that the driver needs, if the driver can check."""
    denied = getattr(driver, "denied", None)
    if denied is None:
        return []
    try:
        lacking = await denied()
    except (TaskHarborError, OSError):
        return []  # already reported by the checks before
    if not lacking:
        return [Check("rights", "ok", "the user has the permissions that the driver needs")]
    return [Check("rights", "problem", safe_text(text)) for text in lacking]


async def check_clock(driver: Driver) -> list[Check]:
    """The difference between the store's clock and this machine's, and the time of one call."""
    began = time.monotonic()
    theirs = await driver.server_time()
    took = time.monotonic() - began
    apart = (theirs - datetime.now(UTC)).total_seconds() + took / 2
    if abs(apart) > MAX_CLOCK_SKEW_S:
        which = "ahead of" if apart > 0 else "behind"
        text = f"the store's clock, which jobs follow, is {abs(apart):.1f} s {which} this machine's: correct this one"
        clock = Check("clock", "warning", text)
    else:
        clock = Check("clock", "ok", f"the store and this machine agree within {MAX_CLOCK_SKEW_S:g} s")
    began = time.monotonic()
    await driver.is_paused("default")  # server_time() may not reach the store at all
    took = time.monotonic() - began
    status = "warning" if took > SLOW_REPLY_S else "ok"
    return [clock, Check("answer", status, f"the store replies in {took * 1000:.1f} ms")]


async def check_types(driver: Driver, tasks: frozenset[str] | None, app: str, now: datetime) -> list[Check]:
    """With the tasks of an app: waiting jobs that no worker of the app can run."""
    unknown = named(await undeclared_types(driver, tasks, now))
    text = f"jobs wait whose types {app} does not declare: {unknown}; is their module imported? (--import MODULE)"
    return [Check("tasks", "warning", text)] if unknown else []


async def check_schedules(
    driver: Driver, declared: frozenset[str] | None, app: str, now: datetime, most: int = MAX_SCHEDULES
) -> list[Check]:
    """Schedules that no worker fires, or that this program cannot read, of the first `most` by name. `declared`: the
    schedules of an app."""
    from taskharbor.ops.schedule_view import OVERDUE, UNREADABLE, status_of
    from taskharbor.schedules.body import read_body
    from taskharbor.schedules.plan import is_ahead
    from taskharbor.store.schedules import info_of

    rows, _ = await read_items(driver.schedules, page=PAGE_SCHEDULES, most=most + 1)
    found, has_more = [info_of(row) for row in rows[:most]], len(rows) > most
    late = [info.name for info in found if status_of(info, now) == OVERDUE]
    unreadable = [info.name for info in found if status_of(info, now) == UNREADABLE]
    read = [row for row, info in zip(rows, found, strict=False) if not info.problem and not info.deleted]
    ahead = [row.name for row in read if is_ahead(read_body(row.body), now)]
    ours = [info.name for info in found if info.declared and not info.deleted]
    gone = [name for name in ours if declared is not None and name not in declared]
    checks = []
    first = f"of the first {len(found)}: " if has_more else ""
    if gone:
        text = f"{app} does not declare {named(gone)} (any more); delete what is obsolete: taskharbor schedule delete"
        checks.append(Check("schedules", "warning", first + text))
    if late:
        text = f"{first}overdue: {named(late)}; no worker fires them: taskharbor schedule list tells why"
        checks.append(Check("schedules", "warning", text))
    if ahead:
        text = f"{first}far ahead of the store's clock, which was wrong: {named(ahead)}; a worker that fires them "
        text += "begins them anew within minutes, else: taskharbor schedule resume NAME"
        checks.append(Check("schedules", "warning", text))
    if unreadable:
        checks.append(Check("schedules", "problem", f"{first}this program cannot read {named(unreadable)}"))
    if found and not checks:
        text = f"{plural(len(found), 'schedule')}, none overdue"
        if has_more:
            text = f"more than {len(found)} schedules, none of the first {len(found)} overdue"
        checks.append(Check("schedules", "ok", text))
    return checks


async def check_queues(driver: Driver, now: datetime, most: int | None = None) -> list[Check]:
    """Queues and workers that need attention. `most`: of the first queues by name alone."""
    found, checks = await read_overview(driver, now, most), []
    dead = sum(row["jobs"]["dlq"] for row in found.queues)
    paused = [one_line(row["queue"]) for row in found.queues if row["paused"]]
    idle = [one_line(row["queue"]) for row in found.queues if row["jobs"]["ready"] and not row["workers"]]
    number = len(found.workers)
    first = "of the first " if found.more else ""
    more = " or more" if found.more or any(row["jobs"]["dlq"] >= found.cap for row in found.queues) else ""
    if number:
        checks.append(Check("workers", "ok", f"{number} sent a heartbeat in the last minute"))
    else:
        ever = await driver.workers(SINCE_EVER)
        when = "no heartbeat in the last minute" if ever else "no worker ever used this store"
        checks.append(Check("workers", "warning", f"{when}; start one: taskharbor worker run"))
    if idle and number:
        checks.append(Check("queues", "warning", f"no worker serves {named(idle)}, where jobs are ready"))
    if paused:
        checks.append(Check("queues", "warning", f"paused: {named(paused)}"))
    if dead:
        text = f"{plural(dead, 'dead job')}{more}; list them: taskharbor dlq list"
        checks.append(Check("queues", "warning", text))
    if not (idle and number) and not paused and not dead:
        checks.append(Check("queues", "ok", f"{first}{len(found.queues)}, none paused, no dead jobs"))
    return checks

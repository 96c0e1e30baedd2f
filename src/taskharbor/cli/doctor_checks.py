"""The checks of `taskharbor doctor`, each with a status and one sentence. They change nothing and print no secrets.

A driver's own start-up checks are included: what it warns about when it is opened, and what it refuses.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from taskharbor.cli.errors import CommandError, safe_text
from taskharbor.cli.explain import MAX_NAMED, PAGE_JOBS, SINCE_EVER
from taskharbor.cli.overview import Overview, read_overview
from taskharbor.cli.store import is_absent, missing
from taskharbor.cli.target import ENVIRONMENT, Target, family
from taskharbor.cli.text import one_line
from taskharbor.drivers.contract import Driver, open_existing
from taskharbor.drivers.dsn import redact
from taskharbor.model.errors import StoreMissing, TaskHarborError
from taskharbor.model.job import State
from taskharbor.tasks.flow_metadata import JOIN_TYPE

LIBRARIES = {"postgres": "psycopg", "redis": "redis"}
MAX_CLOCK_SKEW_S = 1.0
SLOW_REPLY_S = 0.1


@dataclass(frozen=True)
class Check:
    """The result of one check. `status`: ok, warning or problem."""

    name: str
    status: str
    text: str


def run_checks(target: Target) -> list[Check]:
    """Run every check, until one fails that the others depend on."""
    checks = [_versions()]
    try:
        if target.harbor is not None:
            number = len(target.harbor.tasks)
            text = f"{target.app} declares {number} task{'s' if number != 1 else ''}"
            if number:
                checks.append(Check("app", "ok", text))
            else:
                text = f"{text}: its workers can run nothing; are the modules that declare tasks imported?"
                checks.append(Check("app", "warning", text))
        checks += [_address(target), *_library(target)]
        if target.in_memory:
            text = "memory:// lives inside one process: jobs that another process enqueues are not visible here"
            return [*checks, Check("store", "warning", text)]
        driver = target.driver()
    except CommandError as refusal:
        return [*checks, Check("store", "problem", safe_text(refusal.message))]
    return [*checks, *asyncio.run(_store(driver, target))]


def _versions() -> Check:
    import taskharbor

    return Check("version", "ok", f"taskharbor {taskharbor.__version__}, Python {platform.python_version()}")


def _address(target: Target) -> Check:
    dsn = target.dsn
    if dsn is None:
        return Check("dsn", "ok", f"{target.app} passes a driver object to its Harbor")
    if target.given is None:
        source = f"from {target.app}" if target.app else "the default: neither --dsn nor the environment names one"
    else:
        source = f"from ${ENVIRONMENT}" if os.environ.get(ENVIRONMENT) == target.given else "from --dsn"
    return Check("dsn", "ok", f"{one_line(redact(dsn))} ({source})")


def _library(target: Target) -> Iterator[Check]:
    from importlib.metadata import PackageNotFoundError, version

    kind = "" if target.dsn is None else family(target.dsn)
    if kind == "sqlite":
        import sqlite3

        yield Check("library", "ok", f"SQLite {sqlite3.sqlite_version}")
    elif kind in LIBRARIES:
        name = LIBRARIES[kind]
        try:
            yield Check("library", "ok", f"{name} {version(name)}")
        except PackageNotFoundError:
            yield Check("library", "problem", f"{name} is not installed: pip install 'taskharbor[{kind}]'")


async def _store(driver: Driver, target: Target) -> list[Check]:
    checks: list[Check] = []
    with _warnings() as warnings:
        try:
            await open_existing(driver)
            checks.append(Check("store", "ok", "reachable and usable"))
            checks += await _pace(driver)
            now = await driver.server_time()
            checks += _life(await read_overview(driver, now), bool(await driver.workers(SINCE_EVER)))
            checks += await _strangers(driver, target, now)
            checks += await _damage(driver)
        except StoreMissing as error:
            text = (
                missing(driver, target, str(error)) if is_absent(driver) else "no schema yet; run: taskharbor migrate"
            )
            checks.append(Check("store", "problem", safe_text(text)))
        except (TaskHarborError, OSError) as error:
            checks.append(Check("store", "problem", safe_text(str(error))))
        finally:
            await driver.close()
        checks += await _rights(driver)
    checks[1:1] = [Check("store", "warning", safe_text(text)) for text in warnings]
    return checks


async def _damage(driver: Driver) -> list[Check]:
    """Damage that other programs did to the store, if the driver records it."""
    damaged = getattr(driver, "damaged", None)
    return [] if damaged is None else [Check("damage", "warning", safe_text(text)) for text in await damaged()]


async def _rights(driver: Driver) -> list[Check]:
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


async def _pace(driver: Driver) -> list[Check]:
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


async def _strangers(driver: Driver, target: Target, now: datetime) -> list[Check]:
    """With --app: waiting jobs that no worker of the app can run."""
    if target.harbor is None:
        return []
    types: set[str] = set()
    for state in (State.READY, State.SCHEDULED):
        page = await driver.list(state=state, limit=PAGE_JOBS, now=now)
        types.update(info.job.type for info in page.items)
    unknown = sorted(types - set(target.harbor.tasks) - {JOIN_TYPE})
    if not unknown:
        return []
    names = ", ".join(map(one_line, unknown[:MAX_NAMED])) + (
        f" and {len(unknown) - MAX_NAMED} more" if unknown[MAX_NAMED:] else ""
    )
    text = f"jobs wait whose types {target.app} does not declare: {names}; is their module imported? (--import MODULE)"
    return [Check("tasks", "warning", text)]


def _life(found: Overview, is_known: bool) -> list[Check]:
    """Queues that need attention. `is_known`: the store has a record of some worker, however old."""
    checks = []
    dead = sum(row["jobs"]["dlq"] for row in found.queues)
    paused = [one_line(row["queue"]) for row in found.queues if row["paused"]]
    idle = [one_line(row["queue"]) for row in found.queues if row["jobs"]["ready"] and not row["workers"]]
    number = len(found.workers)
    if number:
        checks.append(Check("workers", "ok", f"{number} sent a heartbeat in the last minute"))
    else:
        when = "no heartbeat in the last minute" if is_known else "no worker ever used this store"
        checks.append(Check("workers", "warning", f"{when}; start one: taskharbor worker run"))
    if idle and number:
        checks.append(Check("queues", "warning", f"no worker serves {', '.join(idle)}, where jobs are ready"))
    if paused:
        checks.append(Check("queues", "warning", f"paused: {', '.join(paused)}"))
    if dead:
        checks.append(
            Check("queues", "warning", f"{dead} dead job{'s' if dead != 1 else ''}; list them: taskharbor dlq list")
        )
    if not (idle and number) and not paused and not dead:
        checks.append(Check("queues", "ok", f"{len(found.queues)}, none paused, no dead jobs"))
    return checks


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """Collect what this library logs as a warning meanwhile."""
    warnings: list[str] = []

    class WarningCollector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            warnings.append(record.getMessage())

    collector = WarningCollector(logging.WARNING)
    log = logging.getLogger("taskharbor")
    log.addHandler(collector)
    try:
        yield warnings
    finally:
        log.removeHandler(collector)

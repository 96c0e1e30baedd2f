"""`taskharbor doctor`: check a store and everything needed to use it.

Each check has a status and one sentence. They change nothing and print no secrets. A driver's own start-up checks are
included: what it warns about when it is opened, and what it refuses.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from taskharbor.cli.errors import EXIT_REFUSED, CommandError
from taskharbor.cli.output import in_colour, write_hanging, write_json
from taskharbor.cli.store import is_absent, missing
from taskharbor.cli.target import ENVIRONMENT, Target, family, importing, shared
from taskharbor.drivers.base import Driver
from taskharbor.model.errors import StoreMissing, TaskHarborError
from taskharbor.ops import doctor as ops_doctor
from taskharbor.ops.doctor import Check
from taskharbor.store.text import plural, safe_text

LIBRARIES = {"postgres": "psycopg", "redis": "redis"}


@click.command()
@shared
@importing
def doctor(target: Target) -> None:
    """Check a store and everything needed to use it: versions, address, schema, clock, queues and workers.

    Changes nothing. Exit 1 if there is a problem; warnings do not count.

    \b
    Examples:
      taskharbor doctor --dsn postgresql://localhost/app
      taskharbor doctor --app tasks:harbor

    JSON: {"ok", "checks": [{"check", "status", "text"}]}. status: ok, warning or problem.
    """
    checks = run_checks(target)
    ok = all(check.status != "problem" for check in checks)
    if target.json:
        rows = [{"check": check.name, "status": check.status, "text": check.text} for check in checks]
        write_json({"ok": ok, "checks": rows})
    else:
        for check in checks:
            mark = in_colour(f"{check.status:<7}", check.status)
            write_hanging(f"{mark}  {check.name:<8}  ", check.text)
    if not ok:
        sys.exit(EXIT_REFUSED)


def run_checks(target: Target) -> list[Check]:
    """Run every check, until one fails that the others depend on."""
    checks = [ops_doctor.check_version()]
    target.notes_unused = False  # it is among the checks
    try:
        if target.harbor is not None:
            number = len(target.harbor.tasks)
            text = f"{target.app} declares {plural(number, 'task')}"
            if number:
                checks.append(Check("app", "ok", text))
            else:
                text = f"{text}: its workers can run nothing; are the modules that declare tasks imported?"
                checks.append(Check("app", "warning", text))
        checks += [*_addresses(target), *_library(target)]
        if target.in_memory:
            text = "memory:// lives inside one process: jobs that another process enqueues are not visible here"
            return [*checks, Check("store", "warning", text)]
        driver = target.driver()
    except CommandError as refusal:
        return [*checks, Check("store", "problem", safe_text(refusal.message))]
    return [*checks, *asyncio.run(_store(driver, target))]


def _addresses(target: Target) -> Iterator[Check]:
    """The store that is used, and those that are named elsewhere."""
    if target.dsn is None:
        yield Check("dsn", "ok", f"{target.app} passes a driver object to its Harbor")
    else:
        source = "the default: neither --dsn nor the environment names one"
        if target.typed is not None:
            source = "from --dsn"
        elif target.in_code is not None:
            source = f"from {target.app}"
        elif os.environ.get(ENVIRONMENT):
            source = f"from ${ENVIRONMENT}"
        yield Check("dsn", "ok", f"{target.place} ({source})")
    for who, place in target.unused().items():
        yield Check("dsn", "warning", f"{who} names another store, which is not used here: {place}")


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
    tasks = None if target.harbor is None else frozenset(target.harbor.tasks)
    schedules = None if target.harbor is None else frozenset(target.harbor.declared_schedules)
    with _warnings() as warnings:
        try:
            await driver.open_existing()
            checks.append(Check("store", "ok", "reachable and usable"))
            checks += await ops_doctor.check_clock(driver)
            now = await driver.server_time()
            checks += await ops_doctor.check_queues(driver, now)
            checks += await ops_doctor.check_types(driver, tasks, target.app or "", now)
            checks += await ops_doctor.check_schedules(driver, schedules, target.app or "", now)
            checks += await ops_doctor.check_reports(driver)
        except StoreMissing as error:
            text = (
                missing(driver, target, str(error)) if is_absent(driver) else "no schema yet; run: taskharbor migrate"
            )
            checks.append(Check("store", "problem", safe_text(text)))
        except (TaskHarborError, OSError) as error:
            checks.append(Check("store", "problem", safe_text(str(error))))
        finally:
            await driver.close()
        checks += await ops_doctor.check_permissions(driver)
    checks[1:1] = [Check("store", "warning", safe_text(text)) for text in warnings]
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

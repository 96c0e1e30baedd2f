"""`taskharbor doctor`: check a store and everything needed to use it."""

from __future__ import annotations

import sys

import click

from taskharbor.cli.doctor_checks import run_checks
from taskharbor.cli.errors import EXIT_REFUSED
from taskharbor.cli.output import write_hanging, write_json
from taskharbor.cli.table import in_colour
from taskharbor.cli.target import Target, importing, shared


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

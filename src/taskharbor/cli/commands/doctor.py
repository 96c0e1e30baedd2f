"""`taskharbor doctor`: is everything in place?"""

from __future__ import annotations

import sys

import click

from taskharbor.cli.doctor_checks import run_checks
from taskharbor.cli.errors import EXIT_REFUSED
from taskharbor.cli.output import write_hanging, write_json
from taskharbor.cli.target import Target, importing, shared


@click.command()
@shared
@importing
def doctor(target: Target) -> None:
    """Check a store and what is needed to use it: versions, the address, the schema, the clock, queues and workers.

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
        told = [{"check": check.name, "status": check.status, "text": check.text} for check in checks]
        write_json({"ok": ok, "checks": told})
    else:
        for check in checks:
            mark = click.style(f"{check.status:<7}", fg={"ok": "green", "warning": "yellow"}.get(check.status, "red"))
            write_hanging(f"{mark}  {check.name:<8}  ", check.text)
    if not ok:
        sys.exit(EXIT_REFUSED)

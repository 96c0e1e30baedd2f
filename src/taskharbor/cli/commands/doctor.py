"""`taskharbor doctor`: is everything in place?"""

from __future__ import annotations

import sys

import click

from taskharbor.cli.checkup import checkup
from taskharbor.cli.fault import NO
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
    checks = checkup(target)
    ok = all(check.status != "problem" for check in checks)
    if target.json:
        told = [{"check": check.name, "status": check.status, "text": check.text} for check in checks]
        write_json({"ok": ok, "checks": told})
    else:
        for check in checks:
            mark = click.style(f"{check.status:<7}", fg={"ok": "green", "warning": "yellow"}.get(check.status, "red"))
            write_hanging(f"{mark}  {check.name:<8}  ", check.text)
    if not ok:
        sys.exit(NO)

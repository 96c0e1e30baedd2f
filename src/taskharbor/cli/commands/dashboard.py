"""`taskharbor dashboard`: the store in a browser."""

from __future__ import annotations

from typing import Any

import click

from taskharbor.cli.options import flag, number, word
from taskharbor.cli.target import Target, importing, shared


@click.command()
@word("--host", "NAME", "The address to listen on.", default="127.0.0.1", show_default=True)
@number("--port", "0: any free port.", low=0, high=65535, default=8420)
@flag("--read-only", "Refuse every change.")
@word(
    "--token-file",
    "FILE",
    "Let in a person who knows the token in this file, 32 characters or more.  [env: TASKHARBOR_DASHBOARD_TOKEN]",
    type=click.Path(dir_okay=False),
)
@flag(
    "--secure-cookie",
    "Mark the cookie Secure: behind a proxy that serves https, browsers then never send it over http.",
)
@word("--access", "MODULE:NAME", "A function of the request that returns an Access.")
@word("--allow-host", "NAME", "Serve requests for this host name as well (repeatable).", multiple=True)
@word("--redact", "FIELD", "Hide this field even in a revealed payload (repeatable).", multiple=True)
@word("--title", "TEXT", "The name at the top of the pages.", default="TaskHarbor", show_default=True)
@shared
@importing
def dashboard(target: Target, **options: Any) -> None:
    """Show the store in a browser: queues, jobs, dead letters, workflows and workers.

    It listens on this machine only, and prints a link that works once. Another --host needs a token or an access
    function. Payloads are hidden until a person with the permission reveals one, which is in the audit. Ctrl-C ends it.

    \b
    Examples:
      taskharbor dashboard --app tasks:harbor
      taskharbor dashboard --dsn postgresql://host/db --read-only
      taskharbor dashboard --host 0.0.0.0 --token-file /run/secrets/jobs

    Needs: pip install 'taskharbor[dashboard]'.

    JSON: every page returns it for the header Accept: application/json, with the keys of the corresponding command.
    A script logs in with the header Authorization: Bearer TOKEN.
    """
    from taskharbor.cli.dashboard_server import serve

    serve(target, **options)

"""`taskharbor dashboard`: the store in a browser."""

from __future__ import annotations

from typing import Any

import click

from taskharbor.cli.target import Target, importing, shared


@click.command()
@click.option("--host", metavar="NAME", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), metavar="N", default=8420, show_default=True, help="0: any free port."
)
@click.option("--read-only", is_flag=True, help="Refuse every change.")
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Let in a person who knows the token in this file, 32 characters or more.  [env: TASKHARBOR_DASHBOARD_TOKEN]",
)
@click.option(
    "--secure-cookie",
    is_flag=True,
    help="Mark the cookie Secure: behind a proxy that serves https, browsers then never send it over http.",
)
@click.option("--access", metavar="MODULE:NAME", help="A function of the request that returns an Access.")
@click.option(
    "--allow-host", multiple=True, metavar="NAME", help="Serve requests for this host name as well (repeatable)."
)
@click.option(
    "--redact", multiple=True, metavar="FIELD", help="Hide this field even in a revealed payload (repeatable)."
)
@click.option(
    "--title", metavar="TEXT", default="TaskHarbor", show_default=True, help="The name at the top of the pages."
)
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

"""How `taskharbor dashboard` listens: who is let in, on which address, and how it ends.

A host that others can reach is refused unless there is a token or an access function. Many connections on which no
request arrives must not shut others out: each has HEADER_S for the header of each of its requests.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from taskharbor.cli.app import named
from taskharbor.cli.errors import CommandError, usage_error
from taskharbor.cli.store import open_existing_store
from taskharbor.cli.target import Target

if TYPE_CHECKING:
    from taskharbor.dashboard.sessions import Sessions
    from taskharbor.harbor import Harbor

TOKEN = "TASKHARBOR_DASHBOARD_TOKEN"
STOP_S = 2  # that open streams get to end
HEADER_S = 10.0
MAX_CONNECTIONS = 1_000  # beyond them the answer is 503; a process has at most 500 event streams
ANY_ADDRESS = ("0.0.0.0", "::", "")


def serve(
    target: Target,
    *,
    host: str,
    port: int,
    read_only: bool,
    token_file: str | None,
    secure_cookie: bool,
    access: str | None,
    allow_host: tuple[str, ...],
    redact: tuple[str, ...],
    title: str,
) -> None:
    """Serve the dashboard until Ctrl-C."""
    target.refuse_memory("taskharbor dashboard")
    check_installed()
    from taskharbor.dashboard.guard import LOOPBACK_NAMES

    token = _token(token_file)
    function = None if access is None else _function(access)
    if host not in LOOPBACK_NAMES and token is None and function is None:
        raise usage_error(
            f"--host {host} can be reached by others: expected --token-file FILE, ${TOKEN} or --access MODULE:NAME as "
            "well; without --host it listens on this machine only"
        )
    asyncio.run(_check_store(target))
    harbor = _harbor(target)
    listening = listen(host, port)
    port = listening.getsockname()[1]
    sessions = None if function is not None else sessions_of(harbor, port, token, secure_cookie)
    hosts = {*LOOPBACK_NAMES, *allow_host, *([] if host in ANY_ADDRESS else [host])}
    from taskharbor.dashboard.app import build

    app = build(
        harbor, access=function, sessions=sessions, hosts=hosts, read_only=read_only, redact=redact, title=title
    )
    say(host, port, sessions, target.place)
    run(app, listening)


def check_installed() -> None:
    try:
        import uvicorn  # noqa: F401  # to say in one line that it is missing

        import taskharbor.dashboard  # noqa: F401  # as above
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError):
            raise CommandError(
                f"the dashboard needs {error.name}, which is not installed: pip install 'taskharbor[dashboard]'"
            ) from error
        raise CommandError(str(error)) from error


async def _check_store(target: Target) -> None:
    driver = target.driver()
    try:
        await open_existing_store(driver, target)
    finally:
        await driver.close()


def _harbor(target: Target) -> Harbor:
    from taskharbor.harbor import Harbor

    return target.harbor if target.harbor is not None else Harbor(target.dsn)


def _token(path: str | None) -> str | None:
    from taskharbor.dashboard.sessions import MIN_TOKEN_CHARS

    if path is not None:
        try:
            token = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise usage_error(f"--token-file: {path} cannot be read ({type(error).__name__})") from error
        where = "--token-file"
    elif TOKEN in os.environ:
        token, where = os.environ[TOKEN].strip(), f"${TOKEN}"
    else:
        return None
    if len(token) < MIN_TOKEN_CHARS:
        raise usage_error(
            f"{where}: expected a token of at least {MIN_TOKEN_CHARS} characters, got {len(token)}; one can be made "
            "with: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
    return token


def _function(path: str) -> Any:
    found = named(path, "web.auth:access", "--access")
    if not callable(found):
        raise usage_error(f"--access {path}: expected a function of the request under that name")
    return found


def sessions_of(harbor: Harbor, port: int, token: str | None, secure: bool = False) -> Sessions:
    """Sessions of people who may do everything: the person at this shell, or those who know the token."""
    from taskharbor.dashboard.sessions import Sessions
    from taskharbor.ops.access import Access
    from taskharbor.store.audit import actor

    name = actor(None) if token is None else os.environ.get("TASKHARBOR_BY") or "dashboard token"
    cookie = f"taskharbor_{port}"
    return Sessions(harbor.clock.monotonic, Access.admin(name), cookie=cookie, token=token, secure=secure)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; CommandError if the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named, because asyncio turns Nagle's algorithm off only for a socket that says so: else small answers wait 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise CommandError(
            f"cannot listen on {host}:{port} ({error.strerror}); --port 0 takes any free port", 1
        ) from error
    return listening


def say(host: str, port: int, sessions: Sessions | None, place: str) -> None:
    """Print where the dashboard is, and the link that works once."""
    shown = "127.0.0.1" if host in ANY_ADDRESS else f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{port}/"
    click.echo(f"The dashboard of {place}:")
    if sessions is not None and not sessions.takes_token:
        click.echo(f"  {address}login?key={sessions.new_link()}")
        click.echo("The link works once. Ctrl-C ends the dashboard.")
    else:
        click.echo(f"  {address}")
        click.echo("Ctrl-C ends the dashboard.")
    sys.stdout.flush()


def run(app: Any, listening: socket.socket, beside: Coroutine[Any, Any, None] | None = None) -> None:
    """Serve until Ctrl-C or TERM. `beside`: what goes on meanwhile, and is cancelled then."""
    import uvicorn

    # uvicorn stops at TERM, and then raises it again: with the default handler that would end what goes on beside it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    errors = logging.getLogger("taskharbor.dashboard")
    errors.addHandler(logging.StreamHandler())
    config = uvicorn.Config(
        app,
        log_level="critical",  # a tab that is open at Ctrl-C is not an error
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=STOP_S,
        lifespan="off",
        proxy_headers=False,
        timeout_keep_alive=30,
        http=with_header_deadline(),
        limit_concurrency=MAX_CONNECTIONS,
    )
    server = uvicorn.Server(config)

    async def serve_both() -> None:
        task = None if beside is None else asyncio.create_task(beside)
        try:
            await server.serve(sockets=[listening])
        finally:
            if task is not None:
                task.cancel()
                await asyncio.wait([task])

    try:
        asyncio.run(serve_both())
    except KeyboardInterrupt:
        pass
    finally:
        listening.close()


def with_header_deadline() -> type[asyncio.Protocol]:
    """uvicorn's protocol, with that limit. From the header on, uvicorn and the pages have their own."""
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    base: Any = AutoHTTPProtocol

    class HeaderDeadline(base):  # type: ignore[misc]  # its class is chosen when uvicorn is imported
        _header_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._forget()

        def _watch(self) -> None:
            """Begin to wait for a header, or go on; stop when it is there."""
            if self.cycle is not None and not self.cycle.response_complete:
                self._forget()
            elif self._header_timer is None:
                self._header_timer = asyncio.get_running_loop().call_later(HEADER_S, self._give_up)

        def _give_up(self) -> None:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()

        def _forget(self) -> None:
            if self._header_timer is not None:
                self._header_timer.cancel()
                self._header_timer = None

    return HeaderDeadline

"""`taskharbor worker`: run worker processes under a supervisor, and check their health."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from taskharbor.cli.errors import EXIT_REFUSED, CommandError, as_usage_error, complain, usage_error
from taskharbor.cli.options import OptionDecorator, choice, duration, flag, number, together, word
from taskharbor.cli.target import Target, importing, shared
from taskharbor.store.text import safe_text

if TYPE_CHECKING:
    from contextlib import ExitStack

    from taskharbor.model.events import Observers

_SIZE = re.compile(r"(\d+)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
ONE_PROCESS = "memory:// lives inside one process; use a store that processes share, such as --dsn sqlite:///jobs.db"
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


@click.group()
def worker() -> None:
    """Run workers and check their health."""


def _names(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    if not names:
        raise click.BadParameter("expected queue names such as mail,reports", ctx, param)
    return names


def _size(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    found = _SIZE.fullmatch(value.strip())
    if found is None or not int(found[1]):
        raise click.BadParameter("expected a size such as 512M or 2G", ctx, param)
    return int(found[1]) * _UNITS[found[2].lower()]


def _span(name: str, default: str | None, text: str) -> OptionDecorator:
    return duration(name, f"{text}  [default: {default}]" if default else text, "SECONDS", default=default)


def concurrency_option(text: str) -> OptionDecorator:
    """`--concurrency N`, for a command that starts a worker."""
    return number("--concurrency", text, default=16)


def _switch(name: str, text: str) -> OptionDecorator:
    return click.option(f"--{name}/--no-{name}", default=True, show_default=True, help=text)


def _served(name: str, text: str) -> OptionDecorator:
    """The options for what is served over HTTP: a port, and the interface to bind."""
    interface = "Interface to bind; 0.0.0.0 accepts connections from other hosts."
    return together(
        number(f"{name}-port", text, high=65535, metavar="PORT"),
        click.option(f"{name}-host", default="127.0.0.1", show_default=True, help=interface),
    )


@worker.command()
@word(
    "--queues",
    "A,B",
    "Queues to serve; default: 'default', the queues of the app's tasks, and those that its harbor lists.",
    callback=_names,
)
@concurrency_option("Jobs that each process runs at once.")
@number("--processes", "Worker processes.", default=1)
@_span("--lease", "30", "Lease duration: if a worker sends no heartbeat for this long, another takes over its jobs.")
@_span("--heartbeat", None, "Interval between lease renewals; default: a third of the lease.")
@_span("--poll-interval", "1", "Longest time between two polls of an idle worker.")
@_span("--shutdown-timeout", "30", "Time that running jobs have to finish after TERM or INT.")
@number("--max-lost", "After N crashes of its worker a job is dead.", default=3)
@number("--max-jobs", "Replace a process after N jobs.")
@word("--max-memory", "SIZE", "Replace a process that uses this much memory, e.g. 512M.", callback=_size)
@flag("--reload", "Restart when a .py file below this folder changes (for development).")
@_switch("spare", "Keep one more started process, ready to replace one that dies.")
@_switch("schedules", "Store the schedules that the app declares, and make the jobs of schedules that are due.")
@word("--outbox", "DSN", "Carry jobs from the outbox of this database to the store: postgresql://… or sqlite:///…")
@word("--health-file", None, "Write a JSON health report to this file.", type=click.Path(dir_okay=False))
@_served("--health", "Serve GET /live and /ready on this port.")
@_span("--health-within", "30", "Report unhealthy if a process has not polled the store for this long.")
@_served("--metrics", "Serve Prometheus metrics on this port.")
@choice(
    "--log-format",
    ["terminal", "text", "json"],
    "Default: terminal on a terminal, with colours; else text, of names and values.",
)
@choice(
    "--log-errors",
    ["class", "text", "traceback"],
    "What to log of a handler's exception. text and traceback may quote payloads. Default: traceback on a "
    "terminal, class elsewhere and in JSON.",
)
@choice("--log-level", ["debug", "info", "warning", "error"], "", default="info")
@shared
@importing
def run(target: Target, **options: Any) -> int:
    """Run jobs until TERM or INT.

    A supervisor starts the worker processes and renews the leases of their jobs. When a process dies, the supervisor
    gives its jobs back at once and starts another. It runs no handler itself. It logs which store, queues and tasks it
    serves, and warns if it can run nothing. Without --app the handlers are echo, sleep and fail.

    \b
    Examples:
      taskharbor worker run --app tasks:harbor --queues mail,sms --processes 4
      taskharbor worker run --app shop.queue:harbor --import shop.jobs
      taskharbor worker run --app tasks:harbor --reload
      taskharbor worker run --dsn sqlite:///jobs.db
      taskharbor worker run --app tasks:harbor --max-memory 512M
      taskharbor worker run --app tasks:harbor --health-port 8080
      taskharbor worker run --app tasks:harbor --outbox postgresql://db/shop

    Signals: TERM, INT and HUP let running jobs finish within --shutdown-timeout and give the rest back. A second
    signal, or QUIT, gives them back at once; a third kills.

    Exit codes: 0 stopped by a signal; 1 the lifespan of the app failed at the start; 2 the command line, the app or the
    address is wrong; 3 the store cannot be used.
    """
    from contextlib import ExitStack

    from taskharbor.cli.banner import Greeting
    from taskharbor.model.events import Observers
    from taskharbor.observe.formatting import configure_logging
    from taskharbor.observe.log import LogObserver
    from taskharbor.worker.settings import SupervisorSettings, settings
    from taskharbor.worker.supervisor import memory, messages
    from taskharbor.worker.supervisor.supervisor import Supervisor

    given: dict[str, Any] = {
        name: value.total_seconds() if isinstance(value, timedelta) else value for name, value in options.items()
    }
    own = {name: given.pop(name) for name in messages.Setup.__struct_fields__ if name in given}
    own |= _log_options(own["log_format"], own["log_errors"], sys.stderr.isatty())
    dsn = _check(target, given["processes"])
    metrics_host, metrics_port = given.pop("metrics_host"), given.pop("metrics_port")
    setup = messages.Setup(
        app=target.app,
        imports=target.imports,
        dsn=dsn,
        driver=target.kind,
        alone=given["processes"] == 1,
        metrics=metrics_port is not None,
        **own,
    )
    passed = ("queues", "concurrency", "lease", "heartbeat", "poll_interval", "shutdown_timeout", "max_lost")
    with as_usage_error("--"):
        checked = settings(**{name: own[name] for name in passed})
    if given["max_memory"] is not None and not memory.measurable():
        raise usage_error("--max-memory: this system has no /proc to read the memory of a process from")
    if own["outbox"] is not None:
        from taskharbor.outbox.source import RowSource

        with as_usage_error("--"):
            RowSource(own["outbox"])
    given["reload"] = os.getcwd() if given["reload"] else None
    configure_logging(own["log_format"], own["log_level"], errors=own["log_errors"])
    command = [sys.executable, *_interpreter_flags(), "-P", "-m", "taskharbor.cli.worker_process"]
    plan = SupervisorSettings(worker=checked, max_jobs=setup.max_jobs, **given)
    with ExitStack() as served:
        observers = Observers((LogObserver(),))
        on_store = None if metrics_port is None else _metrics(metrics_host, metrics_port, served, observers)
        greeting = Greeting(target.app, setup.queues, plan.processes, setup.concurrency, observers)
        supervisor = Supervisor(
            plan,
            setup,
            command,
            _complain,
            observers=observers,
            on_store=on_store,
            on_abilities=greeting,
            on_end=_exit_within,
        )
        return supervisor.run()


def _log_options(format: str | None, errors: str | None, at_terminal: bool) -> dict[str, str]:
    """How to log: for a developer on a terminal; elsewhere nothing that may quote a payload, unless asked for."""
    chosen = format or ("terminal" if at_terminal else "text")
    return {
        "log_format": chosen,
        "log_errors": errors or ("traceback" if at_terminal and chosen != "json" else "class"),
    }


def _exit_within(seconds: float, code: int) -> None:
    """Exit after `seconds` at the latest, whatever a store, a disk or a thread is waiting for."""
    last_resort = threading.Timer(seconds, os._exit, (code,))
    last_resort.daemon = True
    try:
        last_resort.start()
    except RuntimeError:  # the system has no thread for it: the end is as quick as what it waits for
        return


@worker.command()
@word("--file", None, "The --health-file of the worker.", "path", type=click.Path(dir_okay=False))
@number("--port", "The --health-port of the worker.", high=65535, metavar=None)
@click.option("--host", default="127.0.0.1", show_default=True, help="The host of the port.")
@_span("--max-age", "15", "Fail if the file is older than this: its worker is gone.")
@flag("--live", "Check only that the supervisor is alive, not that it reaches the store.")
@click.pass_context
def health(ctx: click.Context, path: str | None, port: int | None, host: str, max_age: timedelta, live: bool) -> None:
    """Check the health of a running worker, for the probes of a container without curl.

    \b
    Examples:
      taskharbor worker health --file /run/taskharbor.json
      taskharbor worker health --port 8080 --live

    Prints what it found as JSON. Exit codes: 0 healthy, 1 not, 2 the command line is wrong.
    """
    if (path is None) == (port is None):
        raise usage_error("expected either --file or --port: the --health-file or --health-port of the worker")
    report = _read(path, max_age) if path is not None else _request(host, port)
    click.echo(json.dumps(report))
    if not live and not report.get("ok"):
        ctx.exit(EXIT_REFUSED)


def _read(path: str, max_age: timedelta) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            age = time.time() - os.fstat(file.fileno()).st_mtime
            health: dict[str, Any] = json.load(file)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a health report"
        raise CommandError(f"--file {path}: {reason}; is a worker running with --health-file?") from error
    if age > max_age.total_seconds():
        raise CommandError(f"--file {path}: it was written {age:.0f} s ago; its worker is gone or hangs")
    return health


def _request(host: str, port: int | None) -> dict[str, Any]:
    from http.client import HTTPConnection, HTTPException

    connection = HTTPConnection(host, port, timeout=5)
    try:
        connection.request("GET", "/ready")
        health: dict[str, Any] = json.loads(connection.getresponse().read())
    except (OSError, ValueError, HTTPException) as error:
        raise CommandError(f"--port {port}: no worker replies there ({type(error).__name__})") from error
    finally:
        connection.close()
    return health


def _check(target: Target, processes: int) -> str | None:
    """Check the options, without the application, which only worker processes import; return the store's address.

    A relative path in it is resolved here, even if the application changes to another folder.
    """
    if os.name != "posix":
        raise usage_error(
            "worker run needs a POSIX system; elsewhere call harbor.worker().run() in a program of your own"
        )
    if target.app is not None and not re.fullmatch(r"[^:]+:[^:]+", target.app):
        raise usage_error(f"--app: expected module:name, for example tasks:harbor, got {target.app!r}")
    if target.app is None or target.given is not None:
        from taskharbor.drivers.registry import location_of

        store = Target(dsn=target.given, driver=target.kind)
        driver = store.driver()
        if store.in_memory and processes > 1:
            raise usage_error(f"--processes {processes}: {ONE_PROCESS}")
        return None if store.dsn is None else location_of(driver, store.dsn)
    return None


def _metrics(host: str, port: int, served: ExitStack, observers: Observers) -> Callable[[str], None]:
    """Serve the metrics of all processes; return a function to call once the store's address is known."""
    with as_usage_error("--metrics-port: ", ModuleNotFoundError):
        from taskharbor.observe.prometheus import serve, share
    from taskharbor.drivers import open_driver

    shared = share()
    served.callback(shared.close)
    try:
        server = serve(port, address=host, shared=shared)
    except OSError as error:
        raise usage_error(f"--metrics-port {port}: {str(error.strerror).removeprefix('metrics: ')}") from error
    served.callback(server.close)
    observers.add(server.processes)
    observers.add(shared)
    return lambda dsn: server.watch(open_driver(dsn))


def _complain(text: str) -> None:
    complain(safe_text(text))


def _interpreter_flags() -> list[str]:
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # private, as multiprocessing uses it
    return [flag for flag in flags if flag != "-P"]

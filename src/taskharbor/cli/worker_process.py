"""The program of one worker process of `taskharbor worker run`: import the application and run jobs.

    python -m taskharbor.cli.worker_process N      N: file descriptor of the socket to the supervisor

Each process is a new interpreter, so it inherits no threads, connections or locks of the supervisor.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import traceback
from functools import partial
from typing import Any

from taskharbor.cli.banner import abilities_of
from taskharbor.cli.commands.worker import ONE_PROCESS
from taskharbor.cli.errors import explained, usage_error
from taskharbor.cli.target import Target, family
from taskharbor.drivers.registry import location_of
from taskharbor.observe.formatting import configure_logging, keep_logging, log_thread_errors
from taskharbor.worker import Worker
from taskharbor.worker.supervisor import messages, process_end
from taskharbor.worker.supervisor.child_channel import ChildChannel

logger = logging.getLogger("taskharbor.worker")


def main(number: int) -> int:
    """Run until the supervisor stops this process; return the exit code."""
    os.set_inheritable(number, False)
    line = socket.socket(fileno=number)
    requests = line.makefile("rb")
    setup = messages.read_setup(requests.readline())
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the worker handles signals: no traceback from an import
    configure_logging(setup.log_format, setup.log_level, errors=setup.log_errors)
    log_thread_errors(logger)
    process_end.arm(setup.shutdown_timeout + process_end.SETTLE_S + process_end.EXIT_S)
    link = ChildChannel(line, requests, setup.max_jobs, partial(process_end.end, setup.shutdown_timeout))
    link.listen()
    try:
        worker = make(setup, link)
        if keep_logging() and not setup.waits:
            logger.warning(
                "the app has replaced the handlers of the root logger: the lines of taskharbor keep --log-format and "
                "--log-level, all others are the app's; give the logger 'taskharbor' handlers to write these otherwise"
            )
        if setup.waits:
            link.wait()
        link.attach(worker)
        worker.run()
    except SystemExit as error:
        link.fail(f"--app {setup.app}: importing it ended the process with {error.code!r}", 2)
        return 2
    except BaseException as error:
        text, code = explained(error)
        if link.ready:  # it was serving: log where it broke, without messages that may quote secrets
            logger.error("the worker broke: %s\n%s", text, "".join(traceback.format_tb(error.__traceback__)).rstrip())
            return code
        link.fail(text, code)
        return code
    finally:
        link.leave()  # also after an error: from here on only a thread of the application can delay the exit
    return 0


def make(setup: messages.Setup, link: ChildChannel) -> Worker:
    """The worker that `setup` describes."""
    target = Target(dsn=setup.dsn, driver=setup.driver, app=setup.app, imports=setup.imports)
    link.abilities = abilities_of(target, setup.queues)
    if target.in_memory:
        if not setup.alone:
            raise usage_error(f"--processes above 1: {ONE_PROCESS}")
    elif target.dsn is None:
        logger.warning(
            "the app passes a driver object to its Harbor, so the supervisor does not know the store's address: this "
            "process renews its leases itself, and if it dies, its jobs wait for their leases to end; --dsn avoids that"
        )
    else:
        driver = target.driver() if target.harbor is None else target.harbor.driver  # the driver that the worker uses
        link.dsn = location_of(driver, target.dsn)
        if setup.waits and family(link.dsn) == "postgres":
            import psycopg  # noqa: F401  its driver would do so when it opens the store
    options: dict[str, Any] = {
        "queues": setup.queues,
        "concurrency": setup.concurrency,
        "lease": setup.lease,
        "heartbeat": setup.heartbeat,
        "poll_interval": setup.poll_interval,
        "shutdown_timeout": setup.shutdown_timeout,
        "max_lost": setup.max_lost,
        "schedules": setup.schedules,
        "outbox": setup.outbox,
    }
    if target.harbor is not None:
        if setup.metrics:
            from taskharbor.observe.prometheus import install

            install(target.harbor)
        return target.harbor.worker(**options)
    if setup.metrics:
        from taskharbor.observe.prometheus import PrometheusObserver

        options["observers"] = [PrometheusObserver()]
    from taskharbor.cli.builtin_handlers import handlers

    return Worker(target.driver(), handlers=handlers(), **options)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))

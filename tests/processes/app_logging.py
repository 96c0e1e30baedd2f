"""An application that configures logging as frameworks do: with `dictConfig`, as LOGGING (environment) says."""

import json
import logging.config
import os
import threading

from taskharbor import Unrecoverable
from tests.processes.app import harbor as harbor

logging.config.dictConfig(
    {
        "version": 1,
        "formatters": {"own": {"format": "OWN %(name)s %(message)s"}},
        "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "own"}},
        "root": {"handlers": ["console"], "level": "WARNING"},
        **json.loads(os.environ["LOGGING"]),
    }
)


@harbor.task(name="fails")
def fails() -> None:
    logging.getLogger("shop").warning("a line of the application")
    thread = threading.Thread(target=broken, name="shop thread")
    thread.start()
    thread.join()
    raise Unrecoverable("always")


@harbor.task(name="fails_elsewhere", process=True)
def fails_elsewhere() -> None:
    logging.getLogger("taskharbor.worker").warning("from a child process")
    raise Unrecoverable("always")


def broken() -> None:
    raise KeyError("in a thread")

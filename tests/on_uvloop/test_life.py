"""Everything that a worker does, on uvloop and every store: in a program of its own, as users have it."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import lanes
from tests.drivers.test_redis_tls import address as tls_address
from tests.drivers.test_redis_tls import folder, server  # noqa: F401 - fixtures
from tests.on_uvloop.life import PATIENCE
from tests.on_uvloop.stores import KINDS_OF_REDIS, STORES
from tests.servers import redis as servers
from tests.supervisor.worker_run import ROOT


def live(dsn: str) -> None:
    """Let the program live on a store; it fails on a warning too, such as a socket that was not closed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.on_uvloop.life"],
        cwd=ROOT,
        env={**os.environ, "TASKHARBOR_DSN": dsn},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
    )
    assert (done.returncode, done.stdout) == (0, "lived\n"), done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert "ResourceWarning" not in done.stderr, done.stderr


def test_on_memory() -> None:
    live("memory://")


@pytest.mark.left_to("full", except_for=lanes.Chosen("sqlite", "postgres", "redis"))
@pytest.mark.parametrize("store", [*STORES.values(), *KINDS_OF_REDIS.values()], ids=[*STORES, *KINDS_OF_REDIS])
def test_on_a_store(store: Callable[[Path], str], tmp_path: Path) -> None:
    live(store(tmp_path))


@pytest.mark.left_to("full")
def test_over_a_unix_socket() -> None:
    with tempfile.TemporaryDirectory(prefix="th-", dir="/tmp") as place:  # a socket's path has to be short
        local = servers.Server(unixsocket=f"{place}/redis")
        try:
            live(f"redis+unix://{place}/redis")
        finally:
            local.stop()


@pytest.mark.left_to("full")
def test_with_tls(server: servers.Server, folder: Path) -> None:  # noqa: F811 - fixtures
    live(tls_address(server, ssl_ca_certs=f"{folder}/ca.pem"))

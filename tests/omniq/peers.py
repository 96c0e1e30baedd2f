"""The published packages omniq 1.7.0 and 4.0.0 as separate processes, each in an environment of its own.

The environments are made from PyPI once and kept under .venv; making them is what takes time, not starting them. The
packages are GPL: they are never imported here, only spoken to through pipes.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from taskharbor.omniq import Job, OmniQ

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venv" / "peers"
PROGRAM = Path(__file__).with_name("peer_program.py")
VERSIONS = ("1.7.0", "4.0.0")


def python_of(version: str) -> str:
    """The interpreter of the environment that has this version, made when it is missing."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    place = FOLDER / f"omniq-{version}"
    interpreter, stamp = place / "bin" / "python", place / "installed"
    with open(FOLDER / f"{version}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # xdist's workers come here at the same time
        if not stamp.exists() or not os.access(interpreter, os.X_OK):
            shutil.rmtree(place, ignore_errors=True)
            _run(sys.executable, "-m", "venv", "--without-pip", str(place))
            _run(sys.executable, "-m", "pip", "--python", str(interpreter), "install", "--quiet",
                 "--disable-pip-version-check", "--no-input", f"omniq=={version}")  # fmt: skip
            stamp.touch()
    return str(interpreter)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")


class Refused(Exception):
    """A peer answered with an error."""


class Peer:
    """One process of a published client, with the methods of our own."""

    def __init__(self, version: str, port: int, db: int) -> None:
        command = [python_of(version), "-I", str(PROGRAM), "127.0.0.1", str(port), str(db)]
        self.name = version
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._heard()

    def _heard(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"omniq {self.name} ended")
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["ok"]

    def call(self, op: str, **args: Any) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"op": op, "args": args}) + "\n")
        self.process.stdin.flush()
        return self._heard()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class Side:
    """One of the three clients, all called in the same way."""

    def __init__(self, name: str, client: OmniQ | Peer) -> None:
        self.name, self._client = name, client

    def __repr__(self) -> str:
        return self.name

    def publish(self, queue: str, payload: Any, now: int = 0, **options: Any) -> str:
        if isinstance(self._client, OmniQ):
            return self._client.publish(queue, payload, now_ms_override=now, **options)
        if self.name == "4.0.0":  # 1.7.0 has no time of its own for publish
            options["now_ms_override"] = now
        return str(self._client.call("publish", queue=queue, payload=payload, **options))

    def reserve(self, queue: str, now: int) -> Job | str | None:
        """A job, None, or "PAUSED"."""
        if isinstance(self._client, OmniQ):
            got = self._client.reserve(queue, now_ms_override=now)
            return got if got is None or isinstance(got, Job) else got.status
        said = self._client.call("reserve", queue=queue, now_ms_override=now)
        if said is None or said["status"] == "PAUSED":
            return said and "PAUSED"
        names = ("job_id", "payload", "lock_until_ms", "attempt", "gid", "lease_token")
        return Job(**{name: said[name] for name in names})

    def verb(self, name: str, queue: str, **args: Any) -> Any:
        """Any other operation, by keyword."""
        if isinstance(self._client, OmniQ):
            return getattr(self._client, name)(queue, **args)
        said = self._client.call(name, queue=queue, **args)
        return tuple(said) if isinstance(said, list) else said

    def held(self, name: str, queue: str, job: Job, now: int, **args: Any) -> Any:
        """Heartbeat and acks."""
        return self.verb(name, queue, job_id=job.job_id, lease_token=job.lease_token, now_ms_override=now, **args)

"""The environments of those we compare with: one each, because what they pin cannot live together. Those of Node.js
are there if `node` and `npm` are.

    python -m bench.stores.environments            make all that are missing or out of date
    python -m bench.stores.environments rq huey    only these

They lie in .venv-bench/<peer>. One that cannot be made is named, here and by the benchmark. That is not an error: the
others can still be measured.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / ".venv-bench"

# What each peer is installed with; the first is the peer itself. Compiled protocol parsers and event loops are given
# to all who can use them.
PEERS: dict[str, tuple[str, ...]] = {
    "huey": ("huey==3.5.4", "redis==8.1.0", "hiredis==3.5.0"),
    "litequeue": ("litequeue==0.9",),
    "persist-queue": ("persist-queue==1.1.0",),
    "procrastinate": ("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.8"),
    "pgqueuer": ("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"),
    "rq": ("rq==2.12.0", "redis==8.1.0", "hiredis==3.5.0"),
    "arq": ("arq==0.28.0", "hiredis==3.5.0", "uvloop==0.23.0"),
    "saq": ("saq[redis,hiredis]==0.26.4", "typing_extensions==4.16.0", "uvloop==0.23.0"),
    "dramatiq": ("dramatiq[redis]==2.2.1", "redis==8.1.0", "hiredis==3.5.0"),
    "celery": ("celery[redis]==5.7.0", "redis==8.1.0", "hiredis==3.5.0"),
    "taskiq": ("taskiq==0.13.0", "taskiq-redis==1.2.4", "redis==8.1.0", "hiredis==3.5.0", "uvloop==0.23.0"),
    "omniq": ("omniq==4.0.0", "redis==8.1.0", "hiredis==3.5.0"),
    "bullmq": ("bullmq@6.7.0", "ioredis@5.11.1"),
    "graphile-worker": ("graphile-worker@0.18.0",),
    "pg-boss": ("pg-boss@12.33.7",),
}
NODE = frozenset(name for name, packages in PEERS.items() if "@" in packages[0])


def python(peer: str) -> Path:
    """The interpreter of a peer's environment, whether it is there or not."""
    return FOLDER / peer / "bin" / "python"


def command(module: str, peer: str) -> list[str]:
    """The program of a subject: a module of ours or of a peer's environment, or a file for Node.js."""
    if peer in NODE:
        return [shutil.which("node") or "node", str(ROOT / "bench" / "peers" / "node" / f"{peer}.mjs")]
    interpreter = str(python(peer)) if peer else sys.executable
    return [interpreter, "-X", "faulthandler", "-m", module]


def variables(peer: str) -> dict[str, str]:
    """The environment variables of that program."""
    return {**os.environ, "TASKHARBOR_BENCH_PACKAGES": str(FOLDER / peer)}


def ready(peer: str) -> bool:
    """Whether a peer's environment holds what is written above."""
    stamp = FOLDER / peer / "made"
    there = shutil.which("node") if peer in NODE else python(peer).exists()
    return bool(there) and stamp.exists() and stamp.read_text(encoding="utf-8") == _wanted(peer)


def pinned(peer: str) -> str:
    """The version of a peer that is asked for."""
    return PEERS[peer][0].replace("==", "@").rpartition("@")[2]


def version(peer: str) -> str:
    """The version of a peer that is installed in its environment."""
    if peer in NODE:
        return pinned(peer)
    places = [str(place) for place in (FOLDER / peer).glob("lib/python*/site-packages")]
    found = [each.version for each in distributions(name=peer, path=places)]
    return found[0] if found else "not installed"


def make(peer: str) -> str:
    """Make a peer's environment, if it is not there yet. Returns what went wrong, or nothing."""
    if ready(peer):
        return ""
    if peer in NODE and not (shutil.which("node") and shutil.which("npm")):
        return "node and npm are not there"
    shutil.rmtree(FOLDER / peer, ignore_errors=True)
    for step in _steps(peer):
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            errors = [line for line in lines if line.startswith(("ERROR", "npm error"))] or lines
            return (errors or [f"status {done.returncode}"])[-1].removeprefix("ERROR: ")
    (FOLDER / peer / "made").write_text(_wanted(peer), encoding="utf-8")
    return ""


def _steps(peer: str) -> list[list[str]]:
    """The commands that make a peer's environment."""
    folder, packages = str(FOLDER / peer), PEERS[peer]
    if peer in NODE:
        quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        return [["npm", "install", "--prefix", folder, *quiet, *packages]]
    pip = [sys.executable, "-m", "pip", "--python", str(python(peer)), "install", "--quiet", "--no-input"]
    return [
        [sys.executable, "-m", "venv", "--without-pip", folder],
        [*pip, "--disable-pip-version-check", *packages],
    ]


def main(peers: list[str]) -> int:
    """The command."""
    if unknown := [peer for peer in peers if peer not in PEERS]:
        print(f"bench: expected {', '.join(PEERS)}; got {', '.join(unknown)}", file=sys.stderr)
        return 2
    for peer in peers or PEERS:
        if wrong := make(peer):
            print(f"bench: {peer} cannot be installed and is not measured: {wrong}", file=sys.stderr)
    return 0


def _wanted(peer: str) -> str:
    return "\n".join((f"{sys.version_info.major}.{sys.version_info.minor}", *PEERS[peer], ""))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

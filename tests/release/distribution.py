"""Builds the sdist and the wheels, and makes environments that have nothing except the wheel and what it asks for.

An environment is made from the package index when the requirements of the wheel have changed, and kept under
.venv/release; otherwise only the wheel in it is replaced, which takes a second. So an environment never holds a library
that the wheel did not ask for.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

from packaging.metadata import Metadata

from tests.lanes import ROOT

KEPT = ROOT / ".venv" / "release"
PATIENCE = 280  # seconds until a command counts as hanging; never a figure


class Distribution(NamedTuple):
    """An sdist, the wheel made from the checkout, and the wheel made from the unpacked sdist alone."""

    sdist: Path
    wheel: Path
    wheel_of_sdist: Path
    unpacked: Path


def run(*command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """Run a command that must end well; returns what it printed."""
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def build(folder: Path) -> Distribution:
    """Both from the checkout, and the wheel once more from nothing except the sdist."""
    run(sys.executable, "-m", "hatchling", "build", "-d", folder, cwd=ROOT)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 is the first to have it
        archive.extractall(folder)
    unpacked = folder / sdist.name.removesuffix(".tar.gz")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder / "again", cwd=unpacked)
    return Distribution(sdist, wheel, folder / "again" / wheel.name, unpacked)


def metadata(wheel: Path) -> Metadata:
    """What a wheel says of itself, by the rules that the package index applies to an upload."""
    with ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return Metadata.from_email(archive.read(name), validate=True)


def installer(interpreter: str) -> str:
    """A Python whose pip can install for this one: pip runs under it, and an older pip fails under a newer Python."""
    if interpreter == sys.executable:
        return interpreter
    place = KEPT / f"pip-{hashlib.sha256(interpreter.encode()).hexdigest()[:12]}"
    python = place / "bin" / "python"
    if not os.access(python, os.X_OK):
        run(interpreter, "-m", "venv", "--clear", place)
    return str(python)


@contextmanager
def environment(interpreter: str, wheel: Path, extras: Sequence[str] = ()) -> Iterator[Path]:
    """An environment with the wheel and nothing else; yields its folder of programs. One user at a time."""
    place = KEPT / hashlib.sha256("\n".join([interpreter, *extras]).encode()).hexdigest()[:12]
    asked = "\n".join(sorted(str(each) for each in metadata(wheel).requires_dist or ()))
    KEPT.mkdir(parents=True, exist_ok=True)
    with open(place.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        python, stamp = place / "bin" / "python", place / "made"
        pip = [installer(interpreter), "-m", "pip", "--python", str(python), "install", "--quiet", "--no-input"]
        pip += ["--disable-pip-version-check", "-c", str(ROOT / "constraints.txt")]
        if os.access(python, os.X_OK) and stamp.exists() and stamp.read_text() == asked:
            run(*pip, "--no-deps", "--force-reinstall", wheel)
        else:
            shutil.rmtree(place, ignore_errors=True)
            run(interpreter, "-m", "venv", "--without-pip", place)
            run(*pip, f"{wheel}[{','.join(extras)}]" if extras else wheel)
            stamp.write_text(asked)
        yield place / "bin"

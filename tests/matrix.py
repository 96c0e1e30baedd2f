"""All lanes on every other Python: `python -m tests.matrix`, the second half of `make matrix`.

The Pythons are those that pyproject.toml names as supported, without the one that runs this. Each gets an environment
of its own (`.venv-3.12`) and what `make test` runs, without the checks. One that is not on this machine is not tested,
and is named at the end.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.lanes import ROOT

NAMED = re.compile(r"Programming Language :: Python :: (3\.\d+)")
PLACES = ("/usr/local/bin", "/usr/bin", "/opt/homebrew/bin")


def supported() -> list[str]:
    """The versions that pyproject.toml names: 3.11, 3.12, …"""
    with open(ROOT / "pyproject.toml", "rb") as file:
        classifiers = tomllib.load(file)["project"]["classifiers"]
    return [found[1] for line in classifiers if (found := NAMED.fullmatch(line))]


def candidates(version: str) -> Iterator[str]:
    """Where an interpreter of this version may be: in PATH, in the usual places, in what pyenv and uv installed."""
    name = f"python{version}"
    yield from (path for path in (shutil.which(name),) if path)
    yield from (f"{place}/{name}" for place in PLACES)
    home = Path.home()
    pyenv = Path(os.environ.get("PYENV_ROOT") or home / ".pyenv") / "versions"
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or home / ".local/share/uv/python")
    yield from (str(path) for path in sorted(pyenv.glob(f"{version}*/bin/{name}"), reverse=True))
    yield from (str(path) for path in sorted(uv.glob(f"cpython-{version}*/bin/{name}"), reverse=True))


def find(version: str) -> str | None:
    """An interpreter of this version that can make an environment. Each is run: a shim may have nothing behind it."""
    ask = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    for path in candidates(version):
        try:
            said = subprocess.run([path, "-c", ask], capture_output=True, text=True, check=False)
        except OSError:
            continue
        if said.returncode == 0 and said.stdout.strip() == version:
            return path
    return None


def run(versions: Iterable[str]) -> dict[str, str]:
    """Version → what came of it."""
    verdicts = {}
    for version in versions:
        path = find(version)
        if path is None:
            verdicts[version] = "NOT TESTED: no such Python here"
            continue
        print(f"matrix: Python {version} ({path})", flush=True)
        own = [f"VENV=.venv-{version}", f"PYTHON={path}", f"LANES=.lanes-{version}"]
        code = subprocess.run(["make", *own, "all-lanes"], cwd=ROOT).returncode
        verdicts[version] = "all lanes green" if code == 0 else f"FAILED: make {' '.join(own)} all-lanes"
    return verdicts


def main() -> int:
    mine = f"{sys.version_info.major}.{sys.version_info.minor}"
    verdicts = run(version for version in supported() if version != mine)
    for version, verdict in verdicts.items():
        print(f"matrix: Python {version}: {verdict}")
    return 1 if any(verdict.startswith("FAILED") for verdict in verdicts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

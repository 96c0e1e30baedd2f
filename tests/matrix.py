"""Other Pythons and other library versions: `python -m tests.matrix`, the second half of `make matrix`.

- Every other Python that pyproject.toml names as supported gets an environment of its own (`.venv-3.12`) and runs what
  `make test` runs, without the checks. A Python that is not on this machine is reported as not tested.
- The lowest and the newest library versions that pyproject.toml allows get `.venv-lowest` and `.venv-newest`, and run
  the lanes of `MEETING`: those whose code calls the libraries.

- Every Django that the project supports, on every Python here that it runs on, gets an environment
  (`.venv-django-6.0-3.12`) and runs the lanes `django` and `django-admin`.

`python -m tests.matrix lowest` (or `newest`, `3.12`, `django-6.0-3.12`) runs one of them.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests import versions
from tests.lanes import ROOT

NAMED = re.compile(r"Programming Language :: Python :: (3\.\d+)")
MEETING = (
    *("unit", "slots", "architecture", "client", "worker", "cli", "observe", "docs", "dashboard"),
    *("conformance-memory", "conformance-sqlite", "conformance-postgres", "conformance-redis", "conformance-cluster"),
    *("sentinel", "machine-postgres", "machine-redis", "omniq"),
)
NEED_TOOLS = ("tests/docs/test_driver_template.py::test_the_template_keeps_the_protocol",)  # starts mypy, of `dev`
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


def run_python(version: str) -> str:
    """All lanes on another Python; returns a verdict."""
    path = find(version)
    if path is None:
        return "NOT TESTED: no such Python here"
    print(f"matrix: Python {version} ({path})", flush=True)
    own = [f"VENV=.venv-{version}", f"PYTHON={path}", f"LANES=.lanes-{version}"]
    code = subprocess.run(["make", *own, "all-lanes"], cwd=ROOT).returncode
    return "all lanes green" if code == 0 else f"FAILED: make {' '.join(own)} all-lanes"


def run_libraries(end: str) -> str:
    """The lanes that meet the libraries, on their lowest or newest versions; returns a verdict."""
    pins = ROOT / f".constraints-{end}.txt"
    text = "\n".join(versions.constraints(end)) + "\n"
    if not pins.exists() or pins.read_text(encoding="utf-8") != text:  # a newer file makes the environment again
        pins.write_text(text, encoding="utf-8")
    folder = f".venv-{end}"
    print(f"matrix: the {end} libraries that pyproject.toml allows", flush=True)
    own = [f"VENV={folder}", f"PYTHON={sys.executable}", f"PINS={pins.name}", "EXTRA=tests"]
    made = subprocess.run(["make", *own, f"{folder}/.installed"], cwd=ROOT).returncode
    if made:
        return f"FAILED: make {' '.join(own)} {folder}/.installed"
    for line in shown(f"{folder}/bin/python"):
        print(f"matrix: {end}: {line}", flush=True)
    wanted = [f"--lane={lane}" for lane in MEETING]
    command = [
        f"{folder}/bin/python",
        "-m",
        "pytest",
        "-q",
        "-n",
        "3",
        *wanted,
        *(f"--deselect={test}" for test in NEED_TOOLS),
    ]
    code = subprocess.run(command, cwd=ROOT).returncode
    return f"{len(MEETING)} lanes green" if code == 0 else f"FAILED: {' '.join(command)}"


def djangos() -> list[str]:
    """Every Django with every Python that it runs on: django-5.2-3.11, …"""
    from tests.in_django import environment  # which uses this module

    return [f"django-{series}-{version}" for series, versions in environment.PYTHONS.items() for version in versions]


def run_django(name: str) -> str:
    """The lanes of Django with one version of it on one Python; returns a verdict."""
    from tests.in_django import environment

    _, series, version = name.split("-")
    path = find(version)
    if path is None:
        return "NOT TESTED: no such Python here"
    python = environment.make(ROOT / f".venv-{name}", path, environment.SERIES[series])
    command = [sys.executable, "-m", "pytest", "-q", "-n", "3", "--lane=django", "--lane=django-admin"]
    own = {"TASKHARBOR_DJANGO": str(python), "TASKHARBOR_LANE": "matrix"}
    code = subprocess.run(command, cwd=ROOT, env={**os.environ, **own}).returncode
    return "both lanes are green" if code == 0 else f"FAILED: TASKHARBOR_DJANGO={python} {' '.join(command)}"


def run(name: str) -> str:
    """One entry of the matrix; returns a verdict."""
    if name.startswith("django-"):
        return run_django(name)
    return run_libraries(name) if name in versions.ENDS else run_python(name)


def title(name: str) -> str:
    """An entry for people."""
    if name.startswith("django-"):
        _, series, version = name.split("-")
        return f"Django {series} on Python {version}"
    return f"the {name} libraries" if name in versions.ENDS else f"Python {name}"


def shown(python: str) -> list[str]:
    """Which versions an environment has."""
    names = sorted(versions.normal(name) for name, _, _ in versions.requirements())
    said = subprocess.run([python, "-m", "pip", "freeze"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [line for line in said.stdout.splitlines() if versions.normal(line.partition("==")[0]) in names]


def main(arguments: Sequence[str] = ()) -> int:
    mine = f"{sys.version_info.major}.{sys.version_info.minor}"
    names = arguments or [*(version for version in supported() if version != mine), *versions.ENDS, *djangos()]
    verdicts = {name: run(name) for name in names}
    for name, verdict in verdicts.items():
        print(f"matrix: {title(name)}: {verdict}")
    return 1 if any(verdict.startswith("FAILED") for verdict in verdicts.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

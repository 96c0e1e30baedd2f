"""Which Python and which Django the lane `django` runs with.

Django 6 needs Python 3.12 or later. If this machine has one, `python -m tests.in_django.environment` (which
tests/servers/provision calls) makes `.venv-django` with it: the newest Django 6 and what the project needs. If there is
none, the lane runs with the Python of the tests and Django 5.2 with the backport. $TASKHARBOR_DJANGO names an
interpreter of another environment, as `make matrix` does.
"""

import functools
import os
import subprocess
import sys
from pathlib import Path

from tests import matrix
from tests.lanes import ROOT

FOLDER = ROOT / ".venv-django"
OF_A_PROJECT = frozenset(f"taskharbor.django.{name}" for name in ("app", "admin", "admin_views", "dashboard", "models"))
"""Modules that can be imported only where Django is set up, as in the project of this lane."""
NEWEST = "6.1.3"
"""The Django of `make test`, and of Django's own tests (upstream.py)."""
SERIES = {"5.2": "5.2.19", "6.0": "6.0.10", "6.1": NEWEST}
PYTHONS = {"5.2": ("3.11", "3.12", "3.13"), "6.0": ("3.12", "3.13"), "6.1": ("3.12", "3.13")}
SHARED = (
    *("psycopg", "psycopg-binary", "redis", "hiredis", "msgspec", "click", "rich", "cronsim", "tzdata"),
    *("starlette", "jinja2", "markupsafe", "uvicorn", "anyio", "h11", "idna"),  # the dashboard in the admin
)


def interpreter() -> str | None:
    """The newest Python here that Django 6 runs on."""
    return next((path for version in reversed(PYTHONS["6.1"]) if (path := matrix.find(version))), None)


def make(folder: Path, python: str, django: str) -> Path:
    """An environment with this Django, made if it is not there yet; its interpreter."""
    made = folder / "bin" / "python"
    pins = [f"Django=={django}", *pinned()]
    if django.startswith("5."):
        pins.append("django-tasks==0.12.0")
    stamp, wanted = folder / ".installed", "\n".join([python, *pins])
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return made
    # With a pip of its own: that of this environment may be too old to run under a newer Python (23.0 with 3.13 is).
    subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
    pip = [str(made), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for what in (pins, ["--no-deps", "-e", str(ROOT)]):
        done = subprocess.run([*pip, *what], cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"django: {folder.name} cannot be made:\n{done.stderr}")
    stamp.write_text(wanted, encoding="utf-8")
    return made


def pinned() -> list[str]:
    """What the project needs, in the versions of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    known = dict(line.lower().split("==") for line in lines if "==" in line)
    return [f"{name}=={known[name]}" for name in SHARED]


def python() -> str:
    """The interpreter that the lane starts."""
    named = os.environ.get("TASKHARBOR_DJANGO")
    if named:
        return named
    own = FOLDER / "bin" / "python"
    return str(own) if own.exists() else sys.executable


@functools.cache
def version() -> tuple[int, int]:
    """The Django that the lane runs with."""
    asked = subprocess.run(
        [python(), "-c", "import django; print(*django.VERSION[:2])"], capture_output=True, text=True
    )
    major, minor = asked.stdout.split()
    return int(major), int(minor)


def described() -> str:
    """Both versions, for people."""
    ask = "import django, sys; print(f'Django {django.get_version()} on Python %d.%d.%d' % sys.version_info[:3])"
    return subprocess.run([python(), "-c", ask], capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    path = interpreter()
    if path is not None and not os.environ.get("TASKHARBOR_DJANGO"):
        make(FOLDER, path, NEWEST)
    from tests.in_django.upstream import sources

    sources()  # here and not in a test, which should cost no more than what it tests
    without = "" if path is not None else " (there is no Python 3.12 or later here, which Django 6 needs)"
    print(f"django: the lane runs with {described()}{without}")


if __name__ == "__main__":
    main()

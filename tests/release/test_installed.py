"""The wheel in an empty environment: the first example, the tour, every module; with and without extras.

`make test` does it on its own Python, without extras. `make matrix` does it on every supported one, also with extras.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import matrix
from tests.docs import pages
from tests.docs.terminal import Terminal
from tests.lanes import ROOT
from tests.release.distribution import Distribution, environment, run
from tests.release.licences import FOR_USERS, PROJECT
from tests.servers import postgres, redis

VERSION = PROJECT["version"]
OWN = f"{sys.version_info.major}.{sys.version_info.minor}"
EVERY_MODULE = """
import importlib, pkgutil, sys
import taskharbor
for found in pkgutil.walk_packages(taskharbor.__path__, "taskharbor."):
    # A Django application can be imported with settings only; a module that is a program would run.
    if not found.name.endswith("__main__") and not found.name.startswith("taskharbor.django."):
        importlib.import_module(found.name)
assert "site-packages" in taskharbor.__file__, taskharbor.__file__
"""


def clean(folder: Path) -> dict[str, str]:
    """An environment without a trace of this checkout."""
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONWARNINGS": "error"}


def interpreter(version: str) -> str | None:
    return sys.executable if version == OWN else matrix.find(version)


def hello(programs: Path, folder: Path, dsn: str = "sqlite:///harbor.db") -> str:
    """The first example of the README, on a store."""
    script = folder / "hello.py"
    script.write_text(pages.examples(ROOT / "README.md")[0].text.replace("sqlite:///harbor.db", dsn), encoding="utf-8")
    return run(programs / "python", "-I", "-W", "error", script, cwd=folder, env=clean(folder))


PYTHONS = [
    pytest.param(version, marks=[] if version == OWN else pytest.mark.left_to("matrix"))
    for version in matrix.supported()
]


@pytest.mark.left_to("full")
@pytest.mark.may_skip("a Python that is not on this machine; `make matrix` names it as not tested")
@pytest.mark.parametrize("version", PYTHONS)
def test_the_package_alone_runs_the_first_example_and_the_tour(
    version: str, built: Distribution, tmp_path: Path
) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"Python {version} is not on this machine")
    with environment(python, built.wheel) as programs:
        said = run(programs / "taskharbor", "--version", cwd=tmp_path, env=clean(tmp_path))
        assert said.strip() == f"taskharbor, version {VERSION}"
        assert hello(programs, tmp_path) == pages.examples(ROOT / "README.md")[0].prints
        tour = run(
            programs / "taskharbor", "demo", "--output", "json", "--folder", "tour", cwd=tmp_path, env=clean(tmp_path)
        )
        assert json.loads(tour)["succeeded"]
        refused = subprocess.run(
            [programs / "taskharbor", "stats", "--dsn", "postgresql://localhost/x"],
            cwd=tmp_path,
            env=clean(tmp_path),
            capture_output=True,
            text=True,
        )
        assert refused.returncode == 2
        assert "pip install 'taskharbor[postgres]'" in refused.stderr


@pytest.mark.left_to("matrix")
@pytest.mark.may_skip("a Python that is not on this machine; `make matrix` names it as not tested")
@pytest.mark.parametrize("version", matrix.supported())
def test_with_extras_every_module_is_there_and_every_store_works(
    version: str, built: Distribution, tmp_path: Path
) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"Python {version} is not on this machine")
    with environment(python, built.wheel, FOR_USERS) as programs:
        run(programs / "python", "-I", "-W", "error", "-c", EVERY_MODULE, cwd=tmp_path, env=clean(tmp_path))
        servers = postgres.shared(), redis.shared()
        for dsn in (servers[0].address(servers[0].store()), servers[1].url):
            assert hello(programs, tmp_path, dsn) == pages.examples(ROOT / "README.md")[0].prints


@pytest.mark.left_to("matrix")
def test_the_commands_that_install_it_work_as_they_are_typed(built: Distribution) -> None:
    """The block of the README, in a folder that holds what was published, with the package index."""
    (install,) = [
        block for block in pages.blocks((ROOT / "README.md").read_text("utf-8")) if "pip install" in block.text
    ]
    with Terminal(built.unpacked) as terminal:
        terminal.type(install.text)
        assert VERSION in terminal.type("taskharbor --version")
        assert str(built.unpacked) in terminal.type("command -v taskharbor")

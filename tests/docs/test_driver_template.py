"""The driver template passes the suite as it stands, keeps the protocol, and is what docs/writing-a-driver.md shows."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from taskharbor.drivers import kit
from tests import lanes
from tests.docs.pages import ROOT, blocks

TEMPLATE = ROOT / "examples" / "driver_template"
PACKAGE = TEMPLATE / "src" / "taskharbor_mystore"
PAGE = ROOT / "docs" / "writing-a-driver.md"
PLANNED = {"Facts", "JobFacts", "Lookup", "Plan", "PlanOutdated", "run_plan_async"}  # of a plan: in its own section


def run(*command: str, folder: Path = TEMPLATE, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.left_to("full")
def test_a_driver_that_follows_the_page_passes_the_suite(tmp_path):
    """Copied and renamed by the commands of the page. Only `pip install` is left out: pytest finds the package."""
    checkout = tmp_path / "checkout"
    leave = shutil.ignore_patterns("__pycache__", ".*")
    shutil.copytree(TEMPLATE, checkout / "examples" / "driver_template", ignore=leave)
    (commands,) = [block.text for block in blocks(PAGE.read_text(encoding="utf-8")) if block.language == "sh"]
    subprocess.run(["bash", "-e", "-c", commands], cwd=checkout, check=True, timeout=60)
    coral = tmp_path / "taskharbor-coral"
    assert not [file for file in coral.rglob("*") if "mystore" in file.name.lower()]
    quiet = {"PYTHONDONTWRITEBYTECODE": "1", "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path)}
    fewer = () if lanes.run() == "full" else ("-k", "not machine and not damaged_fields and not random_histories")
    pytest = ("pytest", "-q", "-p", "no:cacheprovider", *fewer)
    done = run(*pytest, "tests", folder=coral, TASKHARBOR_MACHINE_RUNS="10", **quiet)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout


def test_the_template_keeps_the_protocol(tmp_path):
    check = tmp_path / "check.py"
    check.write_text(
        "from taskharbor.drivers import Driver\n"
        "from taskharbor_mystore import MyStoreDriver\n\n"
        'driver: Driver = MyStoreDriver("mystore:///jobs.db")\n'
    )
    done = run("mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(check), MYPYPATH="src")
    assert done.returncode == 0, done.stdout + done.stderr


# docs/writing-a-driver.md, which walks through the template


def quotes() -> list[tuple[str, str]]:
    """The blocks of the page that quote the template: file and text."""
    return [
        (quoted[1], block.text)
        for block in blocks(PAGE.read_text(encoding="utf-8"))
        if (quoted := re.search(r"quoted from (\S+)", block.comment)) is not None
    ]


def test_the_page_quotes_the_template_to_the_letter():
    assert len(quotes()) >= 5
    for file, text in quotes():
        assert text.rstrip("\n") in (PACKAGE / file).read_text(encoding="utf-8"), f"{file} no longer has:\n{text}"


def test_the_page_explains_every_file_of_the_template():
    explained = set(re.findall(r"^\| `(\w+\.py)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert explained == {file.name for file in PACKAGE.glob("*.py")} - {"__init__.py"}


def test_the_page_and_the_module_name_the_whole_kit():
    page = PAGE.read_text(encoding="utf-8")
    table = page.partition("| for | the kit has |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", table)) - {"Seen"} == set(kit.__all__) - {*PLANNED}
    assert set(kit.__all__) <= set(re.findall(r"\w+", kit.__doc__ or ""))


@pytest.mark.parametrize("name", [name for name in kit.__all__ if callable(getattr(kit, name))])
def test_a_name_of_the_kit_has_an_example(name: str):
    shown = f"{getattr(kit, name).__doc__}\n{kit.__doc__}"
    assert re.search(rf"(?:>>>|\.\.\.) .*{name}\b", shown, re.IGNORECASE)

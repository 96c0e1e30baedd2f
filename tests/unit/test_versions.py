"""What pyproject.toml requires: bounds that can be tested, and nothing that the package does not import."""

import re

import pytest

from tests import versions
from tests.lanes import ROOT

BEYOND_THEIR_DOCUMENTS = {"msgspec", "psycopg", "redis", "prometheus-client", "cronsim"}
NOT_IMPORTED = {"tzdata": "zoneinfo reads its files where the system has no time zones"}
IMPORTS = re.compile(r"^\s*(?:import|from) ([A-Za-z_0-9]+)", re.MULTILINE)


def number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def test_a_library_that_is_used_beyond_its_documents_has_an_upper_bound():
    bounded = {name for name, _, bound in versions.requirements() if bound is not None}
    assert bounded == BEYOND_THEIR_DOCUMENTS


def test_the_package_imports_every_library_that_it_declares():
    sources = (ROOT / "src" / "taskharbor").rglob("*.py")
    imported = {name for path in sources for name in IMPORTS.findall(path.read_text(encoding="utf-8"))}
    declared = {name.replace("-", "_").removesuffix("_api") for name, _, _ in versions.requirements()}
    assert declared - imported == set(NOT_IMPORTED)


def test_the_pinned_version_is_within_the_bounds():
    pinned = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if "==" in line
    )
    pins = {versions.normal(name): version for name, version in pinned.items()}
    for name, lowest, bound in versions.requirements():
        assert number(lowest) <= number(pins[name])
        assert bound is None or number(pins[name]) < number(bound), name


def test_the_lowest_are_pinned_and_the_newest_are_free():
    ours = {versions.normal(name) for name, _, _ in versions.requirements()}
    free = {versions.normal(line.partition("==")[0]) for line in versions.constraints("newest")}
    assert not ours & free
    assert {f"{name}=={lowest}" for name, lowest, _ in versions.requirements()} <= set(versions.constraints("lowest"))


def test_a_requirement_without_a_lower_bound_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tomllib.load", lambda file: {"project": {"dependencies": ["rich"]}})
    monkeypatch.setattr(versions, "FOR_USERS", ())
    with pytest.raises(ValueError, match="expected name>=lowest"):
        list(versions.requirements())

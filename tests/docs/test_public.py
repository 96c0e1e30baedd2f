"""The list of public modules in docs/architecture.md: complete, true, and all that documents and examples need."""

import ast
import importlib
import re
from pathlib import Path

import pytest

from tests.docs import pages
from tests.docs.pages import ROOT, name_of

PAGE = ROOT / "docs" / "architecture.md"
SECTION = PAGE.read_text(encoding="utf-8").partition("## What is public")[2].partition("\n## ")[0]
PUBLIC = re.findall(r"^\| `(taskharbor[\w.]*)` \|", SECTION, re.MULTILINE)
# Pages for people who change the library itself: what they import is not meant for users.
INSIDE = {"docs/decisions.md", "docs/driver-contract.md", "docs/driver-sqlite.md", "docs/driver-postgres.md"}
INSIDE |= {"docs/driver-redis.md"}
# With __all__ for the entry points, or for their neighbours; not for users.
NOT_LISTED = {"taskharbor.cli", "taskharbor.tasks.handler", "taskharbor.django.api"}
NOT_LISTED |= {f"taskharbor.drivers.{name}" for name in ("memory", "sqlite", "postgres", "redis")}


def imported(text: str) -> set[tuple[str, str]]:
    """(module, name) of everything that a program imports from taskharbor."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "taskharbor":
            found |= {(node.module or "", alias.name) for alias in node.names}
        if isinstance(node, ast.Import):
            found |= {(alias.name, "*") for alias in node.names if alias.name.startswith("taskharbor.")}
    return found


def test_every_module_with_public_names_is_listed():
    source = ROOT / "src"
    declaring = {
        ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
        for path in (source / "taskharbor").rglob("*.py")
        if re.search(r"^__all__ = ", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert declaring - NOT_LISTED == set(PUBLIC)


@pytest.mark.parametrize("module", PUBLIC)
def test_a_listed_module_has_all_the_names_that_it_declares(module: str):
    loaded = importlib.import_module(module)
    needs_settings = {"harbor"} if module == "taskharbor.django" else set()  # of Django: tests/in_django has them
    assert [name for name in loaded.__all__ if name not in needs_settings and not hasattr(loaded, name)] == []


@pytest.mark.parametrize("page", [page for page in pages.PAGES if name_of(page) not in INSIDE], ids=name_of)
def test_a_page_for_users_imports_public_names_only(page: Path):
    for example in pages.examples(page):
        private = {(module, name) for module, name in imported(example.text) if not is_public(module, name)}
        assert not private, f"{name_of(page)}, line {example.line}"


EXAMPLES = [*(ROOT / "examples").glob("*/*.py"), *(ROOT / "examples" / "driver_template").rglob("*.py")]


@pytest.mark.parametrize("script", sorted(EXAMPLES), ids=name_of)
def test_an_example_imports_public_names_only(script: Path):
    private = {each for each in imported(script.read_text(encoding="utf-8")) if not is_public(*each)}
    assert not private


def is_public(module: str, name: str) -> bool:
    return module in PUBLIC and name in importlib.import_module(module).__all__

"""Reading the source of a program: its files, their syntax trees, and what stands where."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from taskharbor.cli.errors import usage_error
from taskharbor.model.safe_repr import shown

_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})
MAX_FILES = 20_000


@dataclass(frozen=True)
class Source:
    """A parsed file. `broken`: why it could not be parsed; its tree is then empty."""

    path: str
    tree: ast.Module
    broken: str = ""

    def __repr__(self) -> str:
        return shown(self)


def read(path: str | Path) -> Source:
    """Parse a file."""
    try:
        text = Path(path).read_bytes()
        return Source(str(path), ast.parse(text, str(path)))
    except (OSError, SyntaxError, ValueError) as error:
        return Source(str(path), ast.Module(body=[], type_ignores=[]), f"{type(error).__name__}: {error}")


def python_files(places: Iterable[Path]) -> Iterator[Path]:
    """The Python files among these files and below these folders; environments and hidden folders are left out."""
    number = 0
    for place in places:
        if not place.exists():
            raise usage_error(f"{place}: no such file or folder")
        for path in [place] if place.is_file() else _below(place):
            number += 1
            if number > MAX_FILES:
                raise usage_error(f"more than {MAX_FILES} Python files; name the folders of the program itself")
            yield path.resolve()


def _below(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_symlink() and path.is_dir():
            continue  # it may lead back here
        if path.is_dir():
            environment = path.name.startswith(".") or path.name in _SKIPPED or (path / "pyvenv.cfg").exists()
            if not environment:
                yield from _below(path)
        elif path.suffix == ".py":
            yield path


def imported_names(tree: ast.Module, package: str) -> dict[str, str]:
    """Local names that a file imports from a package, and what each stands for: {"g": "celery.group"}."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if node.module == package or node.module.startswith(f"{package}."):
                found |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
        elif isinstance(node, ast.Import):
            for each in node.names:
                if each.name == package or each.name.startswith(f"{package}."):
                    found[each.asname or package] = each.name if each.asname else package
    return found


def dotted(node: ast.expr) -> str:
    """`a.b.c` of a chain of names; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All functions of a file, nested ones and methods as well."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def first_line(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The line of its first decorator, else of its `def`."""
    return min([node.lineno, *(each.lineno for each in node.decorator_list)])


def line_of_entry(tree: ast.Module, name: str) -> int:
    """The first line on which this name is a key of a mapping or the `name=` of a call; 0 if there is none."""
    places: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            places += [key for key in node.keys if key is not None]
        elif isinstance(node, ast.Call):
            places += [each.value for each in node.keywords if each.arg == "name"]
    lines = [each.lineno for each in places if isinstance(each, ast.Constant) and each.value == name]
    return min(lines, default=0)


def short(node: ast.AST, room: int = 160) -> str:
    """The code of a node on one line."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= room else f"{text[: room - 1]}…"

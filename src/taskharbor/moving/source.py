"""Reading the source of a program: its files, their syntax trees, and what stands where."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

from taskharbor.model.safe_repr import shows
from taskharbor.moving.findings import Advice, Finding, Kind

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})
MAX_FILES = 20_000


class CannotRead(ValueError):
    """The files that were named cannot be read; the text says why."""


@shows()
@dataclass(frozen=True)
class Source:
    """A parsed file. `broken`: why it could not be parsed; its tree is then empty."""

    path: str
    tree: ast.Module
    broken: str = ""


def read(path: str | Path) -> Source:
    """Parse a file."""
    try:
        text = Path(path).read_bytes()
        return Source(str(path), ast.parse(text, str(path)))
    except (OSError, SyntaxError, ValueError) as error:
        return Source(str(path), ast.Module(body=[], type_ignores=[]), f"{type(error).__name__}: {error}")


def python_files(places: Iterable[Path]) -> Iterator[Path]:
    """The Python files among these files and below these folders; environments and hidden folders are left out."""
    left = MAX_FILES
    for place in places:
        if not place.exists():
            raise CannotRead(f"{place}: no such file or folder")
        for path in [place] if place.is_file() else _below(place):
            left -= 1
            if left < 0:
                raise CannotRead(f"more than {MAX_FILES} Python files; name the folders of the program itself")
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


def functions(tree: ast.Module) -> Iterator[Function]:
    """All functions of a file, nested ones and methods as well."""
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def first_line(node: Function) -> int:
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


@shows()
class CallArguments(NamedTuple):
    """What a call gives to a task: arguments, and options in our words."""

    positional: list[ast.expr]
    keywords: list[ast.keyword]
    options: list[ast.keyword]


class SourceWalk(ast.NodeVisitor):
    """Looks through a file, and knows whether an expression stands in a coroutine. `found`: what it found."""

    def __init__(self, source: Source, *packages: str) -> None:
        self.path = source.path
        self.names = {name: what for each in packages for name, what in imported_names(source.tree, each).items()}
        self.found: list[Finding] = []
        self._awaiting = [False]
        if source.broken:
            self.found.append(
                Finding(
                    kind="other", subject="cannot be read", file=source.path, advice=(Advice("missing", source.broken),)
                )
            )

    def visit(self, node: ast.AST) -> None:
        """Look at a node. A place that this report cannot translate is named in it, and does not end it."""
        try:
            super().visit(node)
        except Exception as error:
            if not isinstance(node, ast.expr):
                raise
            unknown = f"this report cannot translate it ({type(error).__name__}); translate it by hand"
            self.add("call", node, "not translated", "", [Advice("missing", unknown)])

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node, False)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node, True)

    def _function(self, node: Function, awaiting: bool) -> None:
        for each in node.decorator_list:
            if not isinstance(each, ast.Call):  # @app.task(…) belongs to the finding of its task
                self.visit(each)
        self._awaiting.append(awaiting)
        for part in (*node.args.defaults, *node.body):
            self.visit(part)
        self._awaiting.pop()

    def add(self, kind: Kind, node: ast.expr, subject: str, ours: ast.expr | str, advice: Iterable[Advice]) -> None:
        """A finding about an expression."""
        finding = Finding(
            kind=kind,
            subject=subject,
            file=self.path,
            line=node.lineno,
            theirs=short(node),
            ours=ours if isinstance(ours, str) else ast.unparse(ast.fix_missing_locations(ours)),
            advice=tuple(dict.fromkeys(advice)),
        )
        self.found.append(finding)

    def meaning(self, func: ast.expr) -> str:
        """What a name stands for, `celery.group`, if it comes from one of the packages; else nothing."""
        root, dot, rest = dotted(func).partition(".")
        return f"{self.names[root]}{dot}{rest}" if root in self.names else ""

    def enqueued(self, target: ast.expr, given: CallArguments) -> ast.expr:
        """`target.options(…).enqueue(…)`, awaited in a coroutine."""
        verb = ast.Attribute(with_options(target, given.options), "aenqueue" if self._awaiting[-1] else "enqueue")
        call = ast.Call(verb, given.positional, given.keywords)
        return ast.Await(call) if self._awaiting[-1] else call


def is_untyped(node: Function, skipped: int = 0) -> bool:
    """Whether a parameter has no annotation; the first ones may be skipped."""
    positional = [*node.args.posonlyargs, *node.args.args][skipped:]
    return any(each.annotation is None for each in (*positional, *node.args.kwonlyargs))


def with_options(target: ast.expr, options: list[ast.keyword]) -> ast.expr:
    """`target.options(…)`; the target itself if there are none."""
    return ast.Call(ast.Attribute(target, "options"), [], options) if options else target


def named_arguments(node: ast.Call) -> dict[str, ast.expr]:
    """The arguments that a call gives by name."""
    return {each.arg: each.value for each in node.keywords if each.arg is not None}


def first_argument(node: ast.Call) -> str:
    return short(node.args[0]) if node.args else "…"


def short(node: ast.AST, room: int = 160) -> str:
    """The code of a node on one line."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= room else f"{text[: room - 1]}…"

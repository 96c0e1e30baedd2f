"""`python -m tests.architecture.figures`: the figures of the house, to compare before and after a change.

`test_house.py` holds the limits; this module counts, and decides nothing.
"""

import ast
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "taskharbor"
LANGUAGES = {"Python": ".py", "SQL": ".sql", "Lua": ".lua"}

SQL_FUNCTION = re.compile(r"^create (?:or replace )?(?:function|procedure) ([\w.{}\"]+)", re.IGNORECASE)
LUA_FUNCTION = re.compile(r"^( *)(?:local )?(?:function ([\w.:]+)|([\w.]+) = function)\b")
EXEMPTION = re.compile(r"# (type: ignore\S*|noqa(?:: ?[A-Z0-9, ]+)?)(.*)$")


class Function(NamedTuple):
    """A function, and how many lines it has."""

    lines: int
    name: str
    place: str


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def files(suffix: str) -> list[Path]:
    """The files of a language in src."""
    return sorted(SOURCE.rglob(f"*{suffix}"))


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


# Functions


def functions(path: Path) -> Iterator[Function]:
    """The functions of a file."""
    found = {".py": _python, ".sql": _sql, ".lua": _lua}[path.suffix]
    for lines, name in found(path):
        yield Function(lines, name, place(path))


def _python(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.end_lineno - node.lineno + 1, node.name


def _sql(path: Path) -> Iterator[tuple[int, str]]:
    """From `create function` to the line that closes its body: the second with a dollar quote."""
    name, began, quotes = "", 0, 0
    for number, line in enumerate(lines_of(path)):
        if found := SQL_FUNCTION.match(line):
            name, began, quotes = found[1], number, 0
        quotes += len(re.findall(r"\$\w*\$", line))
        if name and quotes >= 2:
            yield number - began + 1, name
            name = ""


def _lua(path: Path) -> Iterator[tuple[int, str]]:
    """From `function` to the `end` with the same indentation."""
    lines = lines_of(path)
    for number, line in enumerate(lines):
        if found := LUA_FUNCTION.match(line):
            closing = f"{found[1]}end"
            if re.search(r"\bend\b\W*$", line):
                yield 1, found[2] or found[3]
                continue
            last = next((at for at in range(number + 1, len(lines)) if lines[at].startswith(closing)), len(lines) - 1)
            yield last - number + 1, found[2] or found[3]


def all_functions(suffix: str) -> list[Function]:
    return sorted((each for path in files(suffix) for each in functions(path)), reverse=True)


# Names and exemptions


def classes() -> dict[str, list[str]]:
    """Class name → the files of src in which a class of that name is."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in files(".py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(place(path))
    return found


def twice() -> dict[str, list[str]]:
    """The class names that are not private and exist in two or more places."""
    return {name: where for name, where in classes().items() if len(where) > 1 and not name.startswith("_")}


class Exemption(NamedTuple):
    """A `type: ignore` or a `noqa`."""

    what: str
    where: str
    reason: str


def exemptions(paths: Iterable[Path]) -> Iterator[Exemption]:
    """What is exempt from mypy or ruff, and why."""
    for path in paths:
        for number, line in enumerate(lines_of(path), 1):
            if found := EXEMPTION.search(line):
                rest = found[2].partition("#")[2] or found[2]
                what = "type: ignore" if found[1].startswith("type") else "noqa"
                yield Exemption(what, f"{place(path)}:{number}", rest.strip(" #-:"))


# The table


def table() -> Iterator[str]:
    """Line by line."""
    for language, suffix in LANGUAGES.items():
        sizes = {place(path): len(lines_of(path)) for path in files(suffix)}
        longest = max(sizes, key=lambda name: sizes[name])
        made = all_functions(suffix)
        median = statistics.median(sizes.values())
        yield f"{language}: {len(sizes)} files, {sum(sizes.values()):,} lines, median {median:g}"
        yield f"  longest file      {sizes[longest]:4}  {longest}"
        over = sum(each.lines > 40 for each in made), sum(each.lines > 60 for each in made)
        yield f"  functions         {len(made):4}, {over[0]} over 40 lines, {over[1]} over 60"
        for each in made[:3]:
            yield f"  longest function  {each.lines:4}  {each.name} in {each.place}"
    yield "drivers/:"
    folder = SOURCE / "drivers"
    for name in ["", *sorted(each.name for each in folder.iterdir() if each.is_dir() and each.name != "__pycache__")]:
        counts = {suffix: list((folder / name).rglob(f"*{suffix}")) for suffix in LANGUAGES.values()}
        texts = [
            f"{len(paths)} {suffix[1:]} files {sum(len(lines_of(path)) for path in paths):,} lines"
            for suffix, paths in counts.items()
            if paths
        ]
        yield f"  {name or 'all':<10} {', '.join(texts)}"
    doubled = twice()
    yield f"class names that exist twice: {len(doubled)}"
    yield f"  {', '.join(f'{name}×{len(where)}' for name, where in sorted(doubled.items()))}"
    for folder_name in ("src", "tests", "bench", "examples"):
        found = list(exemptions(sorted((ROOT / folder_name).rglob("*.py"))))
        counted, bare = Counter(each.what for each in found), Counter(each.what for each in found if not each.reason)
        texts = [f"{what} {counted[what]} ({bare[what]} without a reason)" for what in ("type: ignore", "noqa")]
        yield f"{folder_name}: {', '.join(texts)}"


if __name__ == "__main__":
    print("\n".join(table()))

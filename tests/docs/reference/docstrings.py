"""Reading docstrings: their paragraphs, examples and lists of options, and the explanations of fields.

The convention, for what a docstring alone must explain:

- a paragraph `Options:` with a line `name: explanation` for each option, longer ones indented further;
- a field of a class: a docstring right below it, or a comment behind it, or its name in backquotes in the docstring of
  the class.
"""

import ast
import inspect
import re
import textwrap
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

LIST = "Options:"


class Parsed(NamedTuple):
    """A docstring: its Markdown, and its options by name."""

    text: str
    options: dict[str, str]


def parse(docstring: str) -> Parsed:
    """Split a docstring into Markdown and options."""
    paragraphs: list[str] = []
    options: dict[str, str] = {}
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(docstring)):
        lines = paragraph.splitlines()
        if not lines:
            continue
        if lines[0].strip() == LIST:
            options.update(_options(lines[1:]))
        elif lines[0].startswith(">>>"):
            paragraphs.append(f"```pycon\n{paragraph}\n```")
        elif all(line.startswith("    ") for line in lines):
            paragraphs.append(f"```text\n{textwrap.dedent(paragraph)}\n```")
        else:
            paragraphs.append("\n".join(lines if lines[0].startswith("- ") else [" ".join(lines)]))
    return Parsed("\n\n".join(escape(each) for each in paragraphs), options)


def _options(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    name = ""
    for line in textwrap.dedent("\n".join(lines)).splitlines():
        if not line.startswith(" "):
            name, mark, line = line.partition(": ")
            if not mark:
                raise ValueError(f"expected `name: explanation` in a list of options, got {name!r}")
        found[name] = f"{found.get(name, '')} {line.strip()}".strip()
    return found


def escape(text: str) -> str:
    """Markdown that shows angle brackets outside of code as they are."""
    if text.startswith("```"):
        return text
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in re.split(r"(`[^`]*`)", text))


def cell(text: str) -> str:
    """Text for a cell of a table."""
    return escape(" ".join(text.split())).replace("|", "\\|")


class Field(NamedTuple):
    """A field of a class, as it is written: its annotation, its default ("" without one) and its explanation."""

    name: str
    annotation: str
    default: str
    explanation: str


def fields(kind: type[Any]) -> list[Field]:
    """The fields that a class and its bases in this package declare, those of the bases first."""
    found: dict[str, Field] = {}
    for each in reversed(kind.__mro__):
        if each.__module__.startswith("taskharbor."):
            found.update({field.name: field for field in _own_fields(each)})
    wanted = getattr(kind, "__struct_fields__", None) or getattr(kind, "__annotations__", {})
    return [found[name] for name in wanted if name in found and not name.startswith("_")]


@cache
def _parsed(file: str) -> tuple[list[str], dict[str, ast.ClassDef]]:
    """The lines of a file, and its classes by name: read once, because a file has many classes."""
    text = Path(file).read_text(encoding="utf-8")
    found = {node.name: node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)}
    return text.splitlines(), found


def _own_fields(kind: type[Any]) -> list[Field]:
    lines, classes = _parsed(inspect.getfile(kind))
    body = classes[kind.__name__].body
    about = inspect.cleandoc(kind.__doc__ or "")
    found = []
    for node, following in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        annotation = ast.unparse(node.annotation)
        if annotation.startswith("ClassVar"):
            continue
        said = text_of(following)
        if not said:
            comment = lines[(node.end_lineno or node.lineno) - 1].partition("  # ")[2]
            said = f"{comment[0].upper()}{comment[1:]}." if comment and "type:" not in comment else ""
        if not said and f"`{node.target.id}`" in about:
            said = "See above."
        default = "" if node.value is None else ast.unparse(node.value)
        found.append(Field(node.target.id, annotation, default, said))
    return found


def members(kind: type[Any]) -> list[tuple[str, str]]:
    """The members of an enumeration, with the docstring below each."""
    body = _parsed(inspect.getfile(kind))[1][kind.__name__].body
    found = []
    for node, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found.append((ast.literal_eval(node.value), text_of(following)))
    return found


def text_of(node: ast.stmt | None) -> str:
    """The docstring below a field or a member, if that is what follows."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return node.value.value
    return ""

"""Public objects as Markdown: classes with their fields and methods, functions, errors, enumerations, type aliases.

A blocking method and its awaitable twin (`enqueue`, `aenqueue`) are one entry.
"""

import ast
import enum
import importlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from taskharbor.client.store_calls import StoreCalls
from taskharbor.omniq import OmniQ
from tests.docs.reference.docstrings import Field, cell, fields, members, parse, text_of

WIDTH = 100
TWINS = {"await_": "wait", "afollow": "follow"}
SHOWN_AS = {
    "Harbor.task": "@harbor.task\n@harbor.task(**options)",
    "Harbor.on_dead": '@harbor.on_dead(pattern="*", **options)',
    "Depends": "Depends(function)",
    "Given": "Given()",
}
"""Signatures that say more than the function's own, whose parameters are for its overloads."""

MADE_FOR_USERS = frozenset(
    {"Task", "Step", "Flow", "CancelSignal", "JobContext", "MetricsServer", "NotActive", "TokenMismatch"}
)
"""Classes whose instances come from a call of another name: `harbor.task`, `task.s`, `chain`, a handler's parameter."""

FIRST = {
    "Harbor": (
        "task", "on_dead", "worker", "schedule", "enqueue_many", "job", "jobs", "dead", "flow", "flows", "schedules",
        "queues", "pause", "resume", "is_paused", "counts", "workers", "operation", "audit", "observe", "override",
    ),
    "Task": ("options", "enqueue", "s", "job"),
    "Worker": ("run", "stop"),
}  # fmt: skip
"""What most readers look for comes before the rest, which is in the order of the source."""

INTERNAL = {
    "Step": {"call", "lacking"},
    "Task": {"declared"},
    "Flow": {"compile", "is_parallel"},
    "FlowRun": {"of"},
    "AuditEntry": {"stored"},
    "JobRequest": {"call"},
    "JsonCodec": {"encode_as", "reader"},
    "Faults": {"alone", "take", "saw", "note", "lost"},
    "CancelSignal": {"set"},
    "Client": {name for name in vars(StoreCalls) if not name.startswith("_")},  # the harbor's, which explains them
    "Worker": {"channel"},
    "AsyncOmniQ": {name for name in vars(OmniQ) if not name.startswith("_")},  # those of OmniQ, awaited
}  # fmt: skip
"""Methods that other parts of the library call."""

EXPLAINED_ONCE = frozenset({"by", "now_ms_override"})
"""Parameters that every method takes in the same sense: the reference explains them on its first page, or the page."""


class Callable_(NamedTuple):
    """A function or method to show: its name, the thing itself, its docstring, its awaitable twin."""

    name: str
    function: Any  # a function, or a property
    doc: str
    twin: str = ""


def section(path: str, level: int = 2) -> Iterator[str]:
    """The Markdown of a public object, `taskharbor.flow:chain`."""
    module, _, name = path.partition(":")
    found = getattr(importlib.import_module(module), name)
    yield from (f"{'#' * level} {name}", "")
    if name in getattr(sys.modules[module], "__all__", ()):
        yield from (f"`from {module} import {name}`", "")
    if inspect.isclass(found) and issubclass(found, enum.Enum):
        yield from _enumeration(found)
    elif inspect.isclass(found):
        yield from _class(found, name, level)
    elif inspect.isroutine(found):
        yield from _callable(Callable_(name, found, found.__doc__ or ""))
    else:
        yield from (parse(alias_docstring(module, name)).text, "")


def brief(module: str) -> Iterator[str]:
    """A table of all names of a module, each with the first paragraph of its docstring."""
    loaded = importlib.import_module(module)
    yield from (
        f"## {module}",
        "",
        parse(loaded.__doc__ or "").text.split("\n\n")[0],
        "",
        "| name | |",
        "| --- | --- |",
    )
    for name in loaded.__all__:
        value = getattr(loaded, name)
        documented = inspect.isclass(value) or inspect.isroutine(value)
        text = inspect.getdoc(value) if documented else alias_docstring(module, name)
        yield f"| `{name}` | {cell((text or '').partition(chr(10) * 2)[0])} |"
    yield ""


def _enumeration(kind: type[enum.Enum]) -> Iterator[str]:
    yield from (parse(kind.__doc__ or "").text, "", "| member | |", "| --- | --- |")
    yield from (f"| `{value}` | {cell(said)} |" for value, said in members(kind))
    yield ""
    for each in methods(kind):
        yield from _method(kind.__name__, each, 2)


def _class(kind: type[Any], name: str, level: int) -> Iterator[str]:
    about = parse(kind.__doc__ or "")
    shown = own_fields(kind)
    if kind.__init__ is not object.__init__ and _is_ours(kind.__init__) and is_made_by_users(kind):
        yield from signature(kind.__name__, kind.__init__)
    yield from (about.text, "")
    own = parse(kind.__init__.__doc__ or "") if _is_ours(kind.__init__) else parse("")
    if own.text:
        yield from (own.text, "")
    yield from option_table({**about.options, **own.options}, _annotations(kind.__init__))
    if shown:
        yield from field_table(shown)
    for each in methods(kind):
        yield from _method(name, each, level)


def is_made_by_users(kind: type[Any]) -> bool:
    """Whether a program calls the class itself. Handles and listings are made by methods."""
    return (
        not {"client", "store"} & set(inspect.signature(kind.__init__).parameters)
        and kind.__name__ not in MADE_FOR_USERS
    )


def own_fields(kind: type[Any]) -> list[Field]:
    """The fields to explain: those of a filter are the options of the method that makes it."""
    return [] if "Its fields are the options of" in " ".join((kind.__doc__ or "").split()) else fields(kind)


def field_table(shown: list[Field]) -> Iterator[str]:
    """A table of fields."""
    yield from ("| field | |", "| --- | --- |")
    for each in shown:
        default = f" = {each.default}" if each.default and not each.default.startswith(("msgspec", "field(")) else ""
        yield _row(each.name, f"{each.annotation}{default}", each.explanation)
    yield ""


def option_table(options: dict[str, str], annotations: dict[str, str]) -> Iterator[str]:
    """A table of options, with their types."""
    if options:
        yield from ("| option | |", "| --- | --- |")
        yield from (_row(name, annotations.get(name, ""), said) for name, said in options.items())
        yield ""


def _row(name: str, kind: str, said: str) -> str:
    """A row that is readable on a narrow screen: the name alone, then the type and the explanation."""
    code = kind.replace("|", "\\|")
    return f"| `{name}` | {f'`{code}`. ' if kind else ''}{cell(said)} |"


def methods(kind: type[Any]) -> Iterator[Callable_]:
    """The public methods and properties of a class, its own before those of its bases, twins together."""
    found: dict[str, Callable_] = {}
    left_out = {name for each in kind.__mro__ if not _is_our_class(each) for name in vars(each)}
    left_out |= INTERNAL.get(kind.__name__, set())  # and what overrides a method of Python's own classes
    for owner in filter(_is_our_class, kind.__mro__):
        for name, value in vars(owner).items():
            if name.startswith("_") or name in found or name in left_out:
                continue
            value = getattr(value, "__func__", value)
            function = value.fget if isinstance(value, property) else getattr(value, "_function", value)
            if inspect.isfunction(function):
                found[name] = Callable_(name, value if isinstance(value, property) else function, value.__doc__ or "")
    first = FIRST.get(kind.__name__, ())
    found = {name: found[name] for name in sorted(found, key=lambda name: first.index(name) if name in first else 99)}
    twins = {name: TWINS.get(name, name[1:]) for name in found}
    for name, each in found.items():
        if twins[name] in found and (name in TWINS or name.startswith("a")) and twins[name] != name:
            continue
        twin = next((other for other, of in twins.items() if of == name and other != name and other in found), "")
        yield each._replace(twin=twin)


def _is_our_class(kind: type[Any]) -> bool:
    return kind.__module__.startswith("taskharbor.")


def _method(owner: str, each: Callable_, level: int) -> Iterator[str]:
    yield from (f"{'#' * (level + 1)} {owner}.{each.name}", "")
    if isinstance(each.function, property):
        kind = inspect.signature(each.function.fget or len).return_annotation
        yield from (parse(each.doc).text, "", f"Property: `{kind}`", "")
    else:
        yield from _callable(each._replace(name=f"{owner}.{each.name}"))


def _callable(each: Callable_) -> Iterator[str]:
    about = parse(each.doc)
    yield from signature(each.name, each.function)
    yield from (about.text, "")
    if each.twin:
        yield from (f"`{each.twin}` is the same, awaited.", "")
    yield from option_table(about.options, _annotations(each.function))


def signature(name: str, function: Callable[..., Any]) -> Iterator[str]:
    """A call as Python writes it, on one line if it fits."""
    text = SHOWN_AS.get(name) or written(name.rpartition(".")[2], function)
    yield from ("<!-- not run: a signature -->", "```python", text, "```", "")


def written(name: str, function: Callable[..., Any]) -> str:
    """`name(parameters) -> type`, in several lines if it is long."""
    found = inspect.signature(function)
    parts: list[str] = []
    keyword = False
    for each in found.parameters.values():
        if each.name in ("self", "cls"):
            continue
        keyword = keyword or each.kind is each.VAR_POSITIONAL
        if each.kind is each.KEYWORD_ONLY and not keyword:
            parts, keyword = [*parts, "*"], True
        parts.append(_parameter(each))
    plain = found.return_annotation in (found.empty, "None", None)
    result = "" if plain else f" -> {_annotation(found.return_annotation)}"
    line = f"{name}({', '.join(parts)}){result}"
    return line if len(line) <= WIDTH else "\n".join((f"{name}(", *(f"    {part}," for part in parts), f"){result}"))


def _parameter(each: inspect.Parameter) -> str:
    star = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
    kind = "" if each.annotation is each.empty else f": {_annotation(each.annotation)}"
    if star == "**" and "Unpack[" in kind:  # the table of options says more
        kind = ""
    if each.default is each.empty:
        return f"{star}{each.name}{kind}"
    return f"{each.name}{kind}{' = ' if kind else '='}{_default(each.default)}"


def _annotation(value: Any) -> str:
    text = value if isinstance(value, str) else getattr(value, "__name__", str(value))
    text = re.sub(r"\b(?:taskharbor|collections|typing|datetime|builtins|logging)\.(?:\w+\.)*(?=\w)", "", text)
    return re.sub(r"\b(\w)_co\b", r"\1", text)


def _default(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value)
    text = "UNSET" if type(value).__name__ == "UnsetType" else repr(value)
    if " at 0x" in text:  # an object, whose text would differ from run to run
        return "..."
    return re.sub(r"\b(?:datetime|typing)\.(?=\w)", "", text)


def _annotations(function: Callable[..., Any]) -> dict[str, str]:
    """The annotations of parameters by name, and those of the TypedDict that `**options` unpacks."""
    found: dict[str, str] = {}
    if not _is_ours(function):
        return found
    for name, each in inspect.signature(function).parameters.items():
        if each.kind is each.VAR_KEYWORD and (unpacked := re.match(r"Unpack\[(\w+)\]", str(each.annotation))):
            found.update(typed_dict(function, unpacked[1]))
        elif each.annotation is not each.empty:
            found[name] = _annotation(each.annotation)
    return found


def typed_dict(function: Callable[..., Any], name: str) -> dict[str, str]:
    """The fields of a TypedDict that a function's module imports, as they are written."""
    module = importlib.import_module(function.__module__)
    kind = getattr(module, name, None)
    if kind is None:  # imported for type checkers alone
        home = _imported_from(module, name)
        kind = getattr(importlib.import_module(home), name)
    return {each.name: each.annotation for each in fields(kind)}


def _imported_from(module: Any, name: str) -> str:
    for node in ast.walk(ast.parse(Path(module.__file__).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            return node.module or ""
    return str(module.__name__)


def alias_docstring(module: str, name: str) -> str:
    """The text below the assignment of a type alias or constant, wherever it was defined."""
    loaded = importlib.import_module(module)
    home = _imported_from(loaded, name)
    if home != module:
        return alias_docstring(home, name)
    body = ast.parse(Path(loaded.__file__ or "").read_text(encoding="utf-8")).body
    for node, following in pairwise(body):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(each, ast.Name) and each.id == name for each in targets):
            return text_of(following)
    return ""


def _is_ours(function: Any) -> bool:
    return inspect.isfunction(function) and (function.__module__ or "").startswith("taskharbor.")


def unexplained(path: str) -> list[str]:
    """What the docstrings of a public object leave open: a missing one, an option or a field without a word."""
    module, _, name = path.partition(":")
    found = getattr(importlib.import_module(module), name)
    if not inspect.isclass(found) and not inspect.isroutine(found):
        return [] if alias_docstring(module, name) else [f"{path}: no docstring"]
    open_ones = [] if found.__doc__ else [f"{path}: no docstring"]
    if inspect.isroutine(found):
        return open_ones + _open_options(name, found, found.__doc__ or "")
    if issubclass(found, enum.Enum):
        open_ones += [f"{name}.{value}: no docstring" for value, said in members(found) if not said]
    else:
        open_ones += [f"{name}.{each.name}: no explanation" for each in own_fields(found) if not each.explanation]
    if _is_ours(found.__init__) and is_made_by_users(found):
        both = f"{found.__doc__ or ''}\n{found.__init__.__doc__ or ''}"
        named = {f"{name}({each.name}=…): not explained" for each in fields(found)}  # a dataclass: its fields
        open_ones += [each for each in _open_options(name, found.__init__, both) if each not in named]
    for each in methods(found):
        if not each.doc:
            open_ones.append(f"{name}.{each.name}: no docstring")
        elif not isinstance(each.function, property):
            open_ones += _open_options(f"{name}.{each.name}", each.function, each.doc)
    return open_ones


def _open_options(name: str, function: Callable[..., Any], doc: str) -> list[str]:
    """The parameters with a default that a docstring does not name in backquotes or in its list of options."""
    said = parse(doc).options
    wanted = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD and "Unpack" in str(parameter.annotation):
            unpacked = str(parameter.annotation)[len("Unpack[") : -1]
            wanted += [] if "options are those" in doc else list(typed_dict(function, unpacked))
        elif parameter.default is not parameter.empty or parameter.kind is parameter.KEYWORD_ONLY:
            wanted.append(parameter.name)
    open_ones = {each for each in wanted if not each.startswith("_")} - EXPLAINED_ONCE - set(said)
    named = set(re.findall(r"`(\w+)", doc))
    return [f"{name}({each}=…): not explained" for each in wanted if each in open_ones - named]

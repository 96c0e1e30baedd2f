"""The pages of the reference, docs/reference/*.md, put together: `python -m tests.docs.reference` writes them."""

import importlib
import inspect
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import taskharbor
from taskharbor import events
from taskharbor.model import errors
from tests.docs.reference import objects
from tests.docs.reference.catalogue import PAGES, Page
from tests.docs.reference.docstrings import cell, fields, parse
from tests.docs.reference.environment import VARIABLES

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "reference"
MARK = "<!-- Made from the docstrings by `make docs`. Change those, not this page. -->"

STORES = {
    "memory": ("Memory", "For tests and trials: everything is forgotten with the process."),
    "sqlite": ("SQLite", "A file: [SQLite](../driver-sqlite.md)."),
    "postgres": ("Postgres", "[Postgres](../driver-postgres.md). Needs `pip install 'taskharbor[postgres]'`."),
    "redis": ("Redis", "[Redis](../driver-redis.md), Valkey, a Cluster. Needs `pip install 'taskharbor[redis]'`."),
}

INDEX = """# Reference

{mark}

Every public name, option, method and event, made from the docstrings. `help(Harbor.task)` in Python shows the same.

| page | |
| --- | --- |
{pages}

And [the command line](../cli.md), which is made from its own help texts.

## What holds everywhere

- **Twins.** A blocking method has a twin for `async` code, named with an `a` in front: `enqueue` and `aenqueue`,
  `result` and `aresult`. A blocking method on a running event loop raises
  [`BlockingCall`](errors.md#blockingcall), which names the twin.
- **Durations** (`Duration`) are seconds, as a number, or a `timedelta`. **Moments** are `datetime`s with a time zone.
- A call to the store may take 10 seconds, with all its retries; then it raises
  [`BackendUnavailable`](errors.md#backendunavailable). `Harbor(call_timeout=…)` changes that for all calls,
  `harbor.within(seconds)` for some.
- **`by`** is the name of the person or program that acts, for the [audit](../dead-letters.md#the-audit). Without it:
  `$TASKHARBOR_BY`, else the user and the machine.
- Options are given by name. An unknown one is an error that names the known ones.
- What is not on these pages may change in any release: [What is public](../architecture.md#what-is-public).
"""


def pages() -> dict[str, str]:
    """The text of every page, by its file name."""
    rows = "\n".join(f"| [{page.title}]({page.file}.md) | {page.purpose} |" for page in PAGES)
    found = {"README.md": INDEX.format(mark=MARK, pages=rows)}
    for page in PAGES:
        special = SPECIAL.get(page.file)
        lines = [f"# {page.title}", "", MARK, ""]
        if page.opening:
            lines += [page.opening, ""]
        lines += special() if special else _body(page)
        found[f"{page.file}.md"] = "\n".join(lines).rstrip() + "\n"
    return found


def _body(page: Page) -> list[str]:
    lines = [line for path in page.shows for line in objects.section(path)]
    return lines + [line for module in page.brief for line in objects.brief(module)]


# Errors


def _errors() -> list[str]:
    tree = inspect.cleandoc(errors.__doc__ or "").partition("TaskHarborError\n")[2].partition("\n\n")[0]
    drawn = "\n".join(["TaskHarborError", *(line.removeprefix("    ") for line in tree.splitlines())])
    lines = [
        "Everything that the library raises on purpose is a `TaskHarborError`, except `TypeError` and `ValueError` for",
        "a wrong argument and `TimeoutError` for a wait that was too short.",
        "",
        *("```text", drawn, "```", ""),
        "All names are in `taskharbor`.",
        "",
    ]
    for kind in error_classes(errors.TaskHarborError):
        lines += _error(kind)
    lines += [
        "## Signals of a handler",
        "",
        "Not errors: a handler raises them to choose how its job ends. All other endings are in",
        "[How a handler can end](../semantics.md#how-a-handler-can-end).",
        "",
    ]
    for kind in error_classes(errors.HandlerSignal):
        lines += _error(kind, level=3)
    return lines


def error_classes(root: type[BaseException]) -> list[type[BaseException]]:
    """The public classes of a tree of errors, in the order of their definition."""
    found = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, root)]
    return [kind for kind in found if kind.__name__ in taskharbor.__all__]


def _error(kind: type[BaseException], level: int = 2) -> Iterator[str]:
    yield from (f"{'#' * level} {kind.__name__}", "")
    if "__init__" in vars(kind):
        yield from objects.signature(kind.__name__, kind.__init__)
    yield from (parse(kind.__doc__ or "").text, "")


# Events


def _events() -> list[str]:
    observer = objects.alias_docstring("taskharbor.events", "Observer")
    lines = ["All names are in `taskharbor.events`. Fields of a base class are those of all events below it.", ""]
    lines += ["## Observer", "", parse(observer).text, ""]
    kinds: list[Any] = [getattr(events, name) for name in events.__all__ if name != "Observer"]
    bases = [kind for kind in kinds if any(other is not kind and issubclass(other, kind) for other in kinds)]
    for kind in [*bases, *(kind for kind in kinds if kind not in bases)]:
        lines += _event(kind, is_base=kind in bases)
    return lines


def _event(kind: Any, *, is_base: bool) -> Iterator[str]:
    yield from (f"## {kind.__name__}", "", parse(kind.__doc__ or "").text, "")
    base = kind.__mro__[1]
    if not is_base:
        known = "" if base is events.Event else f"A [`{base.__name__}`](#{base.__name__.lower()}). "
        yield from (f"{known}Logged at {logging.getLevelName(kind.level)}.", "")
    if kind.advice:
        yield from (f"What to check: {kind.advice}", "")
    inherited = {each.name for each in fields(base)} if base.__module__.startswith("taskharbor.") else set()
    own = [each for each in fields(kind) if each.name not in inherited]
    if own:
        yield from objects.field_table(own)


# Stores and environment


def _stores() -> list[str]:
    lines = [
        "A DSN names a store. Options are behind a `?`, joined by `&`:",
        "`sqlite:///jobs.db?retention=7d&synchronous=normal`. Durations are a number of seconds, or one with a unit:",
        "`500ms`, `90s`, `15m`, `36h`, `7d`. Write `/ ? # @ : %` in a password as `%2F %3F %23 %40 %3A %25`. An",
        "unknown option is an error that names the known ones; an error never shows a password.",
        "",
    ]
    for name, (title, opening) in STORES.items():
        about = parse(store_options(name).__doc__ or "")
        text = [each for each in about.text.split("\n\n")[1:] if not each.startswith("```")]
        lines += [f"## {title}", "", opening, "", "\n\n".join(text), ""]
        lines += objects.option_table(about.options, {})
    return lines


def store_options(name: str) -> Any:
    """The class that holds what the DSN of a driver says; its docstring explains the options."""
    return getattr(importlib.import_module(f"taskharbor.drivers.{name}.options"), f"{name.capitalize()}Options")


def _environment() -> list[str]:
    rows = [f"| `{name}` | {cell(said)} |" for name, said in VARIABLES.items()]
    return ["| variable | |", "| --- | --- |", *rows, ""]


SPECIAL = {"errors": _errors, "events": _events, "stores": _stores, "environment": _environment}

"""Which store a command works on: the options that all commands share, and how they become a driver.

`--dsn` wins over the store that the app's code names, which wins over $TASKHARBOR_DSN, which wins over the default: a
SQLite file in this folder. So a command and the program that it belongs to use one store, unless a person asks for
another. A variable that is set and not used is said. The options may stand before the command's name as well as after
it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlsplit

import click

from taskharbor.cli.errors import CommandError, as_usage_error, usage_error
from taskharbor.cli.options import OptionDecorator, choice, together, word
from taskharbor.store.text import one_line

if TYPE_CHECKING:
    from taskharbor.drivers.base import Driver
    from taskharbor.harbor import Harbor
    from taskharbor.tasks.task import Task

F = TypeVar("F", bound=Callable[..., Any])

ENVIRONMENT = "TASKHARBOR_DSN"
OUTPUTS = ("table", "json")
_REDIS = ("rediss", "redis+cluster", "redis+sentinel", "redis+unix", "unix")
_FAMILIES = {"postgresql": "postgres", **dict.fromkeys(_REDIS, "redis")}


class Target:
    """The store that a command works on, and the format of its output."""

    def __init__(
        self,
        *,
        dsn: str | None = None,
        driver: str | None = None,
        app: str | None = None,
        output: str | None = None,
        imports: Sequence[str] = (),
    ) -> None:
        self.typed = dsn or None
        self.given = self.typed or (os.environ.get(ENVIRONMENT) or None if app is None else None)
        self.in_code: Driver | str | None = None  # the store that the app's code names; known when it is imported
        self.notes_unused = False  # whether a variable that is not used is said when a driver is made
        self.kind = driver
        self.app = app
        self.imports = tuple(imports)
        if self.imports and app is None:
            raise usage_error("--import needs --app, which names the Harbor that the module declares its tasks on")
        self.output = output or "table"

    def __repr__(self) -> str:
        return f"Target(app={self.app!r}, output={self.output!r})"

    @property
    def json(self) -> bool:
        """Whether the output is JSON, for a script."""
        return self.output == "json"

    @functools.cached_property
    def harbor(self) -> Harbor | None:
        """The Harbor that `--app` names, switched to the store of `--dsn` if that is given."""
        if self.app is None:
            return None
        from taskharbor.cli.app import load

        found = load(self.app, self.imports)
        self.in_code = found._store.drivers.source
        if self.given is not None:
            found._store.use(self.given)
        return found

    @functools.cached_property
    def dsn(self) -> str | None:
        """The store's address, checked against `--driver`; None if the app passes a driver object to its Harbor."""
        dsn: str | None
        harbor = self.harbor  # first: report a broken --app even if --dsn names the store
        if self.given is not None:
            dsn = self.given
        elif harbor is not None:
            dsn = harbor._store.dsn
        elif self.kind == "memory":
            dsn = "memory://"
        else:
            from taskharbor.drivers.registry import DEFAULT_DSN

            dsn = DEFAULT_DSN
        _agree(self.kind, dsn, self.given is not None)
        return dsn

    def unused(self) -> dict[str, str]:
        """The other stores that the code of the app and the environment name, each by its source; safe to print."""
        dsn, found = self.dsn, {}
        named = {str(self.app): self.in_code, f"${ENVIRONMENT}": os.environ.get(ENVIRONMENT) or None}
        for who, other in named.items():
            if isinstance(other, str) and (dsn is None or not _is_same(dsn, other)):
                found[who] = _shown(other)
            elif other is not None and not isinstance(other, str) and dsn is not None:
                path = file_of(other)
                if path is None or not _is_same(dsn, f"sqlite:///{path}"):
                    found[who] = "a driver object" if path is None else f"sqlite:///{one_line(path)}"
        return found

    def note_unused(self) -> str | None:
        """One sentence if $TASKHARBOR_DSN names a store that is not used."""
        if f"${ENVIRONMENT}" not in self.unused():
            return None
        who = "--dsn names this one" if self.typed else f"{self.app} names its own; --dsn chooses another one"
        return f"${ENVIRONMENT} names another store, which is not used: {who}"

    def driver(self) -> Driver:
        """A driver for the store, not opened."""
        from taskharbor.drivers import open_driver

        dsn = self.dsn
        if self.notes_unused and (note := self.note_unused()) is not None:
            click.echo(f"note: {note}", err=True)
        self.notes_unused = False
        if dsn is None:
            assert self.harbor is not None
            return self.harbor.driver.sibling()
        with as_usage_error("", ValueError, TypeError, ImportError):
            return open_driver(dsn)

    @property
    def place(self) -> str:
        """The store in a form that is safe to print: a file by its full path, an address without secrets."""
        path = file_of(
            self.driver() if self.harbor is None else self.harbor.driver
        )  # its path was resolved before the app changed folders
        if path is not None:
            return f"sqlite:///{one_line(path)}"
        return f"the store of {self.app}" if self.dsn is None else _shown(self.dsn)

    @property
    def in_memory(self) -> bool:
        """Whether the store lives only in the memory of one process."""
        if self.dsn is not None:
            return family(self.dsn) == "memory"
        assert self.harbor is not None
        return type(self.harbor.driver).__module__.startswith("taskharbor.drivers.memory")

    def refuse_memory(self, what: str) -> None:
        """Raise CommandError for a store that no other process can see."""
        if self.in_memory:
            raise CommandError(
                f"{what}: memory:// lives inside one process, and this process would create an empty one; "
                "use a store that processes share, such as --dsn sqlite:///jobs.db",
                2,
            )


def task_of(target: Target, harbor: Harbor, type: str, verb: str) -> Task[Any, Any]:
    """The task of the app that --job names; a usage error if there is none. `verb`: what the command does."""
    task = harbor.tasks.get(type)
    if task is None:
        known = ", ".join(sorted(harbor.tasks)) or "none"
        raise usage_error(f"--job: {target.app} has no task {type!r}; it has: {known}. Omit --app to {verb} it anyway")
    return task


def file_of(driver: Driver) -> str | None:
    """The file in which a driver keeps its jobs; None if it uses no file."""
    path = getattr(getattr(driver, "options", None), "path", None)
    return path if isinstance(path, str) else None


def _shown(dsn: str) -> str:
    """An address that is safe to print: a file by its full path, others without secrets."""
    from taskharbor.drivers.dsn import redact

    path = _path_of(dsn)
    return one_line(redact(dsn) if path is None else f"sqlite:///{path}")


def _has_password(dsn: str) -> bool:
    try:
        found = urlsplit(dsn)
        return bool(found.password) or "password=" in found.query
    except ValueError:
        return False


def _is_same(dsn: str, other: str) -> bool:
    """Whether two addresses name one store: they are equal, or lead to the same file."""
    return dsn == other or (_path_of(dsn) or dsn) == _path_of(other)


def _path_of(dsn: str) -> str | None:
    """The file that an address names."""
    from taskharbor.drivers import open_driver

    try:
        return file_of(open_driver(dsn)) if family(dsn) == "sqlite" else None
    except (CommandError, ValueError):
        return None


def family(dsn: str) -> str:
    """The name of the driver that a DSN selects."""
    from taskharbor.drivers.dsn import scheme_of

    with as_usage_error("", ValueError):
        scheme = scheme_of(dsn)
    return _FAMILIES.get(scheme, scheme)


def _agree(kind: str | None, dsn: str | None, given: bool) -> None:
    if kind is None or dsn is None:
        return
    wanted, found = _FAMILIES.get(kind, kind), family(dsn)
    if wanted == found:
        return
    if given:
        raise usage_error(
            f"--driver {kind} contradicts the DSN, which selects {found}; omit --driver, or change one of them"
        )
    raise usage_error(f"--driver {kind} needs an address as well: --dsn {kind}://… or ${ENVIRONMENT}")


options: OptionDecorator = together(
    word(
        "--dsn",
        "DSN",
        f"The store, for example sqlite:///jobs.db or postgresql://host/db.  [env: {ENVIRONMENT}, unless --app names "
        "one]",
    ),
    word("--driver", "NAME", "memory, sqlite, postgres or redis; not needed with --dsn, whose scheme selects it."),
    word("--app", "MODULE:NAME", "The application's Harbor, for example tasks:harbor."),
    choice("--output", OUTPUTS, "Output format: table for people (default), json for scripts."),
)
"""Adds `--dsn`, `--driver`, `--app` and `--output` to a command."""


def shared(function: F) -> F:
    """Add the options that all commands share; the command receives them as `target`."""

    @functools.wraps(function)
    def with_target(*args: Any, **given: Any) -> Any:
        before = click.get_current_context().find_root().params
        for name, example in (("dsn", "an address such as sqlite:///jobs.db"), ("app", "module:name")):
            if "" in (given.get(name), before.get(name)):  # --dsn "$UNSET" must not select the default store
                raise usage_error(f"--{name}: expected {example}, got an empty value")
        names = ("dsn", "driver", "app", "output")
        values = {name: given.pop(name, None) or before.get(name) for name in names}
        target = Target(**values, imports=given.pop("imports", ()))
        # A missing secret must not select the default store.
        if target.given is None and target.app is None and ENVIRONMENT in os.environ:
            raise usage_error(
                f"${ENVIRONMENT} is set, but empty; set it to an address such as sqlite:///jobs.db, or unset it"
            )
        target.notes_unused = True
        if target.typed is not None and _has_password(target.typed):
            text = f"note: every user of this machine can read the password in --dsn; ${ENVIRONMENT} keeps it from them"
            click.echo(text, err=True)
        return function(*args, target=target, **given)

    return cast(F, options(with_target))


importing: OptionDecorator = word(
    "--import",
    "MODULE",
    "With --app: also import this module, for the tasks it declares (repeatable).",
    "imports",
    multiple=True,
)
"""Adds `--import` to a command that uses the app's tasks. Place this decorator below `shared`."""

"""Which store a command works on: the options that all commands share, and how they become a driver.

`--dsn` wins over $TASKHARBOR_DSN, which wins over the app's own store, which wins over the default: a SQLite file in
this folder. The options may stand before the command's name as well as after it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from taskharbor.cli.errors import CommandError, usage_error
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
        self.given = dsn or os.environ.get(ENVIRONMENT) or None
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
        """The Harbor that `--app` names, switched to the store of `--dsn` or $TASKHARBOR_DSN if one is set."""
        if self.app is None:
            return None
        from taskharbor.cli.app import load

        found = load(self.app, self.imports)
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

    def driver(self) -> Driver:
        """A driver for the store, not opened."""
        from taskharbor.drivers import open_driver

        dsn = self.dsn
        if dsn is None:
            assert self.harbor is not None
            return self.harbor.driver.sibling()
        try:
            return open_driver(dsn)
        except (ValueError, TypeError, ImportError) as error:
            raise usage_error(str(error)) from error

    @property
    def place(self) -> str:
        """The store in a form that is safe to print: a file by its full path, an address without secrets."""
        from taskharbor.drivers.dsn import redact

        path = file_of(
            self.driver() if self.harbor is None else self.harbor.driver
        )  # its path was resolved before the app changed folders
        if path is not None:
            return f"sqlite:///{one_line(path)}"
        return f"the store of {self.app}" if self.dsn is None else one_line(redact(self.dsn))

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


def family(dsn: str) -> str:
    """The name of the driver that a DSN selects."""
    from taskharbor.drivers.dsn import scheme_of

    try:
        scheme = scheme_of(dsn)
    except ValueError as error:
        raise usage_error(str(error)) from error
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
        f"The store, for example sqlite:///jobs.db or postgresql://host/db.  [env: {ENVIRONMENT}]",
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
        if target.given is None and ENVIRONMENT in os.environ:  # a missing secret must not select the default store
            raise usage_error(
                f"${ENVIRONMENT} is set, but empty; set it to an address such as sqlite:///jobs.db, or unset it"
            )
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

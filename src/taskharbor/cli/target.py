"""Which store a command works on: the options that all commands share, and how they become a driver.

What was typed wins over $TASKHARBOR_DSN, that over the app's own store, that over a SQLite file in this folder. The
options may stand before the command's name as well as behind it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from taskharbor.cli.errors import CommandError, usage_error
from taskharbor.cli.text import one_line

if TYPE_CHECKING:
    from taskharbor.drivers.contract import Driver
    from taskharbor.harbor import Harbor

F = TypeVar("F", bound=Callable[..., Any])

ENVIRONMENT = "TASKHARBOR_DSN"
OUTPUTS = ("table", "json")
_REDIS = ("rediss", "redis+cluster", "redis+sentinel", "redis+unix", "unix")
_FAMILIES = {"postgresql": "postgres", **dict.fromkeys(_REDIS, "redis")}


class Target:
    """The store that a command was pointed at, and how its answer is to be written."""

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
            raise usage_error(
                "--import: it goes with --app, which names the Harbor that the module declares its tasks on"
            )
        self.output = output or "table"

    def __repr__(self) -> str:
        return f"Target(app={self.app!r}, output={self.output!r})"

    @property
    def json(self) -> bool:
        """Whether a script reads the answer."""
        return self.output == "json"

    @functools.cached_property
    def harbor(self) -> Harbor | None:
        """What `--app` names, on the store that was given if one was."""
        if self.app is None:
            return None
        from taskharbor.cli.app import load

        found = load(self.app, self.imports)
        if self.given is not None:
            found.client.use(self.given)
        return found

    @functools.cached_property
    def dsn(self) -> str | None:
        """The address of the store, checked against `--driver`; None if the app was made with a driver of its own."""
        dsn: str | None
        harbor = self.harbor  # first: an app that is wrong is told, whether or not its store is asked for
        if self.given is not None:
            dsn = self.given
        elif harbor is not None:
            dsn = harbor.client.dsn
        elif self.kind == "memory":
            dsn = "memory://"
        else:
            from taskharbor.drivers.registry import DEFAULT_DSN

            dsn = DEFAULT_DSN
        _agree(self.kind, dsn, self.given is not None)
        return dsn

    def driver(self) -> Driver:
        """The driver, made but not opened."""
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
        """The store as a person may be told of it: a file by its whole path, an address without what may be secret."""
        from taskharbor.drivers.dsn import redact

        path = file_of(self.driver() if self.harbor is None else self.harbor.driver)  # made before it went elsewhere
        if path is not None:
            return f"sqlite:///{one_line(path)}"
        return f"the store of {self.app}" if self.dsn is None else one_line(redact(self.dsn))

    @property
    def in_memory(self) -> bool:
        """Whether the store ends with the process that made it."""
        if self.dsn is not None:
            return family(self.dsn) == "memory"
        assert self.harbor is not None
        return type(self.harbor.driver).__module__.startswith("taskharbor.drivers.memory")

    def refuse_memory(self, what: str) -> None:
        """Refuse for a store that no second process can see."""
        if self.in_memory:
            raise CommandError(
                f"{what}: memory:// lives inside one process, and this one would find an empty store of its own; "
                "use a store that processes share, such as --dsn sqlite:///jobs.db",
                2,
            )


def file_of(driver: Driver) -> str | None:
    """The file that a driver keeps its jobs in, if it keeps them in one."""
    path = getattr(getattr(driver, "options", None), "path", None)
    return path if isinstance(path, str) else None


def family(dsn: str) -> str:
    """The name of the driver that a DSN asks for."""
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
            f"--driver {kind} contradicts the DSN, which is one of {found}; leave --driver out, or change one"
        )
    raise usage_error(f"--driver {kind} needs an address as well: --dsn {kind}://… or ${ENVIRONMENT}")


def shared(function: F) -> F:
    """The options that all commands share; the command receives them as `target`."""

    @functools.wraps(function)
    def with_target(*args: Any, **options: Any) -> Any:
        before = click.get_current_context().find_root().params
        for name, example in (("dsn", "an address such as sqlite:///jobs.db"), ("app", "module:name")):
            if "" in (options.get(name), before.get(name)):  # --dsn "$UNSET": another store than was meant
                raise usage_error(f"--{name}: expected {example}, got nothing")
        names = ("dsn", "driver", "app", "output")
        given = {name: options.pop(name, None) or before.get(name) for name in names}
        target = Target(**given, imports=options.pop("imports", ()))
        if target.given is None and ENVIRONMENT in os.environ:  # a secret that is missing: the same
            raise usage_error(
                f"${ENVIRONMENT} is set, but empty; give it an address such as sqlite:///jobs.db, or unset it"
            )
        return function(*args, target=target, **options)

    return options(with_target)  # type: ignore[return-value]


def importing(function: F) -> F:
    """Add `--import` to a command that needs to know the app's tasks; put it under `shared`."""
    return click.option(
        "--import",
        "imports",
        multiple=True,
        metavar="MODULE",
        help="With --app: import this module as well, for the tasks it declares (repeatable).",
    )(function)


def options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--dsn`, `--driver`, `--app` and `--output` to a command."""
    for option in (
        click.option("--output", type=click.Choice(OUTPUTS), help="A table for people (default), or JSON for scripts."),
        click.option("--app", metavar="MODULE:NAME", help="Where the Harbor is, for example tasks:harbor."),
        click.option(
            "--driver", metavar="NAME", help="memory, sqlite, postgres or redis; not needed with a DSN, which names it."
        ),
        click.option(
            "--dsn",
            metavar="DSN",
            help=f"The store, for example sqlite:///jobs.db or postgresql://host/db.  [env: {ENVIRONMENT}]",
        ),
    ):
        function = option(function)
    return function

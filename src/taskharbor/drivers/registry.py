"""From a DSN to a driver: the scheme names an entry point of the group `taskharbor.drivers`.

The built-in drivers are found the same way as those of other packages, so that nothing here knows any of them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from taskharbor.drivers.base import Driver
from taskharbor.drivers.dsn import UNREADABLE, conceals, redact, scheme_of

GROUP = "taskharbor.drivers"
DEFAULT_DSN = "sqlite:///taskharbor.db"
ENVIRONMENT = "TASKHARBOR_DSN"

logger = logging.getLogger("taskharbor")
_warned: set[str] = set()  # files of the default store that were warned of

# The DSN scheme → the extra that installs what its driver needs.
_EXTRAS = dict.fromkeys(("postgresql", "postgres"), "postgres") | dict.fromkeys(
    ("redis", "rediss", "redis+cluster", "redis+sentinel", "redis+unix", "unix"), "redis"
)
_SQL = ("postgres", "postgresql", "sqlite")
_POSTGRES = ("pg", "pgsql", "psql", "psycopg")  # names for it elsewhere
_MODULES = {"postgres": "psycopg", "redis": "redis"}  # the module that each extra installs


def open_driver(dsn: str) -> Driver:
    """The driver for a DSN, made but not yet opened (`await driver.open()` does that).

    >>> driver = open_driver("memory://")
    >>> driver.retention.days
    1
    """
    if not isinstance(dsn, str):
        raise TypeError(f"expected a DSN (text), got {type(dsn).__name__}")
    scheme = scheme_of(dsn)
    factory = _factory(scheme)
    if not dsn[len(scheme) :].startswith("://"):
        examples = {"sqlite": "sqlite:///jobs.db, with three slashes", "memory": "memory://"}
        example = examples.get(scheme, f"{scheme}://host/name")
        raise ValueError(f"{scheme}:…: expected two slashes behind the colon, such as {example}")
    try:
        driver = factory(dsn)
    except ModuleNotFoundError as error:
        raise _missing_extra(scheme, error) from error
    except ValueError as error:
        # Not only ours: the standard library's errors quote a bad address, password and all.
        shown = str(error) if conceals(dsn, str(error)) else UNREADABLE
        raise ValueError(f"{redact(dsn)}: {shown}") from None
    if not isinstance(driver, Driver):
        raise TypeError(f"{scheme}:// made a {type(driver).__name__}: expected a subclass of taskharbor.drivers.Driver")
    return driver


def resolve_dsn(given: str | None) -> str:
    """Which store to use: the one given, else $TASKHARBOR_DSN, else a SQLite file in the current folder.

    ValueError if one of the first two is empty, as a missing secret leaves it: jobs would go into a file of a
    container, and be lost with it.
    """
    if given is not None:
        scheme_of(given)
        return given
    found = os.environ.get(ENVIRONMENT)
    if found is not None and not found.strip():
        raise ValueError(
            f"${ENVIRONMENT} is set, but empty; give it a DSN such as postgresql://host/db, or unset it to use a "
            "SQLite file in the current folder"
        )
    return DEFAULT_DSN if found is None else found


def warn_of_default(dsn: str) -> None:
    """Log a warning, once, with the file that jobs go to if no store was named."""
    if dsn != DEFAULT_DSN or ENVIRONMENT in os.environ:
        return
    file = os.path.abspath(DEFAULT_DSN.removeprefix("sqlite:///"))
    if file not in _warned:
        _warned.add(file)
        logger.warning(
            "no store was named, so jobs are kept in the file %s; name one with Harbor(dsn) or $%s", file, ENVIRONMENT
        )


def location_of(driver: Driver, dsn: str) -> str:
    """The DSN by which a process in another folder and environment reaches the store of this driver.

    A driver whose DSN depends on either has it as `location`, which may contain a password that the DSN does not.
    """
    location: str = getattr(driver, "location", dsn)
    return location


def _factory(scheme: str) -> Callable[[str], object]:
    from importlib.metadata import entry_points  # 20 ms, only for a program that opens a store

    entries = list(entry_points(group=GROUP))
    offers = {entry.value: entry for entry in entries if entry.name.lower() == scheme}
    if not offers:
        raise ValueError(_no_driver(scheme, {entry.name.lower() for entry in entries}))
    if len(offers) > 1:
        raise ValueError(f"expected one driver for {scheme}://, got {' and '.join(sorted(offers))}; uninstall one")
    ((value, entry),) = offers.items()
    try:
        loaded: Any = entry.load()
    except ModuleNotFoundError as error:
        raise _missing_extra(scheme, error) from error
    except AttributeError as error:
        raise ImportError(f"{scheme}:// is declared as {value}, which does not exist: {error}") from error
    if not callable(loaded):
        raise TypeError(f"{scheme}:// is declared as {value}: expected a callable, got {type(loaded).__name__}")
    factory: Callable[[str], object] = loaded
    return factory


def _no_driver(scheme: str, declared: set[str]) -> str:
    """The error for a scheme that no driver declares: the scheme that may have been meant, and those that exist."""
    base, plus, library = scheme.partition("+")
    if plus and base in _SQL and base in declared:  # as SQLAlchemy writes them
        return f"no driver for {scheme}://; leave out +{library}: {base}://…"
    import difflib

    alias = "postgresql" if scheme in _POSTGRES and "postgresql" in declared else ""
    near = [alias] if alias else difflib.get_close_matches(scheme, sorted(declared), 1)
    hint = f"did you mean {near[0]}://? " if near else ""
    installed, lacking = [], dict[str, list[str]]()
    for name in sorted(declared):
        extra = _EXTRAS.get(name)
        if extra in _MODULES and find_spec(_MODULES[extra]) is None:
            lacking.setdefault(extra, []).append(f"{name}://")
        else:
            installed.append(f"{name}://")
    more = "".join(f"; with pip install 'taskharbor[{extra}]': {', '.join(names)}" for extra, names in lacking.items())
    return f"no driver for {scheme}://; {hint}installed are: {', '.join(installed) or 'none'}{more}"


def _missing_extra(scheme: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    if error.name is None:  # raised by the driver itself: its own text is the best
        return error
    extra = _EXTRAS.get(scheme)
    hint = f"pip install 'taskharbor[{extra}]'" if extra else f"install the package that provides {error.name}"
    return ModuleNotFoundError(f"{scheme}:// needs the module {error.name}: {hint}", name=error.name)

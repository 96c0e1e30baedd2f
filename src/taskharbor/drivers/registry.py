"""From a DSN to a driver: the scheme names an entry point of the group `taskharbor.drivers`.

The built-in drivers are found the same way as those of other packages, so that nothing here knows any of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from taskharbor.drivers.contract import Driver
from taskharbor.drivers.dsn import redact, scheme_of

GROUP = "taskharbor.drivers"
DEFAULT_DSN = "sqlite:///taskharbor.db"

# The DSN scheme → the extra that brings what its driver needs.
_EXTRAS = {
    "postgresql": "postgres",
    "postgres": "postgres",
    "redis": "redis",
    "rediss": "redis",
    "redis+cluster": "redis",
}


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
    try:
        return factory(dsn)
    except ModuleNotFoundError as error:
        raise _missing_extra(scheme, error) from error
    except ValueError as error:
        raise ValueError(f"{redact(dsn)}: {error}") from None


def resolve_dsn(given: str | None) -> str:
    """Which store to use: what was given, else $TASKHARBOR_DSN, else a SQLite file in the current folder."""
    return given or os.environ.get("TASKHARBOR_DSN") or DEFAULT_DSN


def _factory(scheme: str) -> Callable[[str], Driver]:
    from importlib.metadata import entry_points  # 20 ms that only a program which opens a store pays

    found = {entry.name.lower(): entry for entry in entry_points(group=GROUP)}
    entry = found.get(scheme)
    if entry is None:
        known = ", ".join(f"{name}://" for name in sorted(found))
        raise ValueError(f"no driver for {scheme}://; installed are: {known or 'none'}")
    try:
        loaded: Any = entry.load()
    except ModuleNotFoundError as error:
        raise _missing_extra(scheme, error) from error
    factory: Callable[[str], Driver] = loaded
    return factory


def _missing_extra(scheme: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    extra = _EXTRAS.get(scheme)
    hint = f"pip install 'taskharbor[{extra}]'" if extra else f"install the package that provides {error.name}"
    return ModuleNotFoundError(f"{scheme}:// needs the module {error.name}: {hint}", name=error.name)

"""The OPTIONS of a backend in TASKS, read and checked.

    {"database": alias}                     jobs live in that database of Django's, and join its transactions
    {"dsn": address, "enqueue": "on_commit"}   jobs live elsewhere; they are stored after the commit, or "now"

Nothing here repeats a value of a DSN: it may hold a password.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS

from taskharbor.model.validation import did_you_mean

KNOWN = ("database", "defaults", "dsn", "enqueue", "lifespan", "migrate", "store", "using")
ENQUEUE = ("on_commit", "now")
MIGRATE = ("auto", "manual")


class BackendOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Checked OPTIONS. Either `database` or `dsn` is set.

    `using`: the alias whose commit `enqueue="on_commit"` waits for. `store`: options for the driver, such as
    {"schema": "jobs", "retention": "7d"}. `defaults`: options for tasks that do not
    give them. `migrate`: whether `manage.py migrate` creates and upgrades the store.
    """

    alias: str
    database: str | None = None
    dsn: str | None = None
    enqueue: str = "on_commit"
    using: str = DEFAULT_DB_ALIAS
    migrate: str = "auto"
    store: Mapping[str, Any] = {}
    defaults: Mapping[str, Any] = {}
    lifespan: str | None = None
    queues: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"BackendOptions(alias={self.alias!r}, database={self.database!r})"


def read_options(alias: str, params: Mapping[str, Any]) -> BackendOptions:
    """The options of TASKS[alias]; ImproperlyConfigured that says what was expected."""
    given = params.get("OPTIONS", {})
    where = f"TASKS[{alias!r}]['OPTIONS']"
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured(f"{where}: expected a dictionary, got {type(given).__name__}")
    for name in given:
        if name not in KNOWN:
            hint = did_you_mean(str(name), KNOWN)
            raise ImproperlyConfigured(f"{where}: unknown option {name!r}; {hint}expected one of: {', '.join(KNOWN)}")
    if ("database" in given) == ("dsn" in given):
        got = "both" if "dsn" in given else "neither"
        raise ImproperlyConfigured(
            f"{where}: expected 'database' (an alias of DATABASES) or 'dsn' (an address elsewhere), got {got}"
        )
    for name in ("database", "dsn", "using", "lifespan"):
        if name in given and (not isinstance(given[name], str) or not given[name]):
            kind = type(given[name]).__name__ if not isinstance(given[name], str) else "an empty one"
            raise ImproperlyConfigured(f"{where}: {name}: expected text, got {kind}")
    for name, of_dsn in (("enqueue", True), ("using", True), ("migrate", False)):
        if name in given and of_dsn is not ("dsn" in given):
            other = "'dsn'" if of_dsn else "'database'"
            raise ImproperlyConfigured(f"{where}: {name!r} goes with {other} only; leave it out")
    for name, choices in (("enqueue", ENQUEUE), ("migrate", MIGRATE)):
        if name in given and given[name] not in choices:
            raise ImproperlyConfigured(f"{where}: {name}: expected {' or '.join(map(repr, choices))}")
    store = given.get("store", {})
    if not isinstance(store, Mapping) or not all(isinstance(name, str) for name in store):
        raise ImproperlyConfigured(f"{where}: store: expected a dictionary of options such as {{'retention': '7d'}}")
    defaults = given.get("defaults", {})
    if not isinstance(defaults, Mapping):
        raise ImproperlyConfigured(f"{where}: defaults: expected a dictionary such as {{'max_attempts': 5}}")
    if defaults:
        _check_defaults(where, defaults)
    queues = params.get("QUEUES", ["default"])
    return BackendOptions(alias=alias, **given, queues=tuple(queues))


def _check_defaults(where: str, defaults: Mapping[str, Any]) -> None:
    from taskharbor.django.task import refuse_unknown  # needs the tasks of Django, which settings alone do not
    from taskharbor.tasks.options import declared

    try:
        refuse_unknown(defaults, "defaults")
        declared(defaults, "defaults")
    except (TypeError, ValueError) as error:
        raise ImproperlyConfigured(f"{where}: {error}") from error

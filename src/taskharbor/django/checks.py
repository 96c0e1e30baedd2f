"""System checks, each with an id, what was expected, and how to mend it.

    taskharbor.E001  OPTIONS cannot be read              taskharbor.E006  the DSN, or an option of `store`, is refused
    taskharbor.E002  no such alias in DATABASES          taskharbor.E007  QUEUES cannot be read
    taskharbor.E003  neither PostgreSQL nor SQLite       taskharbor.W008  "taskharbor.django" is not in INSTALLED_APPS
    taskharbor.E004  psycopg 2                           taskharbor.W009  the file is on a network disk
    taskharbor.E005  the name of the file is a URI       taskharbor.W010  assume_role
    taskharbor.W011  the store cannot be used            taskharbor.E012  the lifespan cannot be entered
                     (only when Django checks a database)
    taskharbor.W013  transaction_mode is DEFERRED        taskharbor.W014  isolation_level is not read committed

No text holds a user, a password or another part of an address that may be secret.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import django
from django.apps import apps
from django.core.checks import Error, Warning
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils.module_loading import import_string

from taskharbor.django.address import POSTGRES, SQLITE, address_of, sqlite_path
from taskharbor.django.harbors import our_aliases, tasks_settings
from taskharbor.django.settings import BackendOptions, read_options
from taskharbor.drivers.registry import open_driver
from taskharbor.model.errors import BackendUnavailable, DriverError
from taskharbor.tasks.lifespan import check_lifespan

APP = "taskharbor.django"
READ_COMMITTED = 2  # psycopg.IsolationLevel.READ_COMMITTED; a stricter one is greater
INSUFFICIENT_PRIVILEGE = "42501"  # of PostgreSQL
HINTS = {
    "E001": "See docs/django.md for the options of a backend.",
    "E003": 'Name another alias, or keep jobs elsewhere with {"dsn": "redis://…"}.',
    "E004": "pip install 'taskharbor[postgres]': Django prefers psycopg 3 when both are installed.",
    "E005": "Write its path in NAME.",
    "E006": "The pages docs/driver-sqlite.md, driver-postgres.md and driver-redis.md list addresses and options.",
    "W008": f'Write INSTALLED_APPS = [..., "{APP}"].',
    "W009": "Move the file to a local disk, or use PostgreSQL.",
    "W010": "Grant USER the use of the schema of TaskHarbor.",
    "W013": 'Write "OPTIONS": {"transaction_mode": "IMMEDIATE"} in DATABASES: then it waits for its turn.',
    "W014": "Make these calls outside of atomic(), or leave 'isolation_level' out; enqueueing works with each.",
}


def _problem(id: str, text: str, hint: str = "") -> Any:
    return (Error if id.startswith("E") else Warning)(text, hint=hint or HINTS[id], id=f"taskharbor.{id}")


def check_backend(alias: str) -> list[Any]:
    """What is wrong with the settings of TASKS[alias]. Opens nothing."""
    params = tasks_settings().get(alias, {})
    wrong = _queues(alias, params.get("QUEUES", ()))
    if wrong is not None:
        return [wrong]
    try:
        options = read_options(alias, params)
    except ImproperlyConfigured as error:
        return [_problem("E001", str(error))]
    return [*_database(options), *_address(options), *_installed(options), *_lifespan(options)]


def check_stores(app_configs: Any = None, databases: Sequence[str] | None = None, **_: Any) -> list[Any]:
    """Whether the stores in these databases are there. Django calls it for commands that work on a database; `migrate`
    creates them right afterwards."""
    from taskharbor.django.stores import backends_in, problem_of

    if not databases or "migrate" in sys.argv[1:2]:
        return []
    found = []
    for database in databases:
        for options in backends_in(database):
            if any(each.is_serious() for each in check_backend(options.alias)):
                continue  # said already
            problem = problem_of(options)
            if problem is not None:
                text = f"TASKS[{options.alias!r}]: the store in database {database!r} cannot be used: {problem}"
                found.append(_problem("W011", text, _mending(problem, options)))
    return found


def _mending(problem: DriverError, options: BackendOptions) -> str:
    """What to do about a store that cannot be used."""
    if isinstance(problem, BackendUnavailable):
        return "See that the database runs, and that DATABASES has its address."
    command = "python manage.py harbor migrate" if options.migrate == "manual" else "python manage.py migrate"
    if getattr(problem.__cause__, "sqlstate", None) == INSUFFICIENT_PRIVILEGE:
        return f"Run `{command}` as a role that may create the schema, and grant this one the use of it."
    return f"Run `{command}`."


def _queues(alias: str, queues: Any) -> Any:
    where = f"TASKS[{alias!r}]['QUEUES']"
    if isinstance(queues, str) or not isinstance(queues, list | tuple | set | frozenset):
        hint = f'Write ["{queues}"].' if isinstance(queues, str) else "Write a list of names of queues."
        return _problem("E007", f"{where}: expected a list of names, got {type(queues).__name__}.", hint)
    from taskharbor.model.bounds import check_name
    from taskharbor.model.job import OPERATIONS_QUEUE

    for name in queues:
        try:
            check_name(name, "queue")
            if name == OPERATIONS_QUEUE:
                raise ValueError(f"{name!r} is for the core's own jobs")
        except ValueError as error:
            return _problem("E007", f"{where}: {error}.", "Give the queue another name.")
    return None


def _database(options: BackendOptions) -> Iterator[Any]:
    where = f"TASKS[{options.alias!r}]['OPTIONS']"
    option, name = ("using", options.using) if options.database is None else ("database", options.database)
    if name not in connections.settings:
        known = ", ".join(map(repr, connections.settings))
        text = f"{where}: {option}: expected an alias of DATABASES, got {name!r}."
        yield _problem("E002", text, f"DATABASES has: {known}.")
    if name not in connections.settings or options.database is None:
        return
    connection = connections[name]
    if connection.vendor == POSTGRES:
        yield from _postgres(where, name, connection)
    elif connection.vendor == SQLITE:
        try:
            path = sqlite_path(connection)
        except ImproperlyConfigured as error:
            yield _problem("E005", f"{where}: {error}")
            return
        from taskharbor.drivers.sqlite.connection import network_mount

        mode = connection.settings_dict.get("OPTIONS", {}).get("transaction_mode") or "DEFERRED"
        if path is not None and mode.upper() == "DEFERRED":
            text = (
                "has the transaction_mode DEFERRED: a request that reads before it enqueues is refused beside a writer."
            )
            yield _problem("W013", f"{where}: database {name!r} {text}")
        kind = None if path is None or not os.path.exists(path) else network_mount(path)
        if kind:
            text = f"its file is on a network disk ({kind}), where locks of SQLite fail."
            yield _problem("W009", f"{where}: database {name!r}: {text}")
    else:
        text = f"expected PostgreSQL or SQLite, got {connection.display_name}."
        yield _problem("E003", f"{where}: database {name!r}: {text}")


def _postgres(where: str, name: str, connection: Any) -> Iterator[Any]:
    from django.db.backends.postgresql.psycopg_any import is_psycopg3

    if not is_psycopg3:
        yield _problem("E004", f"{where}: database {name!r}: expected psycopg 3, but Django uses psycopg2.")
    if connection.settings_dict.get("OPTIONS", {}).get("assume_role"):
        text = "has 'assume_role', which workers do not take: they use USER itself."
        yield _problem("W010", f"{where}: database {name!r} {text}")
    level = connection.settings_dict.get("OPTIONS", {}).get("isolation_level")
    if level is not None and level > READ_COMMITTED:
        text = "has an isolation_level in which cancel, requeue, amend and delete are refused inside of atomic()."
        yield _problem("W014", f"{where}: database {name!r} {text}")


def _address(options: BackendOptions) -> Iterator[Any]:
    try:
        address = address_of(options)
        if address is not None:
            open_driver(address)
    except (ValueError, TypeError, ImportError) as error:  # their texts hold no secret
        option = "dsn" if options.dsn is not None else "store"
        text = f"TASKS[{options.alias!r}]['OPTIONS']: {option}: {error}"
        yield _problem("E006", text)
    except Exception:
        return  # of the database: said before


def _installed(options: BackendOptions) -> Iterator[Any]:
    if not apps.is_installed(APP):
        yield _problem(
            "W008",
            f"TASKS[{options.alias!r}] names a backend of TaskHarbor, but {APP!r} is not in INSTALLED_APPS: there is "
            "no `manage.py harbor`, and `migrate` does not create the store.",
        )


def _lifespan(options: BackendOptions) -> Iterator[Any]:
    if options.lifespan is None:
        return
    where = f"TASKS[{options.alias!r}]['OPTIONS']: "
    try:
        check_lifespan(import_string(options.lifespan))
    except ImportError as error:
        text = f"{where}lifespan: expected the path of a function, got {options.lifespan!r}: {error}."
        yield _problem("E012", text, "Write the path of its module, a dot and its name.")
    except TypeError as error:
        yield _problem("E012", f"{where}{error}.", "See docs/resources.md for an example.")


def check_backends(app_configs: Any = None, **_: Any) -> list[Any]:
    """The checks of all backends, where Django's own app does not call them: with the backport not installed as app."""
    if django.VERSION >= (6, 0) or apps.is_installed("django_tasks"):
        return []
    return [each for alias in our_aliases() for each in check_backend(alias)]

"""`--app module:name`: import the Harbor of an application. The current folder is on the module path."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

from taskharbor.cli.errors import CommandError, usage_error

if TYPE_CHECKING:
    from taskharbor.harbor import Harbor


def load(path: str, imports: Sequence[str] = ()) -> Harbor:
    """Import the Harbor that `module:name` names; CommandError if something else is there.

    `imports`: further modules to import, which declare tasks on it.
    """
    from taskharbor.harbor import Harbor

    found = named(path, "tasks:harbor")
    if not isinstance(found, Harbor):
        what = "nothing" if found is None else f"a {type(found).__name__}"
        module = path.partition(":")[0]
        raise usage_error(f"--app {path}: expected a Harbor under that name in {module}, found {what}")
    for name in imports:
        _imported(name, f"--import {name}")
    return found


def named(path: str, example: str, option: str = "--app") -> object:
    """What `module:name` names; None if the module has no such name, CommandError if it cannot be imported."""
    module_name, colon, name = path.partition(":")
    if not colon or not module_name or not name:
        raise usage_error(f"{option}: expected module:name, for example {example}, got {path!r}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    found = _imported(module_name, f"{option} {path}")
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _imported(name: str, option: str) -> object:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            hint = f"; leave out .py: {name.removesuffix('.py')}" if name.endswith(".py") else ""
            raise usage_error(f"{option}: there is no module {error.name!r} here ({os.getcwd()}){hint}") from error
        raise broken_import(option, name, error) from error
    except (ValueError, TypeError) as error:
        if name.startswith(".") or not name:  # Python's own message is about packages
            raise usage_error(f"{option}: expected the name of a module such as shop.jobs") from error
        raise broken_import(option, name, error) from error
    except Exception as error:
        raise broken_import(option, name, error) from error


def broken_import(option: str, module: str, error: Exception) -> CommandError:
    """An error for a module that exists but raised while it was imported: where, and its own message."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    place = (frames[-1].filename, frames[-1].lineno) if frames else None
    if isinstance(error, SyntaxError) and error.filename:
        place = (error.filename, error.lineno)
    where = f" at {os.path.basename(place[0])}:{place[1]}" if place else ""
    # Django's own error says neither that its set-up is missing nor who does that for a command.
    of_django = type(error).__module__.startswith("django.core.exceptions")
    hint = "; in a Django project use `python manage.py harbor …`, which sets Django up first" if of_django else ""
    return usage_error(f"{option}: importing {module} failed{where}: {type(error).__name__}: {error}{hint}")

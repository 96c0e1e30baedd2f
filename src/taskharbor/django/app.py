"""The project as an application for workers: importing this module sets Django up and imports every `tasks.py`.

`manage.py harbor` names it, and so may `taskharbor worker run --app taskharbor.django.app:default`: the name after the
colon is an alias of TASKS.
"""

from typing import Any

from taskharbor.django.setup import discover, set_up_once

set_up_once()
discover()


def __getattr__(name: str) -> Any:
    from taskharbor.django.harbors import harbor_of, is_ours

    if name.startswith("__") or not is_ours(name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: TASKS has no such alias of TaskHarbor's")
    return harbor_of(name)

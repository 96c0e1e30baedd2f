"""Setting Django up for a process that has not done so: a worker, a child of one, a script.

`django.setup()` must not run while apps are being loaded, and never twice at once: in those cases other code is
running it, and the tasks of this project are imported soon.

A child process of a worker finds `lifespan_of` by its name, and enters it before it imports the module of a task. So
nothing here imports Django until it is called.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

_discovering = threading.RLock()
_discovered = False


def set_up_once() -> None:
    """Call `django.setup()`, and import every `tasks.py`, if nothing has begun to do so."""
    import django
    from django.apps import apps
    from django.conf import settings

    if apps.ready or getattr(apps, "loading", False) or apps.app_configs:
        return
    if not settings.configured:
        _explain_missing_settings()
    django.setup()
    discover()


def discover() -> None:
    """Import `tasks.py` of every installed app, once in a process."""
    global _discovered
    from django.utils.module_loading import autodiscover_modules

    with _discovering:
        if not _discovered:
            _discovered = True
            try:
                autodiscover_modules("tasks")
            except BaseException:
                _discovered = False
                raise


def _explain_missing_settings() -> None:
    import os

    from django.core.exceptions import ImproperlyConfigured

    if not os.environ.get("DJANGO_SETTINGS_MODULE"):
        raise ImproperlyConfigured(
            "expected Django's settings, but $DJANGO_SETTINGS_MODULE is not set; run `python manage.py harbor …`, or "
            "set it to the module of your settings, such as shop.settings"
        )


@asynccontextmanager
async def lifespan_of(alias: str) -> AsyncIterator[Any]:
    """What every worker process and child enters before its first job: Django, and the project's own lifespan, which
    OPTIONS["lifespan"] of TASKS[alias] names."""
    set_up_once()
    from taskharbor.django.harbors import harbor_of

    own = harbor_of(alias).project_lifespan()
    if own is None:
        yield None
        return
    async with own() as given:
        yield given

"""Setting Django up for a process that has not done so: a worker, a child of one, a script.

`django.setup()` must not run while apps are being loaded, and never twice at once: in those cases other code is
running it, and the tasks of this project are imported soon.
"""

from __future__ import annotations

import threading

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

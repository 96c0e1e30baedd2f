"""TaskHarbor in a Django project: a backend for Django's tasks, `manage.py harbor`, checks, and test helpers.

Names load lazily: Django imports this package when it reads INSTALLED_APPS, long before models can be imported.

    TASKS = {"default": {"BACKEND": "taskharbor.django.TaskHarborBackend", "OPTIONS": {"database": "default"}}}
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taskharbor.django.backend import TaskHarborBackend
    from taskharbor.django.harbors import DjangoHarbor
    from taskharbor.django.task import harbor_options

    harbor: DjangoHarbor
    """The harbor behind `TASKS["default"]`."""

__all__ = ["TaskHarborBackend", "harbor", "harbor_options"]


def __getattr__(name: str) -> Any:
    if name == "harbor":  # not kept: the settings may name another backend in a test
        from taskharbor.django.setup import set_up_once

        set_up_once()  # before the next line, which imports what needs it
        from taskharbor.django.harbors import harbor_of

        return harbor_of("default")
    if name == "TaskHarborBackend":
        from taskharbor.django.backend import TaskHarborBackend

        return TaskHarborBackend
    if name == "harbor_options":
        from taskharbor.django.task import harbor_options

        return harbor_options
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

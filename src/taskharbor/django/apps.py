"""The Django app: its label is `taskharbor`. When Django is ready it registers checks and follows `migrate`."""

from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db.models.signals import post_migrate


class TaskHarborConfig(AppConfig):  # type: ignore[misc]  # Django has no types
    """`INSTALLED_APPS = [..., "taskharbor.django"]`."""

    name = "taskharbor.django"
    label = "taskharbor"
    verbose_name = "TaskHarbor"

    def ready(self) -> None:
        """Called by Django once, when all apps are loaded."""
        from taskharbor.django.checks import check_backends, check_stores

        checks.register(check_backends, "taskharbor")
        checks.register(check_stores, checks.Tags.database)
        post_migrate.connect(_prepare_stores, sender=self, dispatch_uid="taskharbor.prepare_stores")


def _prepare_stores(using: str, **signal: Any) -> None:
    from taskharbor.django.stores import after_migrate

    after_migrate(using, **signal)

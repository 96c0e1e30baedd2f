"""What Django needs in order to show jobs in its admin: a model without a table.

It has permissions, a content type and a place in the admin, but no rows: jobs live in a store that need not be a
database of Django's, and are changed by operators and workers, never by `save()`. Django sends `post_migrate` to apps
that have this module.
"""

from __future__ import annotations

from typing import Any

from django.db import models


class NoRows(models.Manager):  # type: ignore[misc]  # Django has no types
    """Finds nothing, and asks no database: `dumpdata` reads unmanaged models too."""

    def get_queryset(self) -> Any:
        """No rows."""
        return super().get_queryset().none()


class Dashboard(models.Model):  # type: ignore[misc]  # Django has no types
    """The dashboard, as permissions and the admin know it."""

    id = models.CharField(primary_key=True, max_length=255)

    objects = NoRows()

    class Meta:
        """Its permissions are named after what they allow: `taskharbor.view_job`."""

        managed = False
        base_manager_name = "objects"
        default_permissions = ()
        permissions = (
            ("view_job", "Can look at jobs, queues, schedules and workers"),
            ("operate_job", "Can retry, cancel and edit jobs, pause queues, run schedules"),
            ("delete_job", "Can delete jobs and schedules"),
            ("reveal_job", "Can see what jobs carry and return"),
        )
        verbose_name = "job"
        verbose_name_plural = "jobs"

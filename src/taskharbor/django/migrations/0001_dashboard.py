"""Permissions for the dashboard in the admin. No table: the model is not managed."""

from django.db import migrations, models


class Migration(migrations.Migration):  # type: ignore[misc]  # Django has no types
    """Django makes the permissions of a model after the migration that creates it."""

    initial = True
    dependencies = ()
    operations = (
        migrations.CreateModel(
            name="Dashboard",
            fields=[("id", models.CharField(max_length=255, primary_key=True, serialize=False))],
            options={
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
                "permissions": (
                    ("view_job", "Can look at jobs, queues, schedules and workers"),
                    ("operate_job", "Can retry, cancel and edit jobs, pause queues, run schedules"),
                    ("delete_job", "Can delete jobs and schedules"),
                    ("reveal_job", "Can see what jobs carry and return"),
                ),
                "default_permissions": (),
                "base_manager_name": "objects",
                "managed": False,
            },
        ),
    )

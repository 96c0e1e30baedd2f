"""The model without a table, as Django's own commands meet it."""

import json

from tests.django_admin.site import Site

LOOK = """
import django; django.setup()
from django.db import connection
from django.contrib.auth.models import Permission
from taskharbor.django.models import Dashboard
names = sorted(each.codename for each in Permission.objects.filter(content_type__app_label="taskharbor"))
tables = [each for each in connection.introspection.table_names() if "dashboard" in each]
import json; print(json.dumps([names, tables, Dashboard.objects.count(), list(Dashboard._base_manager.all())]))
"""


def test_the_migration_makes_permissions_and_no_table(site: Site) -> None:
    names, *nothing = json.loads(site.run("-c", LOOK))
    assert names == ["delete_job", "operate_job", "reveal_job", "view_job"]
    assert nothing == [[], 0, []]


def test_django_finds_nothing_to_migrate_and_dumps_what_is_there(site: Site) -> None:
    assert "No changes detected" in site.run("-m", "django", "makemigrations", "--check", "--dry-run")
    for every in ((), ("--all",)):
        dumped = json.loads(site.run("-m", "django", "dumpdata", *every))
        assert not [each for each in dumped if each["model"].startswith("taskharbor.")]
    assert "no issues" in site.run("-m", "django", "check")

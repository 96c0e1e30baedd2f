"""The model without a table, as Django's own commands meet it."""

import json

import pytest

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


@pytest.mark.left_to("full")
def test_django_finds_nothing_to_migrate_and_dumps_what_is_there(site: Site) -> None:
    assert "No changes detected" in site.run("-m", "django", "makemigrations", "--check", "--dry-run")
    for every in ((), ("--all",)):
        dumped = json.loads(site.run("-m", "django", "dumpdata", *every))
        assert not [each for each in dumped if each["model"].startswith("taskharbor.")]
    assert "no issues" in site.run("-m", "django", "check")


UNDER_A_PREFIX = """
import django; django.setup()
from django.contrib.auth import get_user_model
from django.test import Client
client = Client(SERVER_NAME="127.0.0.1")
client.force_login(get_user_model().objects.get(username="view"))
page = client.get("/admin/jobs/", SCRIPT_NAME="/shop")
away = Client(SERVER_NAME="127.0.0.1").get("/admin/jobs/jobs", SCRIPT_NAME="/shop")
import json; print(json.dumps([page.status_code, page.content.decode(), away.headers["Location"]]))
from taskharbor.django import harbor; harbor.close()
"""


def test_the_project_may_be_mounted_under_a_path(site: Site) -> None:
    status, page, away = json.loads(site.run("-c", UNDER_A_PREFIX))
    assert status == 200
    for link in ('href="/shop/admin/jobs/queues"', 'src="/shop/admin/jobs/static/', 'data-prefix="/shop/admin/jobs"'):
        assert link in page
    assert away.endswith("?next=/shop/admin/jobs/jobs")


ODD_PEOPLE = """
import django; django.setup()
import json
from types import SimpleNamespace as User
from taskharbor.django.admin_views import access_of
def user(name, *held, **fields):
    return User(pk=7, get_username=lambda: name, has_perm=lambda each: each in held, **{"is_active": True, **fields})
people = [user(""), user("x" * 300, is_superuser=True), user("{braces}", "taskharbor.reveal_job"),
          user("ada@example.com", "taskharbor.operate_job", is_superuser=False, is_active=False)]
print(json.dumps([[each.name, len(each.actions)] for each in map(access_of, people)]))
"""


def test_any_name_has_a_place_in_the_audit(site: Site) -> None:
    found = json.loads(site.run("-c", ODD_PEOPLE))
    assert found == [["user 7", 0], ["user 7", 11], ["user 7", 2], ["ada@example.com", 8]]

"""Who may do what in the admin, route by route, for real logins at real servers."""

import pytest

from taskharbor import Harbor
from taskharbor.dashboard.routes import ACTION_ROUTES
from taskharbor.ops.access import Permission
from tests.dashboard.test_access import ACT_TABLE, PAGE_TABLE
from tests.django_admin.site import KINDS, Site

OPERATE = {"requeue", "cancel", "amend", "pause", "resume", "stop", "run"}
PEOPLE: dict[str, set[str] | None] = {  # None: not let into the admin
    "anonymous": None,
    "customer": None,
    "nothing": set(),
    "view": {"view"},
    "operate": {"view", *OPERATE},
    "delete": {"view", "delete"},
    "reveal": {"view", "reveal"},
    "root": {each.value for each in Permission},
}
SMALL = {"wsgi": tuple(PEOPLE), "asgi": ("anonymous", "nothing", "view", "operate")}
"""Every person at one server; at the other, which goes the same way, some, and not every route."""


@pytest.mark.parametrize("kind", KINDS)
def test_pages_are_for_those_who_may_look(site: Site, kind: str) -> None:
    for name in SMALL[kind]:
        person, allowed = site.person(kind, name), PEOPLE[name]
        expected = 302 if allowed is None else 200 if "view" in allowed else 403
        every = kind == "wsgi" and name in ("anonymous", "nothing", "view")
        for page in PAGE_TABLE.values() if every else ("/", "/jobs/{dead}"):
            for prefix in ("/admin/jobs", "/admin/taskharbor/dashboard") if page == "/" else ("/admin/jobs",):
                reply = person.get(page.format(**vars(site.scene)), prefix)
                assert (name, prefix + page, reply.status_code) == (name, prefix + page, expected)
                if expected == 302:
                    assert reply.headers["location"].startswith("/admin/login/?next=/admin/")
                if expected != 200:
                    assert site.scene.dead not in reply.text


@pytest.mark.parametrize("kind", KINDS)
def test_actions_are_for_their_permissions(site: Site, kind: str) -> None:
    begun = site.person(kind, "root").post(
        "/operations", {"action": "requeue", "state": "dlq", "queue": "nothing", "until": "2031-01-01T00:00:00+00:00"}
    )
    names = {**vars(site.scene), "operation": begun.headers["hx-redirect"].rpartition("#")[2]}
    for name in SMALL[kind]:
        person, allowed = site.person(kind, name), PEOPLE[name] or set()
        for act in ACTION_ROUTES:
            address, fields, _ = ACT_TABLE[act.path]
            if name == "root" and act.path.startswith("/operations"):
                continue  # it would requeue what the others need
            if kind == "asgi" and not act.path.startswith("/queues"):
                continue
            data = {field: value.format(**names) for field, value in fields.items()}
            reply = person.post(address.format(**names), data)
            if act.needs[0] in allowed:
                assert reply.status_code in (200, 400, 404, 409), (name, act.path, reply.text)
            else:
                assert (name, act.path, reply.status_code) == (name, act.path, 403)


def test_an_action_is_in_the_audit_under_the_name_of_the_user(site: Site) -> None:
    with Harbor(site.store) as harbor:
        harbor.resume("mail")
        assert site.person("wsgi", "operate").post("/queues/mail/pause").status_code == 200
        assert harbor.is_paused("mail")
        newest = next(iter(harbor.audit()))
        assert (newest.by, newest.action) == ("operate", "pause")
        harbor.resume("mail")


@pytest.mark.parametrize("kind", KINDS)
def test_the_admin_has_an_entry_for_those_who_may_look(site: Site, kind: str) -> None:
    for name, shown in (("view", True), ("root", True), ("nothing", False)):
        for page in ("/admin/", "/admin/taskharbor/"):
            reply = site.person(kind, name).client.get(page)
            assert reply.status_code == (200 if shown or page == "/admin/" else 404)
            assert ('href="/admin/taskharbor/dashboard/"' in reply.text) is shown, (name, page)
            assert ">Jobs</a>" in reply.text or not shown


def test_the_way_through_the_login_leads_to_the_page(site: Site) -> None:
    person = site.person("wsgi", "anonymous")
    away = person.get("/jobs?state=dlq").headers["location"]
    assert away == "/admin/login/?next=/admin/jobs/jobs%3Fstate%3Ddlq"
    assert person.client.get(away).status_code == 200


def test_another_backend_has_its_own_pages(site: Site) -> None:
    person = site.person("wsgi", "view")
    assert f"{site.folder}/other.db" in person.get("/", "/admin/other").text
    assert f"{site.folder}/shop.db" in person.get("/").text


def test_names_with_slashes_and_odd_characters_find_their_pages(site: Site) -> None:
    """Django has decoded the address: the dashboard gets it as it would from its own server."""
    person = site.person("wsgi", "view")
    for name in ("a%2Fb", "a%0Ab", "%C3%A4", "a%25b", "a%3Fb", "..%2Fjobs"):
        reply = person.get(f"/queues/{name}", accept="application/json")
        assert reply.status_code in (200, 404), reply.text
        assert reply.headers["content-type"] == "application/json"
    assert "/admin/jobs/queues/a%2Fb" in person.get("/queues/a%2Fb").text

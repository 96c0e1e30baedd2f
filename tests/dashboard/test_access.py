"""Who may do what, route by route: a route that is not in the table fails, and so does one that answers otherwise."""

import pytest

from taskharbor.dashboard.routes import ACTION_ROUTES, PAGES
from tests.dashboard.site import LEVELS, Site, visit

SEEN = {"none": 403, "view": 200, "operate": 200, "admin": 200}
CHANGED = {"none": 403, "view": 403, "operate": 200, "admin": 200}
DELETED = {"none": 403, "view": 403, "operate": 403, "admin": 200}
REVEALED = DELETED

PAGE_TABLE = {
    "/": "/",
    "/queues": "/queues",
    "/queues/{queue:path}": "/queues/mail",
    "/jobs": "/jobs",
    "/jobs/{id:path}": "/jobs/{dead}",
    "/dead": "/dead",
    "/flows": "/flows",
    "/flows/{id:path}": "/flows/{flow}",
    "/schedules": "/schedules",
    "/schedules/{name:path}": "/schedules/nightly",
    "/workers": "/workers",
    "/operations": "/operations",
    "/operations/new": "/operations/new?state=dlq",
    "/about": "/about",
}
"""Each page, and one address of it. All of them need the permission to look."""

UNTIL = "2030-01-15T13:00:00+00:00"
ACT_TABLE = {
    "/queues/{queue:path}/pause": ("/queues/mail/pause", {}, CHANGED),
    "/queues/{queue:path}/resume": ("/queues/media/resume", {}, CHANGED),
    "/jobs/act": ("/jobs/act", {"action": "retry", "id": "{dead}"}, CHANGED),
    "/jobs/{id:path}/retry": ("/jobs/{dead}/retry", {}, CHANGED),
    "/jobs/{id:path}/cancel": ("/jobs/{ready}/cancel", {}, CHANGED),
    "/jobs/{id:path}/delete": ("/jobs/{dead}/delete", {}, DELETED),
    "/jobs/{id:path}/edit": ("/jobs/{ready}/edit", {"priority": "3", "deliveries": "0", "edits": "0"}, CHANGED),
    "/jobs/{id:path}/reveal": ("/jobs/{dead}/reveal", {}, REVEALED),
    "/jobs/{id:path}/download": ("/jobs/{dead}/download", {"part": "payload"}, REVEALED),
    "/operations": ("/operations", {"action": "requeue", "state": "dlq", "until": UNTIL}, CHANGED),
    "/operations/{id:path}/stop": ("/operations/{operation}/stop", {}, CHANGED),
    "/operations/{id:path}/resume": ("/operations/{operation}/resume", {}, CHANGED),
    "/schedules/{name:path}/run": ("/schedules/nightly/run", {}, CHANGED),
    "/schedules/{name:path}/pause": ("/schedules/nightly/pause", {}, CHANGED),
    "/schedules/{name:path}/resume": ("/schedules/nightly/resume", {}, CHANGED),
    "/schedules/{name:path}/edit": ("/schedules/nightly/edit", {"jitter": "5m", "was_jitter": "0s"}, CHANGED),
    "/schedules/{name:path}/reset": ("/schedules/nightly/reset", {}, CHANGED),
    "/schedules/{name:path}/delete": ("/schedules/nightly/delete", {}, DELETED),
    "/flows/{id:path}/cancel": ("/flows/{flow}/cancel", {}, CHANGED),
    "/flows/{id:path}/requeue": ("/flows/{failed_flow}/requeue", {}, CHANGED),
}
"""Each action: an address of it, its fields, and the status for each level."""

OTHERS = {"/login", "/logout", "/events", "/robots.txt", "/static/{file:path}"}


def test_every_route_is_in_a_table():
    assert {page.path for page in PAGES} == set(PAGE_TABLE)
    assert {act.path for act in ACTION_ROUTES} == set(ACT_TABLE)
    routes = {route.path for route in Site().app._app.routes}  # type: ignore[attr-defined]  # what is really served
    assert routes == {*PAGE_TABLE, *ACT_TABLE, *OTHERS}


@pytest.mark.parametrize("level", LEVELS)
def test_pages_are_seen_by_those_who_may_look(level: str):
    async def look(site: Site) -> None:
        for path in PAGE_TABLE.values():
            reply = await site.get(path.format(**vars(site.scene)))
            assert (path, reply.status_code) == (path, SEEN[level])

    visit(look, level=level)


@pytest.mark.parametrize("path", ACT_TABLE)
def test_each_action_is_for_its_levels_alone(path: str):
    address, fields, expected = ACT_TABLE[path]

    async def act(site: Site) -> None:
        begun = await site.post("/operations", action="requeue", state="dlq", queue="reports", until=UNTIL)
        operation = begun.headers["hx-redirect"].rpartition("#")[2]
        names = {**vars(site.scene), "operation": operation}
        for level, status in expected.items():
            site.level = level
            data = {name: value.format(**names) for name, value in fields.items()}
            reply = await site.post(address.format(**names), **data)
            if status == 403:
                assert (level, reply.status_code) == (level, 403), reply.text
                assert "may not" in reply.json()["error"]
            else:  # the second who may finds it done
                assert reply.status_code in ((200, 409) if level == "admin" else (200,)), reply.text

    visit(act)


def test_an_action_that_is_refused_changes_nothing():
    async def act(site: Site) -> None:
        site.level = "operate"
        await site.post(f"/jobs/{site.scene.dead}/delete")
        assert (await site.get(f"/jobs/{site.scene.dead}")).status_code == 200

    visit(act)


def test_read_only_has_no_actions_at_any_level():
    async def look(site: Site) -> None:
        for address, fields, _ in ACT_TABLE.values():
            names = {**vars(site.scene), "operation": "x"}
            reply = await site.post(address.format(**names), **{k: v.format(**names) for k, v in fields.items()})
            assert reply.status_code in (404, 405)
        page = (await site.get(f"/jobs/{site.scene.dead}")).text
        assert "hx-post" not in page.replace('hx-post="/logout"', "")
        assert "read-only" in page

    visit(look, read_only=True)


def test_without_an_access_function_every_page_is_closed_and_says_how_to_open_it():
    async def look(site: Site) -> None:
        reply = await site.get("/")
        assert reply.status_code == 403
        assert "dashboard(harbor, access=access)" in reply.text
        assert site.scene.dead not in reply.text
        assert (await site.get("/events")).status_code == 403

    visit(look, access=None)


def test_a_person_who_may_do_nothing_is_sent_to_their_login():
    from taskharbor.ops.access import Access

    async def look(site: Site) -> None:
        reply = await site.get("/jobs")
        assert (reply.status_code, reply.headers["location"]) == (303, "/sign-in")
        assert (await site.send("GET", "/jobs", headers={"accept": "application/json"})).status_code == 403

    visit(look, access=lambda request: Access.none(login="/sign-in"))


def test_an_access_function_may_be_async_and_sees_the_request():
    async def access(request):
        return LEVELS["view" if request.headers.get("x-user") == "vera" else "none"]

    async def look(site: Site) -> None:
        assert (await site.get("/")).status_code == 403
        assert (await site.get("/", **{"x-user": "vera"})).status_code == 200

    visit(look, access=access)

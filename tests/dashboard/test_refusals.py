"""What is refused, and how early: strangers before their form is read, long input before it costs anything."""

from typing import Any

import pytest

from taskharbor.dashboard.sessions import Sessions
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.ops.access import Access
from taskharbor.store.text import MAX_SAFE_CHARS, safe_text
from tests.dashboard.site import JSON, OWN, Site, visit
from tests.dashboard.test_access import ACT_TABLE, PAGE_TABLE, UNTIL

LONG = "a" * 200_000


class HiddenPlace(MemoryDriver):
    """A store whose place is this name."""


def test_a_long_error_is_cut_before_it_is_searched():
    assert safe_text(LONG) == "a" * MAX_SAFE_CHARS + "…"
    assert len(safe_text("x " * 200_000)) <= MAX_SAFE_CHARS + 1


def test_an_address_at_the_cut_shows_no_password():
    for shift in range(60):
        text = "b" * (MAX_SAFE_CHARS - shift) + " https://424242424242@db.example/jobs"
        assert "4242" not in safe_text(text)


def test_a_scheme_has_a_bounded_length_and_addresses_stay_redacted():
    assert "hunter2" not in safe_text("cannot open postgresql+asyncpg://ada:hunter2@db/jobs now")
    assert "hunter2" not in safe_text("a" * 100 + "redis://ada:hunter2@db/0")


@pytest.mark.parametrize("path", ACT_TABLE)
def test_who_may_not_act_is_refused_before_the_form_is_read(path: str):
    async def act(site: Site) -> None:
        address = ACT_TABLE[path][0].format(**vars(site.scene), operation="x")
        for level in ("none", "view"):
            site.level = level
            for body in (b"", b"action=explode", b"action=" + LONG.encode(), b"\xff", b"x" * 2_200_000):
                reply = await site.send("POST", address, content=body, headers=OWN)
                assert (level, reply.status_code) == (level, 403), reply.text[:200]
                assert "may not" in reply.json()["error"]

        async def unread() -> Any:
            raise AssertionError("the form was read")
            yield b""

        assert (await site.send("POST", address, content=unread(), headers=OWN)).status_code == 403

    visit(act)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/jobs/act", {"id": "x", "action": LONG}),
        ("/operations", {"action": LONG}),
        ("/operations", {"action": "requeue", "state": LONG, "until": "2030-01-15T13:00:00+00:00"}),
    ],
)
def test_an_error_quotes_little_of_the_input(path: str, fields: dict[str, str]):
    async def act(site: Site) -> None:
        reply = await site.post(path, **fields)
        assert reply.status_code == 400
        assert "a" * 40 in reply.text
        assert "a" * 41 not in reply.text

    visit(act)


@pytest.mark.parametrize("access", ["none", None])
def test_a_stranger_does_not_learn_where_the_store_is(access: str | None):
    options: dict[str, Any] = {"access": None} if access is None else {"level": "none"}

    async def look(site: Site) -> None:
        names = {**vars(site.scene), "operation": "x"}
        paths = [
            path.format(**names) for path in (*PAGE_TABLE.values(), "/nothing", "/login", "/events", "/robots.txt")
        ]
        for path in paths:
            for headers in ({}, JSON):
                reply = await site.send("GET", path, headers=headers)
                assert "HiddenPlace" not in reply.text, path
        for address, fields, _ in ACT_TABLE.values():
            reply = await site.post(address.format(**names), **fields)
            assert "HiddenPlace" not in reply.text, address

    visit(look, driver=HiddenPlace(), **options)


def test_who_may_look_sees_where_the_store_is():
    async def look(site: Site) -> None:
        assert "HiddenPlace" in (await site.get("/queues")).text

    visit(look, driver=HiddenPlace(), level="view", played=False)


@pytest.mark.parametrize("number", ["0000000000501", "0" * 9 + "5", "0" * 5_000 + "5", "9" * 5_000, "501", "0"])
def test_a_number_is_checked_as_it_is_used(number: str):
    async def look(site: Site) -> None:
        for path in ("/jobs", "/dead", "/flows", "/operations"):
            reply = await site.send("GET", f"{path}?limit={number}", headers=JSON)
            assert (path, reply.status_code) == (path, 400)
        begin = {"action": "requeue", "state": "dlq", "until": UNTIL, "canary": "5"}
        assert (await site.post("/operations", **{**begin, "canary": number})).status_code == 400
        if number != "0":
            assert (await site.post("/operations", **begin, max_failures=number)).status_code == 400

    visit(look)


def test_max_failures_may_be_zero_and_has_an_upper_limit():
    async def act(site: Site) -> None:
        begin = {"action": "requeue", "state": "dlq", "until": UNTIL, "canary": "5"}
        for number, status in (("0", 200), ("100", 200), ("101", 400), ("0000101", 400), ("-1", 400), ("²", 400)):
            reply = await site.post("/operations", **begin, max_failures=number)
            assert (number, reply.status_code) == (number, status)

    visit(act)


@pytest.mark.parametrize("name", ["priority", "max_attempts"])
@pytest.mark.parametrize("number", ["9" * 30, "9" * 4_000, "9" * 5_000])
def test_an_absurd_number_in_an_edit_is_a_clear_refusal(name: str, number: str):
    async def act(site: Site) -> None:
        fields = {"priority": "1", "deliveries": "0", "edits": "0", name: number}
        reply = await site.post(f"/jobs/{site.scene.ready}/edit", **fields)
        assert (reply.status_code, len(reply.text) < 300) == (400, True)

    visit(act)


@pytest.mark.parametrize("query", ["action=delete&queue=mail", "action=delete&type=t", "action=requeue&state=ready"])
def test_a_preview_that_makes_no_sense_is_a_clear_refusal(query: str):
    async def look(site: Site) -> None:
        reply = await site.send("GET", f"/operations/new?{query}", headers=JSON)
        assert reply.status_code == 400, reply.text
        assert "expected" in reply.json()["error"] or "state" in reply.json()["error"]
        assert (await site.get(f"/operations/new?{query}")).status_code == 400

    visit(look)


def test_deleting_all_that_match_is_offered_with_a_state_only():
    async def look(site: Site) -> None:
        assert "action=delete" not in (await site.get("/jobs?queue=mail")).text
        page = (await site.get("/jobs?queue=mail&state=dlq")).text
        assert "action=delete" in page

    visit(look)


BROWSER = {name: value for name, value in OWN.items() if name != "x-taskharbor"}


@pytest.mark.parametrize("body", [b"token=" + b"x" * 2_200_000, b"token=" + b"x" * 10_000, b"\xff\xfe", b"&" * 3_000])
def test_a_login_that_is_no_small_form_is_a_clear_refusal(body: bytes):
    sessions = Sessions(lambda: 0.0, Access.admin("token"), token="t" * 32)

    async def come(site: Site) -> None:
        reply = await site.send("POST", "/login", content=body, headers=BROWSER)
        assert (reply.status_code, "set-cookie" in reply.headers) == (400, False)

    visit(come, access=None, sessions=sessions, played=False)


def test_a_token_is_no_link_and_a_link_is_no_token():
    token = "t" * 32
    sessions = Sessions(lambda: 0.0, Access.admin("token"), token=token)

    async def come(site: Site) -> None:
        reply = await site.get(f"/login?key={token}")
        assert (reply.status_code, "set-cookie" in reply.headers) == (403, False)
        key = sessions.new_link()
        reply = await site.send("POST", "/login", data={"token": key}, headers=BROWSER)
        assert (reply.status_code, "set-cookie" in reply.headers) == (403, False)
        assert "set-cookie" not in (await site.send("HEAD", f"/login?key={key}")).headers
        assert "set-cookie" in (await site.get(f"/login?key={key}")).headers
        assert "set-cookie" in (await site.send("POST", "/login", data={"token": token}, headers=BROWSER)).headers

    visit(come, access=None, sessions=sessions, played=False)

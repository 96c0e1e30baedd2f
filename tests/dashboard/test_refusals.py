"""What is refused, and how early: strangers before their form is read, input that is too long before it costs anything."""

from typing import Any

import pytest

from taskharbor.ops.text import MAX_SAFE_CHARS, safe_text
from tests.dashboard.site import OWN, Site, visit
from tests.dashboard.test_access import ACT_TABLE

LONG = "a" * 200_000


def test_a_long_error_is_cut_before_it_is_searched():
    assert safe_text(LONG) == "a" * MAX_SAFE_CHARS + "…"
    assert len(safe_text("x " * 200_000)) <= MAX_SAFE_CHARS + 1


def test_an_address_at_the_cut_shows_no_password():
    for shift in range(60):
        text = "b" * (MAX_SAFE_CHARS - shift) + " postgresql://ada:hunter2hunter2@db.example/jobs"
        assert "hunter" not in safe_text(text)


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
    "path, fields",
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

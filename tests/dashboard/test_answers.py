"""How actions and pages answer programs: nothing for htmx, JSON without markup for scripts, headers for any proxy."""

import json
import re
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from taskharbor.dashboard.answers import MAX_SAID_BYTES, json_bytes
from taskharbor.dashboard.routes import ACTION_ROUTES
from taskharbor.dashboard.stream import _event
from tests.dashboard.hostile import OTHERS, act_of, acts_on, pages_of, plant
from tests.dashboard.site import JSON, NOW, OWN, Site, visit

HTMX = {**OWN, "hx-request": "true"}
SMALLEST_BUFFER_BYTES = 4_096  # for all headers of an answer: nginx, on most machines
TEXTS = (act_of(), *OTHERS)


def check(reply: httpx.Response) -> None:
    """No answer has markup in its JSON, or a header that a server or proxy refuses."""
    kind = reply.headers.get("content-type", "")
    assert kind in ("", "application/json", "text/html; charset=utf-8")
    if kind == "application/json":
        assert not {*"<>&\u2028\u2029"} & {*reply.text}, reply.text
        json.loads(reply.text)
    raw = b"".join(name + value for name, value in reply.headers.raw)
    assert all(0x20 <= byte < 0x7F for byte in raw)
    assert len(raw) < SMALLEST_BUFFER_BYTES
    assert reply.headers.get("content-disposition", "attachment") == "attachment"
    assert re.fullmatch(r"/(jobs|schedules|operations#\w+)", reply.headers.get("hx-redirect", "/jobs"))
    assert not re.search(r"<\w+ data-owned", reply.text)


@pytest.mark.parametrize("headers", [HTMX, OWN], ids=["htmx", "a script"])
@pytest.mark.parametrize("text", TEXTS)
def test_no_answer_of_an_action_has_markup(text: str, headers: dict[str, str]):
    """Each action twice: it is done, and then often refused."""

    async def act(site: Site) -> None:
        await plant(site.harbor, site.driver, NOW, text)
        acts = acts_on(text)
        assert set(acts) == {act.path for act in ACTION_ROUTES}
        for route, (path, fields) in acts.items():
            for _ in range(2):
                reply = await site.send("POST", path, data=fields, headers=headers)
                check(reply)
                if route.endswith(("/reveal", "/download")) or reply.status_code >= 400:
                    assert reply.status_code in (200, 404, 409), reply.text
                elif headers is HTMX:
                    assert (reply.status_code, reply.content) == (204, b"")
                    assert ("hx-trigger" in reply.headers) is not ("hx-redirect" in reply.headers)
                else:
                    assert (reply.status_code, list(reply.json())) == (200, ["done"])

    visit(act, played=False)


@pytest.mark.parametrize("text", TEXTS)
def test_no_page_as_json_has_markup(text: str):
    async def look(site: Site) -> None:
        await plant(site.harbor, site.driver, NOW, text)
        for path in [*pages_of(text), f"/jobs/{quote(text, safe='')}", f"/jobs?state={quote(text, safe='')}"]:
            reply = await site.send("GET", path, headers=JSON)
            assert reply.status_code in (200, 303, 400, 404), (path, reply.text)
            if reply.status_code != 303:
                check(reply)
        (row,) = [each for each in (await site.json("/queues"))["queues"] if each["queue"] == text]
        assert row["queue"] == text  # a script reads what is stored

    visit(look, played=False)


def test_htmx_and_a_script_learn_the_same():
    async def act(site: Site) -> None:
        script = await site.post("/queues/mail/pause")
        page = await site.send("POST", "/queues/mail/pause", headers=HTMX)
        assert (page.status_code, page.content) == (204, b"")
        assert json.loads(page.headers["hx-trigger"]) == {"said": script.json()["done"]}
        refused = await site.send("POST", f"/jobs/{site.scene.done}/retry", headers=HTMX)
        assert (refused.status_code, "is done" in refused.json()["error"]) == (409, True)
        gone = await site.send("POST", f"/jobs/{site.scene.done}/delete", headers=HTMX)
        assert (gone.status_code, gone.headers["hx-redirect"]) == (204, "/jobs")
        out = await site.send("POST", "/logout", headers=HTMX)
        assert (out.status_code, out.headers["hx-redirect"]) == (204, "/login")

    visit(act)


@pytest.mark.parametrize("sign", ["ä", "名", "\U0001f600", "\x7f", '"', "\\"])
def test_a_sentence_fits_into_a_header_whatever_it_quotes(sign: str):
    async def act(site: Site) -> None:
        ids = [site.scene.scheduled, sign * 3_000]  # the second is refused, and the sentence quotes it
        reply = await site.send("POST", "/jobs/act", data={"action": "retry", "id": ids}, headers=HTMX)
        assert reply.status_code == 204
        check(reply)
        assert len(reply.headers["hx-trigger"]) <= MAX_SAID_BYTES
        assert json.loads(reply.headers["hx-trigger"])["said"].startswith("1 job ready; 1 refused, the first: ")

    visit(act)


@pytest.mark.parametrize(
    "value", [*TEXTS, "\\<", '"<', "\u2028\u2029&\\u003c", {"<a>": ["&", {"b": "<"}]}, "", None, 1.5]
)
def test_escaped_json_means_the_same(value: Any):
    data = json_bytes(value)
    assert json.loads(data) == value
    assert not {*"<>&\u2028\u2029"} & {*data.decode()}
    event = _event("changed", {"problem": value}).decode()
    assert event.count("\n") == 3
    assert "<" not in event

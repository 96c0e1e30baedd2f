"""What other sites, other hosts and other caches try, and what must not leak or block."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from taskharbor import Harbor, JobRequest
from tests.django_admin.site import KINDS, Site

FOREIGN = {
    "another site": {"sec_fetch_site": "cross-site"},
    "a sibling domain": {"sec_fetch_site": "same-site"},
    "another origin": {"sec_fetch_site": None, "origin": "https://evil.test"},
    "no origin": {"sec_fetch_site": None, "origin": None},
    "a sandboxed frame": {"sec_fetch_site": None, "origin": "null"},
    "a form": {"x_taskharbor": None},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_must_come_from_a_page_of_this_site(site: Site, kind: str) -> None:
    person = site.person(kind, "operate")
    with Harbor(site.store) as harbor:
        for what, headers in FOREIGN.items():
            reply = person.post("/queues/reports/pause", **headers)  # type: ignore[arg-type]  # headers by name
            assert (what, reply.status_code) == (what, 403)
            assert not harbor.is_paused("reports")
        assert person.post("/logout", sec_fetch_site="cross-site").status_code == 403
        assert person.get("/").status_code == 200  # still logged in
        assert person.post("/queues/reports/pause", sec_fetch_site=None).status_code == 200
        assert harbor.is_paused("reports")
        harbor.resume("reports")


@pytest.mark.parametrize("kind", KINDS)
def test_behind_a_proxy_the_origin_is_that_of_the_outside(site: Site, kind: str) -> None:
    person = site.person(kind, "operate")
    outside = {"x_forwarded_proto": "https", "x_forwarded_host": "shop.test", "sec_fetch_site": None}
    for origin, status in (
        ("https://shop.test", 200),
        ("http://shop.test", 403),
        ("https://evil.test", 403),
        (site.urls[kind], 403),
    ):
        headers: dict[str, Any] = {**outside, "origin": origin}
        assert person.post("/queues/mail/resume", **headers).status_code == status, origin


@pytest.mark.parametrize("kind", KINDS)
def test_a_foreign_host_is_refused(site: Site, kind: str) -> None:
    assert site.person(kind, "root").get("/", host="evil.test").status_code == 400


@pytest.mark.parametrize("kind", KINDS)
def test_pages_keep_the_headers_of_the_dashboard(site: Site, kind: str) -> None:
    person = site.person(kind, "view")
    for reply in (person.get("/"), person.get("/nothing"), person.get("/static/taskharbor.js")):
        headers = reply.headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert (headers["x-frame-options"], headers["x-content-type-options"]) == ("DENY", "nosniff")
        assert (headers["referrer-policy"], headers["cross-origin-opener-policy"]) == ("no-referrer", "same-origin")
    assert {"no-store", "private"} <= set(person.get("/").headers["cache-control"].split(", "))


def test_no_shared_cache_keeps_a_file_with_the_cookie_of_a_session(site: Site) -> None:
    person = site.person("wsgi", "view")
    address = person.get("/").text.partition('href="/admin/jobs')[2].partition('"')[0]
    reply = person.get(address)
    assert "sessionid" in reply.headers["set-cookie"]
    assert reply.headers["cache-control"] == "private, max-age=31536000, immutable"
    assert site.person("wsgi", "anonymous").get(address).content == reply.content  # public, and nothing else is
    for odd in ("/static/../jobs", "/static/", "/static/%2e%2e/jobs", "/static//jobs"):
        assert site.scene.dead not in site.person("wsgi", "anonymous").get(odd).text


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_body_is_refused(site: Site, kind: str) -> None:
    person = site.person(kind, "operate")
    reply = person.post("/jobs/act", {"action": "retry", "id": "x" * 2_200_000})
    assert (reply.status_code, reply.json()["error"]) == (413, "expected a body of at most 2,097,152 bytes")
    assert person.post("/jobs/act", {"action": "retry", "id": "x" * 1_000_000}).status_code in (400, 404, 409)


@pytest.mark.parametrize("kind", KINDS)
def test_htmx_gets_no_body_in_which_a_name_could_be_markup(site: Site, kind: str) -> None:
    person, name = site.person(kind, "operate"), "%3Cb%20hx-get=%2F%3E"
    reply = person.post(f"/queues/{name}/resume", hx_request="true")
    assert (reply.status_code, reply.content) == (204, b"")
    assert json.loads(reply.headers["hx-trigger"]) == {"said": "queue <b hx-get=/> is resumed"}
    reply = person.post(f"/queues/{name}/resume")
    assert (reply.status_code, "<" in reply.text) == (200, False)
    assert reply.json() == {"done": "queue <b hx-get=/> is resumed"}


@pytest.mark.parametrize("htmx", [None, "true"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_log_out_ends_the_session(site: Site, kind: str, htmx: str | None) -> None:
    person = site.log_in_again(kind, "reveal")
    assert "Log out" in person.get("/").text
    reply = person.post("/logout", hx_request=htmx)
    assert (reply.status_code, reply.headers["hx-redirect"]) == (204 if htmx else 200, "/admin/")
    assert person.get("/").status_code == 302
    reply = person.post("/queues/mail/resume")
    assert (reply.status_code, reply.json()["error"]) == (403, "you are logged out: load the page again")
    site.log_in_again(kind, "reveal")


@pytest.mark.parametrize("kind", KINDS)
def test_many_requests_at_once_share_one_loop_and_its_connections(site: Site, kind: str) -> None:
    person, barrier = site.person(kind, "view"), threading.Barrier(8)

    def look(_: int) -> int:
        barrier.wait(60)
        return person.get("/queues").status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(look, range(16))) == {200}
    assert person.client.get("/loops").text == "1"


def test_a_stream_of_events_is_for_asgi(site: Site) -> None:
    assert site.person("wsgi", "view").get("/events").status_code == 204  # which ends a stream for good
    assert 'data-events=""' in site.person("wsgi", "view").get("/").text
    assert site.person("asgi", "anonymous").get("/events").status_code == 302
    person = site.person("asgi", "view")
    assert 'data-events="/admin/jobs/events"' in person.get("/").text
    seen = threading.Event()

    def change() -> None:
        with Harbor(site.store) as harbor:
            while not seen.wait(0.05):  # until one of these is later than the first look at the store
                harbor.client.enqueue(JobRequest(type="mail.receipt"))

    changing = threading.Thread(target=change)
    with person.client.stream("GET", "/admin/jobs/events") as reply:
        assert (reply.status_code, reply.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        lines = reply.iter_lines()
        assert next(lines) == "retry: 2000"
        changing.start()
        assert next(line for line in lines if line.startswith("event:")) == "event: changed"
        seen.set()
        assert person.client.get("/viewers").text == "1"
    changing.join(60)
    ends = time.monotonic() + 60
    while person.client.get("/viewers").text != "0":  # the tab was closed: nothing looks at the store for it
        assert time.monotonic() < ends

"""What others may try: forged hosts and origins, forms of other sites, text that is code, huge and odd values."""

import re
import shlex
from html import unescape
from typing import Any
from urllib.parse import quote

import pytest

from taskharbor.dashboard.guard import POLICY
from taskharbor.dashboard.sessions import Sessions
from taskharbor.drivers import JobRecord
from taskharbor.model.audit import AuditEntry
from taskharbor.model.executions import read_trail
from taskharbor.model.outcome import Fail, Retry
from taskharbor.model.progress import Progress, write_note
from taskharbor.ops.access import Access
from taskharbor.policy.trail import with_trail
from tests.dashboard.scene import MINUTE, record
from tests.dashboard.site import JSON, NOW, OWN, Site, visit

HOSTS = {"localhost", "127.0.0.1", "::1"}
SCRIPT = "<script>alert(1)</script>{{7*7}}\"'><img src=x onerror=alert(1)>"


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:8420", "127.0.0.1.nip.io", "", "[::2]:8420"])
def test_a_request_for_another_host_is_refused(host: str):
    async def look(site: Site) -> None:
        assert (await site.get("/", host=host)).status_code == 403
        assert (await site.get("/static/taskharbor.css", host=host)).status_code == 403

    visit(look, hosts=HOSTS, played=False)


def test_an_edit_of_the_payload_uncovers_nothing():
    """What an operator may edit without seeing it stays masked in every text that quotes it."""
    card = "4111-1111-1111-1111"

    async def try_it(site: Site) -> None:
        job = record("pay", "pay", NOW, id="paid", payload={"card": card})
        await site.driver.enqueue([job], NOW)
        for attempts in (1, 2):
            (held,) = await site.driver.reserve(("pay",), NOW, MINUTE, 1, "w")
            note = write_note(Progress(done=1, note=f"charging {card}"))
            await site.driver.extend([held.lease], NOW, MINUTE, {held.lease.token: note})
            error = f"ValueError: card {card} was declined"
            end = (
                Retry(held.lease, None, attempts, error, NOW)
                if attempts == 1
                else Fail(held.lease, f"failed with {card}", attempts, NOW, error)
            )
            await site.driver.settle([with_trail(held.job, end, NOW)], NOW)
        before = (await site.driver.inspect("paid", NOW)).job
        assert all(card.encode() in text for text in (before.trail, before.note))
        reply = await site.post("/jobs/paid/edit", payload='{"card": "x"}', deliveries=2, edits=0)
        assert reply.status_code == 200, reply.text
        job = (await site.driver.inspect("paid", NOW)).job
        assert job.payload == b'{"card":"x"}'
        assert card not in str(job.last_error + job.reason)
        assert not any(card.encode() in text for text in (job.trail, job.note))
        assert card not in (await site.get("/jobs/paid")).text
        assert [each.error for each in read_trail(job.trail)] == ["ValueError: card ••• was declined"] * 2
        assert (job.deliveries, job.edits, job.attempts) == (2, 1, 2)

    visit(try_it, level="operate")


def test_an_edit_of_the_payload_uncovers_no_key_and_no_metadata():
    """A key and metadata may quote the payload, and cannot be masked in the store: workers need them."""
    chosen: Any = {
        "idempotency_key": "welcome:grace@example.org",
        "metadata": {"to": "grace@example.org", "plain": "mail"},
    }

    async def try_it(site: Site) -> None:
        for id, payload in (("quoted", {"to": "grace@example.org", "n": 1}), ("other", {"n": 1})):
            more = chosen if id == "quoted" else {"metadata": {"plain": "mail"}}
            await site.driver.enqueue([record("w", "w", NOW, id=id, payload=payload, **more)], NOW)
            for edits, text in enumerate(('{"to": "x"}', '{"n": 2}')):
                assert "grace@" not in (await site.get(f"/jobs/{id}")).text
                reply = await site.post(f"/jobs/{id}/edit", payload=text, deliveries=0, edits=edits)
                assert reply.status_code == 200, reply.text
            assert "grace@" not in (await site.get(f"/jobs/{id}")).text
            assert "grace@" not in (await site.send("GET", f"/jobs/{id}", headers=JSON)).text
        job = (await site.driver.inspect("quoted", NOW)).job
        assert job.idempotency_key == chosen["idempotency_key"]
        assert job.metadata.items() >= chosen["metadata"].items()
        assert (await site.json("/jobs/other"))["metadata"] == {"plain": "mail"}

    visit(try_it, level="operate")


@pytest.mark.parametrize("host", ["localhost:8420", "LOCALHOST", "127.0.0.1:1", "[::1]:8420"])
def test_a_loopback_name_is_served(host: str):
    async def look(site: Site) -> None:
        assert (await site.get("/", host=host)).status_code == 200

    visit(look, hosts=HOSTS, played=False)


@pytest.mark.parametrize(
    "changed",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": None, "origin": "https://evil.example"},
        {"sec-fetch-site": None, "origin": "null"},
        {"sec-fetch-site": None, "origin": "http://localhost:8421"},
        {"sec-fetch-site": None, "origin": "https://localhost:8420"},
        {"sec-fetch-site": None, "origin": None},
        {"x-taskharbor": None},
    ],
)
def test_an_action_from_elsewhere_is_refused(changed: dict[str, str | None]):
    async def act(site: Site) -> None:
        headers = {name: value for name, value in {**OWN, **changed}.items() if value is not None}
        reply = await site.send("POST", "/queues/mail/pause", headers=headers)
        assert reply.status_code == 403
        assert not await site.driver.is_paused("mail")

    visit(act)


@pytest.mark.parametrize("name", ["mail; touch PWNED; #", "$(x)", "-x", "--all", 'it\'s "it"', "a  b", "a&amp;b<i>"])
def test_a_command_on_a_page_can_be_pasted(name: str):
    async def look(site: Site) -> None:
        await site.driver.enqueue([record(name, name, NOW, id=name)], NOW)
        path = quote(name, safe="")
        queue = (await site.get(f"/queues/{path}")).text
        assert ["taskharbor", "worker", "run", "--queues", name] in commands(queue)
        assert any(["--queues", name] == words[-2:] for words in commands((await site.get(f"/jobs/{path}")).text))
        await site.driver.pause(name)
        assert name in next(words for words in commands((await site.get(f"/jobs/{path}")).text) if "resume" in words)
        await site.driver.resume(name)
        (held,) = await site.driver.reserve((name,), NOW, MINUTE, 1, "w")
        await site.driver.settle([Fail(held.lease, "no", 1, NOW)], NOW)
        assert name in next(words for words in commands((await site.get(f"/jobs/{path}")).text) if "dlq" in words)

    visit(look, played=False)


def commands(page: str) -> list[list[str]]:
    """The commands on a page, as a shell reads them."""
    return [shlex.split(unescape(found)) for found in re.findall(">(taskharbor [^<]+)<", page)]


def test_an_old_browser_is_known_by_its_origin():
    async def act(site: Site) -> None:
        headers = {name: value for name, value in OWN.items() if name != "sec-fetch-site"}
        assert (await site.send("POST", "/queues/mail/pause", headers=headers)).status_code == 200

    visit(act)


def test_every_answer_has_the_headers():
    async def look(site: Site) -> None:
        for path in ("/", "/jobs/none", "/nothing", "/static/taskharbor.js", "/static/../app.py", "/events/x"):
            reply = await site.get(path)
            assert reply.headers["content-security-policy"] == POLICY
            assert reply.headers["x-content-type-options"] == "nosniff"
            assert reply.headers["x-frame-options"] == "DENY"
            assert reply.headers["referrer-policy"] == "no-referrer"
        assert (await site.get("/")).headers["cache-control"] == "no-store"

    visit(look)


def test_a_bug_is_for_the_log():
    def access(request: Any) -> Any:
        raise RuntimeError("secret-in-a-traceback")

    async def look(site: Site) -> None:
        with pytest.raises(RuntimeError, match="secret"):  # Starlette raises it again, for the server's log
            await site.get("/")

    visit(look, access=access, played=False)


def test_stored_text_is_text_on_every_page():
    async def look(site: Site) -> None:
        driver: Any = site.driver
        flow, name = "flow-1", SCRIPT.replace("{{7*7}}", "")[:60]
        jobs = [
            record(name, "q" + name, NOW - MINUTE, 1, id="odd-1", group=name, metadata={"k": SCRIPT}),
            record(name, "default", NOW - MINUTE, 2, id="odd-2", flow_id=flow),
        ]
        await driver.enqueue(jobs, NOW)
        for each in await driver.reserve(("q" + name, "default"), NOW, MINUTE, 10, name):
            outcome = Fail(each.lease, SCRIPT, 1, NOW, SCRIPT, error_class=name, fingerprint=name[:30])
            await driver.settle([outcome], NOW)
        entry = AuditEntry(id="01A", at=NOW, by=name[:50], action=SCRIPT[:30], target=SCRIPT)
        await driver.put_audit([entry.stored()], NOW)
        paths = ["/", "/queues", "/jobs", "/jobs/odd-1", "/jobs/odd-2", "/dead", "/flows", f"/flows/{flow}", "/workers"]
        paths += [
            "/operations",
            "/operations/new?state=dlq",
            "/about",
            "/jobs?q=" + "%3Cscript%3E",
            "/jobs/%3Cscript%3E",
        ]
        paths += ["/queues/%3Cscript%3E", "/flows?status=%3Cscript%3E", "/nothing/%3Cscript%3E"]
        for path in paths:
            reply = await site.get(path)
            assert "<script>alert" not in reply.text, path
            assert "<img src=x" not in reply.text, path
            assert "alert(1)</script>49" not in reply.text, path

    visit(look, played=False)


@pytest.mark.parametrize("name", ["a/b", "a?b", "a#b", "100%", "a b", "ä", "..", "x/pause", "%2F", "a;b", "a&b=c", "'"])
def test_odd_names_are_found_and_acted_on(name: str):
    async def act(site: Site) -> None:
        from urllib.parse import quote

        driver: Any = site.driver
        await driver.enqueue([JobRecord(id=f"id {name}", type="t", queue=name)], NOW)
        page = await site.get("/queues")
        assert f"/queues/{quote(name, safe='')}" in page.text
        assert (await site.get(f"/queues/{quote(name, safe='')}")).status_code == 200
        assert (await site.get(f"/jobs/{quote(f'id {name}', safe='')}")).status_code == 200
        if name != "..":  # a client resolves it before it sends
            assert (await site.post(f"/queues/{quote(name, safe='')}/pause")).status_code == 200
            assert await driver.is_paused(name)

    visit(act, played=False)


@pytest.mark.parametrize(
    "path",
    [
        "/jobs?limit=99999999999999999999",
        "/jobs?limit=-1",
        "/jobs?limit=%C2%B2",
        "/jobs?cursor=%00%ff",
        "/jobs?state=zombie",
        "/jobs?since=yesterday",
        "/jobs?since=99999999999999999999d",
        "/jobs?since=2030-01-31T09:00:00",
        "/jobs?q=" + "q" * 5000,
        "/jobs?q=%22open",
        "/jobs?q=colour:red",
        "/flows?status=odd",
        "/flows?cursor=odd",
        "/?span=1y",
        "/dead?by=colour",
        "/operations/new?action=explode&state=dlq",
        "/operations/new",
        "/queues/" + "q" * 5000,
    ],
)
def test_nonsense_in_an_address_is_a_clear_refusal(path: str):
    async def look(site: Site) -> None:
        reply = await site.send("GET", path, headers=JSON)
        assert reply.status_code in (400, 404), reply.text
        assert "expected" in reply.json()["error"] or "no " in reply.json()["error"]
        assert (await site.get(path)).status_code == reply.status_code

    visit(look)


@pytest.mark.parametrize(
    "fields",
    [
        {"priority": str(2**63)},
        {"priority": "high"},
        {"max_attempts": "0"},
        {"run_at": "tomorrow"},
        {"timeout": "soon"},
        {"payload": "[1]"},
        {"payload": "{" * 5000},
        {},
    ],
)
def test_nonsense_in_an_edit_is_a_clear_refusal(fields: dict[str, str]):
    async def act(site: Site) -> None:
        reply = await site.post(f"/jobs/{site.scene.ready}/edit", deliveries="0", edits="0", **fields)
        assert reply.status_code == 400, reply.text

    visit(act)


def test_an_edit_of_what_was_changed_meanwhile_is_refused():
    async def act(site: Site) -> None:
        fields = {"priority": "5", "deliveries": "0", "edits": "0"}
        assert (await site.post(f"/jobs/{site.scene.ready}/edit", **fields)).status_code == 200
        assert (await site.post(f"/jobs/{site.scene.ready}/edit", **fields)).status_code == 409

    visit(act)


def test_a_form_that_is_too_large_is_refused():
    async def act(site: Site) -> None:
        reply = await site.post(f"/jobs/{site.scene.ready}/edit", payload="x" * 3_000_000)
        assert (reply.status_code, "at most" in reply.text) == (400, True)

    visit(act)


def test_payloads_are_hidden_until_revealed_and_large_ones_are_a_download():
    async def act(site: Site) -> None:
        driver: Any = site.driver
        secret = {"card": "4111-1111-1111-1111", "note": "gift-for-grace", "n": 12345678901234567890}
        await driver.enqueue([record("t", "mail", NOW, id="j1", payload=secret)], NOW)
        await driver.enqueue([record("t", "mail", NOW, id="big", payload={"x": "y" * 1_000_000})], NOW)
        for path in ("/jobs/j1", "/jobs", "/queues/mail"):
            assert "gift-for-grace" not in (await site.get(path)).text
            assert "gift-for-grace" not in (await site.send("GET", path, headers=JSON)).text
        shown = (await site.post("/jobs/j1/reveal")).text
        assert "gift-for-grace" in shown
        assert "4111" not in shown
        assert "12345678901234567890" in shown
        large = (await site.post("/jobs/big/reveal")).text
        assert len(large) < 2_000
        assert "data-download" in large
        whole = await site.post("/jobs/big/download", part="payload")
        assert len(whole.content) > 1_000_000
        assert whole.headers["content-disposition"] == "attachment"
        actions = [entry["action"] for entry in (await site.json("/operations"))["entries"]]
        assert actions[:3] == ["reveal", "reveal", "reveal"]

    visit(act, redact=("card",))


def test_a_one_time_link_works_once_and_the_session_ends():
    class Clock:
        seconds = 0.0

    sessions = Sessions(lambda: Clock.seconds, Access.admin("ada"))

    async def come(site: Site) -> None:
        assert (await site.get("/")).headers["location"] == "/login"
        key = sessions.new_link()
        reply = await site.get(f"/login?key={key}")
        cookie = reply.headers["set-cookie"]
        assert reply.status_code == 200
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
        assert key not in cookie
        assert "set-cookie" not in (await site.get(f"/login?key={key}")).headers
        session = cookie.partition(";")[0]
        assert (await site.get("/", cookie=session)).status_code == 200
        assert (await site.get("/", cookie=session + "x")).status_code == 303
        Clock.seconds = 12 * 3600 + 1
        assert (await site.get("/", cookie=session)).status_code == 303

    visit(come, access=None, sessions=sessions, played=False)


def test_the_cookie_can_be_kept_from_plain_http():
    for secure, base in (
        (False, "http://localhost:8420"),
        (True, "http://localhost:8420"),
        (False, "https://localhost"),
    ):
        sessions = Sessions(lambda: 0.0, Access.admin("ada"), secure=secure)

        async def come(site: Site, sessions: Sessions = sessions, base: str = base, secure: bool = secure) -> None:
            reply = await site.send("GET", f"/login?key={sessions.new_link()}", base=base)
            marked = "Secure" in reply.headers["set-cookie"].split("; ")
            assert marked is (secure or base.startswith("https"))

        visit(come, access=None, sessions=sessions, played=False)


def test_logging_out_ends_the_session():
    sessions = Sessions(lambda: 0.0, Access.admin("ada"))

    async def come(site: Site) -> None:
        session = (await site.get(f"/login?key={sessions.new_link()}")).headers["set-cookie"].partition(";")[0]
        assert (await site.get("/", cookie=session)).status_code == 200
        reply = await site.send("POST", "/logout", headers={**OWN, "cookie": session})
        assert reply.headers["hx-redirect"] == "/login"
        assert (await site.get("/", cookie=session)).status_code == 303

    visit(come, access=None, sessions=sessions, played=False)


def test_a_token_lets_in_by_form_and_by_header():
    token = "t" * 32
    sessions = Sessions(lambda: 0.0, Access.admin("token"), token=token)

    async def come(site: Site) -> None:
        headers = {name: value for name, value in OWN.items() if name != "x-taskharbor"}
        assert (await site.send("POST", "/login", data={"token": "wrong"}, headers=headers)).status_code == 403
        reply = await site.send("POST", "/login", data={"token": token}, headers=headers)
        session = reply.headers["set-cookie"].partition(";")[0]
        assert (await site.get("/", cookie=session)).status_code == 200
        assert (await site.get("/queues", authorization=f"Bearer {token}", **JSON)).status_code == 200
        assert (await site.get("/queues", authorization="Bearer wrong", **JSON)).status_code == 403
        crossed = {**headers, "sec-fetch-site": "cross-site"}
        assert (await site.send("POST", "/login", data={"token": token}, headers=crossed)).status_code == 403

    visit(come, access=None, sessions=sessions, played=False)


def test_a_short_token_is_refused():
    with pytest.raises(ValueError, match="at least 32 characters"):
        Sessions(lambda: 0.0, Access.admin("token"), token="short")

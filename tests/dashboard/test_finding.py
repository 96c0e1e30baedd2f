"""Finding a job: words that pages show, a word without a name, mistakes under the bar, a link that outlives a login."""

import pytest

from taskharbor.dashboard.app import own_path
from taskharbor.dashboard.sessions import Sessions
from taskharbor.ops.access import Access
from tests.dashboard.site import JSON, OWN, Site, visit

TOKEN = "t" * 32


@pytest.mark.parametrize(
    ("typed", "address"),
    [
        ("state:dead", "/jobs?state=dlq"),
        ("state:running queue:mail", "/jobs?state=inflight&queue=mail"),
        ("state:READY", "/jobs?state=ready"),
        ("mail.receipt", "/jobs?type=mail.receipt"),
        ("SMTPServerDisconnected", "/jobs?error=SMTPServerDisconnected"),
        ("billing state:dead", "/jobs?queue=billing&state=dlq"),
        ("nowhere", "/jobs?type=nowhere"),
    ],
)
def test_what_a_person_types_is_understood(typed: str, address: str):
    async def look(site: Site) -> None:
        reply = await site.send("GET", "/jobs", params={"q": typed})
        assert (reply.status_code, reply.headers["location"]) == (303, address)

    visit(look)


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ("state:zombie", "state: expected one of blocked, cancelled, dead, done, ready, running, scheduled"),
        ("webhooks paused", "expected one word without a name"),
        ("colour:red", "expected one of state, queue"),
        ('type:"open', "a quote is not closed"),
    ],
)
def test_a_mistake_is_explained_under_the_bar_which_keeps_what_was_typed(typed: str, problem: str):
    async def look(site: Site) -> None:
        reply = await site.send("GET", "/jobs", params={"q": typed})
        assert reply.status_code == 400
        assert problem in reply.text
        assert 'id="filter"' in reply.text
        assert typed.split('"')[0] in reply.text
        assert (await site.send("GET", "/jobs", params={"q": typed}, headers=JSON)).status_code == 400

    visit(look)


def test_a_link_to_a_page_outlives_the_login():
    sessions = Sessions(lambda: 0.0, Access.admin("ada"), token=TOKEN)

    async def look(site: Site) -> None:
        reply = await site.get("/jobs/01J<b>?x=1&y=2")
        assert reply.status_code == 303
        assert reply.headers["location"] == "/login?next=%2Fjobs%2F01J%253Cb%253E%3Fx%3D1%26y%3D2"
        form = (await site.get(reply.headers["location"])).text
        assert 'name="next" value="/jobs/01J%3Cb%3E?x=1&amp;y=2"' in form
        page = await site.send("POST", "/login", data={"token": TOKEN, "next": "/jobs/01J%3Cb%3E?x=1&y=2"}, headers=OWN)
        assert 'url=/jobs/01J%3Cb%3E?x=1&amp;y=2"' in page.text
        wrong = await site.send("POST", "/login", data={"token": "x" * 32, "next": "/jobs/7"}, headers=OWN)
        assert 'name="next" value="/jobs/7"' in wrong.text
        assert (await site.get("/")).headers["location"] == "/login"

    visit(look, access=None, sessions=sessions)


ELSEWHERE = ["//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)", "/\n/evil"]


@pytest.mark.parametrize("next", [*ELSEWHERE, "", "/" + "a" * 2_500])
def test_a_login_leads_to_no_other_site(next: str):
    sessions = Sessions(lambda: 0.0, Access.admin("ada"), token=TOKEN)

    async def look(site: Site) -> None:
        page = await site.send("POST", "/login", data={"token": TOKEN, "next": next}, headers=OWN)
        assert 'url=/"' in page.text

    assert own_path(next) == "/"
    visit(look, access=None, sessions=sessions, played=False)

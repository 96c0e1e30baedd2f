"""The dashboard inside Django's admin, in a browser: log in, find the jobs, retry a dead one, log out."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from taskharbor import Harbor, JobRequest
from tests.browser.conftest import Tab
from tests.browser.watched import DEFENCES, EMPTY, WatchedTab
from tests.dashboard.hostile import act_of
from tests.django_admin.site import KINDS, PATIENCE_S, Site

T = TypeVar("T")
TEXT = act_of("/admin/jobs")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("django")) as found:
        yield found


def log_in(tab: Tab) -> Page:
    page = tab.open("/admin/")
    page.get_by_label("Username").fill("operate")
    page.get_by_label("Password").fill("operate")
    page.get_by_role("button", name="Log in").click()
    return page


def with_harbor(site: Site, call: Callable[[Harbor], T]) -> T:
    """Call the store of the site; in a thread, since a loop runs in this one."""

    def run() -> T:
        with Harbor(site.store) as harbor:
            return call(harbor)

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result(PATIENCE_S)


@pytest.mark.left_to("full")
@pytest.mark.parametrize("kind", KINDS)
def test_a_dead_job_is_retried_from_the_admin(chromium: Browser, site: Site, kind: str) -> None:
    context = chromium.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    tab = Tab(context, site.urls[kind])
    page = log_in(tab)
    page.get_by_role("link", name="Jobs").first.click()
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.locator("#live-word")).to_have_text("live" if kind == "asgi" else "every 10 s")
    expect(page.locator(".who")).to_have_text("operate")
    tab.check()
    if kind == "wsgi":
        tab.check_accessible()

    page.get_by_role("link", name="Dead letters").first.click()
    page.goto(f"{site.urls[kind]}/admin/jobs/jobs?state=dlq&queue=imports")
    page.locator("[data-row] th a").first.click()
    expect(page.get_by_text("dead").first).to_be_visible()
    expect(page.locator("#live")).to_be_visible()  # the scripts run
    page.get_by_role("button", name="Retry").click()
    dialog = page.locator("#ask")
    if dialog.is_visible():
        page.locator("#ask-yes").click()
    expect(page.locator("#said")).not_to_be_empty()
    expect(page.locator("#main .badge").first).to_have_text("ready")
    tab.check()

    page.get_by_role("link", name="Django administration").click()
    expect(page.get_by_text("Site administration")).to_be_visible()
    page.get_by_role("link", name="Jobs").first.click()
    expect(page.locator("#live")).to_be_visible()
    tab.allowed.add(400)  # how Django answers a request that is under way when its session ends
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Username")).to_be_visible()
    page.goto(f"{site.urls[kind]}/admin/jobs/")
    expect(page.get_by_label("Username")).to_be_visible()
    tab.check()
    context.close()


@pytest.mark.left_to("full")
@pytest.mark.parametrize("kept", [None, *DEFENCES])
def test_each_defence_alone_keeps_a_name_from_acting(chromium: Browser, site: Site, kept: str | None) -> None:
    """Without any of them the click of a person pauses another queue, with the rights of that person."""
    with_harbor(site, lambda harbor: harbor.client.enqueue(JobRequest(type="t", queue=TEXT)))
    off = [each for each in DEFENCES if each != kept]
    with WatchedTab(chromium, site.urls["wsgi"], off) as tab:
        expect(log_in(tab).get_by_text("Site administration")).to_be_visible()
        page = tab.open(f"/admin/jobs/queues/{quote(TEXT, safe='')}")
        for verb, past in (("Pause", "paused"), ("Resume", "resumed")) if kept else ():
            with page.expect_response(lambda reply: reply.request.method == "POST") as got:
                page.get_by_role("button", name=verb, exact=True).click()
                if verb == "Pause":
                    page.locator("#ask-yes").click()
            assert got.value.status == (204 if kept == EMPTY else 200)
            expect(page.locator("#said")).to_contain_text(f"queue {TEXT} is {past}")
            expect(
                page.get_by_role("button", name="Resume" if verb == "Pause" else "Pause", exact=True)
            ).to_be_visible()
            assert tab.owned == []
        if kept is None:  # one click alone: what the answer does comes after it
            with page.expect_response(lambda reply: reply.url.endswith("/admin/jobs/queues/payments/pause")):
                page.get_by_role("button", name="Pause", exact=True).click()
                page.locator("#ask-yes").click()
            assert tab.owned
            with_harbor(site, lambda harbor: harbor.resume(TEXT))
        tab.check()
    assert with_harbor(site, lambda harbor: harbor.is_paused("payments")) is (kept is None)
    with_harbor(site, lambda harbor: harbor.resume("payments"))

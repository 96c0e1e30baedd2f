"""The dashboard inside Django's admin, in a browser: log in, find the jobs, retry a dead one, log out."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import Tab
from tests.django_admin.site import KINDS, Site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("django")) as found:
        yield found


@pytest.mark.parametrize("kind", KINDS)
def test_a_dead_job_is_retried_from_the_admin(chromium: Browser, site: Site, kind: str) -> None:
    context = chromium.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    tab = Tab(context, site.urls[kind])
    page = tab.open("/admin/")
    page.get_by_label("Username").fill("operate")
    page.get_by_label("Password").fill("operate")
    page.get_by_role("button", name="Log in").click()
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

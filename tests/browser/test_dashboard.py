"""The dashboard in a browser: every page, every action, while a real worker changes the store."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from taskharbor.dashboard.routes import ACTION_ROUTES
from taskharbor.drivers import JobRecord
from taskharbor.model.outcome import Fail
from taskharbor.ops.access import Access
from tests import lanes
from tests.browser.conftest import Tab
from tests.browser.served import Served
from tests.dashboard.site import LEVELS
from tests.dashboard.test_access import ACT_TABLE
from tests.servers import postgres, redis

PAGES = (
    "/", "/queues", "/queues/mail", "/jobs", "/jobs/{dead}", "/jobs/{running}", "/jobs/{scheduled}", "/dead", "/flows",
    "/flows/{failed_flow}", "/schedules", "/schedules/nightly#edit", "/workers", "/operations",
    "/operations/new?action=requeue&state=dlq&queue=mail", "/about", "/nothing",
)  # fmt: skip
SMOKE = ("/", "/queues/mail", "/jobs", "/dead", "/flows/{failed_flow}", "/workers", "/operations")
WIDTHS = {"desktop": 1440, "tablet": 768, "phone": 390}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("browser") / "jobs.db"
    with Served(f"sqlite:///{path}") as found, worker(f"sqlite:///{path}"):
        yield found


class worker:  # reads as a function: `with worker(dsn)`
    """A real worker process for the queue `live`, with the built-in handlers."""

    def __init__(self, dsn: str) -> None:
        command = [sys.executable, "-m", "taskharbor", "worker", "run", "--dsn", dsn, "--queues", "live"]
        self.process = subprocess.Popen(
            [*command, "--poll-interval", "0.1"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={name: value for name, value in os.environ.items() if name != "TASKHARBOR_DSN"},
        )

    def __enter__(self) -> "worker":
        return self

    def __exit__(self, *raised: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def tab(chromium: Browser, served: Served) -> Iterator[Tab]:
    served.level = Access.admin("ada")
    context = chromium.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    found = Tab(context, served.url)
    yield found
    found.check()
    context.close()


def enqueue(served: Served, kind: str, payload: bytes = b"{}", queue: str = "live", **fields: Any) -> str:
    async def store(driver: Any, now: Any) -> str:
        from taskharbor.model.ids import new_id
        from taskharbor.model.times import to_ms

        job = JobRecord(id=new_id(to_ms(now)), type=kind, queue=queue, payload=payload, **fields)
        return str((await driver.enqueue([job], now))[0].id)

    return served.call(store)


@pytest.mark.left_to("full", except_for=lanes.Chosen("light"))
@pytest.mark.parametrize("look", ["light", "dark"])
def test_every_page_is_drawn_without_an_error_and_accessible(chromium: Browser, served: Served, look: Any):
    """Light on a large screen, and no page is wider than a smaller one; dark on a phone."""
    served.level = Access.admin("ada")
    width = WIDTHS["desktop" if look == "light" else "phone"]
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=look, reduced_motion="reduce")
    tab = Tab(context, served.url)
    tab.allowed = {404}
    for path in PAGES:
        page = tab.open(path.format(**vars(served.scene)))
        for name, narrow in WIDTHS.items():
            page.set_viewport_size({"width": narrow, "height": 900})
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= narrow, f"{path} is wider than a {name}"
        page.set_viewport_size({"width": width, "height": 900})
        tab.check_accessible()
    context.close()


def test_a_page_follows_a_real_worker_and_keeps_the_focus(tab: Tab, served: Served):
    page = tab.open("/jobs?queue=live")
    first = enqueue(served, "echo", b'{"text": "hello"}')
    row = page.locator(f"[id='row-{first}']")
    expect(row.get_by_text("done", exact=True)).to_be_visible()
    link = row.get_by_role("link", name=first)
    link.focus()
    second = enqueue(served, "echo")
    expect(page.locator(f"[id='row-{second}']").get_by_text("done", exact=True)).to_be_visible()
    assert page.evaluate("document.activeElement.textContent") == first
    expect(page.locator("#live")).to_have_attribute("data-state", "live")


def test_a_running_job_shows_its_end_without_a_reload(tab: Tab, served: Served):
    id = enqueue(served, "sleep", b'{"seconds": 60}')
    page = tab.open(f"/jobs/{id}")
    expect(page.locator("h1 .badge")).to_have_text("running")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#ask")).to_be_visible()
    page.get_by_role("button", name="Keep as it is").click()
    expect(page.locator("h1 .badge")).to_have_text("running")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel it").click()
    expect(page.locator("h1 .badge")).to_have_text("cancelled")


def test_a_dead_job_is_retried_revealed_edited_and_deleted(tab: Tab, served: Served):
    id = enqueue(served, "fail", b'{"reason": "gift-for-grace"}', max_attempts=1)
    page = tab.open(f"/jobs/{id}")
    expect(page.locator("h1 .badge")).to_have_text("dead")
    assert "gift-for-grace" not in page.content()
    page.get_by_role("button", name="Reveal").click()
    expect(page.locator("#revealed pre")).to_contain_text("gift-for-grace")
    page.reload()
    page.keyboard.press("e")
    page.get_by_label("Priority").fill("7")
    page.get_by_label("and requeue it").uncheck()
    page.get_by_role("button", name="Change the job").click()
    expect(page.locator(".facts").get_by_text("priority")).to_be_visible()
    page.reload()
    page.keyboard.press("r")
    expect(page.get_by_text("#2", exact=True)).to_be_visible()
    expect(page.locator("h1 .badge")).to_have_text("dead")
    tab.allowed = {404}  # the page may read once more before it goes
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Delete it").click()
    page.wait_for_url("**/jobs")


def test_selected_jobs_are_changed_and_the_list_waits_meanwhile(tab: Tab, served: Served):
    ids = [enqueue(served, "echo", queue="unserved") for _ in range(3)]
    page = tab.open("/jobs?queue=unserved&state=ready")
    for id in ids[:2]:
        page.get_by_label(f"Select job {id}").check()
    expect(page.locator("#selected")).to_have_text("2")
    expect(page.locator("#live")).to_have_attribute("data-state", "held")
    page.locator("#selection").get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel them").click()
    expect(page.locator(f"[id='row-{ids[0]}']")).not_to_be_visible()
    expect(page.locator(f"[id='row-{ids[2]}']")).to_be_visible()


def press(page: Page, name: str, sure: str | None = None) -> None:
    """Press a button, and the one of the question that follows."""
    page.get_by_role("button", name=name, exact=True).first.click()
    if sure is not None:
        page.locator("#ask").get_by_role("button", name=sure, exact=True).click()


def select(page: Page, id: str, action: str, sure: str | None = None) -> None:
    """Select a row, and do something about it."""
    page.get_by_label(f"Select job {id}").check()
    page.locator("#selection").get_by_role("button", name=action, exact=True).click()
    if sure is not None:
        page.locator("#ask").get_by_role("button", name=sure, exact=True).click()


def edit_the_job(page: Page) -> None:
    page.keyboard.press("e")
    page.get_by_label("Priority").fill("7")
    page.get_by_role("button", name="Change the job").click()


def download(page: Page) -> None:
    press(page, "Reveal")
    expect(page.locator("#live")).to_have_attribute("data-state", "held")  # no refresh takes the button away
    press(page, "Download")


def change_the_schedule(page: Page, served: Served) -> None:
    """Type another rule, see what follows from it, and keep it. The focus stays where one types."""
    page.keyboard.press("e")
    cron = page.get_by_label("Cron")
    cron.fill("61 * * * *")
    expect(page.locator("#preview")).to_contain_text("expected 0 to 59 in the field minute")
    cron.fill("15 9 * * MON-FRI")
    expect(page.locator("#preview")).to_contain_text("Next, with these changes")
    expect(page.locator("#preview li").first).to_contain_text("09:15:00")
    assert page.evaluate("document.activeElement.name") == "cron"
    page.get_by_role("button", name="Change the schedule").click()
    expect(page.locator(".facts code")).to_contain_text("15 9 * * MON-FRI")


async def fail_operation(driver: Any, now: Any) -> None:
    """Let the first slice of an operation die, as if its worker could not carry it out."""
    (held,) = await driver.reserve(("taskharbor",), now, timedelta(minutes=1), 1, "w")
    assert await driver.settle([Fail(held.lease, "no", 9, now)], now) == [None]


# Each action: the page it is on, and how a person does it there; `{…}` are jobs and flows of the scene.
ACTIONS: dict[str, tuple[str, Callable[[Page, Served], Any]]] = {
    "/queues/{queue:path}/pause": ("/queues", lambda page, served: press(page, "Pause video", "Pause")),
    "/queues/{queue:path}/resume": ("/queues", lambda page, served: press(page, "Resume video")),
    "/jobs/act": ("/jobs?state=scheduled", lambda page, served: select(page, served.scene.scheduled, "Retry")),
    "/jobs/{id:path}/retry": ("/jobs/{later}", lambda page, served: press(page, "Run now")),
    "/jobs/{id:path}/cancel": ("/jobs/{later}", lambda page, served: press(page, "Cancel", "Cancel it")),
    "/jobs/{id:path}/edit": ("/jobs/{later}", lambda page, served: edit_the_job(page)),
    "/jobs/{id:path}/reveal": ("/jobs/{later}", lambda page, served: press(page, "Reveal")),
    "/jobs/{id:path}/download": ("/jobs/{large}", lambda page, served: download(page)),
    "/jobs/{id:path}/delete": ("/jobs/{later}", lambda page, served: press(page, "Delete", "Delete it")),
    "/operations": (
        "/operations/new?action=requeue&state=dlq&queue=mail",
        lambda page, served: page.get_by_role("button", name="Requeue").click(),
    ),
    "/operations/{id:path}/resume": (
        "/operations",
        lambda page, served: page.get_by_role("button", name="Resume operation").click(),
    ),
    "/operations/{id:path}/stop": (
        "/operations",
        lambda page, served: page.get_by_role("button", name="Stop operation").click(),
    ),
    "/schedules/{name:path}/run": ("/schedules", lambda page, served: press(page, "Run now: nightly")),
    "/schedules/{name:path}/pause": ("/schedules", lambda page, served: press(page, "Pause nightly")),
    "/schedules/{name:path}/resume": ("/schedules", lambda page, served: press(page, "Resume nightly")),
    "/schedules/{name:path}/edit": ("/schedules/nightly", change_the_schedule),
    "/schedules/{name:path}/reset": ("/schedules/nightly", lambda page, served: press(page, "Reset", "Reset it")),
    "/schedules/{name:path}/delete": ("/schedules/reindex", lambda page, served: press(page, "Delete", "Delete it")),
    "/flows/{id:path}/requeue": ("/flows/{failed_flow}", lambda page, served: press(page, "Requeue what failed")),
    "/flows/{id:path}/cancel": ("/flows/{failed_flow}", lambda page, served: press(page, "Cancel", "Cancel it")),
}


def pattern_of(route: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\{[a-z]+:path\\}", ".+", re.escape(route)) + "$")


def test_every_action_is_done_by_a_person(chromium: Browser, tmp_path: Path):
    """With the buttons of its page; no worker changes anything meanwhile."""
    assert set(ACTIONS) == {act.path for act in ACTION_ROUTES}
    with Served(f"sqlite:///{tmp_path}/jobs.db") as served:
        context = chromium.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
        tab = Tab(context, served.url)
        tab.allowed = {404}  # a page may read once more what is deleted
        large = enqueue(served, "echo", b'{"text": "%s"}' % (b"x" * 70_000), queue="unserved")
        for route, (path, do) in ACTIONS.items():
            if route.endswith("/resume") and path == "/operations":
                served.call(fail_operation)
            later = enqueue(served, "echo", queue="unserved", run_at=datetime(2100, 1, 1, tzinfo=UTC))
            page = tab.open(path.format(**vars(served.scene), later=later, large=large))
            expected = pattern_of(route)
            with page.expect_response(lambda reply: is_action(reply, expected)) as got:  # noqa: B023  # awaited at once
                do(page, served)
            shows = route.endswith(("/reveal", "/download"))
            assert (route, got.value.status) == (route, 200 if shows else 204)
            if "hx-redirect" in got.value.headers:
                page.wait_for_url(f"**{got.value.headers['hx-redirect']}")
            tab.check()
        context.close()


def is_action(reply: Any, expected: re.Pattern[str]) -> bool:
    return reply.request.method == "POST" and expected.match(urlsplit(reply.url).path) is not None


@pytest.mark.left_to("full")
@pytest.mark.parametrize("level", ["none", "view", "operate"])
def test_each_level_sees_the_buttons_that_it_may_press(tab: Tab, served: Served, level: str):
    served.level = LEVELS[level]
    tab.allowed = {403, 404}
    shown = set()
    for path in PAGES[:3] if level == "none" else PAGES[:-1]:
        page = tab.open(path.format(**vars(served.scene)))
        addresses = page.locator("main [hx-post]").evaluate_all("all => all.map(each => each.getAttribute('hx-post'))")
        for address in addresses:
            route = next(act.path for act in ACTION_ROUTES if pattern_of(act.path).match(address))
            assert ACT_TABLE[route][2][level] == 200, f"{path} offers {address} to {level}"
            shown.add(route)
    assert bool(shown) is (level == "operate")


def test_triage_by_keyboard_from_a_dead_kind_to_a_finished_requeue(tab: Tab, served: Served):
    for _ in range(3):
        enqueue(served, "fail", b'{"reason": "flaky"}', max_attempts=1)
    page = tab.open("/")
    page.keyboard.press("g")
    page.keyboard.press("d")
    page.wait_for_url("**/dead")
    kind = page.locator(".kind").filter(has_text="AskedToFail").first
    expect(kind).to_be_visible()
    kind.get_by_role("link", name="Requeue…").press("Enter")
    page.wait_for_url("**/operations/new**")
    page.get_by_label("Try this many first").fill("1")
    page.get_by_label("Allowed failures").fill("1")
    page.get_by_role("button", name="Requeue").press("Enter")
    page.wait_for_url("**/operations#*")
    expect(page.get_by_role("region", name="Operations").get_by_text("done", exact=True).first).to_be_visible()


def test_keys_theme_filter_and_a_stopped_stream(tab: Tab, served: Served):
    page = tab.open("/jobs")
    page.keyboard.press("/")
    page.keyboard.type("queue:mail state:dlq")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs?queue=mail&state=dlq")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.locator("#selected")).to_have_text("1")
    page.keyboard.press("x")
    page.keyboard.press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.keyboard.press(".")
    expect(page.locator("#live")).to_have_attribute("data-state", "paused")
    page.keyboard.press(".")
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    tab.check_accessible()
    page.keyboard.press("Escape")


@pytest.mark.left_to("full")
def test_pages_can_be_read_without_scripts(chromium: Browser, served: Served):
    served.level = Access.view("vera")
    context = chromium.new_context(java_script_enabled=False)
    page: Page = context.new_page()
    for path in PAGES[:-1]:
        page.goto(served.url + path.format(**vars(served.scene)))
        assert page.locator("main").inner_text().strip()
    page.goto(served.url)
    expect(page.locator(".chart svg polyline").first).to_be_visible()
    context.close()


@pytest.mark.left_to("full")
@pytest.mark.parametrize("store", ["postgres", "redis", "memory"])
def test_the_same_on_every_store(chromium: Browser, store: str):
    dsn = "memory://"
    if store == "postgres":
        database = postgres.shared()
        dsn = database.address(database.store())
    elif store == "redis":
        server = redis.shared()
        server.empty()
        dsn = server.url
    with Served(dsn) as served:
        context = chromium.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
        tab = Tab(context, served.url)
        tab.allowed = {404}
        for path in SMOKE:
            tab.open(path.format(**vars(served.scene)))
        page = tab.open(f"/jobs/{served.scene.dead}")
        page.get_by_role("button", name="Retry").click()
        expect(page.locator("h1 .badge")).to_have_text("ready")
        tab.check()
        context.close()

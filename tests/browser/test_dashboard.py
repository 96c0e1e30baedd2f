"""The dashboard in a browser: every page, every action, while a real worker changes the store."""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from taskharbor.drivers import JobRecord
from taskharbor.ops.access import Access
from tests.browser.conftest import Tab
from tests.browser.served import Served
from tests.servers import postgres, redis

PAGES = (
    "/", "/queues", "/queues/mail", "/jobs", "/jobs/{dead}", "/jobs/{running}", "/jobs/{scheduled}", "/dead", "/flows",
    "/flows/{failed_flow}", "/schedules", "/workers", "/operations",
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


@pytest.mark.parametrize(
    ("width", "scheme", "checked"),
    [
        ("desktop", "light", PAGES),
        ("phone", "dark", PAGES[:6]),
        ("desktop", "dark", PAGES[6:10]),
        ("tablet", "light", ()),
    ],
)
def test_every_page_is_drawn_without_an_error_and_accessible(
    chromium: Browser, served: Served, width: str, scheme: Any, checked: tuple[str, ...]
):
    served.level = Access.admin("ada")
    context = chromium.new_context(
        viewport={"width": WIDTHS[width], "height": 900}, color_scheme=scheme, reduced_motion="reduce"
    )
    tab = Tab(context, served.url)
    tab.allowed = {404}
    for path in checked if (width, scheme) == ("desktop", "dark") else PAGES:
        page = tab.open(path.format(**vars(served.scene)))
        assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width], (
            f"{path} is wider than the screen"
        )
        if path in checked:
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


def test_queues_are_paused_and_resumed(tab: Tab, served: Served):
    page = tab.open("/queues")
    row = page.get_by_role("row", name="live")
    enqueue(served, "echo")
    row.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Pause", exact=True).last.click()
    expect(row.get_by_text("paused")).to_be_visible()
    row.get_by_role("button", name="Resume").click()
    expect(row.get_by_text("paused")).not_to_be_visible()


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
    page.get_by_label("Of these may die again").fill("1")
    page.get_by_role("button", name="Requeue").press("Enter")
    page.wait_for_url("**/operations#*")
    expect(page.get_by_role("region", name="Operations").get_by_text("done", exact=True).first).to_be_visible()


def test_a_schedule_is_run_paused_and_resumed(tab: Tab, served: Served):
    page = tab.open("/schedules")
    row = page.get_by_role("row", name="nightly")
    row.get_by_role("button", name="Run now: nightly").click()
    expect(page.locator("#said")).to_contain_text("was enqueued")
    row.get_by_role("button", name="Pause").click()
    expect(row.get_by_text("paused")).to_be_visible()
    row.get_by_role("button", name="Resume").click()
    expect(row.get_by_text("waiting")).to_be_visible()


def test_a_failed_workflow_is_requeued_and_cancelled(tab: Tab, served: Served):
    page = tab.open(f"/flows/{served.scene.failed_flow}")
    expect(page.locator("svg .node")).to_have_count(5)
    page.get_by_role("button", name="Requeue what failed").click()
    expect(page.locator("h1 .badge")).to_have_text("running")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel it").click()
    expect(page.locator("h1 .badge")).to_have_text("cancelled")


@pytest.mark.parametrize("level", ["view", "operate", "none"])
def test_each_level_sees_its_own_buttons(tab: Tab, served: Served, level: str):
    served.level = {"view": Access.view("v"), "operate": Access.operate("o"), "none": Access.none()}[level]
    tab.allowed = {403}
    page = tab.open(f"/jobs/{served.scene.dead}")
    buttons = page.locator("main button")
    if level == "operate":
        expect(page.get_by_role("button", name="Retry")).to_be_visible()
        expect(page.get_by_role("button", name="Delete")).to_have_count(0)
        expect(page.get_by_role("button", name="Reveal")).to_have_count(0)
    else:
        expect(buttons).to_have_count(0)


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

"""Every action, clicked where a person finds it, on what has markup for a name: no other request leaves the browser."""

import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Page, Request, Response

from taskharbor.dashboard.routes import ACTION_ROUTES
from taskharbor.drivers import JobRecord
from taskharbor.model.job import OPERATIONS_QUEUE
from taskharbor.model.outcome import Fail
from tests.browser.served import Served
from tests.browser.watched import WatchedTab
from tests.dashboard.hostile import OTHERS, act_of, later, plant
from tests.dashboard.scene import record

ROUTES = {act.path: re.compile(re.sub(r"{\w+:path}", "[^/]+", act.path)) for act in ACTION_ROUTES}
LARGE = 70_000  # bytes of a payload that is a download
Click = tuple[str, Callable[[Page], object], tuple[str, ...]]


def press(page: Page, name: str, sure: str | None = None) -> None:
    """Press the button whose name begins so, and the one of the question that follows."""
    page.locator("main").get_by_role("button", name=re.compile(f"^{re.escape(name)}")).first.click()
    if sure is not None:
        page.locator("#ask").get_by_role("button", name=sure, exact=True).click()


def row(page: Page, path: str) -> Locator:
    """The row of a table that leads to this page."""
    return page.locator("tr").filter(has=page.locator(f'a[href="{path}"]'))


def change(page: Page, label: str, text: str) -> None:
    """One field of the form that *Edit* opens."""
    page.locator("#edit summary").click()
    page.get_by_label(label, exact=True).fill(text)
    press(page, "Change the")


def clicks(text: str) -> Iterator[Click]:
    """A page, what a person does there, and the actions that this sends; in an order in which each can be done."""
    name = quote(text, safe="")
    queue, schedule, flow = f"/queues/{name}", f"/schedules/{name}", f"/flows/{quote(f'{text} flow', safe='')}"
    preview = f"/operations/new?action=requeue&state=dlq&queue={name}"

    def job(which: str) -> str:
        return f"/jobs/{quote(f'{text} {which}', safe='')}"

    def retry_two(page: Page) -> None:
        for which in ("done", "later 0"):  # one is refused
            row(page, job(which)).get_by_role("checkbox").check()
        press(page, "Retry")

    def download(page: Page) -> None:
        press(page, "Reveal")
        press(page, "Download")

    yield queue, lambda page: press(page, "Pause", "Pause"), (f"{queue}/pause",)
    yield queue, lambda page: press(page, "Resume"), (f"{queue}/resume",)
    yield f"/jobs?queue={name}", retry_two, ("/jobs/act",)
    yield job("waits"), lambda page: change(page, "Priority", "7"), (f"{job('waits')}/edit",)
    yield job("done"), lambda page: press(page, "Reveal"), (f"{job('done')}/reveal",)
    yield job("large"), download, (f"{job('large')}/reveal", f"{job('large')}/download")
    yield preview, lambda page: press(page, "Requeue 1 job"), ("/operations",)
    yield "/operations", lambda page: press(page, "Stop operation"), ("/operations/[^/]+/stop",)
    yield preview, lambda page: press(page, "Requeue 1 job"), ("/operations",)
    yield "/operations", lambda page: press(page, "Resume operation"), ("/operations/[^/]+/resume",)
    yield schedule, lambda page: press(page, "Run now"), (f"{schedule}/run",)
    yield schedule, lambda page: press(page, "Pause"), (f"{schedule}/pause",)
    yield schedule, lambda page: press(page, "Resume"), (f"{schedule}/resume",)
    yield schedule, lambda page: change(page, "Jitter, at most", "7m"), (f"{schedule}/edit",)
    yield schedule, lambda page: press(page, "Reset", "Reset it"), (f"{schedule}/reset",)
    yield schedule, lambda page: press(page, "Delete", "Delete it"), (f"{schedule}/delete",)
    yield flow, lambda page: press(page, "Requeue what failed"), (f"{flow}/requeue",)
    yield flow, lambda page: press(page, "Cancel", "Cancel it"), (f"{flow}/cancel",)
    yield job("later 1"), lambda page: press(page, "Run now"), (f"{job('later 1')}/retry",)
    yield job("later 2"), lambda page: press(page, "Cancel", "Cancel it"), (f"{job('later 2')}/cancel",)
    yield job("done"), lambda page: press(page, "Delete", "Delete it"), (f"{job('done')}/delete",)


async def fail_operations(driver: Any, now: Any) -> None:
    """As if what carries them out had failed: such an operation can be resumed."""
    held = await driver.reserve((OPERATIONS_QUEUE,), now, timedelta(minutes=1), 10, "w")
    assert not any(await driver.settle([Fail(each.lease, "no", 1, now) for each in held], now))


def more(text: str, now: datetime) -> Iterator[JobRecord]:
    """Jobs to change one after the other, and one with a large payload."""
    yield from (later(text, 1, now), later(text, 2, now))
    yield record(text, text, now, id=f"{text} large", payload={"text": "x" * LARGE})


def answers(action: str) -> Callable[[Response], bool]:
    """Whether a response is that of this action."""
    return lambda reply: re.fullmatch(action, urlsplit(reply.url).path) is not None


def is_own(request: Request, page: str) -> bool:
    """What a page reads by itself: itself again, its parts, its stream."""
    path = urlsplit(request.url).path
    return path in (page, "/events") or path.startswith("/static/") or request.url.startswith("blob:")


@pytest.mark.left_to("full")
@pytest.mark.parametrize("text", [act_of(), OTHERS[0], OTHERS[3]])
def test_a_click_sends_what_it_says_and_nothing_else(chromium: Browser, tmp_path: Path, text: str):
    with Served(f"sqlite:///{tmp_path}/jobs.db") as served, WatchedTab(chromium, served.url) as tab:
        served.call(lambda driver, now: plant(served.harbor, driver, now, text))
        served.call(lambda driver, now: driver.enqueue([*more(text, now)], now))
        tab.allowed = {404, 409}  # a page may read once more what is deleted
        requests: list[Request] = []
        tab.page.on("request", lambda request: requests.append(request))
        sent: list[str] = []
        before: set[str] = set()
        for path, do, wanted in clicks(text):
            if wanted[0].endswith("/resume") and path == "/operations":
                served.call(fail_operations)
            page = tab.open(path)
            with page.expect_response(answers(wanted[-1])) as got:
                do(page)
            assert got.value.status in (200, 204), (wanted, got.value.text())
            leads = got.value.headers.get("hx-redirect", path)
            page.wait_for_url(f"**{leads}")
            posts = [urlsplit(each.url).path for each in requests if each.method != "GET"]
            assert len(posts) == len(wanted), (path, posts)
            assert all(map(re.fullmatch, wanted, posts)), (path, posts)
            here = {urlsplit(each).path for each in (path, leads)}
            places, before = here | before, here  # the page before may have read itself again before it went
            others = [
                each.url
                for each in requests
                if each.method == "GET" and not any(is_own(each, place) for place in places)
            ]
            assert (path, others, tab.owned) == (path, [], [])
            sent += posts
            requests.clear()
        tab.check()
        clicked = {route for route, pattern in ROUTES.items() if any(map(pattern.fullmatch, sent))}
        assert clicked == {*ROUTES}

"""Names from the store that are markup: no page carries them out, whatever a person does about what has such a name."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from playwright.sync_api import Browser, Page, Response, expect

from taskharbor.dashboard.routes import ACTION_ROUTES
from tests.browser.served import Served
from tests.browser.watched import DEFENCES, EMPTY, WatchedTab
from tests.dashboard.hostile import OTHERS, act_of, acts_on, later, pages_of, plant

TEXT = act_of()
NAME = quote(TEXT, safe="")
ATTACK = "/queues/payments/pause"
NUMBERS = count(1)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(f"sqlite:///{tmp_path_factory.mktemp('names')}/jobs.db") as found:
        found.call(lambda driver, now: plant(found.harbor, driver, now, TEXT))
        yield found


def press(page: Page, name: str, sure: str | None = None) -> None:
    """Press a button, and the one of the question that follows."""
    page.get_by_role("button", name=name, exact=True).first.click()
    if sure is not None:
        page.locator("#ask").get_by_role("button", name=sure, exact=True).click()


# What quotes a name when it is done: the page, what a person does there, and what is said. Each is undone by another.
SPOKEN: tuple[tuple[str, Callable[[Page], None], str], ...] = (
    (f"/queues/{NAME}", lambda page: press(page, "Pause", "Pause"), f"queue {TEXT} is paused"),
    (f"/queues/{NAME}", lambda page: press(page, "Resume"), f"queue {TEXT} is resumed"),
    (f"/schedules/{NAME}", lambda page: press(page, "Pause"), f"schedule {TEXT} is paused"),
    (f"/schedules/{NAME}", lambda page: press(page, "Resume"), f"schedule {TEXT} is resumed"),
    (f"/jobs?queue={NAME}", lambda page: retry_two(page), f"1 refused, the first: job {TEXT} done"),
)


def retry_two(page: Page) -> None:
    """A job that may be retried, and one that may not: the answer quotes the id of the second."""
    page.get_by_label(f"Select job {TEXT} done", exact=True).check()
    page.get_by_label(f"Select job {TEXT} later", exact=False).first.check()
    press(page, "Retry")


def is_action(reply: Response) -> bool:
    return reply.request.method == "POST" and urlsplit(reply.url).path != ATTACK


def is_attack(reply: Response) -> bool:
    return reply.request.method == "POST" and urlsplit(reply.url).path == ATTACK


@pytest.mark.parametrize("kept", [None, *DEFENCES, "all"])
def test_each_defence_alone_keeps_a_name_from_acting(chromium: Browser, served: Served, kept: str | None):
    """Without any of them the operator's own browser pauses another queue: so this test sees what it is about."""
    served.call(lambda driver, now: driver.enqueue([later(TEXT, next(NUMBERS), now)], now))
    off = [each for each in DEFENCES if kept not in (each, "all")]
    with WatchedTab(chromium, served.url, off) as tab:
        for path, do, said in SPOKEN:
            page = tab.open(path)
            if kept is None:
                with page.expect_response(is_attack) as attack:
                    do(page)
                assert attack.value.status < 300
                assert served.call(lambda driver, now: driver.is_paused("payments"))
                served.call(lambda driver, now: driver.resume("payments"))
                assert tab.owned
                continue
            with page.expect_response(is_action) as got:
                do(page)
            is_empty = (got.value.status, got.value.headers.get("content-type")) == (204, None)
            assert is_empty is (EMPTY not in off), got.value.status
            expect(page.locator("#said")).to_contain_text(said)
            assert (path, tab.owned) == (path, [])
        tab.check()
    assert not served.call(lambda driver, now: driver.is_paused("payments"))


POST = """([path, fields]) => {
  const button = document.body.appendChild(document.createElement("button"));
  const given = { "hx-post": path, "hx-target": "#said", "hx-swap": "beforeend", "hx-vals": JSON.stringify(fields) };
  Object.entries(given).forEach(([name, value]) => button.setAttribute(name, value));
  window.answered = new Promise((done) => button.addEventListener("htmx:afterRequest", () => done(true)));
  htmx.process(button);
  button.click();
}"""
"""Send a form as a button of the page does, one that even has a place for the answer."""


def act_on_all(tab: WatchedTab, text: str, kept: str = "all") -> None:
    """Every action twice, so that it is done, and refused where it cannot be done again."""
    acts = acts_on(text)
    assert set(acts) == {act.path for act in ACTION_ROUTES}
    if kept == EMPTY:
        del acts["/jobs/{id:path}/download"]  # it has a body; a page fetches it without htmx
    page = tab.open("/about")
    for route, (path, fields) in acts.items():
        for _ in range(2):
            with page.expect_response(is_action) as got:
                page.evaluate(POST, [path, fields])
            assert got.value.status in (200, 204, 404, 409), (route, got.value.status, got.value.text())
            if "hx-redirect" in got.value.headers:
                page.wait_for_url(f"**{got.value.headers['hx-redirect']}")
                page = tab.open("/about")
            else:
                assert page.evaluate("window.answered")
            assert (route, tab.owned) == (route, [])


@pytest.mark.left_to("full")
def test_no_action_and_no_page_carries_a_name_out(chromium: Browser, tmp_path: Path):
    with Served(f"sqlite:///{tmp_path}/jobs.db") as served, WatchedTab(chromium, served.url) as tab:
        tab.allowed = {400, 404, 409}
        served.call(lambda driver, now: plant(served.harbor, driver, now, TEXT))
        for path in pages_of(TEXT):
            page = tab.open(path)
            assert page.evaluate("htmx.config.responseHandling.filter((each) => each.swap)") == []
            assert (path, tab.owned) == (path, [])
        act_on_all(tab, TEXT)
        tab.check()


@pytest.mark.left_to("full")
@pytest.mark.parametrize("kept", DEFENCES)
def test_each_defence_alone_holds_for_every_action(chromium: Browser, tmp_path: Path, kept: str):
    with (
        Served(f"sqlite:///{tmp_path}/jobs.db") as served,
        WatchedTab(chromium, served.url, [each for each in DEFENCES if each != kept]) as tab,
    ):
        tab.allowed = {404, 409}
        served.call(lambda driver, now: plant(served.harbor, driver, now, TEXT))
        act_on_all(tab, TEXT, kept)
        tab.check()


@pytest.mark.left_to("full")
@pytest.mark.parametrize("text", OTHERS)
def test_no_other_markup_is_carried_out_either(chromium: Browser, tmp_path: Path, text: str):
    with Served(f"sqlite:///{tmp_path}/jobs.db") as served:
        for kept in DEFENCES:
            served.call(lambda driver, now: plant(served.harbor, driver, now, f"{kept} {text}"))  # noqa: B023  # called at once
        for kept in DEFENCES:
            with WatchedTab(chromium, served.url, [each for each in DEFENCES if each != kept]) as tab:
                tab.allowed = {404, 409}
                act_on_all(tab, f"{kept} {text}", kept)
                tab.check()
        with WatchedTab(chromium, served.url, DEFENCES) as tab:  # without them it is
            page = tab.open("/about")
            with page.expect_response(is_action):
                page.evaluate(POST, [f"/queues/{quote(text, safe='')}/pause", {}])
            assert page.evaluate("window.answered")
            assert tab.owned

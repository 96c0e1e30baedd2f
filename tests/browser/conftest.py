"""A real Chromium, and pages that fail their test on an error, a request elsewhere, or a break of the policy."""

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect, sync_playwright

expect.set_options(timeout=30_000)  # milliseconds: a machine may be busy

AXE = Path(__file__).parent / "axe.min.js"
AXE_SHA256 = "20c09fe157a8a34a30e241aaa1fcdade657734f08ab379ecfbeb7d45cc46e878"  # axe-core 4.14.0, MPL-2.0
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
STANDARD = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
BREACHES = "window.breaches = []; addEventListener('securitypolicyviolation', e => breaches.push(e.violatedDirective))"


class Tab:
    """One tab, with all that went wrong in it."""

    def __init__(self, context: BrowserContext, base: str) -> None:
        self.base = base
        self.wrong: list[str] = []
        self.allowed: set[int] = set()  # statuses that this test provokes
        self.page: Page = context.new_page()
        self.page.set_default_timeout(30_000)
        self.page.add_init_script(BREACHES)
        self.page.on("console", lambda message: self._console(message))
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        context.route("**", self._route)

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning") and not any(
            f"status of {each}" in message.text for each in self.allowed
        ):
            self.wrong.append(f"console: {message.text}")

    def _route(self, route: Route) -> None:
        if route.request.url.startswith((self.base, "data:", "blob:")):
            route.continue_()
        else:
            self.wrong.append(f"request to {route.request.url}")
            route.abort()

    def open(self, path: str) -> Page:
        """A page of the dashboard, loaded."""
        self.page.goto(self.base + path)
        self.check()
        return self.page

    def check(self) -> None:
        """Fail if anything went wrong so far."""
        assert self.wrong == []
        assert self.page.evaluate("window.breaches") == []

    def check_accessible(self) -> None:
        """Fail on a violation of WCAG 2.2 AA."""
        if not self.page.evaluate("typeof axe !== 'undefined'"):
            self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = self.page.evaluate(
            "tags => axe.run(document, {runOnly: tags, resultTypes: ['violations']}).then(r => r.violations.map("
            "v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html + ' ' + n.any.map(a => a.message)).join(' | ')))",
            STANDARD,
        )
        assert found == [], "\n".join(found)


@pytest.fixture(scope="module")  # not longer: while it is there, an event loop runs in this thread, also in other tests
def chromium() -> Iterator[Browser]:
    assert hashlib.sha256(AXE.read_bytes()).hexdigest() == AXE_SHA256
    program = shutil.which("chromium")
    assert program is not None, "tests/servers/provision chromium installs it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()

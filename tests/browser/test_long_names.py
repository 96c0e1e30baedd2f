"""Names may have 255 bytes: the numbers and the buttons beside them stay on the screen."""

from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser

from tests.browser.conftest import Tab
from tests.browser.served import Served
from tests.dashboard.hostile import pages_of, plant

LONG = "eu-west-1.production.rollout-2026-11." * 6
WIDER = """() => [...document.querySelectorAll(".scroll:not(.graph), main, body")]
  .filter((each) => each.scrollWidth > each.clientWidth + 1)
  .map((each) => `${each.tagName} ${each.ariaLabel || ""} ${each.scrollWidth} > ${each.clientWidth}`)"""


@pytest.mark.left_to("full")
@pytest.mark.parametrize("width", [1440, 390])
def test_a_long_name_pushes_nothing_off_the_screen(chromium: Browser, tmp_path: Path, width: int):
    with Served(f"sqlite:///{tmp_path}/jobs.db") as served:
        served.call(lambda driver, now: plant(served.harbor, driver, now, LONG))
        context = chromium.new_context(viewport={"width": width, "height": 900}, reduced_motion="reduce")
        tab = Tab(context, served.url)
        wider = {path: found for path in pages_of(LONG) if (found := tab.open(path).evaluate(WIDER))}
        assert not wider, "\n".join(f"{path[:40]}: {found}" for path, found in wider.items())
        tab.check()
        assert quote(LONG, safe="") in tab.open("/queues").content()
        context.close()

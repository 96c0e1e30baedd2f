"""A tab that notes when a hostile name becomes more than text, with or without what keeps it from that.

Three defences stand between such a name and the rights of the person who looks. A tab can switch each of them off, so
that a test sees what the others do alone, and what happens without any.
"""

from collections.abc import Sequence
from typing import Any

from playwright.sync_api import Browser

from tests.browser.conftest import Tab

EMPTY, ESCAPED, TYPED = "an empty answer", "escaped JSON", "only HTML is swapped"
DEFENCES = (EMPTY, ESCAPED, TYPED)

WATCH = """
new MutationObserver((records) => records.forEach((each) => each.addedNodes.forEach((node) => {
  if (node.matches?.("[data-owned]") || node.querySelector?.("[data-owned]")) owned(node.outerHTML);
}))).observe(document, { childList: true, subtree: true });
"""
SWITCHES = {
    EMPTY: 'addEventListener("htmx:configRequest", (event) => { delete event.detail.headers["HX-Request"]; });',
    ESCAPED: """addEventListener("htmx:beforeSwap", ({ detail }) => {
  const plain = (_, code) => String.fromCharCode(parseInt(code, 16));
  detail.serverResponse = detail.serverResponse.replace(/\\\\u(003c|003e|0026)/g, plain);
});""",
    TYPED: """addEventListener("htmx:beforeSwap", ({ detail }) => {  // as htmx has it by default
  detail.shouldSwap = detail.xhr.status < 400 && detail.xhr.status !== 204;
});""",
}
"""Each turns one defence off, from the end of the event's way: it decides after the page's own listeners."""


class WatchedTab(Tab):
    """A tab that notes every element of a hostile name. `off`: the defences that do not stand in it."""

    def __init__(self, browser: Browser, base: str, off: Sequence[str] = ()) -> None:
        self.context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
        super().__init__(self.context, base)
        self.owned: list[str] = []
        self.page.expose_function("owned", lambda text: self.owned.append(text))
        self.page.add_init_script(WATCH + "".join(SWITCHES[each] for each in off))

    def _console(self, message: Any) -> None:
        if not any(f"Response Status Error Code {each} from" in message.text for each in self.allowed):  # htmx says so
            super()._console(message)

    def __enter__(self) -> "WatchedTab":
        return self

    def __exit__(self, *raised: object) -> None:
        self.context.close()

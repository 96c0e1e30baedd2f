"""The last of each page, for when the store is slow or away: better an old value that says so than none."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime

from taskharbor.dashboard.pages.shown import Shown

MAX_PAGES = 100


@dataclass(frozen=True)
class Remembered:
    """A page, and when it was read: the store's time then, and this process's."""

    page: Shown
    now: datetime
    at: float


class Recall:
    """The newest pages by their address; the longest unused is forgotten first."""

    def __init__(self) -> None:
        self._pages: OrderedDict[str, Remembered] = OrderedDict()

    def keep(self, address: str, remembered: Remembered) -> None:
        """Remember a page."""
        self._pages[address] = remembered
        self._pages.move_to_end(address)
        while len(self._pages) > MAX_PAGES:
            self._pages.popitem(last=False)

    def find(self, address: str) -> Remembered | None:
        """The page as it was last read."""
        return self._pages.get(address)

"""The last version of each page, shown with its age while the store is slow or away.

Pages are kept for people, not for scripts, and without what jobs carry. Words of an address that no page knows do not
count, so inventing some does not fill the memory.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from taskharbor.dashboard.pages.content import QUERY_NAMES, PageContent, PageQuery

MAX_PAGES = 40


@dataclass(frozen=True)
class KeptPage:
    """A page, and when it was read: the store's time then, and this process's."""

    page: PageContent
    now: datetime
    at: float
    late: tuple[str, ...] = ()  # parts that are missing because they took too long


class PageMemory:
    """The newest pages by their address; the longest unused is forgotten first."""

    def __init__(self) -> None:
        self._pages: OrderedDict[str, KeptPage] = OrderedDict()

    @staticmethod
    def key(path: str, query: PageQuery) -> str:
        """The address of a page, without what no page asks for."""
        return f"{path}?{urlencode({name: query.values[name] for name in QUERY_NAMES if name in query.values})}"

    def keep(self, address: str, remembered: KeptPage) -> None:
        """Remember a page."""
        self._pages[address] = remembered
        self._pages.move_to_end(address)
        while len(self._pages) > MAX_PAGES:
            self._pages.popitem(last=False)

    def find(self, address: str) -> KeptPage | None:
        """The page as it was last read."""
        return self._pages.get(address)

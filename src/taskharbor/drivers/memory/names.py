"""Names in order, for listings: sorted when one is asked for, not when a name comes or goes."""

from __future__ import annotations

from collections.abc import Callable

_SLACK = 64  # below this many names that are gone rebuilding costs more than it saves


class OrderedNames:
    """Names in the order of their code points. Some may be gone: a reader looks each of them up anyway.

    Nearly every new name is the greatest, because ids are ordered by time: it is appended. The rest waits until the
    next listing. Names that are gone are dropped when the list has doubled, so it grows with what is there.
    """

    __slots__ = ("_is_there", "_late", "_most", "_sorted")

    def __init__(self, is_there: Callable[[str], bool]) -> None:
        self._is_there = is_there
        self._sorted: list[str] = []
        self._late: list[str] = []
        self._most = _SLACK

    def add(self, name: str) -> None:
        """A name, which may be known."""
        names = self._sorted
        if not names or name > names[-1]:
            names.append(name)
            if len(names) > self._most:
                self._tidy()
        else:
            self._late.append(name)
            if len(self._late) > self._most:
                self._tidy()

    def in_order(self, there: int) -> list[str]:
        """All names; `there` of them are not gone."""
        if self._late or len(self._sorted) > 2 * there + _SLACK:
            self._tidy()
        return self._sorted

    def _tidy(self) -> None:
        self._sorted = sorted({name for name in (*self._sorted, *self._late) if self._is_there(name)})
        self._late.clear()
        self._most = 2 * len(self._sorted) + _SLACK

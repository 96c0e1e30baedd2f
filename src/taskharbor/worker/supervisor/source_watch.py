"""Watches source files for `--reload`, by their modification times and sizes.

Hidden folders, and folders of third-party code, are left out.
"""

from __future__ import annotations

import os

LEFT_OUT = frozenset({"__pycache__", "node_modules", "site-packages"})


class SourceWatch:
    """The Python files below a folder, and when each was changed last."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._known = self._scan()

    def changed(self) -> str | None:
        """A file that was changed, added or removed since the last call; None if there is none."""
        known, now = self._known, self._scan()
        self._known = now
        for path in sorted(now.keys() | known.keys()):
            if now.get(path) != known.get(path):
                return path
        return None

    def _scan(self) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        for folder, folders, files in os.walk(self._folder):
            folders[:] = [name for name in folders if not _left_out(folder, name)]
            for name in files:
                if name.endswith(".py"):
                    path = os.path.join(folder, name)
                    try:
                        facts = os.stat(path)
                    except OSError:
                        continue  # an editor replaces files: this one is gone for a moment
                    found[path] = (facts.st_mtime_ns, facts.st_size)
        return found


def _left_out(folder: str, name: str) -> bool:
    return name in LEFT_OUT or name.startswith(".") or os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))

"""Metrics of several processes as one: each writes to files of its own in a folder, and one of them reads them all.

This is prometheus_client's own multi-process mode, so a handler's own counters are shared as well, and nothing is lost
with a process that is killed. What a process that has ended left behind is added up into one file: counters never go
back, and a worker that replaces its processes often does not fill the folder.

    supervisor: share() ─► environment ─► worker processes write ─► SharedMetrics, in the supervisor's registry
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

# Neither has types.
_merge: Any = MultiProcessCollector.merge
_File: Any = MmapedDict

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
SUMMED = ("counter", "histogram", "summary")


class SharedMetrics(Collector):
    """What all processes that write to a folder have counted. Close it when they are gone."""

    def __init__(self, folder: str | Path, *, own: bool = False) -> None:
        self.folder = Path(folder)
        self._own = own
        self._lock = threading.Lock()

    def describe(self) -> Iterable[Metric]:
        """Nothing: what there is, the processes decide."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """The sum over all processes, those that have ended included."""
        with self._lock:
            self._gather_dead()
            # A file that has just been made has nothing in it yet, which the collector would take for damage.
            files = [str(file) for file in self.folder.glob("*.db") if file.stat().st_size]
            return list(_merge(files))

    def close(self) -> None:
        """Delete the folder and take it out of the environment, if `share` made it."""
        if self._own:
            if os.environ.get(VARIABLE) == str(self.folder):
                del os.environ[VARIABLE]
            shutil.rmtree(self.folder, ignore_errors=True)

    def _gather_dead(self) -> None:
        for file in self.folder.glob("*.db"):
            kind, _, rest = file.stem.partition("_")
            pid = rest.rpartition("_")[2]
            if not pid.isdigit() or _is_alive(int(pid)):
                continue
            if kind in SUMMED:
                self._add_up(file, self.folder / f"{kind}_ended.db")
                file.unlink()
            elif rest.startswith("live"):  # a gauge that ends with its process
                file.unlink()

    def _add_up(self, file: Path, total: Path) -> None:
        into = _File(str(total))
        try:
            for key, value, _, _ in _File.read_all_values_from_file(str(file)) if file.stat().st_size else ():
                into.write_value(key, into.read_value(key)[0] + value, 0.0)
        finally:
            into.close()


def share() -> SharedMetrics:
    """Have the processes that are started from now on share their metrics, in a new folder of their own.

    A folder that the environment names already is used, and left there at the end.
    """
    given = os.environ.get(VARIABLE)
    if given:
        Path(given).mkdir(parents=True, exist_ok=True)
        return SharedMetrics(given)
    folder = tempfile.mkdtemp(prefix="taskharbor-metrics-")
    os.environ[VARIABLE] = folder
    return SharedMetrics(folder, own=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

"""How much memory is free: of the system and of its cgroups."""

import os
from pathlib import Path

import pytest

from taskharbor.worker.supervisor import memory


def test_free_memory_is_that_of_the_tightest_cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def group(name: str, limit: str, used: int, cache: int) -> None:
        folder = tmp_path / "sys/fs/cgroup" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{used}\n")
        (folder / "memory.stat").write_text(f"anon 5\ninactive_file {cache}\n")

    assert 0 < memory.free() < 2**50
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable: 8 kB\n")
    monkeypatch.setattr(memory, "ROOT", str(tmp_path))
    assert memory.free() == 8192  # no cgroup
    (proc / "self/cgroup").write_text("1:name=systemd:/x\n0::/outer/inner\n")
    assert memory.free() == 8192  # none with a limit
    group("outer/inner", "max", 10, 0)
    group("outer", "5000", 4000, 1000)
    assert memory.free() == 2000
    (proc / "self/cgroup").write_text("0::/\n")
    group("", "300", 100, 50)
    assert memory.free() == 250


def test_resident_memory_is_read_from_proc() -> None:
    assert memory.measurable()
    before = memory.resident(os.getpid())
    assert before > 2**20
    assert memory.resident(2**22 + 1) == 0

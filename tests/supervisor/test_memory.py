"""What counts as the memory of a worker process."""

import os
import subprocess
import sys

import pytest

from taskharbor.worker.supervisor import memory

HUNGRY = "import sys; kept = bytearray(50_000_000); print('full', flush=True); sys.stdin.read()"


@pytest.mark.parametrize("leads", [True, False])
def test_memory_includes_child_processes_but_not_what_handlers_started(leads: bool) -> None:
    before = memory.used(os.getpid())
    with subprocess.Popen(
        [sys.executable, "-c", HUNGRY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        process_group=0 if leads else None,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        grown = memory.used(os.getpid()) - before
        assert (grown > 40_000_000) is leads
        child.communicate()
    assert memory.used(2**22 + 1) == 0

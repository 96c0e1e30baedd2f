"""`python -m taskharbor`, and the script `taskharbor`: the same program.

`worker run` promises that TERM drains and ends with 0. A signal that arrives while the program imports what it needs is
held back until the supervisor handles signals; as process 1 of a container it would be lost otherwise.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any


def hold_back_signals(arguments: Sequence[str]) -> None:
    """For `worker run`, which lets them come when it handles them."""
    if ("worker", "run") in pairwise(arguments) and hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})


def run() -> Any:
    """Run the command that the arguments name."""
    hold_back_signals(sys.argv[1:])
    from taskharbor.cli import main

    return main(prog_name="taskharbor")


if __name__ == "__main__":
    run()

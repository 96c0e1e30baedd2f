"""`python -m taskharbor`, and the script `taskharbor`: the same program.

`worker run` promises that TERM drains and ends with 0. A signal that arrives while the program imports what it needs is
held back until the supervisor handles signals; as process 1 of a container it would be lost otherwise.
"""

from __future__ import annotations

import signal
import sys
from typing import Any


def run() -> Any:
    """Run the command that the arguments name."""
    if ("worker", "run") in zip(sys.argv[1:], sys.argv[2:], strict=False) and hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
    from taskharbor.cli import main

    return main(prog_name="taskharbor")


if __name__ == "__main__":
    run()

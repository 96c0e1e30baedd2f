"""Keeps child processes from starting the program once more.

A child process that is started afresh (multiprocessing's `spawn`, a `process=True` job) imports the program's main
script. A script that enqueues or works without `if __name__ == "__main__":` would do so again in each child.
"""

from __future__ import annotations

import sys


def refuse_while_main_is_imported(what: str) -> None:
    """RuntimeError if this process is a child that has not finished importing the main script."""
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and getattr(processes.current_process(), "_inheriting", False):
        raise RuntimeError(
            f"{what} while a child process imports the program's main script: each child would do it once more. "
            'Put what starts the program below: if __name__ == "__main__":'
        )

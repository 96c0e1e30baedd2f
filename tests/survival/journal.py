"""The journal: what each process notes before and after every operation, one file for each process.

A line is written with one system call, so a SIGKILL loses none that was noted. Times are those of the monotonic clock,
which all processes of a machine share. The words, with what follows them:

    sent NUMBERS               a producer is about to enqueue these
    stored NUMBERS IDS         the enqueue returned; `unknown NUMBERS`: it raised, and the jobs may be stored or not
    call VERB / reply VERB     before and after a call of the driver; `raised VERB NAME` in place of a reply
    reserved JOBS              the reply of a reserve: pairs of id and fence
    settled JOBS               the reply of a settle: id, fence, whether it was accepted, whether it ends the job
    extended JOBS              the reply of an extend: pairs of id and fence that were accepted
    start N ID FENCE, end N ID FENCE     by the handlers
    dying POINT                the process is about to kill itself at a failpoint
    ready                      a worker has opened its store
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Note(NamedTuple):
    """One line."""

    time: float
    pid: int
    word: str
    data: list[Any]


class Pen:
    """Writes the journal of this process; a fork begins a file of its own."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._file: int | None = None
        self._pid = 0

    def note(self, word: str, *data: Any) -> None:
        if self._file is None or self._pid != os.getpid():
            self._pid = os.getpid()
            path = self._folder / f"{self._pid}.journal"
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(self._file, _encode([time.monotonic(), word, *data]) + b"\n")


class Reader:
    """Reads what all processes have written, as it grows."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self.notes: list[Note] = []

    def more(self) -> Iterator[Note]:
        """What was written since the last call, file by file."""
        for path in sorted(self._folder.glob("*.journal")):
            with open(path, "rb") as file:
                file.seek(self._read.get(path, 0))
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            pid = int(path.stem)
            for line in whole.splitlines():
                moment, word, *data = _decode(line)
                note = Note(moment, pid, word, data)
                self.notes.append(note)
                yield note

    def all(self) -> list[Note]:
        """Everything so far, in the order of time."""
        for _ in self.more():
            pass
        return sorted(self.notes, key=lambda note: note.time)

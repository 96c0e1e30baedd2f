"""Log lines for a developer at a terminal: the time, the level in colour, the job, words, and the traceback.

    12:01:03 WARNING shop.charge 01M7HG69P849N38WGBK6M8KYDV failed after 0.2 s: ConnectionError: gateway down

Whatever a handler logs, no text can pass for the line of another record or command the terminal.
"""

from __future__ import annotations

import logging
import os
import re
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TextIO

_OURS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
_STANDARD = os.path.join(os.path.dirname(os.__file__), "")
_RUNNERS = ("asyncio", "concurrent", "threading.py", "contextvars.py")
_COLOURS = {logging.DEBUG: "2", logging.INFO: "32", logging.WARNING: "33", logging.ERROR: "31"}
_CRITICAL = "1;31"
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SAID = {"JobRetried": "will be retried", "JobDeadLettered": "is dead", "JobUnknown": "is of an unknown type"}
_TOLD = {"event", "error", "seconds", "reason", "run_at"}
_OF_A_JOB = {"job_id", "job_type", "queue", "attempt", "attempts", "worker", "error_class", "fingerprint"}
MAX_FRAMES = 50  # of each exception, the innermost


def in_colours(stream: TextIO) -> bool:
    """Whether a stream is a terminal that shows colours, and nobody asked for none."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    try:
        return not plain and stream.isatty()
    except (AttributeError, ValueError):  # an object of the program's own, or closed
        return False


def summary(facts: dict[str, Any], written: Callable[[Any], str]) -> str:
    """An event of ours in words: what happened, and its facts.

    >>> summary({"event": "JobSucceeded", "job_id": "01J", "seconds": 0.25, "attempt": 1}, str)
    'succeeded after 0.25 s'
    """
    event = str(facts.get("event", ""))
    words = _SAID.get(event) or _WORDS.sub(" ", event).lower()
    left = _TOLD
    if "job_id" in facts:
        words = words.removeprefix("job ")
        left = _TOLD | _OF_A_JOB
    if facts.get("attempt", 1) != 1 and event not in _SAID:
        words += f" (attempt {facts['attempt']})"
    if "seconds" in facts:
        words += f" after {facts['seconds']:.2g} s" if facts["seconds"] < 10 else f" after {facts['seconds']:.0f} s"
    if "run_at" in facts:
        words += f" at {datetime.fromisoformat(facts['run_at']).astimezone():%H:%M:%S}"
    why = [str(facts[name]) for name in ("reason", "error") if facts.get(name)]
    rest = [f"{name}={written(value)}" for name, value in facts.items() if name not in left]
    return " ".join([": ".join([words, *why]), *rest])


def application_traceback(error: BaseException) -> str:
    """The traceback of an exception as Python prints it, without the frames that lead from the worker to the handler.

    Never raises: an exception may break what reads it.
    """
    try:
        told = traceback.TracebackException.from_exception(error, limit=-MAX_FRAMES, compact=True)
        _trim(told)
        return "".join(told.format()).rstrip()
    except Exception as second:
        return f"{type(error).__qualname__} (its traceback cannot be shown: {type(second).__name__})"


def _trim(told: traceback.TracebackException) -> None:
    """Leave out the first frames, of the worker and of what runs it, here and in the causes."""
    waiting, seen = [told], set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        frames = list(one.stack)
        first = next((at for at, frame in enumerate(frames) if not _is_plumbing(frame.filename)), None)
        if first is None:  # raised in a child process, whose frames are in the notes, or by the library itself
            one.stack = None  # type: ignore[assignment]  # as for an exception that was never raised
        else:
            one.stack[:] = frames[first:]
        waiting += [other for other in (one.__cause__, one.__context__, *(one.exceptions or ())) if other is not None]


def _is_plumbing(path: str) -> bool:
    """Whether a file belongs to the library, or to what it runs functions with."""
    if path.startswith(_OURS):
        return True
    return path.startswith(_STANDARD) and path[len(_STANDARD) :].split(os.sep)[0] in _RUNNERS


def head(record: logging.LogRecord) -> list[str]:
    """How a line begins: the time of day here, the level, then the logger, or the type and the id of the job."""
    time = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
    type, id = getattr(record, "job_type", None), getattr(record, "job_id", None)
    return [time, f"{record.levelname:<7}", *([record.name] if id is None else [str(type), str(id)])]


def line(place: list[str], lines: list[str], level: int, *, colours: bool) -> str:
    """The parts of a line put together, and painted if asked for."""
    if colours:
        codes = ("2", _COLOURS.get(level, _CRITICAL), "1" if len(place) > 3 else "2", "2")
        place = [f"\x1b[{code}m{part}\x1b[0m" for part, code in zip(place, codes, strict=False)]
    return " ".join(place) + " " + "\n".join([lines[0], *(f"  {text}".rstrip() for text in lines[1:])])

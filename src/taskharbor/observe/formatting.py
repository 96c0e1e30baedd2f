"""Log lines for people (text), for a developer at a terminal and for programs (JSON), each bound to its job.

    12:01:03 WARNING shop.charge 01M7HG69P849N38WGBK6M8KYDV failed after 0.2 s: ConnectionError: gateway down

`configure_logging` is all that a program needs. `JobFilter` and the two formatters are for programs that configure
logging themselves. Whatever a handler logs, no text can pass for the line of another record, and a JSON line is always
one JSON object, even where several processes write to one pipe.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sys
import threading
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, TextIO

from taskharbor.model import current_job
from taskharbor.observe.line_handler import WholeLineHandler

FORMATS = ("text", "json", "terminal")
ERRORS = ("class", "text", "traceback")
"""What a log shows of an exception that a handler raised: its class and place, its text, or its whole traceback.

The text may quote what the handler was given: only `class` is fit for production.
"""
FACTS = ("job_id", "job_type", "queue", "attempt")
OWN_LOGGER = "taskharbor"  # LogObserver writes there, with the facts in its message

_PLAIN = re.compile(r"[^\s\"'=\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+").fullmatch
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_MAX_DEPTH = 8

# Of lines for a terminal:
_OURS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
_STANDARD = os.path.join(os.path.dirname(os.__file__), "")
_RUNNERS = ("asyncio", "concurrent", "threading.py", "contextvars.py")
_COLOURS = {logging.DEBUG: "2", logging.INFO: "32", logging.WARNING: "33", logging.ERROR: "31"}
_CRITICAL = "1;31"
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SAID = {"JobRetried": "will be retried", "JobDeadLettered": "is dead", "JobUnknown": "is of an unknown type"}
_IN_WORDS = {"event", "error", "seconds", "reason", "run_at"}
_OF_A_JOB = {"job_id", "job_type", "queue", "attempt", "attempts", "worker", "error_class", "fingerprint"}
MAX_FRAMES = 50  # of each exception, the innermost


class JobFilter(logging.Filter):
    """Adds `job_id`, `job_type`, `queue` and `attempt` to every log record of a running handler.

    It works for any logger. Add it to a logging handler, not to a logger: the filters of a logger do not see the
    records of its children. With a QueueHandler, add it to that one: it runs where the record was made.
    """

    def __init__(self) -> None:
        super().__init__()
        current_job.want()

    def filter(self, record: logging.LogRecord) -> bool:
        if not hasattr(record, "job_id"):
            vars(record).update(self.facts())
        return True

    def facts(self) -> dict[str, str | int]:
        """The same as a dict, for libraries without log records; empty outside a handler."""
        job = current_job.CURRENT.get()
        if job is None:
            return {}
        return dict(zip(FACTS, (job.id, job.type, job.queue, job.attempts + 1), strict=True))


class TextFormatter(logging.Formatter):
    """`time level logger message job_id=… job_type=… queue=… attempt=…`; further lines are indented."""

    def format(self, record: logging.LogRecord) -> str:
        text = _message(record)
        if not _is_event(record):
            bound = ((name, getattr(record, name, None)) for name in FACTS)
            text += "".join(f" {name}={written(value)}" for name, value in bound if value is not None)
        return f"{_time(record)} {record.levelname:<7} {record.name} " + "\n  ".join(_lines(self, record, text))


class TerminalFormatter(logging.Formatter):
    """For a developer: the time of day, the level, the job or the logger, and words; further lines are indented.
    `colours`: whether to use them."""

    def __init__(self, *, colours: bool) -> None:
        super().__init__()
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        facts = {name: value for name, value in vars(record).items() if name not in _USUAL}
        first, *more = _lines(self, record, summary(facts) if _is_event(record) else _message(record))
        time = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        job = [str(facts.get("job_type")), str(facts["job_id"])] if facts.get("job_id") is not None else []
        head = [time, f"{record.levelname:<7}", *(_CONTROL.sub(_escaped, part) for part in job or [record.name])]
        if self._colours:
            codes = ("2", _COLOURS.get(record.levelno, _CRITICAL), "1" if job else "2", "2")
            head = [f"\x1b[{code}m{part}\x1b[0m" for part, code in zip(head, codes, strict=False)]
        return "\n".join([" ".join([*head, first]), *(f"  {text}".rstrip() for text in more)])


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time`, `level`, `logger`, `message`, then every fact of the record."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {"time": _time(record), "level": record.levelname, "logger": record.name}
        line["message"] = _message(record)
        for name, value in vars(record).items():
            if name not in _USUAL and name not in line:
                line[name] = _json_value(value)
        trace = "\n".join(_tracebacks(self, record))
        if trace:
            line["exception"] = trace
        return json.dumps(line)  # ASCII: no encoding of a stream and no lone surrogate can break it


class Configuration(NamedTuple):
    """The arguments of `configure_logging`, as child processes get them."""

    format: str
    level: int | str
    stdout: bool
    errors: str = "class"


_installed: logging.Handler | None = None
_configuration: Configuration | None = None


def configure_logging(
    format: str = "text", level: int | str = "INFO", stream: TextIO | None = None, *, errors: str = "class"
) -> None:
    """Write all log records from `level` on to a `stream` (default: stderr). `format`: `text`, `json` or `terminal`.

    It adds a handler to the root logger and sets the level. A second call replaces that handler, and no other. The
    child processes of `process=True` tasks log in the same way. `errors`: what is logged of a handler's exception
    unless a LogObserver says otherwise: its `class` and place, its `text`, which may quote a payload, or its
    `traceback`.
    """
    global _installed, _configuration
    if format not in FORMATS:
        raise ValueError(f"format: expected 'text', 'json' or 'terminal', got {format!r}")
    check_errors(errors)
    root = logging.getLogger()
    root.setLevel(level.upper() if isinstance(level, str) else level)
    handler = WholeLineHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(_formatter(format, handler.stream))
    handler.addFilter(JobFilter())
    if _installed is not None:
        root.removeHandler(_installed)
    root.addHandler(handler)
    _installed = handler
    _configuration = Configuration(format, level, stream is not None and stream is sys.stdout, errors)


def keep_logging() -> bool:
    """Keep what `configure_logging` has set, in a process that has imported an application which configures logging,
    too: `dictConfig` disables the loggers that exist, and replaces the handlers of the root logger.

    Our loggers are enabled. Where our handler is gone, they write to it without the root logger: so each line comes
    once, in the format that was chosen, and other lines come as the application wants. Handlers that the application
    gives the logger `taskharbor` stay as they are. Return whether our handler was gone.
    """
    root, own = logging.getLogger(), logging.getLogger(OWN_LOGGER)
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and name.split(".")[0] == OWN_LOGGER:
            logger.disabled = False
    if _installed is None or _configuration is None or _installed in (*root.handlers, *own.handlers):
        return False
    if not any(type(handler) is not logging.NullHandler for handler in own.handlers):
        own.addHandler(_installed)
        own.setLevel(_configuration.level.upper() if isinstance(_configuration.level, str) else _configuration.level)
        own.propagate = False
    return True


def log_thread_errors(logger: logging.Logger) -> None:
    """Log an error that ends a thread of the application, which Python would print as lines of its own."""

    def hook(found: threading.ExceptHookArgs) -> None:
        if found.exc_value is not None and found.exc_type is not SystemExit:
            name = "?" if found.thread is None else found.thread.name
            logger.error("the thread %s ended with an error", written(name), exc_info=found.exc_value)

    threading.excepthook = hook


def _formatter(format: str, stream: TextIO) -> logging.Formatter:
    if format == "terminal":
        return TerminalFormatter(colours=in_colours(stream))
    return JsonFormatter() if format == "json" else TextFormatter()


def check_errors(errors: str) -> None:
    """ValueError for an unknown way to log errors."""
    if errors not in ERRORS:
        raise ValueError(f"errors: expected one of {', '.join(map(repr, ERRORS))}, got {errors!r}")


def configuration() -> Configuration | None:
    """The arguments of the last `configure_logging` in this process; None if it was not called."""
    return _configuration


def configure_like(parent: Configuration | None) -> None:
    """Configure logging as the parent process did, if it did."""
    if parent is not None:
        configure_logging(parent.format, parent.level, sys.stdout if parent.stdout else None, errors=parent.errors)


def written(value: Any) -> str:
    """A fact as a line of text shows it: quoted, if it could be taken for two facts or two lines.

    >>> written("mail"), written("two words")
    ('mail', '"two words"')
    """
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if _PLAIN(text) else json.dumps(text)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # wrong arguments must not lose the line
        return f"{record.msg!s} (its arguments cannot be shown: {type(error).__name__})"


def _tracebacks(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    error = record.exc_info[1] if record.exc_info and record.name == OWN_LOGGER else None
    if error is not None:  # another formatter may have left the whole traceback in `exc_text`
        trace = application_traceback(error)
    else:
        trace = record.exc_text or (formatter.formatException(record.exc_info) if record.exc_info else "")
    return [text for text in (trace, record.stack_info) if text]


def _is_event(record: logging.LogRecord) -> bool:
    """Whether LogObserver wrote it."""
    return record.name == OWN_LOGGER and hasattr(record, "event")


def _lines(formatter: logging.Formatter, record: logging.LogRecord, text: str) -> list[str]:
    """The lines of a record: its text and its tracebacks, which cannot command a terminal."""
    text = "\n".join([text, *_tracebacks(formatter, record)])
    return [_CONTROL.sub(_escaped, line) for line in text.split("\n")]


def _escaped(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]


def _json_value(value: Any, depth: int = 0) -> Any:
    """A fact as a JSON value; anything else as its text."""
    if value is None or type(value) in (str, bool) or (type(value) is int and value.bit_length() <= 128):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else str(value)
    if depth < _MAX_DEPTH and isinstance(value, Mapping):
        return {str(key): _json_value(item, depth + 1) for key, item in value.items()}
    if depth < _MAX_DEPTH and isinstance(value, list | tuple):
        return [_json_value(item, depth + 1) for item in value]
    try:
        return str(value)
    except Exception as error:
        return f"<{type(value).__qualname__}: {type(error).__name__}>"


# For a terminal -------------------------------------------------------------------------------------------------


def in_colours(stream: TextIO) -> bool:
    """Whether a stream is a terminal that shows colours, and nobody asked for none."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    try:
        return not plain and stream.isatty()
    except (AttributeError, ValueError):  # an object of the program's own, or closed
        return False


def summary(facts: dict[str, Any]) -> str:
    """An event of ours in words: what happened, and its facts.

    >>> summary({"event": "JobSucceeded", "job_id": "01J", "seconds": 0.25, "attempt": 1})
    'succeeded after 0.25 s'
    """
    event = str(facts.get("event", ""))
    words = _SAID.get(event) or _WORDS.sub(" ", event).lower()
    left = _IN_WORDS
    if "job_id" in facts:
        words = words.removeprefix("job ")
        left = _IN_WORDS | _OF_A_JOB
    if facts.get("attempt", 1) != 1 and event not in _SAID:
        words += f" (attempt {facts['attempt']})"
    if "seconds" in facts:
        seconds = max(facts["seconds"], 0.001)
        words += f" after {seconds:.2g} s" if seconds < 10 else f" after {seconds:.0f} s"
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
        trace = traceback.TracebackException.from_exception(error, limit=-MAX_FRAMES, compact=True)
        _trim(trace)
        return "".join(trace.format()).rstrip()
    except Exception as second:
        return f"{type(error).__qualname__} (its traceback cannot be shown: {type(second).__name__})"


def _trim(trace: traceback.TracebackException) -> None:
    """Leave out the first frames, of the worker and of what runs it, here and in the causes."""
    waiting, seen = [trace], set[int]()
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

"""Log lines for people (text), for a developer at a terminal and for programs (JSON), each bound to its job.

`configure_logging` is all that a program needs. `JobFilter` and the two formatters are for programs that configure
logging themselves. Whatever a handler logs, no text can pass for the line of another record, and a JSON line is always
one JSON object, even where several processes write to one pipe.
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, TextIO

from taskharbor.model import current_job
from taskharbor.observe import terminal
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
        if not (record.name == OWN_LOGGER and hasattr(record, "event")):
            bound = ((name, getattr(record, name, None)) for name in FACTS)
            text += "".join(f" {name}={written(value)}" for name, value in bound if value is not None)
        text += "".join(f"\n{more}" for more in _tracebacks(self, record))
        lines = [_CONTROL.sub(_escaped, line) for line in text.split("\n")]
        return f"{_time(record)} {record.levelname:<7} {record.name} " + "\n  ".join(lines)


class TerminalFormatter(logging.Formatter):
    """For a developer: the time of day, the level, the job or the logger, and words; further lines are indented.
    `colours`: whether to use them."""

    def __init__(self, *, colours: bool) -> None:
        super().__init__()
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        if record.name == OWN_LOGGER and hasattr(record, "event"):
            text = terminal.summary(
                {name: value for name, value in vars(record).items() if name not in _USUAL}, written
            )
        else:
            text = _message(record)
        text += "".join(f"\n{more}" for more in _tracebacks(self, record))
        lines = [_CONTROL.sub(_escaped, line) for line in text.split("\n")]
        place = [_CONTROL.sub(_escaped, part) for part in terminal.head(record)]
        return terminal.line(place, lines, record.levelno, colours=self._colours)


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


def _formatter(format: str, stream: TextIO) -> logging.Formatter:
    if format == "terminal":
        return TerminalFormatter(colours=terminal.in_colours(stream))
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
        trace = terminal.application_traceback(error)
    else:
        trace = record.exc_text or (formatter.formatException(record.exc_info) if record.exc_info else "")
    return [text for text in (trace, record.stack_info) if text]


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

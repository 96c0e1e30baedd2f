"""The default observer: one structured log record for each event, through Python's own logging.

Every record carries its facts as attributes (`event`, `job_id`, `job_type`, `queue`, `attempt`, …), each a plain JSON
value, so that a JSON formatter needs no parsing. Payloads never appear. Neither does the text of an exception, which
may quote one: its class and place do, and `last_error` in the store has the rest. `LogObserver(errors="text")` logs
the text as well, `errors="traceback"` the traceback, for developers. A driver's text about a store that is away is
logged: it holds no secret. A line of text stays one line: values with spaces or control characters are quoted.

`configure_logging`, the formatters and the filter live in `taskharbor.observe.formatting`, and can be imported from
here.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from taskharbor.model import events as e
from taskharbor.model.audit import AuditEntry
from taskharbor.model.errors import BackendUnavailable
from taskharbor.model.naming import class_name
from taskharbor.model.refusal import Refusal
from taskharbor.model.scarcity import USED_UP
from taskharbor.observe.formatting import (
    JobFilter,
    JsonFormatter,
    TerminalFormatter,
    TextFormatter,
    check_errors,
    configuration,
    configure_logging,
    written,
)

__all__ = [
    "LEVELS",
    "JobFilter",
    "JsonFormatter",
    "LogObserver",
    "TerminalFormatter",
    "TextFormatter",
    "configure_logging",
    "logged",
]

logger = logging.getLogger("taskharbor")
_USED_UP = (*USED_UP, errno.ENOSPC)
_MAX_TEXT_CHARS = 300  # of a driver's error

LEVELS = {kind: kind.level for kind in vars(e).values() if isinstance(kind, type) and issubclass(kind, e.Event)}
"""At which level each event of jobs and workers is logged."""


class LogObserver:
    """Writes events to the logger `taskharbor`.

    `errors`: what is logged of an exception that a handler raised: `class`, its class and place; `text` or True, its
    text, which may quote a payload; `traceback`, that too. By default it is what `configure_logging` was given.
    """

    def __init__(self, *, errors: bool | str | None = None) -> None:
        if isinstance(errors, bool):
            errors = "text" if errors else "class"
        elif errors is not None:
            check_errors(errors)
        self._given = errors

    def __repr__(self) -> str:
        return f"LogObserver(errors={self.errors!r})"

    @property
    def errors(self) -> str:
        """What is logged of an exception: class, text or traceback."""
        if self._given is not None:
            return self._given
        configured = configuration()
        return "class" if configured is None else configured.errors

    def wants(self, event_type: type[e.Event]) -> bool:
        """Whether an event of this type would be logged."""
        return logger.isEnabledFor(event_type.level)

    def __call__(self, event: e.Event) -> None:
        level = event.level
        if logger.isEnabledFor(level):
            facts = self._facts(event)
            text = " ".join(f"{name}={written(value)}" for name, value in facts.items())
            logger.log(level, "%s", text, extra=facts, exc_info=self._exception(event))

    def _exception(self, event: e.Event) -> BaseException | None:
        """The exception whose traceback is logged, if any: one that the application raised."""
        if not isinstance(event, e.JobFailed | e.PolicyFailed) or self.errors != "traceback":
            return None
        return None if type(event.error) is Refusal else event.error

    def _facts(self, event: e.Event) -> dict[str, Any]:
        facts: dict[str, Any] = {"event": type(event).__name__}
        for name in event.__struct_fields__:
            value = getattr(event, name)
            if name == "job":
                if value is not None:
                    facts |= {"job_id": value.id, "job_type": value.type, "queue": value.queue}
                    facts["attempt"] = value.attempts + 1
            elif name == "entry":
                facts |= _action(value)
            elif name == "error":
                facts["error"] = _store_error(value) if _is_about_store(event) else self._error(value)
            elif name in event.quotes and self.errors == "class":
                continue
            elif name == "seconds":
                facts[name] = round(value, 6)
            elif value is not None and value != "":
                facts[name] = _plain(value)
        if event.advice:
            facts["advice"] = event.advice
        return facts

    def _error(self, error: BaseException) -> str:
        name = class_name(error)
        if self.errors != "class":
            try:
                return f"{name}: {error}"
            except BaseException:
                return name
        if type(error) is Refusal:
            return error.safe_text  # its text quotes nothing; the place in our own code would help nobody
        if isinstance(error, OSError) and error.errno in _USED_UP:  # of the system's own table: it quotes nothing
            name += f" ({os.strerror(error.errno)})"
        innermost = error.__traceback__
        if innermost is None:
            return name
        while innermost.tb_next is not None:
            innermost = innermost.tb_next
        return f"{name} at {innermost.tb_frame.f_code.co_filename}:{innermost.tb_lineno}"


def _action(entry: AuditEntry) -> dict[str, Any]:
    """The facts of an action: who did what, and how many jobs it changed. Its filter and its ids are in the audit."""
    facts: dict[str, Any] = {"audit_id": entry.id, "by": entry.by, "action": entry.action, "target": entry.target}
    facts |= {"jobs": entry.n, "done": entry.done, "refused": entry.refused, "status": entry.status}
    return {name: value for name, value in facts.items() if value is not None and value != ""}


def _is_about_store(event: e.Event) -> bool:
    """Whether its error is a driver's about a store that is away: its text repeats no secret and no payload."""
    return not hasattr(event, "job") and isinstance(getattr(event, "error", None), BackendUnavailable)


def _store_error(error: BaseException) -> str:
    return f"{class_name(error)}: {' '.join(str(error).split())[:_MAX_TEXT_CHARS]}"


def logged(observers: Iterable[e.Observer]) -> tuple[e.Observer, ...]:
    """Add a LogObserver unless the caller passed one."""
    passed = tuple(observers)
    return passed if any(isinstance(each, LogObserver) for each in passed) else (LogObserver(), *passed)


def _plain(value: Any) -> Any:
    """A fact as a JSON value."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    # A handler may report its progress in numbers of any type.
    return value if type(value) in (str, int, float, bool) else str(value)

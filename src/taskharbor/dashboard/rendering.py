"""How pages are drawn: Jinja2 with autoescape for everything, and the few filters that the templates use."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlencode

import jinja2
import msgspec

from taskharbor.model.error_class import full_error_name
from taskharbor.store.text import clean, command, first_line, format_duration, format_moment, middle, one_line, relative

STATE_WORDS = {
    "blocked": "blocked",
    "scheduled": "scheduled",
    "ready": "ready",
    "inflight": "running",
    "done": "done",
    "dlq": "dead",
    "cancelled": "cancelled",
}


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """The templates of this package."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("taskharbor.dashboard"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "duration": _duration,
        "milliseconds": _milliseconds,
        "moment": format_moment,
        "iso": _iso,
        "relative": relative,
        "number": _number,
        "share": _share,
        "line": one_line,
        "first_line": first_line,
        "sentence": lambda text: (line := one_line(text))[:1].upper() + line[1:],
        "lines": clean,
        "middle": middle,
        "word": lambda state: STATE_WORDS.get(str(state), str(state)),
        "json_text": lambda value: msgspec.json.encode(value).decode(),
        "command": command,
        "clock": lambda moment: f"{moment.astimezone(UTC):%H:%M:%S}Z",
        "dead_value": _dead_value,
        "full_error_name": full_error_name,
    }
    return made


def render(template: str, view: Mapping[str, Any]) -> str:
    """A page, or a part of one."""
    return environment().get_template(template).render(view)


class Links:
    """Addresses of pages under the prefix of this mount. Names are quoted, whatever they contain."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def __call__(self, path: str, *names: str, **query: Any) -> str:
        """The address of a page: `link("/jobs", id)`, `link("/jobs", state="dlq")`."""
        quoted = "".join(f"/{quote(name, safe='')}" for name in names)
        given = {name: value for name, value in query.items() if value not in (None, "")}
        return f"{self.prefix}{path}{quoted}{f'?{urlencode(given)}' if given else ''}"

    def action(self, path: str, name: str, verb: str) -> str:
        """The address of an action on one thing."""
        return f"{self.prefix}{path}/{quote(name, safe='')}/{verb}"


def _duration(span: timedelta | float | None) -> str:
    if span is None:
        return ""
    return format_duration(span if isinstance(span, timedelta) else timedelta(seconds=span))


def _milliseconds(value: float | None) -> str:
    return "–" if value is None else format_duration(timedelta(milliseconds=value))


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _number(value: float, cap: int | None = None) -> str:
    if value < 100 and value != int(value):
        text = f"{value:,.1f}".removesuffix(".0")
    else:
        text = f"{value:,.0f}"
    return f"{text}+" if cap is not None and value >= cap else text


def _share(value: float | None) -> str:
    if value is None:
        return "–"
    return "0 %" if not value else f"{value * 100:.1f} %" if value < 0.1 else f"{value * 100:.0f} %"


def _dead_value(kind: Any, by: str) -> str:
    return first_line(kind.value(by)) or "(none)"

"""Answers for programs: JSON that is never markup, and nothing at all for htmx.

htmx reads the body of an answer as HTML, whatever its type, and carries out what it finds there. Most answers quote a
name that a producer chose. So a page that has done something gets an empty answer, whose header has the sentence to
show; and JSON has no character that begins a tag. `taskharbor.js` is a third defence: it lets htmx insert HTML only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response

MAX_SAID_BYTES = 2_000  # of the header: many proxies take 4 KiB for all headers of an answer
_KEPT_CHARS = 80  # from either end of a longer sentence: at most 12 bytes each
_MARKUP = {each.encode(): b"\\u%04x" % ord(each) for each in "<>&\u2028\u2029"}


def json_bytes(value: object) -> bytes:
    r"""A value as JSON. In JSON these characters are inside of texts only, where an escape means the same.

    >>> json_bytes({"done": "queue <b>&amp;"})
    b'{"done":"queue \\u003cb\\u003e\\u0026amp;"}'
    """
    data = msgspec.json.encode(value)
    for plain, escaped in _MARKUP.items():
        data = data.replace(plain, escaped)
    return data


def json_answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON for scripts, and the reason of a refusal, which a page shows as text."""
    return Response(json_bytes(value), status, {"vary": "accept", **(headers or {})}, "application/json")


def done_answer(request: Request, text: str, location: str | None = None) -> Response:
    """An action was done: the sentence about it, or the page to go to."""
    headers = {"hx-trigger": _message_event(text)} if location is None else {"hx-redirect": location}
    if request.headers.get("hx-request") == "true":
        return Response(None, 204, headers)
    return json_answer({"done": text}, 200, headers)


def _message_event(text: str) -> str:
    r"""The event `said` for the page, in ASCII as headers are.

    >>> _message_event("queue \u00e4 is paused")
    '{"said": "queue \\u00e4 is paused"}'
    >>> len(_message_event("\U0001f600" * 1000)) < MAX_SAID_BYTES
    True
    """
    header = json.dumps({"said": text})
    if len(header) > MAX_SAID_BYTES:
        header = json.dumps({"said": f"{text[:_KEPT_CHARS]} … {text[-_KEPT_CHARS:]}"})
    return header

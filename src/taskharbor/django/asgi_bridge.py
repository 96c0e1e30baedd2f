"""Calls an ASGI application from a Django view, under WSGI and under ASGI alike.

    HttpRequest ─► scope and body ─► the application, on the background loop of a portal ─► HttpResponse

One loop in the process serves all requests, so the application opens its connections once, however many threads Django
has. The view waits for the whole response. A stream of events is passed on as it comes, under ASGI only: under WSGI it
would hold a thread for minutes.

The application receives neither cookies nor credentials: Django has checked them.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncIterator, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import quote

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse

from taskharbor.store.portal import Portal

AsgiApplication: TypeAlias = Callable[..., Any]
AsgiMessage: TypeAlias = MutableMapping[str, Any]

LONGEST_S = 60.0  # for a whole response; the application has shorter limits of its own
PASSED_ON = ("accept", "content-type", "hx-request", "origin", "sec-fetch-site", "x-taskharbor")


class BodyTooLarge(ValueError):
    """The body of a request is larger than the application takes."""


def may_stream(request: HttpRequest) -> bool:
    """Whether a response may last: under ASGI it costs no thread."""
    return isinstance(request, ASGIRequest)


def respond(
    portal: Portal, app: AsgiApplication, request: HttpRequest, prefix: str, extras: Mapping[str, Any], limit: int
) -> HttpResponse | StreamingHttpResponse:
    """The response of an application that is mounted at a prefix. `extras`: what its scope has beside the request;
    `limit`: the bytes of a body that are read."""
    call = BridgedCall(portal, app, _scope(request, prefix, extras), _body(request, limit))
    status, headers = call.begun()
    kind = headers.pop("content-type", "text/plain")
    reply: HttpResponse | StreamingHttpResponse
    if kind.startswith("text/event-stream") and may_stream(request):
        reply = StreamingHttpResponse(call, status=status, content_type=kind)
    else:
        reply = HttpResponse(call.whole(), status=status, content_type=kind)
    for name, value in headers.items():
        reply.headers[name] = value
    return reply


class BridgedCall:
    """One call of the application: what it sends arrives here from the loop of the portal."""

    def __init__(self, portal: Portal, app: AsgiApplication, scope: AsgiMessage, body: bytes) -> None:
        self._body: bytes | None = body
        self._start: concurrent.futures.Future[tuple[int, dict[str, str]]] = concurrent.futures.Future()
        self._lock = threading.Lock()
        self._parts: list[bytes] = []
        self._is_complete = False
        self._wake: Callable[[], object] = lambda: None
        self._running = portal.start(lambda: self._run(app, scope))

    def begun(self) -> tuple[int, dict[str, str]]:
        """Status and headers."""
        try:
            return self._start.result(LONGEST_S)
        except BaseException:
            self.close()
            raise

    def whole(self) -> bytes:
        """The whole body."""
        try:
            self._running.result(LONGEST_S)
        except BaseException:
            self.close()
            raise
        return b"".join(self._parts)

    def close(self) -> None:
        """End the call, if it has not ended: Django calls this when a response was sent, or its client has gone."""
        self._running.cancel()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The body as it comes, on the loop of the server."""
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        self._wake = lambda: loop.call_soon_threadsafe(woken.set)
        try:
            while True:
                woken.clear()
                with self._lock:
                    parts, self._parts = self._parts, []
                    is_complete = self._is_complete
                for part in parts:
                    yield part
                if is_complete:
                    return
                await woken.wait()
        finally:
            self.close()

    # On the loop of the portal ---------------------------------------------------------------------------------

    async def _run(self, app: AsgiApplication, scope: AsgiMessage) -> None:
        try:
            await app(scope, self._receive, self._send)
        except Exception as error:
            if not self._start.done():
                self._start.set_exception(error)
            # otherwise it has sent a page that says so, and has logged it
        finally:
            if not self._start.done():
                self._start.set_exception(RuntimeError("the application ended without a response"))
            self._pass_on(b"", is_last=True)

    async def _receive(self) -> AsgiMessage:
        if self._body is None:
            await asyncio.Event().wait()  # the client stays until this call is cancelled
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def _send(self, message: AsgiMessage) -> None:
        if message["type"] == "http.response.start":
            headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in message["headers"]}
            headers.pop("content-length", None)  # Django counts it
            self._start.set_result((message["status"], headers))
        else:
            self._pass_on(message.get("body", b""))

    def _pass_on(self, part: bytes, *, is_last: bool = False) -> None:
        with self._lock:
            if part:
                self._parts.append(part)
            self._is_complete = self._is_complete or is_last
        try:
            self._wake()
        except RuntimeError:  # the loop of the server is closed: nobody reads on
            self._running.cancel()


def _scope(request: HttpRequest, prefix: str, extras: Mapping[str, Any]) -> AsgiMessage:
    headers = [(b"host", _bytes(request.get_host()))]
    headers += [(name.encode(), _bytes(request.headers[name])) for name in PASSED_ON if name in request.headers]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "raw_path": quote(request.path).encode(),
        "root_path": prefix,
        "query_string": _bytes(request.META.get("QUERY_STRING", "")),
        "headers": headers,
        "client": None,
        "server": None,
        **extras,
    }


def _body(request: HttpRequest, limit: int) -> bytes:
    data: bytes = request.read(limit + 1)
    if len(data) > limit:
        raise BodyTooLarge(f"expected a body of at most {limit:,} bytes")
    return data


def _bytes(text: str) -> bytes:
    return text.encode("latin-1", errors="replace")

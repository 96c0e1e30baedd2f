"""Checks every request before anything else reads it, and adds headers to every response.

- `Host` must be a name of this server: a page of another site that resolves its own name to 127.0.0.1 has its name in
  `Host` (DNS rebinding).
- A request that changes something must come from a page of ours. The browser says so in `Sec-Fetch-Site`, which no page
  can forge, or at least in `Origin`. The header `X-TaskHarbor` is a second lock: a form of another site cannot send it.
- Headers that keep the browser from running, framing, sniffing, caching or leaking anything.
"""

from __future__ import annotations

from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

OWN_HEADER = "x-taskharbor"
SAFE_METHODS = ("GET", "HEAD")
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "x-robots-tag": "noindex, nofollow",
}


class RequestGuard:
    """Refuses what did not come from a page of ours, and adds the headers. `hosts`: None allows any `Host`."""

    def __init__(self, app: ASGIApp, hosts: Collection[str] | None = None) -> None:
        self._app = app
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, guarded)
        else:
            await PlainTextResponse(f"{refusal}\n", 403)(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> str | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._hosts is not None and host_name(host) not in self._hosts:
            return "This dashboard does not serve that host name. `taskharbor dashboard --allow-host NAME` adds one."
        if scope["method"] in SAFE_METHODS:
            return None
        if not _is_own_page(headers, scope):
            return "Refused: this request did not come from a page of this dashboard."
        is_login = scope["path"].removeprefix(scope.get("root_path", "")) == "/login"
        if headers.get(OWN_HEADER) is None and not is_login:
            return "Refused: actions need JavaScript, or the command line: taskharbor --help."
        return None


def _is_own_page(headers: Headers, scope: Scope) -> bool:
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = headers.get("origin")
    if origin is None:
        return False
    return origin.lower() == f"{scope.get('scheme', 'http')}://{headers.get('host', '')}".lower()


def host_name(host: str) -> str:
    """The name in a `Host` header, without its port.

    >>> host_name("LocalHost:8420"), host_name("[::1]:8420"), host_name("::1")
    ('localhost', '::1', '::1')
    """
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() and ":" not in name else host

"""Who is let in by `taskharbor dashboard`: a one-time link, a token, and the sessions that either begins.

Of a link, a token and a session only the SHA-256 is kept. A link works once. A session ends after 12 hours, when its
person logs out, or with the process.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from taskharbor.ops.access import Access

SESSION_S = 12 * 3600
MAX_SESSIONS = 1_000
MIN_TOKEN_CHARS = 32


class Sessions:
    """The sessions of one dashboard.

    `access`: what a person who is let in may do; `cookie`: the cookie's name; `secure`: browsers send it over https
    alone, also if this server itself speaks http.
    """

    def __init__(
        self,
        monotonic: Callable[[], float],
        access: Access,
        *,
        cookie: str = "taskharbor",
        token: str | None = None,
        secure: bool = False,
    ) -> None:
        if token is not None and len(token) < MIN_TOKEN_CHARS:
            raise ValueError(
                f"the dashboard's token: expected at least {MIN_TOKEN_CHARS} characters, got {len(token)}; "
                "`python -c 'import secrets; print(secrets.token_urlsafe(32))'` makes one"
            )
        self._monotonic = monotonic
        self._access = access
        self._cookie = cookie
        self._secure = secure
        self._token = None if token is None else _hashed(token)
        self._links: set[bytes] = set()
        self._sessions: dict[bytes, float] = {}  # hash → when it ends

    def __repr__(self) -> str:
        return f"Sessions({len(self._sessions)} open)"

    @property
    def takes_token(self) -> bool:
        """Whether a person can log in with a token."""
        return self._token is not None

    def new_link(self) -> str:
        """The key of a link that works once."""
        key = secrets.token_urlsafe(32)
        self._links.add(_hashed(key))
        return key

    def access(self, request: Request) -> Access:
        """What the person behind a request may do."""
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        if self._token is not None and scheme.lower() == "bearer" and self._is_token(bearer.strip()):
            return self._access
        ends = self._sessions.get(_hashed(request.cookies.get(self._cookie, "")))
        if ends is not None and ends > self._monotonic():
            return self._access
        return Access.none(login=f"{request.scope.get('root_path', '')}/login")

    def open_link(self, key: str) -> str | None:
        """A new session for the key of a link, which is then used up; None for any other, even the token: an address
        stays in histories and logs."""
        hashed = _hashed(key)
        if hashed not in self._links:
            return None
        self._links.discard(hashed)
        return self._open()

    def open_token(self, key: str) -> str | None:
        """A new session for the token; None for any other."""
        return self._open() if self._is_token(key) else None

    def _open(self) -> str:
        now = self._monotonic()
        self._sessions = {each: ends for each, ends in self._sessions.items() if ends > now}
        while len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[min(self._sessions, key=self._sessions.__getitem__)]
        session = secrets.token_urlsafe(32)
        self._sessions[_hashed(session)] = now + SESSION_S
        return session

    def close(self, request: Request) -> None:
        """End the session of a request."""
        self._sessions.pop(_hashed(request.cookies.get(self._cookie, "")), None)

    def set_cookie(self, request: Request, response: Response, session: str | None) -> None:
        """Give the session to the browser; None takes it away."""
        path = request.scope.get("root_path", "") or "/"
        secure = self._secure or request.url.scheme == "https"
        if session is None:
            response.delete_cookie(self._cookie, path=path, secure=secure, httponly=True, samesite="strict")
        else:
            response.set_cookie(
                self._cookie, session, max_age=SESSION_S, path=path, secure=secure, httponly=True, samesite="strict"
            )

    def _is_token(self, text: str) -> bool:
        return self._token is not None and hmac.compare_digest(_hashed(text), self._token)


def _hashed(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="replace")).digest()

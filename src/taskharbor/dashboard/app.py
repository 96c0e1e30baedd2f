"""The application: its routes, who may use them, and how an error looks.

request ─► RequestGuard (host, origin, headers) ─► route ─► access function ─► OperatorSession ─► page or action
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from taskharbor.dashboard import assets
from taskharbor.dashboard.actions import ActionRequest, ActionResult
from taskharbor.dashboard.answers import done_answer, json_answer
from taskharbor.dashboard.guard import RequestGuard
from taskharbor.dashboard.mounting import MOUNTING, NOT_MOUNTED, Mounting
from taskharbor.dashboard.page_memory import KeptPage, PageMemory
from taskharbor.dashboard.pages.content import BadQuery, PageQuery
from taskharbor.dashboard.rendering import Links, render
from taskharbor.dashboard.routes import ACTION_ROUTES, PAGES, ActionRoute, PageRoute
from taskharbor.dashboard.sampler import REFRESH_S, sampler_of
from taskharbor.dashboard.stream import has_room, stream
from taskharbor.harbor import Harbor
from taskharbor.model.errors import (
    DriverError,
    FeatureMissing,
    InvalidJob,
    JobNotFound,
    ScheduleNotFound,
    TaskHarborError,
    WrongState,
)
from taskharbor.ops.access import Access, AccessDenied, Permission
from taskharbor.ops.job_edit import BadEdit
from taskharbor.ops.operator import OperatorSession, PageTooSlow, StoreReading, place_of
from taskharbor.store.text import format_duration, safe_text

if TYPE_CHECKING:
    from taskharbor.dashboard.sessions import Sessions

AccessFunction = Callable[[Request], Access | Awaitable[Access]]
MAX_FORM_BYTES = 2 * 1024 * 1024
MAX_LOGIN_BYTES = 4 * 1024
MAX_FORM_FIELDS = 2_000
FORM_S = 10.0  # for a form to arrive: a login needs no session, and half of one must not hold a connection
MAX_NEXT_CHARS = 2_000
_OWN_PATH = re.compile(r"/(?![/\\])[!-\[\]-~]*").fullmatch  # printable ASCII without a backslash

_log = logging.getLogger("taskharbor.dashboard")


def dashboard(
    harbor: Harbor,
    *,
    access: AccessFunction | None = None,
    read_only: bool = False,
    redact: Iterable[str] = (),
    title: str = "TaskHarbor",
) -> ASGIApp:
    """The dashboard of a store, as an ASGI application to mount under any prefix.

    `access`: a function of the Starlette request that says who it is and what they may do; sync or async. Without it
    every page answers 403. `read_only`: nobody changes anything, whatever their access. `redact`: fields of payloads
    that even a reveal hides, at any depth. `title`: the name at the top of every page.
    """
    if not isinstance(harbor, Harbor):
        raise TypeError(f"dashboard: expected a Harbor, got {type(harbor).__name__}")
    if access is not None and not callable(access):
        raise TypeError(f"access: expected a function of the request, got {type(access).__name__}")
    if isinstance(redact, str):
        raise TypeError("redact: expected a list of names such as ['card'], got one text")
    return build(harbor, access=access, read_only=read_only, redact=tuple(redact), title=title)


def build(
    harbor: Harbor,
    *,
    access: AccessFunction | None = None,
    sessions: Sessions | None = None,
    hosts: Collection[str] | None = None,
    read_only: bool = False,
    redact: tuple[str, ...] = (),
    title: str = "TaskHarbor",
    refresh: float = REFRESH_S,
) -> ASGIApp:
    """The same with what only `taskharbor dashboard` uses: sessions of its own, and a check of `Host`."""
    served = DashboardApp(
        harbor, access or (sessions.access if sessions else None), sessions, read_only, redact, title, refresh
    )
    routes = [
        Route("/login", served.login, methods=["GET", "POST"]),
        Route("/logout", served.logout, methods=["POST"]),
        Route("/events", served.events, methods=["GET"]),
        Route("/robots.txt", served.robots, methods=["GET"]),
        Route("/static/{file:path}", assets.serve, methods=["GET"]),
    ]
    if not read_only:
        routes += [Route(each.path, served.acting(each), methods=["POST"]) for each in ACTION_ROUTES]
    routes += [
        Route(each.path, served.showing(each), methods=["GET"])
        for each in sorted(PAGES, key=lambda page: "{" in page.path)
    ]
    handlers = {HTTPException: served.on_http_error, Exception: served.on_bug}
    return RequestGuard(Starlette(routes=routes, exception_handlers=handlers), hosts)  # type: ignore[arg-type]  # Starlette's own type of handlers is too narrow


class DashboardApp:
    """One mounted dashboard."""

    def __init__(
        self,
        harbor: Harbor,
        access: AccessFunction | None,
        sessions: Sessions | None,
        read_only: bool,
        redact: tuple[str, ...],
        title: str,
        refresh: float,
    ) -> None:
        self._harbor = harbor
        self._access = access
        self._sessions = sessions
        self._read_only = read_only
        self._redact = redact
        self._title = title
        self._memory = PageMemory()
        self._sampler = sampler_of(harbor, refresh)

    # Pages -----------------------------------------------------------------------------------------------------

    def showing(self, route: PageRoute) -> Callable[[Request], Awaitable[Response]]:
        """The endpoint of a page."""

        async def show(request: Request) -> Response:
            session = await self._session_of(request)
            query = PageQuery(dict(request.query_params), request.path_params, _wants_json(request))
            try:
                return await self._page_reply(request, session, route, query)
            except (TaskHarborError, OSError) as error:
                return self._failed(request, session.access, error, route.nav)

        return show

    async def _page_reply(
        self, request: Request, session: OperatorSession, route: PageRoute, query: PageQuery
    ) -> Response:
        address = PageMemory.key(request.url.path, query)
        clock = self._harbor.clock

        async def read(reading: StoreReading) -> KeptPage:
            page = await route.read(reading, query)
            return KeptPage(page, reading.now, clock.monotonic(), tuple(reading.late))

        stale = problem = ""
        slow = False
        try:
            found = await session.read(read, route.timeout)
            if not query.json:
                self._memory.keep(address, found)
        except (DriverError, PageTooSlow, OSError) as error:
            before = self._memory.find(address)
            if not _is_outage(error) or before is None or query.json:
                raise
            found, problem, slow = before, safe_text(str(error)), isinstance(error, PageTooSlow)
            stale = format_duration(timedelta(seconds=max(clock.monotonic() - before.at, 0.0)))
        page = found.page
        if page.redirect is not None:
            return RedirectResponse(f"{_prefix(request)}{page.redirect}", 303)
        if query.json:
            return json_answer({**page.data, "late": found.late} if found.late else page.data)
        view = self._frame(request, session.access, page.title, route.nav)
        view |= {"late": found.late, "slow": slow}
        view |= {"now": found.now, "stale": stale, "problem": problem, "topics": page.topics, "job_id": page.job}
        return HTMLResponse(render(page.template, view | page.view), page.status, {"vary": "accept"})

    def _frame(self, request: Request, access: Access, title: str, nav: str) -> dict[str, Any]:
        """What every page has around it."""
        mounting: Mounting = request.scope.get(MOUNTING, NOT_MOUNTED)
        return {
            "link": Links(_prefix(request)),
            "version": assets.version(),
            "app_title": self._title,
            "home": mounting.home,
            "home_name": mounting.home_name,
            "live": mounting.streams,
            "page_title": title,
            "nav": nav,
            "access": access,
            "can": access.allows,
            "read_only": self._read_only,
            "may_log_out": self._sessions is not None or mounting.may_log_out,
            "place": place_of(self._harbor) if access.allows(Permission.VIEW) else "",
            "here": request.url.path + (f"?{request.url.query}" if request.url.query else ""),
            "problem": "",
            "stale": "",
            "slow": False,
            "late": (),
            "topics": (),
            "job_id": None,
        }

    # Actions ---------------------------------------------------------------------------------------------------

    def acting(self, route: ActionRoute) -> Callable[[Request], Awaitable[Response]]:
        """The endpoint of an action."""

        async def act(request: Request) -> Response:
            session = await self._session_of(request)
            try:
                route.check(session.access)
                asked = ActionRequest(session, self._harbor, request.path_params, await _form(request), self._redact)
                return self._reply_to_action(request, await route.do(asked))
            except (TaskHarborError, OSError) as error:
                text, status = _explained(error)
                return json_answer({"error": text}, status)

        return act

    def _reply_to_action(self, request: Request, result: ActionResult) -> Response:
        if "download" in result.view:
            headers = {"content-disposition": "attachment"}
            return Response(result.view["download"], media_type="application/json", headers=headers)
        if result.refused:
            return json_answer({"error": result.text}, 409)
        if result.template is not None:
            return HTMLResponse(render(result.template, {"link": Links(_prefix(request)), **result.view}))
        if result.location is not None:
            return done_answer(request, result.text, f"{_prefix(request)}{result.location}")
        return done_answer(request, result.text)

    # Coming and going ------------------------------------------------------------------------------------------

    async def login(self, request: Request) -> Response:
        """A one-time link, or the form for a token."""
        sessions = self._sessions
        if sessions is None:
            raise HTTPException(404)
        wrong = False
        wanted = request.query_params.get("next", "")
        if request.method == "POST":
            try:
                form = dict(await _form(request, MAX_LOGIN_BYTES))
                key, wanted = form.get("token", "").strip(), form.get("next", "")
            except BadQuery as error:
                return json_answer({"error": str(error)}, 400)
            opened = sessions.open_token
        else:  # HEAD, which some send ahead of a person, does not use a link up
            key = request.query_params.get("key", "").strip() if request.method == "GET" else ""
            opened = sessions.open_link
        if key:
            session = opened(key)
            if session is not None:
                # A page of ours, not a redirect: a browser does not send a new strict cookie after a foreign link.
                view = {"link": Links(_prefix(request)), "version": assets.version(), "app_title": self._title}
                view["next"] = own_path(wanted)
                response = HTMLResponse(render("welcome.html", view))
                sessions.set_cookie(request, response, session)
                return response
            wrong = True
        view = {
            "link": Links(_prefix(request)),
            "version": assets.version(),
            "app_title": self._title,
            "wrong": wrong,
            "next": own_path(wanted),
            "takes_token": sessions.takes_token,
        }
        return HTMLResponse(render("login.html", view), 403 if wrong else 200)

    async def logout(self, request: Request) -> Response:
        """End the session."""
        response = done_answer(request, "logged out", f"{_prefix(request)}/login")
        if self._sessions is not None:
            self._sessions.close(request)
            self._sessions.set_cookie(request, response, None)
        return response

    async def events(self, request: Request) -> Response:
        """The stream of a tab."""
        session = await self._session_of(request)
        try:
            session.access.check(Permission.VIEW)
        except AccessDenied as error:
            return json_answer({"error": str(error)}, 403)
        who = session.access.name
        if not has_room(self._sampler, who):
            return json_answer({"error": "too many tabs are open; this one reads every 10 s"}, 503)
        return stream(self._sampler, self._harbor.clock, request.query_params.get("job"), who)

    async def robots(self, request: Request) -> Response:
        """Nothing here is for a crawler."""
        return PlainTextResponse("User-agent: *\nDisallow: /\n")

    # Who, and what went wrong ------------------------------------------------------------------------------------

    async def _session_of(self, request: Request) -> OperatorSession:
        access = Access.none()
        if self._access is not None:
            found = self._access(request)
            if inspect.isawaitable(found):
                found = await found
            if not isinstance(found, Access):
                raise TypeError(f"access: expected the function to return an Access, got {type(found).__name__}")
            access = found
        if self._read_only:
            access = Access(name=access.name, actions=set(access.actions) & {Permission.VIEW}, login=access.login)
        return OperatorSession(self._harbor, access)

    def _failed(self, request: Request, access: Access, error: Exception, nav: str = "") -> Response:
        text, status = _explained(error)
        if _wants_json(request):
            return json_answer({"error": text}, status)
        if isinstance(error, AccessDenied) and access.login:
            own = self._sessions is not None and request.url.path != f"{_prefix(request)}/"
            wanted = f"?{urlencode({'next': _below(request)})}" if own else ""
            return RedirectResponse(f"{access.login}{wanted}", 303)
        if isinstance(error, AccessDenied) and self._access is None:
            return HTMLResponse(render("closed.html", self._frame(request, access, "Closed", nav)), 403)
        slow = isinstance(error, PageTooSlow)
        view = self._frame(request, access, "Too slow" if slow else _TITLES.get(status, "Error"), nav)
        view |= {"text": text, "status": status, "slow": slow}
        if status == 503:
            view |= {"problem": text, "topics": ("store", "jobs")}
        return HTMLResponse(render("message.html", view), status)

    async def on_http_error(self, request: Request, error: HTTPException) -> Response:
        """An address that is not there."""
        text = "There is no such page." if error.status_code == 404 else error.detail
        if _wants_json(request) or request.method != "GET":
            return json_answer({"error": text}, error.status_code)
        view = self._frame(request, Access.none(), _TITLES.get(error.status_code, "Error"), "")
        return HTMLResponse(
            render("message.html", view | {"text": text, "status": error.status_code}), error.status_code
        )

    async def on_bug(self, request: Request, error: Exception) -> Response:
        """A mistake of ours: the log has the traceback, the page has no details."""
        _log.error("the dashboard failed at %s: %s", request.url.path, type(error).__name__, exc_info=error)
        return json_answer({"error": "this is a bug in taskharbor, or in the access function; the log says where"}, 500)


_TITLES = {
    400: "Cannot do that",
    403: "Not allowed",
    404: "Not found",
    409: "Refused",
    503: "The store does not answer",
}


def _explained(error: Exception) -> tuple[str, int]:
    """One sentence about an error, and the status that goes with it."""
    text = safe_text(str(error))
    if isinstance(error, AccessDenied):
        return text, 403
    if isinstance(error, JobNotFound | ScheduleNotFound):
        return text, 404
    if isinstance(error, BadQuery | BadEdit | InvalidJob | FeatureMissing):
        return text, 400
    return (text, 409) if isinstance(error, WrongState) else (text, 503)


def _is_outage(error: Exception) -> bool:
    return _explained(error)[1] == 503


def _wants_json(request: Request) -> bool:
    accept = request.headers.get("accept", "")
    return "application/json" in accept and "text/html" not in accept


def own_path(text: str) -> str:
    r"""A page of this dashboard to go to after the login; the overview for anything that leads elsewhere.

    >>> own_path("/jobs/01J?x=1"), own_path("//evil.example"), own_path("/\\evil.example"), own_path("https://a.b")
    ('/jobs/01J?x=1', '/', '/', '/')
    """
    return text if _OWN_PATH(text) and len(text) <= MAX_NEXT_CHARS else "/"


def _below(request: Request) -> str:
    """The address of a request below the prefix of this mount."""
    path = quote(request.url.path.removeprefix(_prefix(request)), safe="/%")
    return path + (f"?{request.url.query}" if request.url.query else "")


def _prefix(request: Request) -> str:
    prefix: str = request.scope.get("root_path", "")
    return prefix.rstrip("/")


async def _form(request: Request, most: int = MAX_FORM_BYTES) -> list[tuple[str, str]]:
    data = bytearray()
    try:
        async with asyncio.timeout(FORM_S):
            async for chunk in request.stream():
                data += chunk
                if len(data) > most:
                    raise BadQuery(f"expected a form of at most {most:,} bytes")
    except TimeoutError:
        raise BadQuery(f"the form did not arrive within {FORM_S:g} s") from None
    try:
        return parse_qsl(data.decode(), keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS)
    except ValueError:
        raise BadQuery("expected a form, encoded as application/x-www-form-urlencoded") from None

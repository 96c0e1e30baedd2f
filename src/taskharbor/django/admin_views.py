"""The dashboard as a Django view: Django decides who may ask, the dashboard what they see.

    request ─► may they enter the admin? ─► their permissions ─► the dashboard ─► response

- The view is exempt from Django's CSRF token, because the dashboard checks the origin of every change by itself: the
  browser must say that the request came from a page of this origin (`Sec-Fetch-Site`, else `Origin` against the host
  that Django has validated), and it must carry a header that no form of another site can send.
- It takes part in no transaction of the request: the dashboard writes over connections of its own, and would wait for
  a lock that this request holds.
- It is a plain function also under ASGI, where Django gives each request a thread of its own.

What a user may do follows from permissions of the app `taskharbor`, and from nothing besides:

| permission | allows |
| --- | --- |
| `taskharbor.view_job` | look |
| `taskharbor.operate_job` | look; retry, cancel, edit, pause, resume, stop, run a schedule |
| `taskharbor.delete_job` | look; delete |
| `taskharbor.reveal_job` | look; see payloads and results |

A superuser may do everything. The user must also be allowed into the admin: active, and staff.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

from django.contrib.auth import logout
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse, reverse_lazy
from django.utils.cache import add_never_cache_headers

from taskharbor.django.asgi_bridge import BodyTooLarge, may_stream, respond
from taskharbor.django.harbors import DjangoHarbor, harbor_of, our_aliases
from taskharbor.model.errors import InvalidJob
from taskharbor.ops.access import Access, Permission

if TYPE_CHECKING:
    from starlette.requests import Request

logger = logging.getLogger("taskharbor.django")

ACCESS = "taskharbor.access"  # the key of the scope
READING = ("GET", "HEAD")
_ALLOWED = {
    "taskharbor.view_job": frozenset({Permission.VIEW}),
    "taskharbor.operate_job": frozenset(Access.operate("operator").actions),
    "taskharbor.delete_job": frozenset({Permission.VIEW, Permission.DELETE}),
    "taskharbor.reveal_job": frozenset({Permission.VIEW, Permission.REVEAL}),
}

_apps: dict[DjangoHarbor, Any] = {}


class EveryAlias:
    """Contains the alias of every database: ATOMIC_REQUESTS leaves the view alone."""

    def __contains__(self, alias: object) -> bool:
        return True


def dashboard_view(site: Any, backend: str | None = None) -> Callable[..., Any]:
    """The view of all pages, for an AdminSite. `backend`: an alias of TASKS; None: "default", or the first of ours."""

    def view(request: HttpRequest, rest: str = "") -> Any:
        if rest.startswith("static/") and request.method in READING:  # what anyone can download from PyPI: no secret
            return _cached_privately(_respond(request, rest, site, backend, Access.none()))
        if not site.has_permission(request):
            return _to_login(request, site)
        access = access_of(request.user)
        if not access.allows("view"):
            raise PermissionDenied
        if rest == "events" and not may_stream(request):
            return HttpResponse(status=204)  # which ends a stream for good
        reply = _respond(request, rest, site, backend, access)
        if rest == "logout" and request.method == "POST" and reply.status_code in (200, 204):  # the origin was checked
            logout(request)
            reply.headers["hx-redirect"] = _home(site)
        add_never_cache_headers(reply)
        return reply

    known: Any = view
    known.csrf_exempt = True
    known._non_atomic_requests = EveryAlias()
    known.login_url = reverse_lazy("admin:login", current_app=site.name)  # for Django's LoginRequiredMiddleware
    return view


def access_of(user: Any) -> Access:
    """What a user may do; the audit keeps it under their name."""
    name = _name(user)
    if user.is_active and getattr(user, "is_superuser", False):
        return Access.admin(name)
    actions = [allowed for permission, allowed in _ALLOWED.items() if user.has_perm(permission)]
    return Access(name=name, actions=frozenset().union(*actions))


def _name(user: Any) -> str:
    """Their name, if the audit can keep it; otherwise their number. (A name may be empty, long, or hold anything.)"""
    try:
        return Access.none(str(user.get_username())).name
    except InvalidJob:
        return f"user {user.pk}"


def first_backend() -> str | None:
    """The alias of TASKS that the dashboard shows unless it is given another; None if TaskHarbor is none of them."""
    ours = list(our_aliases())
    return "default" if "default" in ours else next(iter(ours), None)


def _respond(request: HttpRequest, rest: str, site: Any, backend: str | None, access: Access) -> Any:
    alias = backend or first_backend()
    if alias is None:
        raise Http404("no backend of TASKS is TaskHarbor's")
    try:
        from taskharbor.dashboard.app import MAX_FORM_BYTES
        from taskharbor.dashboard.mounting import MOUNTING, Mounting
    except ImportError as error:
        raise ImproperlyConfigured(str(error)) from error
    harbor = harbor_of(alias)
    mounting = Mounting(
        home=_home(site), home_name=str(site.site_header), may_log_out=True, streams=may_stream(request)
    )
    prefix = request.path.removesuffix(rest).removesuffix("/")
    extras = {ACCESS: access, MOUNTING: mounting}
    try:
        return respond(harbor._store.portal, _app_of(harbor), request, prefix, extras, MAX_FORM_BYTES)
    except BodyTooLarge as error:
        return JsonResponse({"error": str(error)}, status=413)
    except (TimeoutError, CancelledError) as error:  # the harbor was closed meanwhile, or its store hangs
        logger.warning("the dashboard did not respond at %s: %s", request.path, type(error).__name__)
        return JsonResponse({"error": "the dashboard does not respond; try again"}, status=503)


def _app_of(harbor: DjangoHarbor) -> Any:
    """The dashboard of a harbor, made once."""
    from taskharbor.dashboard.app import dashboard

    found = _apps.get(harbor)
    if found is None:
        found = _apps[harbor] = dashboard(harbor, access=_access_in_scope, title="Jobs")
    return found


def _access_in_scope(request: Request) -> Access:
    access: Access = request.scope[ACCESS]
    return access


def _to_login(request: HttpRequest, site: Any) -> Any:
    """To the login; a script of a page that was open meanwhile gets a sentence to show."""
    if request.method not in READING:
        return JsonResponse({"error": "you are logged out: load the page again"}, status=403)
    return redirect_to_login(request.get_full_path(), reverse("admin:login", current_app=site.name))


def _home(site: Any) -> str:
    return str(reverse("admin:index", current_app=site.name))


def _cached_privately(reply: Any) -> Any:
    """Let no shared cache keep a file: Django may add the cookie of a session to any response."""
    kept = reply.headers.get("cache-control", "")
    reply.headers["cache-control"] = kept.replace("public", "private")
    return reply

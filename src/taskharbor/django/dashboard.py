"""The dashboard at an address of your choice, with the login and the permissions of the admin.

    urlpatterns = [
        path("admin/jobs/", include("taskharbor.django.dashboard")),       # before the admin, which takes the rest
        path("admin/", admin.site.urls),
    ]

`include(dashboard_urls(backend="mail"))` shows another backend of TASKS; `site=` takes an AdminSite of your own.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.urls import re_path

from taskharbor.django.admin_views import dashboard_view


def dashboard_urls(*, backend: str | None = None, site: Any = None) -> list[Any]:
    """What to include in your URLs."""
    return [re_path(r"^(?P<rest>[\s\S]*)\Z", dashboard_view(site or admin.site, backend))]


urlpatterns = dashboard_urls()

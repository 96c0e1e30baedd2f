"""The entry "Jobs" in Django's admin, and the dashboard behind it.

Django finds this module by itself. For an AdminSite of your own: `site.register(Dashboard, DashboardAdmin)`.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.urls import path, re_path

from taskharbor.django.admin_views import access_of, dashboard_view, first_backend
from taskharbor.django.models import Dashboard


@admin.register(Dashboard)
class DashboardAdmin(admin.ModelAdmin):  # type: ignore[misc]  # Django has no types
    """Shows the dashboard where other models have a list. There are no rows to add, change or delete."""

    def get_urls(self) -> list[Any]:
        """Every page of the dashboard."""
        view = dashboard_view(self.admin_site)
        return [
            path("", view, name="taskharbor_dashboard_changelist"),
            re_path(r"^(?P<rest>[\s\S]+)\Z", view),
        ]

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Whether the entry is shown."""
        return first_backend() is not None and access_of(request.user).allows("view")

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """The same."""
        return self.has_module_permission(request)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Always False: jobs are changed in the dashboard."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never."""
        return False

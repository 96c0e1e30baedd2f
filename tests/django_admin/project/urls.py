"""The admin, and the dashboard at two more addresses."""

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import include, path

from taskharbor.django.dashboard import dashboard_urls


def viewers(request: HttpRequest) -> HttpResponse:
    """How many streams of the dashboard are open in this process."""
    from taskharbor.dashboard.sampler import sampler_of
    from taskharbor.django import harbor

    return HttpResponse(str(sampler_of(harbor).viewers))


def loops(request: HttpRequest) -> HttpResponse:
    """How many event loops of this process have opened the store."""
    from taskharbor.django import harbor

    return HttpResponse(str(len(harbor._store.drivers._by_loop)))


urlpatterns = [
    path("viewers", viewers),
    path("loops", loops),
    path("admin/jobs/", include("taskharbor.django.dashboard")),
    path("admin/other/", include(dashboard_urls(backend="other"))),
    path("admin/", admin.site.urls),
]

from django.contrib import admin
from django.urls import include, path

from taskharbor.django.dashboard import dashboard_urls

urlpatterns = [
    path("admin/jobs/", include("taskharbor.django.dashboard")),
    path("admin/other/", include(dashboard_urls(backend="other"))),
    path("admin/", admin.site.urls),
]

"""The URLs of the example."""

from django.urls import path

from bakery.views import create, job, show

urlpatterns = [path("orders", create), path("orders/<int:id>", show), path("jobs/<id>", job)]

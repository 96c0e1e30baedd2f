"""The URLs of the project."""

from django.urls import path

from shop.views import create, create_async

urlpatterns = [path("create", create), path("create-async", create_async)]

"""Settings of the project that the tests drive. The environment says where its databases and its jobs are.

SITE_DATABASE: postgresql://harbor@127.0.0.1:PORT/NAME, or the path of an SQLite file. SITE_TASKS: TASKS as JSON.
SITE_LIFESPAN: a file in which worker processes note what they open and close.
"""

import json
import os
from typing import Any
from urllib.parse import urlsplit

import django

BACKEND = "taskharbor.django.TaskHarborBackend"


def database(name: str) -> dict[str, Any]:
    if not name.startswith("postgresql://"):
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": name}
    parts = urlsplit(name)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path[1:],
        "USER": parts.username,
        "PASSWORD": "hunter2-%@/",  # the server does not ask for it; no error may repeat it
        "HOST": parts.hostname,
        "PORT": parts.port,
    }


SECRET_KEY = "tests"
USE_TZ = True
ROOT_URLCONF = "shop.urls"
ALLOWED_HOSTS = ["*"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["taskharbor.django", "shop", *(["django_tasks"] if django.VERSION < (6, 0) else [])]
if "SITE_LIFESPAN" in os.environ:
    INSTALLED_APPS.append("supply")
DATABASES = {
    "default": {**database(os.environ["SITE_DATABASE"]), **json.loads(os.environ.get("SITE_CONNECTIONS", "{}"))},
    "other": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ.get("SITE_OTHER", ":memory:")},
}
TASKS = json.loads(
    os.environ.get(
        "SITE_TASKS",
        json.dumps(
            {
                "default": {"BACKEND": BACKEND, "QUEUES": ["default", "mail"], "OPTIONS": {"database": "default"}},
                "second": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {"database": "other"}},
            }
        ),
    )
)
LOGGING = {"version": 1, "disable_existing_loggers": False, "loggers": {"django.tasks": {"level": "CRITICAL"}}}

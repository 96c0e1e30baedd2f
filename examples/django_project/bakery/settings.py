"""Settings of the example: one app, one SQLite file, and jobs in that same file."""

import os
from pathlib import Path

import django

FOLDER = Path(__file__).resolve().parent.parent
SECRET_KEY = os.environ.get("SECRET_KEY", "only for the example")
DEBUG = True
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "testserver"]
ROOT_URLCONF = "bakery.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["taskharbor.django", "bakery"]
if django.VERSION < (6, 0):
    INSTALLED_APPS.append("django_tasks")

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("BAKERY_FILE", FOLDER / "bakery.sqlite3"),
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},  # the server and the worker write to one file: wait, do not fail
    }
}
TASKS = {
    "default": {
        "BACKEND": "taskharbor.django.TaskHarborBackend",
        "QUEUES": ["default", "oven"],
        "OPTIONS": {"database": "default", "defaults": {"max_attempts": 5, "timeout": 60}},
    }
}

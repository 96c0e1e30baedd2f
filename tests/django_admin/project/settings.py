"""A Django project with the admin and TaskHarbor, for the servers of these tests. FOLDER: where its database is."""

import os
from pathlib import Path

FOLDER = Path(os.environ["FOLDER"])
SECRET_KEY = "only for tests"
ALLOWED_HOSTS = ["127.0.0.1", "shop.test"]
USE_X_FORWARDED_HOST = True
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
ROOT_URLCONF = "urls"
USE_TZ = True
STATIC_URL = "static/"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # quick, for tests
SESSION_SAVE_EVERY_REQUEST = True  # so that every response has the cookie of the session
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "taskharbor.django",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": FOLDER / "shop.db",
        "ATOMIC_REQUESTS": True,
        # Each transaction takes the lock for writing at once, as many projects have it: a view that waited for another
        # connection inside of one would wait for itself.
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;",
        },
    }
}
TASKS = {
    "default": {
        "BACKEND": "taskharbor.django.TaskHarborBackend",
        "QUEUES": [],
        "OPTIONS": {"database": "default"},
    },
    "other": {"BACKEND": "taskharbor.django.TaskHarborBackend", "OPTIONS": {"dsn": f"sqlite:///{FOLDER}/other.db"}},
}

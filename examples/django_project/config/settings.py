"""The settings of a small shop. What is there for Watchbill stands at the end."""

import os

import django

SECRET_KEY = "only an example"
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
TIME_ZONE = "UTC"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ.get("PGDATABASE", "shop"),
        "USER": os.environ.get("PGUSER", "postgres"),
        "PASSWORD": os.environ.get("PGPASSWORD", ""),
        "HOST": os.environ.get("PGHOST", "127.0.0.1"),
        "PORT": os.environ.get("PGPORT", ""),
    }
}

INSTALLED_APPS = [
    "watchbill.integrations.django",
    "shop",
]

# Nothing here is needed; every setting of Watchbill can be.
WATCHBILL = {"CONCURRENCY": 8}

# Django 6 has tasks of its own; Watchbill runs them as well.
if django.VERSION >= (6, 0):
    INSTALLED_APPS.append("newsletter")
    TASKS = {"default": {"BACKEND": "watchbill.integrations.django.backend.WatchbillBackend"}}

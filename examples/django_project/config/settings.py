"""The settings of a small shop. The settings for Watchbill are at the end."""

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

# Optional: every setting of Watchbill can be given here.
WATCHBILL = {"CONCURRENCY": 8}

# Watchbill also runs the tasks of Django 6.
if django.VERSION >= (6, 0):
    INSTALLED_APPS.append("newsletter")
    TASKS = {"default": {"BACKEND": "watchbill.integrations.django.backend.WatchbillBackend"}}

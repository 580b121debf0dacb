"""The settings of a small shop. What is there for Foliot stands at the end."""

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
    "foliot.integrations.django",
    "shop",
]

# Nothing here is needed; every setting of Foliot can be.
FOLIOT = {"CONCURRENCY": 8}

# Django 6 has tasks of its own; Foliot runs them as well.
if django.VERSION >= (6, 0):
    INSTALLED_APPS.append("newsletter")
    TASKS = {"default": {"BACKEND": "foliot.integrations.django.backend.FoliotBackend"}}

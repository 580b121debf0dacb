"""A project whose database is named in SITE_DATABASE, SITE_HOST and SITE_USER."""

import os

import django

SECRET_KEY = "a test's"
DEBUG = False
USE_TZ = True
ROOT_URLCONF = "project.urls"
INSTALLED_APPS = ["watchbill.integrations.django", "shop"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    alias: {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ["SITE_DATABASE"] + suffix,
        "USER": os.environ["SITE_USER"],
        "HOST": os.environ["SITE_HOST"],
        "OPTIONS": {"connect_timeout": 10},
    }
    for alias, suffix in (("default", ""), ("other", "_other"))
}
WATCHBILL = {"LEASE": "5s"}
if django.VERSION >= (6, 0):
    TASKS = {
        "default": {"BACKEND": "watchbill.integrations.django.backend.WatchbillBackend", "QUEUES": ["default", "mail"]},
        "once": {
            "BACKEND": "watchbill.integrations.django.backend.WatchbillBackend",
            "OPTIONS": {"retry": {"max_attempts": 1}, "timeout": 5},
        },
    }

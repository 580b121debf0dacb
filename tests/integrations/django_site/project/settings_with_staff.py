"""The project with people who log in."""

from project.settings import *  # noqa: F403
from project.settings import INSTALLED_APPS as _APPS

INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions", *_APPS]

"""With an app from elsewhere, whose tasks are for another queue that is not installed."""

from project.settings import *  # noqa: F403
from project.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "elsewhere"]
WATCHBILL = {"SCHEMA": "watchbill"}

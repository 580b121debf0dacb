"""Watchbill in a Django project: add "watchbill.integrations.django" to INSTALLED_APPS. See docs/howto/django.md.

application.py  the project's App: jobs are enqueued through Django's own connection, in its transaction;
                  closes Django's connections after a task
configuration.py  the setting WATCHBILL, and the address in DATABASES
discovery.py    imports the tasks.py of each installed app
backend.py      for django.tasks (Django 6): TASKS = {"default": {"BACKEND": "...backend.WatchbillBackend"}}
dashboard.py    the dashboard beside the site, for its staff
runner.py       runs a Django task as a handler, and reads a job as Django's TaskResult
hooks.py        what Django calls: `manage.py migrate` also makes our schema; `manage.py check`
management/     `manage.py watchbill ...`
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from watchbill.integrations.django.application import app

__all__ = ["app"]


def __getattr__(name: str) -> Any:
    """Imports the App at its first use: Django imports this package before its settings and models are ready."""
    if name != "app":
        raise AttributeError(f"module 'watchbill.integrations.django' has no attribute {name!r}")
    from importlib import import_module

    return import_module("watchbill.integrations.django.application").app

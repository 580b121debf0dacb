"""Watchbill in a Django project: add "watchbill.integrations.django" to INSTALLED_APPS. docs/howto/django.md shows the rest.

application.py  the project's App: jobs are enqueued through Django's own connection, in its transaction
configuration.py  the setting WATCHBILL, and the address in DATABASES
connections.py  Django's connections around a task; clients that leave none behind in tests
discovery.py    finds the tasks.py of each installed app
backend.py      for django.tasks (Django 6): TASKS = {"default": {"BACKEND": "...backend.WatchbillBackend"}}
results.py      a job as Django's TaskResult
schema.py       `manage.py migrate` brings our schema too; a test database gets one that a test can empty
checks.py       what `manage.py check` says
management/     `manage.py watchbill ...`
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from watchbill.integrations.django.application import app

__all__ = ["app"]


def __getattr__(name: str) -> Any:
    """Imported when first asked for: Django imports this package before its settings and models are there."""
    if name != "app":
        raise AttributeError(f"module 'watchbill.integrations.django' has no attribute {name!r}")
    from importlib import import_module

    return import_module("watchbill.integrations.django.application").app

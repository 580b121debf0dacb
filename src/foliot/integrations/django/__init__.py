"""Foliot in a Django project: add "foliot.integrations.django" to INSTALLED_APPS. docs/howto/django.md shows the rest.

application.py  the project's App: jobs are enqueued through Django's own connection, in its transaction
configuration.py  the setting FOLIOT, and the address in DATABASES
connections.py  Django's connections around a task; clients that leave none behind in tests
discovery.py    finds the tasks.py of each installed app
backend.py      for django.tasks (Django 6): TASKS = {"default": {"BACKEND": "...backend.FoliotBackend"}}
results.py      a job as Django's TaskResult
schema.py       `manage.py migrate` brings our schema too; a test database gets one that a test can empty
checks.py       what `manage.py check` says
management/     `manage.py foliot ...`
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foliot.integrations.django.application import app

__all__ = ["app"]


def __getattr__(name: str) -> Any:
    """Imported when first asked for: Django imports this package before its settings and models are there."""
    if name != "app":
        raise AttributeError(f"module 'foliot.integrations.django' has no attribute {name!r}")
    from importlib import import_module

    return import_module("foliot.integrations.django.application").app

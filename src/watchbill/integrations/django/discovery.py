"""Imports the `tasks.py` of each installed app, and the URLconf, so that every task that a view enqueues is known.

This happens only in a worker. A web process needs only the tasks that its views import; and an app of other people may
have a `tasks.py` for another queue, which must not keep a site from starting.
"""

from __future__ import annotations

import logging
import traceback
from importlib import import_module

import django
from django.apps import apps
from django.conf import settings
from django.utils.module_loading import module_has_submodule

from watchbill.errors import WatchbillError
from watchbill.integrations.django import configuration


class BrokenTasks(WatchbillError):
    """The tasks.py of an installed app cannot be imported."""

    exit_code = 4


def discover() -> None:
    if not apps.ready:
        django.setup()
        _enable_loggers()
    wanted = configuration.read_option("DISCOVER")
    for config in apps.get_app_configs():
        if (wanted is None or config.name in wanted) and module_has_submodule(config.module, "tasks"):
            _import_tasks(f"{config.name}.tasks")
    if wanted is None and (urls := getattr(settings, "ROOT_URLCONF", None)):
        _import_tasks(urls)


def _enable_loggers() -> None:
    """Enables Watchbill's loggers again. Django's LOGGING disables all loggers that exist before it, unless it says
    otherwise, and Watchbill's exist before it."""
    for name, logger in logging.root.manager.loggerDict.items():
        if name.partition(".")[0] == "watchbill" and isinstance(logger, logging.Logger):
            logger.disabled = False


def _import_tasks(module: str) -> None:
    try:
        import_module(module)
    except Exception as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_file_of_user(frame.filename)]
        text = "".join(traceback.format_list(frames) + traceback.format_exception_only(error)).rstrip()
        raise BrokenTasks(
            f"{module} was found, but importing it failed:\n\n{text}\n",
            hint='If its tasks are not for Watchbill, name the apps whose are: WATCHBILL = {"DISCOVER": ["shop"]}.',
        ) from error


def _is_file_of_user(filename: str) -> bool:
    return "importlib" not in filename and filename != __file__

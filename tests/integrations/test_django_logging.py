"""Django configures loggers of its own; a worker prints what they print once."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import logging
import django
from django.conf import settings
from watchbill.telemetry.logs import configure

configure("info", "{form}")
settings.configure(DEBUG={debug}, LOGGING={{
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {{"console": {{"class": "logging.StreamHandler"}}}},
    "loggers": {{"shop": {{"handlers": ["console"], "level": "INFO"}}}},
}})
django.setup()
for name in ("django.server.other", "django.tasks", "shop.orders", "other"):
    logging.getLogger(name).info("hello from %s", name)
"""


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("debug", [True, False])
def test_lines_of_a_framework_appear_once(form: str, debug: bool) -> None:
    """Django's own console is silent unless DEBUG is set: then the worker's log has its lines."""
    program = PROGRAM.format(form=form, debug=debug)
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stderr
    for name in ("django.tasks", "shop.orders", "other"):
        assert said.count(f"hello from {name}") == 1, said

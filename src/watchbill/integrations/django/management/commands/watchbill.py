"""`manage.py watchbill ...`: the command `watchbill` for this project's App, on this project's database."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.core.management.base import BaseCommand

from watchbill.errors import WatchbillError
from watchbill.integrations.django import configuration

APP = "watchbill.integrations.django:app"
_DJANGO_OPTIONS = ("--settings", "--pythonpath")  # removed before Watchbill reads the rest: manage.py has applied them


class Command(BaseCommand):
    help = (
        "Runs Watchbill: worker, up, jobs, queues, db, doctor and so on; `manage.py watchbill --help` lists them all."
    )
    requires_system_checks: list[str] = []  # noqa: RUF012  (Django's name and way)

    def run_from_argv(self, argv: list[str]) -> None:
        """Passes all arguments to Watchbill, `--help` too, instead of letting Django read them."""
        run(_remove_django_options(argv[2:]))

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("words", nargs="*")

    def handle(self, *args: str, **options: Any) -> None:
        """Runs the command for Django's call_command, as in call_command("watchbill", "db", "migrate")."""
        try:
            run(options["words"])
        except SystemExit as end:
            if end.code:
                raise


def run(words: list[str]) -> None:
    """Runs the command in this process. Sets environment variables, so that processes that it starts have the same
    settings."""
    from watchbill.cli import main

    given = _read_given_settings()
    variables = {f"WATCHBILL_{name.upper()}": _as_text(value) for name, value in given.items() if name != "origins"}
    variables["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(path for path in sys.path if path))
    before = sys.argv, dict(os.environ)
    sys.argv = ["watchbill", *words]
    os.environ.update({"WATCHBILL_APP": APP, **variables})
    try:
        main(prog_name="manage.py watchbill", given=given)
    finally:
        sys.argv = before[0]
        os.environ.clear()
        os.environ.update(before[1])


def _read_given_settings() -> dict[str, Any]:
    try:
        return configuration.read_given_settings()
    except WatchbillError as error:
        sys.stderr.write(f"Error: {error}\n")
        sys.exit(error.exit_code)


def _as_text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _remove_django_options(words: list[str]) -> list[str]:
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        if word in _DJANGO_OPTIONS:
            next(rest, None)
        elif not word.startswith(tuple(f"{name}=" for name in _DJANGO_OPTIONS)):
            kept.append(word)
    return kept

"""Django projects: tests/integrations/django_site has tests of its own, run by Django's runner and by pytest-django.

Here by each version of Django. The one that is installed beside us runs always; Django 6, which needs Python 3.12, in
an environment of its own; the oldest that is supported by `make test-long`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.environments import environment
from tests.servers import Server

SITE = Path(__file__).parent / "django_site"


class Site:
    """The project on a database of its own."""

    def __init__(self, python: Path, server: Server, database: str) -> None:
        self.python, self.server, self.database = python, server, database

    def __call__(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.python, "-W", "error", *words],
            cwd=SITE,
            env=self.environment(**variables),
            capture_output=True,
            text=True,
        )

    def environment(self, **variables: str) -> dict[str, str]:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("FOLIOT_", "DATABASE_URL", "PYTEST"))
        }
        ours = {"SITE_DATABASE": self.database, "SITE_USER": "postgres", "SITE_HOST": self.server.socket_directory}
        return {**inherited, **ours, **variables}


REQUIREMENTS = {
    "django-6": ("django>=6,<7", "gunicorn>=22", "pytest>=9,<10", "pytest-django>=4.9"),
    "django-4.2": ("django>=4.2,<5", "pytest>=9,<10", "pytest-django>=4.9"),
}


@pytest.fixture(params=["installed", "django-6", pytest.param("django-4.2", marks=pytest.mark.long)])
def python(request: pytest.FixtureRequest) -> Path:
    name = request.param
    if name == "installed":
        return Path(sys.executable)
    return environment(name, *REQUIREMENTS[name], at_least=(3, 12) if name == "django-6" else (3, 11))


@pytest.fixture
def site(python: Path, server: Server) -> Iterator[Site]:
    name = server.create_database()
    yield Site(python, server, name)
    server.drop_database(name)


@pytest.mark.timeout(400)  # the first time it makes the environment
def test_its_own_tests_pass(site: Site) -> None:
    done = site("manage.py", "test")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "OK" in done.stderr

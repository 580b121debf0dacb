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
            if not name.startswith(("WATCHBILL_", "DATABASE_URL", "PYTEST"))
        }
        ours = {"SITE_DATABASE": self.database, "SITE_USER": "postgres", "SITE_HOST": self.server.socket_directory}
        return {**inherited, **ours, **variables}


REQUIREMENTS = {
    "django-6": ("django>=6,<7", "gunicorn>=22", "pytest>=9,<10", "pytest-django>=4.9"),
    "django-4.2": ("django>=4.2,<5", "pytest>=9,<10", "pytest-django>=4.9"),
}


OTHERS = ["django-6", pytest.param("django-4.2", marks=pytest.mark.long)]


@pytest.fixture(params=["installed", *OTHERS])
def python(request: pytest.FixtureRequest) -> Path:
    name = request.param
    if name == "installed":
        return Path(sys.executable)
    return environment(name, *REQUIREMENTS[name], at_least=(3, 12) if name == "django-6" else (3, 11))


@pytest.fixture
def site(server: Server) -> Iterator[Site]:
    """On the Django that is installed."""
    name = server.create_database()
    yield Site(Path(sys.executable), server, name)
    server.drop_database(name)


@pytest.fixture
def sites(python: Path, site: Site) -> Site:
    """On each."""
    return Site(python, site.server, site.database)


@pytest.mark.timeout(400)  # the first time it makes the environment
def test_django_site_tests_pass(sites: Site) -> None:
    done = sites("manage.py", "test", "shop")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "OK" in done.stderr


def test_staff_of_a_site_use_the_dashboard(site: Site) -> None:
    done = site("manage.py", "test", "shop.test_dashboard", "--settings", "project.settings_with_staff")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stderr


@pytest.mark.long
def test_django_site_tests_pass_in_parallel(site: Site) -> None:
    """Each of Django's processes has a copy of the test database, and our schema in it."""
    done = site("manage.py", "test", "shop.test_enqueue", "shop.test_worker", "--parallel", "2")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long  # tests/docs/test_django_guide.py has two such tests each time
@pytest.mark.parametrize("python", OTHERS, indirect=True)  # here pytest-django would take part in all our own tests
def test_pytest_fixture_uses_the_django_test_database(sites: Site) -> None:
    done = sites("-m", "pytest", "-q", "pytests")
    assert done.returncode == 0, done.stdout + done.stderr


def test_manage_py_commands_use_the_database_of_the_project(site: Site) -> None:
    """As a person does: migrate, enqueue by hand, a worker with children, which logs as the project's LOGGING says."""
    assert "Watchbill: schema watchbill is at version" in site("manage.py", "migrate").stdout
    assert "(from DATABASES['default'])" in site("manage.py", "watchbill", "db", "status").stdout
    for number in (1, 2):
        assert (
            site("manage.py", "watchbill", "jobs", "enqueue", "shop.tasks.ship", f'{{"order": {number}}}').returncode
            == 0
        )
    done = site(
        "manage.py", "watchbill", "worker", "--once", "--processes", "2", "--settings", "project.settings_with_log"
    )
    assert done.returncode == 0, done.stderr
    assert "as LOGGING says: shop.tasks.ship has failed" in done.stdout
    assert "queues (default, mail, views)" in done.stdout
    broken = site("manage.py", "watchbill", "worker", "--once", "--settings=project.settings_with_broken_tasks")
    assert broken.returncode == 4
    assert 'elsewhere/tasks.py", line 1, in <module>' in broken.stderr
    assert 'WATCHBILL = {"DISCOVER": ["shop"]}' in broken.stderr
    assert len(broken.stderr.splitlines()) < 15


def test_hints_name_the_command_of_the_project(site: Site) -> None:
    missing = site("manage.py", "watchbill", "jobs")
    assert missing.returncode == 3
    assert "`manage.py watchbill db migrate`" in missing.stderr
    assert site("manage.py", "watchbill", "db", "migrate").returncode == 0
    empty = site("manage.py", "watchbill", "jobs")
    assert empty.stderr == "There are no jobs. To enqueue one: manage.py watchbill jobs enqueue TYPE\n"


def test_configuration_errors_fit_on_one_screen(site: Site) -> None:
    for settings, words, code in (
        ("project.settings", "Run `manage.py watchbill db migrate`", 3),
        ("project.settings_with_sqlite", "is sqlite, but jobs are stored in PostgreSQL", 2),
    ):
        done = site("manage.py", "watchbill", "worker", "--once", f"--settings={settings}")
        assert done.returncode == code, done.stderr
        assert words in done.stderr
        assert len(done.stderr.splitlines()) < 15
    checked = site("manage.py", "check", "--settings=project.settings_with_sqlite")
    assert checked.returncode == 1
    assert "watchbill.E001" in checked.stderr

"""docs/howto/django.md is followed in a new Django 6 project: its files are written as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.environments import environment
from tests.integrations.test_django import REQUIREMENTS
from tests.servers import Server

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "django.md"
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)

# What the project has already.
_SETTINGS = """
import os
DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ["SITE_DATABASE"],
                         "USER": "postgres", "HOST": os.environ["SITE_HOST"]}}
INSTALLED_APPS += ["shop", "newsletter"]
if "MAILERS" in globals():
    MAILERS = {"default": {"BACKEND": "django.core.mail.backends.console.EmailBackend"}}
else:  # before Django 6.1
    EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
"""
_MODELS = """
from django.db import models

class Order(models.Model):
    item = models.CharField(max_length=50)
    email = models.EmailField()
    state = models.CharField(max_length=20, default="placed")
"""
_USE = """
from newsletter.services import is_sent, subscribe
from newsletter.tasks import count
from shop.services import place_order
from shop.tasks import ship

order = place_order("tea", "ada@example.org")
ship.enqueue(order.pk)
letter = subscribe("ada@example.org")
assert not is_sent(letter)
print(letter, count.enqueue(4).id)
"""


class Project:
    def __init__(self, python: Path, directory: Path, server: Server, database: str) -> None:
        self.python, self.directory = str(python), directory
        inherited = {n: v for n, v in os.environ.items() if not n.startswith(("WATCHBILL_", "PYTEST", "DATABASE_URL"))}
        place = {"SITE_DATABASE": database, "SITE_HOST": server.socket_directory}
        self.environment = inherited | place | {"DJANGO_SETTINGS_MODULE": "config.settings"}

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [self.python, *words], cwd=self.directory, env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def write(self, file: str, text: str) -> None:
        """What is said again of a file is added to it."""
        with (self.directory / file).open("a") as written:
            written.write(f"\n{text}")


@pytest.fixture
def project(server: Server, tmp_path: Path) -> Project:
    python = environment("django-6", *REQUIREMENTS["django-6"], at_least=(3, 12))
    project = Project(python, tmp_path, server, server.create_database())
    project.environment.pop("DJANGO_SETTINGS_MODULE")
    project.run("-m", "django", "startproject", "config", ".")
    for name in ("shop", "newsletter"):
        (tmp_path / name).mkdir()
        project.write(f"{name}/__init__.py", "")
    project.environment["DJANGO_SETTINGS_MODULE"] = "config.settings"
    project.write("config/settings.py", _SETTINGS)
    project.write("shop/models.py", _MODELS)
    return project


@pytest.mark.timeout(400)  # the first time it makes the environment
def test_django_guide_works_in_a_new_project(project: Project) -> None:
    commands = []
    for language, text in BLOCK.findall(PAGE.read_text()):
        if language == "sh":
            commands.append(text.strip())
        else:
            file = re.match(r"# (\S+\.py)\n", text)
            assert file, f"a block does not say which file it is:\n{text}"
            project.write(file[1], text)
    assert commands == ["python manage.py migrate", "python manage.py watchbill worker"]
    project.run("manage.py", "makemigrations", "shop")
    assert "Watchbill: schema watchbill is at version" in project.run("manage.py", "migrate")
    letter, counted = project.run("manage.py", "shell", "--verbosity", "0", "-c", _USE).split()
    said = project.run("manage.py", "watchbill", "worker", "--once", "--lines")
    assert said.count("succeeded") == 4, said
    assert "We have sent you tea." in said
    ask = f"""
from newsletter.services import is_sent
from newsletter.tasks import count
print(is_sent({letter!r}), count.get_result({counted!r}).return_value)
"""
    assert project.run("manage.py", "shell", "--verbosity", "0", "-c", ask).split() == ["True", "7"]
    assert "2 passed" in project.run("-m", "pytest", "-q", "shop/test_orders.py")
    project.run("manage.py", "test", "shop.tests", "--parallel", "2")
    compile((project.directory / "gunicorn.conf.py").read_text(), "gunicorn.conf.py", "exec")

"""The setting read_url: commands that only read use a standby, and say how old its data is."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer
from starlette.testclient import TestClient

from tests.acceptance.command import Watchbill
from tests.servers import Server
from watchbill import App
from watchbill.cli import _MODULES, replica
from watchbill.dashboard import Dashboard, open_to_all
from watchbill.postgres.embedded import EmbeddedServer
from watchbill.store.install import install

NOWHERE = "postgresql://postgres@127.0.0.1:1/postgres"

# What each reading command needs to show something.
WORDS = {
    "jobs show": ["ID"], "jobs steps": ["ID"], "jobs why": ["ID"], "jobs tree": ["ID"],
    "queues why": ["mail"], "types why": ["letter"], "tenants why": ["acme"], "tenants show": ["acme"],
    "schedules show": ["nightly"], "schedules history": ["nightly"], "schedules preview": ["nightly"],
    "schedules why": ["nightly"], "limits show": ["crm"], "nodes show": ["worker-1"], "cluster leader": [],
    "tokens show": ["tokens"], "tokens history": ["tokens"], "operations show": ["1"],
    "endpoints show": ["crm"], "top": ["--once"],
}  # fmt: skip
STORY = """
  SELECT watchbill.enqueue('letter', queue => 'mail', tenant => 'acme', run_at => now() + interval '1 hour');
  SELECT watchbill.register('worker-1', lease => '1 day');
  SELECT watchbill.add_schedule('nightly', '@daily', type => 'letter');
  SELECT watchbill.set_limit('crm', max => 3);
  SELECT watchbill.set_tenant('acme', '{"running": 3}');
  SELECT watchbill.declare_group('tokens', 10);
  SELECT watchbill.set_endpoint('crm', '{"base_url": "https://crm.example/"}');
  SELECT watchbill.start_operation('purge', '[{"field": "queue", "operator": "=", "values": ["none"]}]')"""


@pytest.fixture(scope="module")
def standby(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that is a standby, with a schema in which something happened."""
    project, programs = tmp_path_factory.mktemp("standby"), str(server.binaries.directory)
    with EmbeddedServer.acquire(project, binaries=programs, settings={"fsync": "off"}) as primary:
        install(primary.url, "watchbill", "jcron")
        with psycopg.connect(primary.url, autocommit=True) as connection:
            for statement in STORY.split(";"):
                connection.execute(statement.encode())
            data = Path(connection.execute("SHOW data_directory").fetchall()[0][0])
    (data / "standby.signal").touch()
    with EmbeddedServer.acquire(project, binaries=programs, settings={"fsync": "off"}) as copy:
        yield copy.url


@pytest.fixture
def watchbill(tmp_path: Path, schema_database: str) -> Watchbill:
    replica._told.clear()
    replica._silent_until.clear()
    return Watchbill(tmp_path, {"WATCHBILL_DATABASE_URL": schema_database})


def list_reading_commands() -> list[str]:
    found = list[str]()
    for name, place in _MODULES.items():
        module, _, attribute = place.partition(":")
        command: Any = typer.main.get_command(getattr(import_module(f"watchbill.cli.{module}"), attribute))
        parts = {f"{name} {each}": sub for each, sub in getattr(command, "commands", {}).items()} or {name: command}
        found += [words for words, each in parts.items() if getattr(each, "reads", False)]
    return found


def test_every_reading_command_reads_the_standby(watchbill: Watchbill, standby: str) -> None:
    with psycopg.connect(standby, autocommit=True) as connection:
        ((job,),) = connection.execute("SELECT id FROM watchbill.job").fetchall()
    for command in list_reading_commands():
        words = [str(job) if word == "ID" else word for word in WORDS.get(command, [])]
        replica._told.clear()
        said = watchbill.here(*command.split(), *words, WATCHBILL_READ_URL=standby)
        assert said.returncode in (0, 1), (command, said.stdout, said.stderr)
        assert "From a standby. Its last change is" in said.stderr, (command, said.stderr)
        assert "Error" not in said.stderr, (command, said.stderr)
    assert len(list_reading_commands()) > 40


def test_other_commands_and_jobs_use_the_primary(watchbill: Watchbill, standby: str) -> None:
    watchbill.here("limits", "set", "bank", "--max", "2", WATCHBILL_READ_URL=standby)
    assert "bank" in watchbill.here("limits", "list").stdout
    assert "letter" in watchbill.here("jobs", "list", WATCHBILL_READ_URL=standby).stdout
    assert "letter" not in watchbill.here("jobs", "list").stdout


def test_a_standby_that_does_not_answer_is_left_out(watchbill: Watchbill) -> None:
    said = watchbill.here("queues", "list", WATCHBILL_READ_URL=NOWHERE)
    assert said.returncode == 0
    assert said.stderr.startswith("read_url does not answer, so this is from database_url. Cannot connect")
    assert said.stderr.count("read_url") == 1


def test_a_primary_in_read_url_is_read_without_a_word(watchbill: Watchbill, schema_database: str) -> None:
    said = watchbill.here("queues", "list", WATCHBILL_READ_URL=schema_database)
    assert (said.returncode, "standby" in said.stderr) == (0, False)


def test_the_dashboard_reads_the_standby_and_shows_the_age_of_its_data(standby: str, schema_database: str) -> None:
    app = App(schema_database, read_url=standby)
    with TestClient(Dashboard(app, auth=open_to_all), base_url="http://127.0.0.1:8484") as client:
        page = client.get("/jobs")
        assert (page.status_code, "letter" in page.text) == (200, True)
        assert 'id="data_age"' in page.text
        assert client.get("/api/v1/jobs").json()["items"] == [], "programs see what they have just written"
        token = client.get("/api/v1/").json()["form_token"]
        answer = client.post("/api/v1/jobs", json={"type": "parcel"}, headers={"X-Form-Token": token})
        assert answer.status_code == 201
        page = client.get("/jobs")
        assert "parcel" in page.text, "people see what they have just done"
        assert 'id="data_age"' not in page.text


def test_the_dashboard_goes_on_without_the_standby(schema_database: str) -> None:
    app = App(schema_database, read_url=NOWHERE)
    with TestClient(Dashboard(app, auth=open_to_all), base_url="http://127.0.0.1:8484") as client:
        page = client.get("/jobs")
    assert (page.status_code, 'id="data_age"' in page.text) == (200, False)

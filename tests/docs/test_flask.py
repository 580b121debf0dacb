"""docs/howto/flask.md: its tests pass, and a worker of its own process ships an order of a request."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import psycopg

from tests.docs.programs import blocks, environment, run_program

PAGE = "howto/flask.md"
_SERVE = """
from shop import create_app
from shop.jobs import app
from shop.models import db

flask_app = create_app()
with flask_app.app_context():
    db.create_all()
placed = flask_app.test_client().post("/orders", json={"item": "tea"}).json
print(placed["job"])
with app.node():
    print(app.jobs.get(placed["job"]).state in ("queued", "running", "succeeded"))
    jobs = [app.enqueue("shop.jobs.ship", {"order_id": placed["order"]}, queue="orders") for _ in range(20)]
    print({job.result(timeout=30) for job in jobs})
"""


def write_files(directory: Path) -> None:
    (directory / "shop").mkdir()
    for text in blocks(PAGE):
        file = re.match(r"# (\S+\.py)\n", text)
        assert file, f"a block does not say which file it is:\n{text}"
        (directory / file[1]).write_text(text)


def test_flask_guide_example_tests_pass(database: str, tmp_path: Path) -> None:
    write_files(tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "--watchbill-database-url", database]
    done = subprocess.run(command, cwd=tmp_path, env=environment({}), capture_output=True, text=True, check=False)
    assert "3 passed" in done.stdout, done.stdout


def test_flask_guide_application_ships_orders(schema_database: str, tmp_path: Path) -> None:
    write_files(tmp_path)
    lines = run_program(_SERVE, tmp_path, {"DATABASE_URL": schema_database}).splitlines()
    assert lines[1:] == ["True", "{'tea is on its way'}"]
    with psycopg.connect(schema_database) as connection:
        assert connection.execute("SELECT item, state FROM orders").fetchall() == [("tea", "shipped")]
        states = connection.execute("SELECT DISTINCT state FROM watchbill.job").fetchall()
    assert states == [("succeeded",)]


def test_flask_guide_settings_lead_to_the_app(schema_database: str, tmp_path: Path) -> None:
    write_files(tmp_path)
    [text] = blocks(PAGE, "toml")
    (tmp_path / "watchbill.toml").write_text(text)
    command = [str(Path(sys.executable).parent / "watchbill"), "jobs", "enqueue", "shop.jobs.shipp"]
    address = environment({"DATABASE_URL": schema_database})
    done = subprocess.run(command, cwd=tmp_path, env=address, capture_output=True, text=True, check=False)
    assert "Did you mean shop.jobs.ship?" in done.stderr, done.stderr

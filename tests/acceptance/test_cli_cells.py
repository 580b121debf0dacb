"""`--cell NAME` and `--cell all`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.command import Watchbill
from tests.servers import Server
from tests.store.conftest import template

CODE = """
from watchbill import App

app = App(name="shop", cell_from=lambda tenant: "b" if tenant == "bolt" else "a")

@app.task(type="letter", queue="mail")
async def letter():
    print("ran", flush=True)
"""


@pytest.fixture
def watchbill(server: Server, tmp_path: Path) -> Iterator[Watchbill]:
    names = {cell: server.create_database(template(server)) for cell in ("a", "b")}
    lines = [f"{cell} = {json.dumps(server.url(name))}" for cell, name in names.items()]
    (tmp_path / "watchbill.toml").write_text("\n".join(["[cells]", *lines]) + "\n")
    (tmp_path / "app.py").write_text(CODE)
    yield Watchbill(tmp_path)
    for name in names.values():
        server.drop_database(name)


def test_commands_name_a_cell_or_all_of_them(watchbill: Watchbill) -> None:
    refused = watchbill.here("queues", "list")
    assert refused.returncode == 2
    assert "This project has several cells, and the command names none." in refused.stderr
    assert "Add --cell: a, b." in refused.stderr
    assert "There is no cell 'c'" in watchbill.here("queues", "list", "--cell", "c").stderr
    for cell in ("a", "b", "b"):
        assert watchbill.here("jobs", "enqueue", "letter", "--cell", cell).returncode == 0
    rows = [line.split() for line in watchbill.here("queues", "list", "--cell", "all").stdout.splitlines()]
    assert rows[0][:2] == ["cell", "queue"]
    ready = rows[0].index("ready")
    assert [(row[0], row[1], row[ready]) for row in rows[1:]] == [("a", "mail", "1"), ("b", "mail", "2")]
    jobs = json.loads(watchbill.here("jobs", "list", "--cell=all", "--json").stdout)
    assert [job["cell"] for job in jobs] == ["a", "b", "b"]
    assert "works in one cell" in watchbill.here("jobs", "show", jobs[0]["id"], "--cell", "all").stderr
    assert watchbill.here("jobs", "show", jobs[0]["id"], "--cell", "a").returncode == 0
    for words in (
        ("nodes",),
        ("dead",),
        ("dead", "groups"),
        ("schedules",),
        ("stats",),
        ("db", "status"),
        ("db", "migrate"),
    ):
        said = watchbill.here(*words, "--cell", "all")
        assert said.returncode == 0, said.stderr
    assert watchbill.here("nodes", "--cell", "all").stderr.count("\n") == 1, "an empty list is said once"
    assert "cell b" in watchbill.here("doctor", "--cell", "all").stdout


def test_a_cell_that_does_not_answer_hides_no_other(watchbill: Watchbill) -> None:
    watchbill.here("jobs", "enqueue", "letter", "--cell", "a")
    settings = watchbill.directory / "watchbill.toml"
    first, second, _ = settings.read_text().splitlines()
    settings.write_text(f'{first}\n{second}\nb = "postgresql://postgres@127.0.0.1:1/shop"\n')
    said = watchbill.here("queues", "list", "--cell", "all")
    assert said.returncode == 3
    assert "mail" in said.stdout
    assert "cell b: Cannot connect" in said.stderr


def test_a_worker_serves_one_cell_or_runs_a_process_for_each(watchbill: Watchbill) -> None:
    for cell in ("a", "b"):
        watchbill.here("jobs", "enqueue", "letter", "--cell", cell)
    assert watchbill.here("worker", "--once").returncode == 2
    one = watchbill("worker", "--once", "--cell", "b")
    assert (one.returncode, one.stdout.count("ran\n")) == (0, 1), one.stderr
    both = watchbill("worker", "--once", "--cell", "all")
    assert (both.returncode, both.stdout.count("ran\n")) == (0, 1), both.stderr
    rows = json.loads(watchbill.here("nodes", "list", "--all", "--cell", "all", "--json").stdout)
    assert [row["cell"] for row in rows] == ["a", "b", "b"]

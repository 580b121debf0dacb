"""`watchbill worker --label` and `watchbill nodes`: what a node has is seen by all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.command import Watchbill

PROGRAM = """
from watchbill import App

app = App()


@app.task(type="hello")
async def hello() -> None: ...
"""


@pytest.fixture
def watchbill(tmp_path: Path, schema_database: str) -> Watchbill:
    (tmp_path / "shop.py").write_text(PROGRAM)
    return Watchbill(tmp_path, {"WATCHBILL_DATABASE_URL": schema_database})


def test_labels_and_capacity_of_a_worker_are_listed(watchbill: Watchbill) -> None:
    words = ("--once", "--name", "n1", "--concurrency", "3", "--label", "gpu=a100", "--label", "zone=eu")
    done = watchbill("worker", "shop:app", *words)
    assert done.returncode == 0, done.stderr
    (node,) = json.loads(watchbill.here("nodes", "--all", "--json").stdout)
    assert (node["name"], node["capacity"]) == ("n1", 3)
    assert node["labels"] == {"gpu": "a100", "zone": "eu"}
    assert node["queues"] == ["default"]
    assert "gpu=a100, zone=eu" in watchbill.here("nodes", "--all").stdout


def test_a_label_without_a_value_is_refused(watchbill: Watchbill) -> None:
    done = watchbill("worker", "shop:app", "--once", "--label", "gpu")
    assert done.returncode == 2
    assert "Setting labels=['gpu'] is invalid" in done.stderr


def test_a_worker_takes_over_the_name_of_a_living_node_when_asked(watchbill: Watchbill, schema_database: str) -> None:
    import psycopg

    with psycopg.connect(schema_database, autocommit=True) as connection:
        connection.execute("SELECT watchbill.register('n1', '1 day')")
        done = watchbill("worker", "shop:app", "--once", "--name", "n1", "--take-over")
        assert done.returncode == 0, done.stderr
        states = connection.execute("SELECT state FROM watchbill.nodes ORDER BY epoch").fetchall()
    assert states == [("lost",), ("left",)]

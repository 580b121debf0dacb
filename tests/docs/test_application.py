"""docs/howto/application.md is a program in several files; what it says happens, happens."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg

from tests.docs.programs import DOCS, blocks, run_program
from watchbill.telemetry.events import EVENTS

PAGE = "howto/application.md"
_AT_THE_END = """
print(sorted(around.seen))
"""


def test_application_guide_program_runs(schema_database: str, tmp_path: Path) -> None:
    for text in blocks(PAGE):
        named = re.match(r"# (\w+\.py)\n", text)
        assert named
        (tmp_path / named[1]).write_text(text)
    program = (tmp_path / "program.py").read_text() + _AT_THE_END
    said = run_program(program, tmp_path, {"DATABASE_URL": schema_database}).splitlines()
    assert said[0] == "['hello to a@b.c', Decimal('2.00'), 7, 'r-7']"
    assert said[1] == "charged 1 times"
    assert "('mail.send', 'succeeded')" in said[2]
    assert "'mail.send begins', 'mail.send ends', 'mail.send is new'" in said[3]
    with psycopg.connect(schema_database) as connection:
        rows = connection.execute("SELECT type, created_by, result FROM watchbill.job ORDER BY type").fetchall()
    assert rows == [
        ("billing.bill", "the shop", "2.00"),
        ("mail.send", "the shop", "hello to a@b.c"),
        ("request.traced", "the shop", "r-7"),
        ("resources.charge", "the shop", 7),
    ]


def test_application_guide_names_only_existing_events() -> None:
    assert set(re.findall(r"`((?:job|node)_\w+)`", (DOCS / PAGE).read_text())) <= EVENTS

"""Every .sql file of the package is laid out as CONTRIBUTING.md says, and `ls` finds every public function."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

import watchbill
from tests.architecture.sql_layout import complaints

PACKAGE = Path(watchbill.__file__).parent
FILES = sorted(PACKAGE.rglob("*.sql"))
LONGEST_FILE = 500


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_file_is_laid_out_alike(file: Path) -> None:
    text = file.read_text()
    assert [f"{file.name}:{number} {what}" for number, what in complaints(text)] == []
    assert text.endswith("\n")
    assert len(text.splitlines()) <= LONGEST_FILE


def test_a_file_is_named_after_every_public_function(schema_database: str) -> None:
    made_in: dict[str, set[str]] = {}
    for file in (PACKAGE / "store" / "sql").rglob("*.sql"):
        for name in re.findall(r"CREATE OR REPLACE FUNCTION (\w+)", file.read_text()):
            made_in.setdefault(name, set()).add(file.name)
    with psycopg.connect(schema_database) as connection:
        names = connection.execute(
            "SELECT DISTINCT proname FROM pg_proc WHERE pronamespace = 'watchbill'::regnamespace"
        ).fetchall()
    public = [name for (name,) in names if not name.startswith("_")]
    assert len(public) > 50
    assert {name: made_in[name] for name in public if not any(name in file for file in made_in[name])} == {}


def test_the_lock_class_of_python_is_the_one_of_sql() -> None:
    """Elsewhere the functions of foundation/lock_classes.sql stand for the numbers."""
    classes = (PACKAGE / "store" / "sql" / "foundation" / "lock_classes.sql").read_text()
    in_sql = dict(re.findall(r"FUNCTION _lock_class_(\w+)\(\).*?RETURN (\d+);", classes, re.DOTALL))
    assert in_sql.keys() == {"wakeup", "partitions", "declarations", "turns"}
    files = [*PACKAGE.rglob("*.py"), *FILES]
    found = [
        number
        for file in files
        if file.name != "lock_classes.sql"
        for number in re.findall(r"\d+", file.read_text())
        if number in in_sql.values()
    ]
    assert found == [in_sql["wakeup"]]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a FROM b WHERE c;",
        "SELECT a\nFROM b\nWHERE c\n  AND EXISTS (SELECT FROM d WHERE e)\nORDER BY a;",
        "SELECT a FROM b\nUNION ALL\nSELECT c FROM d;",
        "WITH a AS (\n  SELECT b FROM c)\nSELECT b\nFROM a;",
        "x := ARRAY(\n  SELECT a\n  FROM (SELECT DISTINCT b FROM c) d\n  FOR UPDATE SKIP LOCKED);",
        "-- select from where\nSELECT 'from b where', extract(epoch FROM a) IS DISTINCT FROM 1\nFROM b;",
        "FOR day IN SELECT n FROM generate_series(0, 7) n LOOP",
        "INSERT INTO a\nVALUES (1)\nON CONFLICT (b) DO UPDATE\nSET c = 1;",
        "CREATE OR REPLACE FUNCTION a()\nRETURNS int\nLANGUAGE sql\nSET search_path FROM CURRENT\nAS $$ SELECT 1 $$;",
    ],
)
def test_the_check_allows(text: str) -> None:
    assert list(complaints(text)) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("SELECT a\n" + "FROM " + "b" * 96 + ";", 2),
        ("SELECT a;\n\tSELECT b;", 2),
        ("SELECT a \nFROM b;", 1),
        ("SELECT a\nfrom b;", 2),
        ("SELECT a FROM b\nWHERE c;", 1),
        ("SELECT a\nFROM b WHERE c;", 2),
        ("SELECT a\nFROM b JOIN c ON d;", 2),
        ("SELECT a\nFROM b\nORDER BY c LIMIT 1 FOR UPDATE;", 3),
        ("SELECT a\nFROM (SELECT b FROM c\n  WHERE d) e;", 2),
        ("CREATE OR REPLACE FUNCTION a() RETURNS int LANGUAGE sql\nRETURN 1;", 1),
    ],
)
def test_the_check_finds(text: str, line: int) -> None:
    assert [number for number, _ in complaints(text)] == [line]

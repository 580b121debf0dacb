"""Cutting SQL text at the semicolons that end statements, and at no others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchbill.postgres.migration_files import split_statements

# Each has a semicolon in a place where it ends nothing.
PIECES = [
    "SELECT ';'",
    "SELECT 'it''s;'",
    r"SELECT '\'",
    r"SELECT E'\';'",
    r"SELECT e'a\\'",
    "SELECT name'a;b'",
    'SELECT ";" FROM "a"";b"',
    "SELECT $$;$$",
    "SELECT $a$ $$ ; $b$ ; $a$",
    "SELECT $größe$;$größe$",
    "SELECT a$b$c",
    "DO $$ BEGIN PERFORM 1; END $$",
    "SELECT 1 -- ; ' \"\n + 1",
    "SELECT 1 /* ; /* ; */ ' ; */ + 1",
    "CREATE RULE r AS ON DELETE TO t DO INSTEAD (SELECT 1; SELECT 2)",
    "SELECT $1",
    "SELECT 'a;\n'\n';b'",
]


@pytest.mark.parametrize("piece", PIECES)
def test_semicolon_inside_a_statement_does_not_end_it(piece: str) -> None:
    assert list(split_statements(f"{piece};\nVACUUM;")) == [piece, "VACUUM"]


@given(st.lists(st.sampled_from(PIECES)))
def test_split_returns_statements_in_order(pieces: list[str]) -> None:
    assert list(split_statements("\n;\n".join(pieces))) == pieces


@pytest.mark.parametrize("text", ["", " \n", ";", ";;\n;", "-- only a comment", "/* ; */ ;", "-- a;\n;"])
def test_text_without_a_statement_is_split_into_nothing(text: str) -> None:
    assert list(split_statements(text)) == []


def test_a_comment_stays_with_what_follows_it() -> None:
    assert list(split_statements("-- why\nSELECT 1; -- after\nSELECT 2 -- end")) == [
        "-- why\nSELECT 1",
        "-- after\nSELECT 2 -- end",
    ]


@given(st.text(alphabet="ab;'\"$-/*()e\\ \n"))
def test_split_returns_parts_of_the_text_in_order(text: str) -> None:
    position = 0
    for piece in split_statements(text):
        position = text.index(piece, position) + len(piece)

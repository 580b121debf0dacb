"""Cutting SQL text at the semicolons that end statements, and at no others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchbill.postgres.statements import split

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
def test_a_semicolon_inside_ends_nothing(piece: str) -> None:
    assert list(split(f"{piece};\nVACUUM;")) == [piece, "VACUUM"]


@given(st.lists(st.sampled_from(PIECES)))
def test_statements_come_back_in_order(pieces: list[str]) -> None:
    assert list(split("\n;\n".join(pieces))) == pieces


@pytest.mark.parametrize("text", ["", " \n", ";", ";;\n;", "-- only a comment", "/* ; */ ;", "-- a;\n;"])
def test_nothing_is_no_statement(text: str) -> None:
    assert list(split(text)) == []


def test_a_comment_stays_with_what_follows_it() -> None:
    assert list(split("-- why\nSELECT 1; -- after\nSELECT 2 -- end")) == [
        "-- why\nSELECT 1",
        "-- after\nSELECT 2 -- end",
    ]


@given(st.text(alphabet="ab;'\"$-/*()e\\ \n"))
def test_any_text_is_cut_into_pieces_of_itself(text: str) -> None:
    position = 0
    for piece in split(text):
        position = text.index(piece, position) + len(piece)

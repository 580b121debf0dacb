"""Frequencies in SQL are Python's, word for word."""

from __future__ import annotations

import psycopg

from tests.unit.cron.test_explain import PATTERNS


def test_documented_patterns_are_explained_word_for_word(schema_database: str) -> None:
    query = "SELECT jcron.get_frequency(p) FROM unnest(%s::text[]) WITH ORDINALITY u(p, i) ORDER BY i"
    with psycopg.connect(schema_database, autocommit=True) as sql:
        found = sql.execute(query, ([pattern for pattern, _ in PATTERNS],)).fetchall()
    for (pattern, text), (frequency,) in zip(PATTERNS, found, strict=True):
        assert frequency == text.strip().partition(":")[0], pattern

"""Rules that hold for every function of the real schema, whoever adds one."""

from __future__ import annotations

import psycopg


def test_every_function_pins_its_search_path(schema_database: str) -> None:
    """Else a caller's search_path decides what a function reads, and a SECURITY DEFINER one can be subverted."""
    query = """
        SELECT p.oid::regprocedure::text, p.proconfig::text FROM pg_proc p
        WHERE p.pronamespace = 'foliot'::regnamespace
          AND NOT coalesce('search_path=foliot, pg_temp' = ANY (p.proconfig), false)
          AND p.prosqlbody IS NULL  -- a RETURN body was parsed when it was made: no search_path matters to it
        ORDER BY 1
    """
    with psycopg.connect(schema_database) as connection:
        assert connection.execute(query).fetchall() == []

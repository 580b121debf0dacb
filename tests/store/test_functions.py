"""Rules that hold for every function of the real schema, whoever adds one."""

from __future__ import annotations

from importlib.resources import files

import psycopg
import pytest

from watchbill.errors import SchemaError
from watchbill.postgres.function_settings import FunctionSettings

SETTINGS = FunctionSettings.read(files("watchbill.store") / "settings.txt")

UNPINNED = """
    SELECT p.oid FROM pg_proc p
    WHERE p.pronamespace = 'watchbill'::regnamespace
      AND NOT coalesce('search_path=watchbill, pg_temp' = ANY (p.proconfig), false)
      AND p.prosqlbody IS NULL  -- a RETURN body was parsed when it was made: no search_path matters to it
"""


def test_every_function_pins_its_search_path(schema_database: str) -> None:
    """Else a caller's search_path decides what a function reads, and a SECURITY DEFINER one can be subverted. The parts
    of the cron reader have the path of their only callers, since each change of it takes time. In
    _enqueue_plain and _save_result every name has a schema, for the same reason: see test_rights.py."""
    query = f"""
        SELECT p.oid::regprocedure::text, p.proconfig::text FROM pg_proc p
        WHERE p.oid IN ({UNPINNED}) AND p.proname NOT IN ('_enqueue_plain', '_save_result')
          AND (p.proname !~ '^_cron_' OR p.prosecdef OR p.proconfig IS NOT NULL)
        ORDER BY 1
    """
    with psycopg.connect(schema_database) as connection:
        assert connection.execute(query.encode()).fetchall() == []


def test_functions_without_search_path_are_not_used_in_return_bodies(schema_database: str) -> None:
    """A RETURN body is put in the place of its call, and would bring the path of whoever called it."""
    query = f"""
        SELECT d.objid::regprocedure::text, d.refobjid::regprocedure::text FROM pg_depend d
        WHERE d.refclassid = 'pg_proc'::regclass AND d.refobjid IN ({UNPINNED}) ORDER BY 1
    """
    with psycopg.connect(schema_database) as connection:
        assert connection.execute(query.encode()).fetchall() == []


def test_every_function_has_the_planner_settings_of_the_list(schema_database: str) -> None:
    """CREATE OR REPLACE takes settings away, so the migrator applies the list each time."""
    query = """
        SELECT p.proname, array_agg(s.setting) FROM pg_proc p CROSS JOIN LATERAL unnest(p.proconfig) s(setting)
        WHERE p.pronamespace = 'watchbill'::regnamespace
          AND s.setting ~ '^(plan_cache_mode|jit|enable_\\w+|max_parallel_\\w+)='
        GROUP BY p.oid, p.proname
    """
    with psycopg.connect(schema_database) as connection:
        rows = connection.execute(query.encode()).fetchall()
    found = {name: dict(one.split("=") for one in settings) for name, settings in rows}
    assert found == SETTINGS.functions
    assert len(found) > 60


def test_list_of_settings_refuses_a_function_that_does_not_exist() -> None:
    with pytest.raises(SchemaError, match="no file makes: gone"):
        FunctionSettings((), {"gone": {"jit": "off"}, "claim": {"jit": "off"}}).ensure_known(
            ["CREATE OR REPLACE FUNCTION claim("]
        )

"""The functions that users may call keep the signatures of src/watchbill/store/public_functions.txt.

Users call them from psql, triggers and other languages, by name and position: a new argument comes last and has a
default. If a change is meant, `WRITE_PUBLIC_FUNCTIONS=1 pytest tests/store/test_public_functions.py` writes the
file anew; describe the change in CHANGELOG.md and in docs/reference/sql.md.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import psycopg

import watchbill

MANIFEST = Path(watchbill.__file__).parent / "store" / "public_functions.txt"
HEADING = "# The public functions of the schema: tests/store/test_public_functions.py keeps this file true.\n"
SIGNATURES = """
SELECT proname, pg_get_function_arguments(oid), pg_get_function_result(oid)
FROM pg_proc
WHERE pronamespace = 'watchbill'::regnamespace AND NOT starts_with(proname, '_') AND prorettype <> 'trigger'::regtype
ORDER BY proname COLLATE "C", pg_get_function_arguments(oid) COLLATE "C"
"""
_COMMA = re.compile(r", (?=(?:[^']*'[^']*')*[^']*$)(?![^(]*\))")  # between arguments, not inside quotes or parentheses


def _installed(url: str) -> str:
    with psycopg.connect(url, options="-c search_path=watchbill") as connection:
        rows = connection.execute(SIGNATURES).fetchall()
    return HEADING + "".join(_lines(*row) for row in rows)


def _lines(name: str, arguments: str, result: str) -> str:
    """One argument per line, so that a difference shows what has changed."""
    given = "".join(f"  {argument}\n" for argument in _COMMA.split(arguments) if argument)
    return f"\n{name}\n{given}  -> {result}\n"


def test_public_functions_keep_their_signatures(schema_database: str) -> None:
    installed = _installed(schema_database)
    if os.environ.get("WRITE_PUBLIC_FUNCTIONS"):
        MANIFEST.write_text(installed)
    assert installed.split("\n\n") == MANIFEST.read_text().split("\n\n"), (
        "A public SQL function has changed. Users call them by name and position: add an argument at the end, with a "
        "default, or keep the old signature. If the change is meant, write public_functions.txt anew: see the top of "
        "this file."
    )

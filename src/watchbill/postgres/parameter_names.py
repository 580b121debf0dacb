"""Reads the names of the parameters of functions from the text of function files.

CREATE OR REPLACE cannot rename a parameter. The migrator compares these names with those in the database, and first
drops the functions for which they differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from watchbill.postgres.migration_files import SqlFile

_HEADER = re.compile(r"\bCREATE\s+OR\s+REPLACE\s+(?:FUNCTION|PROCEDURE)\s+(?P<name>\w+)\s*\(")
_TABLE = re.compile(r"\s*RETURNS\s+TABLE\s*\(")
_TOKEN = re.compile(
    r"""(?P<comment> --[^\n]* ) | (?P<string> ' (?: [^'] | '' )* ' ) | " (?P<quoted> [^"]* ) " | (?P<word> \w+ )
    | (?P<open> [(\[] ) | (?P<close> [)\]] ) | (?P<comma> , )""",
    re.VERBOSE,
)
_MODES = {"IN", "OUT", "INOUT", "VARIADIC"}


def find_parameter_names(files: Iterable[SqlFile]) -> dict[str, list[list[str]]]:
    """Returns for each function the names of its parameters, and of its columns if it returns a table. A name that
    several functions share has several lists."""
    found: dict[str, list[list[str]]] = {}
    for file in files:
        for header in _HEADER.finditer(file.text):
            found.setdefault(header["name"], []).append(list(_read_names(file.text, header.end())))
    return found


def _read_names(text: str, start: int) -> Iterator[str]:
    """Yields the first word of each item of the list that starts here, without its mode, and then those of the columns
    of a table."""
    depth, is_named = 1, False
    for token in _TOKEN.finditer(text, start):
        kind = token.lastgroup
        depth += {"open": 1, "close": -1}.get(kind or "", 0)
        if depth == 0:
            if table := _TABLE.match(text, token.end()):
                yield from _read_names(text, table.end())
            return
        if kind == "comma" and depth == 1:
            is_named = False
        elif kind in ("quoted", "word") and not is_named and token[kind] not in _MODES:
            yield token[kind]
            is_named = True

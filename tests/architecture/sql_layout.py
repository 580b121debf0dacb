"""How SQL is laid out here: at most 100 columns, upper-case keywords, one clause per line.

sqlfluff does not look inside function bodies, so this reads the text: `complaints` yields what is wrong, with its line.
A statement or subquery may share one line with its clauses if all of it fits there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

WIDTH = 100
_OPAQUE = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|%\(\w+\)s", re.DOTALL)
_LOWER_CASE = re.compile(
    r"\b(?:select|from|where|join|having|returning|group by|order by|insert into|delete from|union all)\b"
    r"|^\s*(?:limit|update|perform|raise|begin|declare|if|elsif|else|loop|returns|language|create)\b(?! *[:(])"
)
_HEADER = re.compile(r"^\s*CREATE (?:OR REPLACE )?FUNCTION\b.*\b(?:LANGUAGE|AS \$)")
_CLAUSE = re.compile(
    r"[()]|(?<!DISTINCT )(?<!CURRENT )(?<!search_path )(?<!DO )(?<!FOR )\b(?:"
    r"FOR (?:NO KEY )?UPDATE|FOR (?:KEY )?SHARE|ON CONFLICT|GROUP BY|ORDER BY|DELETE FROM|INSERT INTO"
    r"|(?:(?:LEFT|RIGHT|FULL|INNER|CROSS) )?JOIN|SELECT|PERFORM|FROM|WHERE|HAVING|LIMIT|RETURNING|VALUES|UNION|EXCEPT"
    r"|UPDATE)\b"
)
_STARTS = ("SELECT", "PERFORM", "INSERT INTO", "UPDATE", "DELETE FROM", "ON CONFLICT")
_ENDS = re.compile(r"(?:;|\bLOOP|\bTHEN|\$\w*\$;?)$")
_AFTER_AN_END = re.compile(r"\s*(?:UNION|EXCEPT|\)|\$|$)")


@dataclass
class _Level:
    """The clauses of one (sub)query on a line."""

    clauses: list[str] = field(default_factory=list)
    is_closed: bool = False


def complaints(text: str) -> Iterator[tuple[int, str]]:
    code = _OPAQUE.sub(_blank, text).splitlines()
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > WIDTH:
            yield number, f"has {len(line)} columns, the limit is {WIDTH}"
        if "\t" in line or line != line.rstrip():
            yield number, "has a tab, or white space at its end"
    for number, (line, following) in enumerate(zip(code, [*code[1:], ""], strict=True), 1):
        if found := _LOWER_CASE.search(line):
            yield number, f"{found[0].strip()!r} is a keyword: write it in upper case"
        if _HEADER.search(line):
            yield number, "LANGUAGE and AS of a function stand on a line of their own"
        if crowded := _crowded(line, following):
            yield number, f"has several clauses ({', '.join(crowded)}): give each a line of its own"


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", "'" if found[0][0] == "'" else " ", found[0])


def _crowded(line: str, following: str) -> list[str]:
    """The clauses of a query that is neither complete on this line nor has only one clause there."""
    open_levels, levels = [_Level()], []
    for found in _CLAUSE.finditer(line):
        if found[0] == "(":
            open_levels.append(_Level())
        elif found[0] == ")":
            level = open_levels.pop()
            level.is_closed = True
            levels.append(level)
            open_levels = open_levels or [_Level()]
        else:
            open_levels[-1].clauses.append(found[0])
    ends = bool(_ENDS.search(line.rstrip()) or _AFTER_AN_END.match(following))
    for level in (*levels, *open_levels):
        is_complete = level.clauses[:1] and level.clauses[0] in _STARTS and (level.is_closed or ends)
        if len(level.clauses) > 1 and not is_complete:
            return level.clauses
    return []

"""Writes the tables of docs/reference/compat.md from the lists of statements: `python -m tests.compat.reference`."""

from __future__ import annotations

import re
from pathlib import Path

from tests.compat.walk import Document

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "compat.md"
_TABLE = re.compile(r"<!-- (\d+)( without_effect)? -->\n.*?<!-- end -->", re.DOTALL)


def write_tables(text: str) -> str:
    return _TABLE.sub(lambda found: f"{found[0].splitlines()[0]}\n{_table(*found.groups())}<!-- end -->", text)


def _table(number: str, parameters: str | None) -> str:
    document = Document.load(number)
    if parameters:
        rows = [f"| `{name}` | {reason} |" for name, reason in document.without_effect.items()]
        return "\n".join(["| parameter | because |", "|---|---|", *rows, ""])
    rows = [f"| {e.block} | `{e.words}` | {e.because} | {e.reason} |" for e in document.not_run]
    return "\n".join(["| block | statement | | because |", "|--:|---|---|---|", *rows, ""])


if __name__ == "__main__":
    PAGE.write_text(write_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

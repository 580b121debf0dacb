"""Every promise of docs/explanation/guarantees.md names tests that exist, and says which of them are long."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "guarantees.md").read_text()
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`(\s\(long\))?", PAGE)


def test_every_test_that_the_page_names_exists() -> None:
    assert len(NAMED) > 20
    missing = [(file, name) for file, name, _ in NAMED if find_test(file, name) is None]
    assert missing == []


def test_the_page_says_which_tests_are_long() -> None:
    wrong = [name for file, name, is_long in NAMED if ("mark.long" in (find_test(file, name) or "")) != bool(is_long)]
    assert wrong == []


def test_every_promise_names_a_test() -> None:
    promises = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
    assert [line for line in promises if "`tests/" not in line] == []


def find_test(file: str, name: str) -> str | None:
    """The decorators and the first line of a test, or None."""
    path = ROOT / file
    text = path.read_text() if path.exists() else ""
    found = re.search(rf"((?:^@.*\n)*)^(?:async )?def {name}\(", text, re.MULTILINE)
    return found and found[0]

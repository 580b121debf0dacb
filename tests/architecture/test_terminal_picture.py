"""The picture of the README shows what commands print on a terminal of 100 columns."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from tools import terminal_picture
from tools.terminal_picture import COLUMNS, PICTURE, draw

_TEXT = "{http://www.w3.org/2000/svg}text"


def read_lines(picture: str) -> list[str]:
    return ["".join(line.itertext()) for line in ET.fromstring(picture).iter(_TEXT)]


def read_headings(lines: list[str]) -> list[list[str]]:
    """Those of the tables: the lines above a rule."""
    return [line.split() for line, below in itertools.pairwise(lines) if below.startswith("─")]


def test_colours_become_spans_and_text_is_escaped() -> None:
    (line,) = ET.fromstring(draw(["\x1b[1;31mdead\x1b[0m a < b"])).iter(_TEXT)
    (span,) = line
    assert ("".join(line.itertext()), span.text) == ("dead a < b", "dead")
    assert span.attrib == {"font-weight": "bold", "fill": "#f97583"}


def test_picture_has_the_columns_that_the_commands_print_today(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids, times and what depends on them differ. `python tools/terminal_picture.py URL` draws it anew."""
    monkeypatch.setattr(terminal_picture, "PICTURE", tmp_path / "terminal.svg")
    terminal_picture.main(database)
    now, committed = read_lines((tmp_path / "terminal.svg").read_text()), read_lines(PICTURE.read_text())
    assert read_headings(now) == read_headings(committed) != []
    assert max(map(len, now)) <= COLUMNS

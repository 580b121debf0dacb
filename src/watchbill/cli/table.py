"""Draws tables for terminals of any width and for pipes.

Ids, states and numbers stay on one line, so that they can be copied. Columns that are declared with `Wrapped`, such as
an error, become narrower first: their text is wrapped between words, and cut after a few lines. Then those declared
with `LongName` do: a long name is broken after a dot, a dash or the like, and never cut. If the columns together are
still too wide, the last ones move to a second line below each row:

    id                                    state   attempt  type
      queue     run at    error
    01a2c0de-7c1f-7a53-9d0e-5b6f1c2d3e4f  failed  2/5      shop.charge
      payments  12:00:41  ConnectionError: the bank does not answer

A pipe gets one line per row, with all columns and their whole text.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from watchbill.cli.screen import STATE_COLOURS, Painted, is_terminal, paint, say

_GAPS = ("  ", " ")  # the space between columns; the narrow one is used only if all columns then fit into one line
_INDENT = "  "  # before the columns that stand on the second line of a row
_MIN_WRAPPED_WIDTH = 24
_MIN_NAME_WIDTH = 12
_MAX_WRAPPED_LINES = 3
_COLOURED = ("state", "outcome", "status")
_NUMBER = re.compile(r"(≈ )?[\d,]*")
_NAME_PART = re.compile(r"[^\s._:/,-]*[\s._:/,-]*")


class Wrapped(str):
    """The name of a column whose text may be wrapped and cut on a terminal."""


class LongName(str):
    """The name of a column whose texts are names, such as the types of jobs. On a terminal that is too narrow, a long
    one stands on several lines."""


def print_columns(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    if not is_terminal():
        widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
        for line in (columns, *cells):
            say("  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip())
        return
    for line in draw_table(columns, cells, shutil.get_terminal_size().columns):
        say(line)


def draw_table(columns: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> Iterator[Painted]:
    """Yields the lines of a table for a terminal of this width. Columns without any value are left out."""
    used = [place for place in range(len(columns)) if not cells or any(row[place] for row in cells)]
    table = _Table([columns[place] for place in used], [[row[place] for place in used] for row in cells], width)
    yield from table.draw()


@dataclass(frozen=True)
class _Place:
    """Where a column stands in its line, and how wide it is."""

    column: int
    width: int


class _Table:
    def __init__(self, columns: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> None:
        self._columns, self._cells, self._width = columns, cells, width
        by_column = list(zip(columns, *cells, strict=True))
        self._natural = [max(map(_measure_width, column)) for column in by_column]
        self._is_number = [bool(cells) and all(map(_NUMBER.fullmatch, column[1:])) for column in by_column]
        for self._gap in _GAPS:
            self._lines = self._arrange_columns()
            if len(self._lines) == 1:
                return
        self._gap = _GAPS[0]
        self._lines = self._arrange_columns()

    def draw(self) -> Iterator[Painted]:
        yield from (paint(line, bold=True) for line in self._draw_row(self._columns))
        yield paint("─" * min(self._width, max(map(self._measure_line, self._lines))), dim=True)
        for row in self._cells:
            yield from self._draw_row(row)

    def _arrange_columns(self) -> list[list[_Place]]:
        """Puts all columns on one line if their least widths fit, otherwise as many on each line as fit. Columns that
        were made narrower get the rest of the width of their line, names first."""
        least = [self._least_width(column) for column in range(len(self._columns))]
        is_one_line = sum(least) + len(self._gap) * (len(least) - 1) <= self._width
        lines: list[list[_Place]] = [[]]
        left = self._width
        for column, natural in enumerate(self._natural):
            needed = least[column] if is_one_line or self._is(Wrapped, column) else natural
            if lines[-1] and needed > left:
                lines.append([])
                left = self._width - len(_INDENT)
            lines[-1].append(_Place(column, needed))
            left -= needed + len(self._gap)
        return [
            self._widen_columns(line, self._width - len(_INDENT) * bool(number)) for number, line in enumerate(lines)
        ]

    def _least_width(self, column: int) -> int:
        least = _MIN_WRAPPED_WIDTH if self._is(Wrapped, column) else _MIN_NAME_WIDTH
        is_narrowed = self._is(Wrapped, column) or self._is(LongName, column)
        return (
            min(self._natural[column], max(least, len(self._columns[column]))) if is_narrowed else self._natural[column]
        )

    def _widen_columns(self, line: list[_Place], width: int) -> list[_Place]:
        left, widened = width - self._measure_line(line), dict[int, _Place]()
        for place in sorted(line, key=lambda place: self._is(Wrapped, place.column)):
            more = max(0, min(self._natural[place.column] - place.width, left))
            left -= more
            widened[place.column] = _Place(place.column, place.width + more)
        return [widened[place.column] for place in line]

    def _measure_line(self, line: list[_Place]) -> int:
        return sum(place.width for place in line) + len(self._gap) * (len(line) - 1)

    def _is(self, kind: type[str], column: int) -> bool:
        return isinstance(self._columns[column], kind)

    def _draw_row(self, row: Sequence[str]) -> Iterator[Painted]:
        for number, line in enumerate(self._lines):
            if number and not any(row[place.column] for place in line):
                continue  # this line of the row is empty, such as the line with the error of a job without an error
            pieces = [self._split_text(row[place.column], place) for place in line]
            for texts in zip_longest(*pieces, fillvalue=""):
                drawn = self._gap.join(map(self._draw_cell, line, texts))
                yield Painted((_INDENT * bool(number) + drawn).rstrip())

    def _split_text(self, text: str, place: _Place) -> list[str]:
        if self._is(LongName, place.column):
            return _split_name(text, place.width)
        if not self._is(Wrapped, place.column):
            return [text]
        return textwrap.wrap(text, place.width, max_lines=_MAX_WRAPPED_LINES, placeholder=" …") or [""]

    def _draw_cell(self, place: _Place, text: str) -> str:
        padding = " " * (place.width - _measure_width(text))
        if self._is_number[place.column]:
            return padding + text
        colour = STATE_COLOURS.get(text) if self._columns[place.column] in _COLOURED else None
        return (paint(text, colour) if colour else text) + padding


def _split_name(name: str, width: int) -> list[str]:
    """Splits a name into lines of this width, after a dot, a dash or the like where there is one."""
    lines = [""]
    for part in _NAME_PART.findall(name):
        if lines[-1] and _measure_width(lines[-1] + part.rstrip()) > width:
            lines.append("")
        lines[-1] += part
        while _measure_width(lines[-1].rstrip()) > width:
            lines[-1:] = [lines[-1][:width], lines[-1][width:]]
    return [line.rstrip() for line in lines]


def _measure_width(text: str) -> int:
    """Returns how many columns of the terminal the text takes: some characters take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)

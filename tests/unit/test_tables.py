"""Tables on terminals: ids and names are whole at every width; only wrapped columns give way."""

from __future__ import annotations

import click
import pytest

from watchbill.cli.screen import Painted
from watchbill.cli.table import LongName, Wrapped, draw_table

ID = "01a1e26d-1beb-7012-8f3b-1a2b3c4d5e6f"
COLUMNS = ("id", "state", "attempt", "type", "queue", "run at", Wrapped("error"))
ERROR = "ConnectionError: the bank does not answer and nobody knows when it will again, perhaps tomorrow"
ROWS: list[tuple[str, ...]] = [
    (ID, "failed", "2/5", "shop.charge", "payments", "12:00:41", ERROR),
    (ID.replace("1", "2"), "succeeded", "1/5", "shop.orders.send_confirmation", "mail", "12:00:42", ""),
]


def draw(width: int, columns: tuple[str, ...] = COLUMNS, rows: list[tuple[str, ...]] = ROWS) -> list[str]:
    return [click.unstyle(line) for line in draw_table(columns, rows, width)]


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_tables_fit_and_keep_ids_and_names_whole(width: int) -> None:
    lines = draw(width)
    assert max(map(len, lines)) <= width, "\n".join(lines)
    words = " ".join(lines).split()
    for row in ROWS:
        assert set(row[:6]) <= set(words)
    assert "ConnectionError: the" in " ".join(words)


def test_wide_terminals_have_one_line_per_row() -> None:
    assert len(draw(300)) == 2 + len(ROWS)


def test_narrow_terminals_move_the_last_columns_below() -> None:
    lines = draw(80)
    assert lines[0].split() == ["id", "state", "attempt", "type"][: len(lines[0].split())]
    assert lines[1].startswith("  ")
    assert "error" in lines[1]


def test_long_names_are_broken_before_columns_move_below() -> None:
    columns = ("id", LongName("type"), LongName("queue"), Wrapped("error"))
    rows: list[tuple[str, ...]] = [(ID[:13], "billing.invoices.send_monthly_statement", "statements-eu", ERROR)]
    lines = draw(70, columns, rows)
    assert lines[0].split() == ["id", "type", "queue", "error"]
    assert max(map(len, lines)) <= 70
    name = "".join(line[15:].split("  ")[0] for line in lines[2:] if line[15:16].strip())
    assert name == "billing.invoices.send_monthly_statement"


def test_names_wider_than_the_terminal_are_still_whole() -> None:
    name = "a" * 200
    assert name in draw(80, ("name", "state"), [(name, "active")])[2:]


def test_long_errors_are_cut_after_three_lines() -> None:
    lines = draw(60, ("id", Wrapped("error")), [("1", "x " * 500)])
    assert len(lines) == 2 + 3
    assert lines[-1].endswith("…")


def test_columns_without_values_are_left_out() -> None:
    assert draw(80, ("id", "error", "node"), [("1", "", "w1")])[0].split() == ["id", "node"]


def test_wide_characters_keep_the_columns_aligned() -> None:
    lines = draw(80, ("name", "n"), [("注文", "1"), ("abcd", "2")])
    assert (lines[2], lines[3]) == ("注文  1", "abcd  2")


def test_numbers_stand_at_the_right() -> None:
    lines = draw(80, ("queue", "ready", "n"), [("mail", "≈ 12,400", "x"), ("a", "7", "y")])
    assert lines[2:] == ["mail   ≈ 12,400  x", "a             7  y"]


def test_a_row_that_almost_fits_has_narrow_gaps() -> None:
    columns, row = ("a", "b", "c"), ("x" * 10, "y" * 10, "z" * 8)
    assert draw(30, columns, [row])[2] == " ".join(row)
    assert draw(29, columns, [row])[3:] == ["x" * 10 + "  " + "y" * 10, "  " + "z" * 8]


def test_states_have_colours() -> None:
    [*_, line] = draw_table(("state",), [("dead",)], 80)
    assert isinstance(line, Painted)
    assert line != click.unstyle(line)

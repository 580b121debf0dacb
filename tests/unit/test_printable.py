"""Text of jobs cannot command a terminal or forge a line."""

from __future__ import annotations

import logging

import pytest

from watchbill.cli.output import print_facts
from watchbill.cli.screen import Painted, say_wrapped
from watchbill.telemetry.logs import Text
from watchbill.telemetry.printable import printable, printable_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, é, 注文, 👩‍👩‍👧", "plain, é, 注文, 👩‍👩‍👧"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\rc\td\0e\x7f", "a\\nb\\rc\\td\\x00e\\x7f"),
        ("\x9b31m", "\\u009b31m"),
        ("a\u202eb\u2066c\u2028d", "a\\u202eb\\u2066c\\u2028d"),
        ("half \ud83d", "half \\ud83d"),
    ],
)
def test_control_characters_become_visible(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_several_lines_keep_their_breaks() -> None:
    assert printable_lines("a\n\tb\x1b[2Jc\r") == "a\n\tb\\x1b[2Jc\\r"


def test_a_message_cannot_forge_a_record_of_the_log() -> None:
    record = logging.makeLogRecord(
        {"name": "shop", "levelname": "INFO", "msg": "paid\n12:00:00 ERROR   x: \x1b[2Jforged"}
    )
    first, second = Text().format(record).split("\n")
    assert first.endswith("INFO    shop: paid")
    assert second == "  12:00:00 ERROR   x: \\x1b[2Jforged"


def test_long_line_is_broken_between_words_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "app:app   6 tasks  5 queues (default, mail, office)  4 schedules"
    say_wrapped(text)
    monkeypatch.setattr("watchbill.cli.screen.is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    say_wrapped(text)
    assert capsys.readouterr().out.splitlines() == [
        f"  {text}", "  app:app   6 tasks  5 queues (default,", "    mail, office)  4 schedules",
    ]  # fmt: skip


def test_long_lines_of_an_error_are_broken_between_words_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("watchbill.cli.screen.is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    print_facts(
        {"error": Painted("ValueError: the order was refused by 10.0.0.10\n  raise ValueError(the_order, the_host)")}
    )
    assert capsys.readouterr().out.splitlines() == [
        "error  ValueError: the order was refused", "       by 10.0.0.10",
        "         raise ValueError(the_order,", "         the_host)",
    ]  # fmt: skip

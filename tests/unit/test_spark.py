"""Charts of one line."""

from __future__ import annotations

from watchbill.cli.spark import draw_bar, draw_spark


def test_spark_shows_zero_lowest_and_the_largest_highest() -> None:
    assert draw_spark([0, 1, 50, 100], 10) == "▁▂▅█"
    assert draw_spark([0, 0], 10) == "▁▁"
    assert draw_spark([], 10) == ""
    assert draw_spark([3, 3], 0) == ""


def test_spark_keeps_the_peaks_when_there_are_more_numbers_than_columns() -> None:
    assert draw_spark([0, 0, 9, 0, 0, 0, 0, 1], 4) == "▁█▁▂"


def test_spark_with_a_given_top_compares_several_rows() -> None:
    assert draw_spark([10], 1, most=100) == "▂"
    assert draw_spark([500], 1, most=100) == "█"


def test_bar_is_never_empty_for_something_and_never_too_long() -> None:
    assert draw_bar(1, 1000, 4) == "█░░░"
    assert draw_bar(5, 10, 4) == "██░░"
    assert draw_bar(20, 10, 4) == "████"
    assert draw_bar(0, 10, 4) == draw_bar(1, 0, 4) == "░░░░"

"""The last lines that a job has logged."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from watchbill.cli.job_logs import find_new_lines
from watchbill.telemetry.context import current
from watchbill.telemetry.job_lines import MAX_BYTES, MAX_LINES, LogTail, format_record, keep_lines_of_jobs


class Keeper:
    """What a run does with its lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add_lines(self, lines: list[str]) -> None:
        self.lines += lines


@pytest.fixture
def kept() -> Iterator[list[str]]:
    """The lines that the job of this test has logged."""
    factory, keeper = logging.getLogRecordFactory(), Keeper()
    keep_lines_of_jobs()
    token = current.set(keeper)  # type: ignore[arg-type]
    yield keeper.lines
    current.reset(token)
    logging.setLogRecordFactory(factory)


def record(message: str, *args: object) -> logging.LogRecord:
    return logging.LogRecord("shop", logging.WARNING, __file__, 1, message, args, None)


def test_tail_keeps_the_last_lines_and_bytes() -> None:
    tail = LogTail()
    tail.add([f"line {number}" for number in range(MAX_LINES + 5)])
    assert (tail.read()[0], len(tail.read()), tail.added) == ("line 5", MAX_LINES, MAX_LINES + 5)
    tail.add(["é" * (MAX_BYTES // 4)] * 3)
    assert tail.read() == ["é" * (MAX_BYTES // 4)]
    assert (tail.take(), tail.read()) == (["é" * (MAX_BYTES // 4)], [])


def test_record_becomes_lines_without_control_characters() -> None:
    first, second = format_record(record("paid %d\nfor \x1b[31m", 7))
    assert first.endswith("Z WARNING shop: paid 7")
    assert second == "  for \\x1b[31m"


def test_record_is_left_as_it_is() -> None:
    made = record("paid")
    before = dict(vars(made))
    format_record(made)
    assert vars(made) == before


def test_logger_that_does_not_propagate_is_heard_too(kept: list[str]) -> None:
    logger = logging.getLogger("tests.apart")
    logger.propagate = False
    logger.warning("still heard")
    assert [line.rpartition(": ")[2] for line in kept] == ["still heard"]


def test_argument_that_logs_or_fails_when_it_is_shown_costs_only_its_line(kept: list[str]) -> None:
    logger = logging.Logger("apart")  # without a parent, whose handlers would show the record

    class Chatty:
        def __str__(self) -> str:
            logger.warning("from inside")
            raise ValueError("no text")

    logger.addHandler(logging.NullHandler())
    logger.warning("%s", Chatty())
    logger.warning("the next one")
    assert [line.rpartition(": ")[2] for line in kept] == ["the next one"]


def test_lines_outside_of_a_job_are_not_kept(kept: list[str]) -> None:
    token = current.set(None)
    logging.getLogger("tests.apart").warning("no job")
    current.reset(token)
    assert kept == []


def test_a_second_worker_of_the_process_keeps_each_line_once(kept: list[str]) -> None:
    keep_lines_of_jobs()
    logging.getLogger("tests.apart").warning("once")
    assert len(kept) == 1


@pytest.mark.parametrize(
    ("before", "now", "new"),
    [
        ([], ["a"], ["a"]),
        (["a"], ["a", "b"], ["b"]),
        (["a", "b"], ["a", "b"], []),
        (["a", "b", "c"], ["c", "d"], ["d"]),
        (["a", "a"], ["a", "a", "a"], ["a"]),
        (["a"], ["x"], ["x"]),
    ],
)
def test_new_lines_are_those_after_what_was_printed(before: list[str], now: list[str], new: list[str]) -> None:
    assert find_new_lines(before, now) == new

"""`watchbill cron` as a person uses it. It needs no database."""

from __future__ import annotations

import json

import pytest

from tests.acceptance.command import Watchbill


def test_next_prints_local_time_and_utc(watchbill: Watchbill) -> None:
    done = watchbill("cron", "next", "0 9 * * MON#2", "--tz", "America/New_York", "--after", "2026-11-15", "-n", "2")
    assert done.stdout.splitlines() == [
        "2026-12-14 09:00:00-05:00  Mon  2026-12-14 14:00:00 UTC",
        "2027-01-11 09:00:00-05:00  Mon  2027-01-11 14:00:00 UTC",
    ]


def test_next_as_json_is_a_list_of_utc_instants(watchbill: Watchbill) -> None:
    done = watchbill("cron", "next", "30 2 * * *", "--tz", "Europe/Berlin", "--after", "2026-03-28T12:00", "-n2", "--json")
    assert json.loads(done.stdout) == ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]


def test_prev_goes_back(watchbill: Watchbill) -> None:
    done = watchbill("cron", "prev", "@daily", "--before", "2026-01-02T00:00:00+00:00", "--json")
    assert json.loads(done.stdout) == ["2026-01-01T00:00:00Z"]


def test_between_lists_all(watchbill: Watchbill) -> None:
    done = watchbill("cron", "between", "0 */6 * * *", "2026-01-01", "2026-01-02", "--json")
    assert len(json.loads(done.stdout)) == 4


def test_explain_speaks_english(watchbill: Watchbill) -> None:
    done = watchbill("cron", "explain", "0 9 * * MON#2", "--tz", "America/New_York")
    assert done.stdout == "at 09:00 on the second Monday of every month, New York time\n"


@pytest.mark.parametrize(
    ("pattern", "code", "said"),
    [
        ("*/15 * * * *", 0, "every-15-minutes"),
        ("0 0 25 * MONDAY", 1, "Did you mean MON?"),
        ("0 0 30 2 *", 1, "never fires"),
        ("nonsense", 1, "^"),
    ],
)
def test_check_says_yes_or_what_is_wrong(watchbill: Watchbill, pattern: str, code: int, said: str) -> None:
    done = watchbill("cron", "check", pattern)
    assert done.returncode == code
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_preview_draws_a_month_and_marks_the_clock_change(watchbill: Watchbill) -> None:
    done = watchbill(
        "cron", "preview", "0 9 * * MON-FRI", "--tz", "Europe/Berlin", "--after", "2026-03-01", "--months", "1"
    )
    assert "March 2026" in done.stdout
    assert "29*" in done.stdout
    days = done.stdout.splitlines()
    week = next(n for n, line in enumerate(days) if line.split()[:1] == ["2"])
    assert days[week + 1].split() == ["1", "1", "1", "1", "1", ".", "."]
    assert days[-1] == "* 29 March 2026: in Europe/Berlin the clock goes from 02:00 to 03:00"


def test_preview_at_the_ends_of_time_and_of_a_day_that_never_was(watchbill: Watchbill) -> None:
    last = watchbill("cron", "preview", "0 9 * * *", "--after", "9999-12-01", "--months", "3")
    assert last.stdout.count("9999") == 1
    assert "+ " not in last.stdout.replace("    +:", "")
    samoa = watchbill("cron", "preview", "0 9 * * * TZ:Pacific/Apia", "--after", "2011-12-01", "--months", "1")
    assert "30*" in samoa.stdout
    assert "from 30 December 00:00 to 31 December 00:00" in samoa.stdout


def test_a_pattern_without_quotes_is_told_about_the_shell(watchbill: Watchbill) -> None:
    done = watchbill("cron", "next", "0", "9", "setup.py", "setup.py", "MON")
    assert done.returncode == 2
    assert "without quotes the shell takes it apart" in " ".join(done.stderr.split())


def test_an_offset_is_a_zone_for_the_instant_too(watchbill: Watchbill) -> None:
    done = watchbill("cron", "next", "0 9 * * *", "--tz", "+05:30", "--after", "2025-01-01", "--json")
    assert done.stdout.split() == ["[", '"2025-01-01T03:30:00Z"', "]"]


def test_between_says_when_it_leaves_some_out(watchbill: Watchbill) -> None:
    done = watchbill("cron", "between", "* * * * *", "2025-01-01", "2025-01-02", "--limit", "3", "--json")
    assert (done.stdout.count("2025"), done.returncode) == (3, 0)
    assert done.stderr.strip() == "and more: these are the first 3, as --limit says"


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--tz", "Nowhere/Else"], "Nowhere/Else"), (["--after", "yesterday"], "no instant"), (["--dst", "maybe"], "dst")],
)
def test_bad_options_are_refused_by_name(watchbill: Watchbill, words: list[str], said: str) -> None:
    done = watchbill("cron", "next", "@daily", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_pattern_that_never_fires_says_never(watchbill: Watchbill) -> None:
    done = watchbill("cron", "next", "0 0 30 2 *")
    assert (done.returncode, done.stderr.strip()) == (1, "never")

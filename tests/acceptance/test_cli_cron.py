"""`watchbill cron` as a person uses it. It needs no database."""

from __future__ import annotations

import json

import pytest

from tests.acceptance.command import Watchbill


def test_next_prints_local_time_and_utc(watchbill: Watchbill) -> None:
    done = watchbill("cron", "next", "0 9 * * MON#2", "--tz", "America/New_York", "--after", "2026-11-15", "-n", "2")
    assert done.stdout.splitlines() == [
        "2026-12-14 09:00:00-05:00  Mon",
        "2027-01-11 09:00:00-05:00  Mon",
    ]


def test_next_as_json_is_a_list_of_utc_instants(watchbill: Watchbill) -> None:
    done = watchbill.here(
        "cron", "next", "30 2 * * *", "--tz", "Europe/Berlin", "--after", "2026-03-28T12:00", "-n2", "--json"
    )
    assert json.loads(done.stdout) == ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]


def test_prev_prints_the_run_before_the_given_time(watchbill: Watchbill) -> None:
    done = watchbill.here("cron", "prev", "@daily", "--before", "2026-01-02T00:00:00+00:00", "--json")
    assert json.loads(done.stdout) == ["2026-01-01T00:00:00Z"]


def test_between_lists_every_run_in_the_range(watchbill: Watchbill) -> None:
    done = watchbill.here("cron", "between", "0 */6 * * *", "2026-01-01", "2026-01-02", "--json")
    assert len(json.loads(done.stdout)) == 4


def test_explain_describes_the_pattern_in_english(watchbill: Watchbill) -> None:
    done = watchbill.here("cron", "explain", "0 9 * * MON#2", "--tz", "America/New_York")
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
def test_check_accepts_a_pattern_or_explains_the_error(
    watchbill: Watchbill, pattern: str, code: int, said: str
) -> None:
    done = watchbill.here("cron", "check", pattern)
    assert done.returncode == code
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_preview_draws_a_month_and_marks_the_clock_change(watchbill: Watchbill) -> None:
    done = watchbill.here(
        "cron", "preview", "0 9 * * MON-FRI", "--tz", "Europe/Berlin", "--after", "2026-03-01", "--months", "1"
    )
    assert "March 2026" in done.stdout
    assert "29*" in done.stdout
    days = done.stdout.splitlines()
    week = next(n for n, line in enumerate(days) if line.split()[:1] == ["2"])
    assert days[week + 1].split() == ["1", "1", "1", "1", "1", ".", "."]
    assert days[-1] == "* 29 March 2026: in Europe/Berlin the clock goes from 02:00 to 03:00"


def test_preview_handles_year_9999_and_a_skipped_day(watchbill: Watchbill) -> None:
    last = watchbill.here("cron", "preview", "0 9 * * *", "--after", "9999-12-01", "--months", "3")
    assert last.stdout.count("9999") == 1
    assert "+ " not in last.stdout.replace("    +:", "")
    samoa = watchbill.here("cron", "preview", "0 9 * * * TZ:Pacific/Apia", "--after", "2011-12-01", "--months", "1")
    assert "30*" in samoa.stdout
    assert "from 30 December 00:00 to 31 December 00:00" in samoa.stdout


def test_unquoted_pattern_error_mentions_shell_quotes(watchbill: Watchbill) -> None:
    done = watchbill.here("cron", "next", "0", "9", "setup.py", "setup.py", "MON")
    assert done.returncode == 2
    assert "put it in quotes, or the shell splits it" in " ".join(done.stderr.split())


def test_offset_in_tz_also_applies_to_the_after_option(watchbill: Watchbill) -> None:
    done = watchbill.here("cron", "next", "0 9 * * *", "--tz", "+05:30", "--after", "2025-01-01", "--json")
    assert done.stdout.split() == ["[", '"2025-01-01T03:30:00Z"', "]"]


def test_between_reports_when_limit_cuts_the_list(watchbill: Watchbill) -> None:
    done = watchbill.here("cron", "between", "* * * * *", "2025-01-01", "2025-01-02", "--limit", "3", "--json")
    assert (done.stdout.count("2025"), done.returncode) == (3, 0)
    assert done.stderr.strip() == "Only the first 3 are shown; --limit shows more."


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tz", "Nowhere/Else"], "Nowhere/Else"),
        (["--after", "yesterday"], "The instant 'yesterday' is invalid"),
        (["--dst", "maybe"], "dst"),
    ],
)
def test_bad_options_are_refused_by_name(watchbill: Watchbill, words: list[str], said: str) -> None:
    done = watchbill.here("cron", "next", "@daily", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_next_prints_never_for_a_pattern_that_never_fires(watchbill: Watchbill) -> None:
    done = watchbill.here("cron", "next", "0 0 30 2 *")
    assert (done.returncode, done.stderr.strip()) == (1, "never")

"""What is wrong is rejected at once, with the field, the place and, where it can be guessed, what was meant."""

from __future__ import annotations

import pickle

import pytest

from watchbill.cron import Cron, InvalidPattern
from watchbill.errors import WatchbillError

# pattern, field, the text that the caret points at, suggestion
WRONG: list[tuple[str, str, str, str | None]] = [
    ("", "pattern", "", None),
    ("   ", "pattern", "   ", None),
    ("* * * *", "pattern", "* * * *", None),
    ("* * * * * * * *", "pattern", "* * * * * * * *", None),
    ("60 * * * *", "minute", "60", "0"),
    ("0 24 * * *", "hour", "24", "0"),
    ("0 0 25 * * *", "hour", "25", None),
    ("60 0 0 * * *", "second", "60", "0"),
    ("0 0 0 * *", "day of month", "0", None),
    ("0 0 32 * *", "day of month", "32", None),
    ("0 0 * 0 *", "month", "0", None),
    ("0 0 * 13 *", "month", "13", None),
    ("0 0 * * 8", "day of week", "8", None),
    ("0 0 * * MON-fat/2,TUE", "day of week", "fat", None),
    ("0 0 0 1 1 * 1969", "year", "1969", None),
    ("0 0 0 1 1 * 3001", "year", "3001", None),
    ("99999999999999999999 * * * *", "minute", "99999999999999999999", None),
    ("*/0 * * * *", "minute", "*/0", "*/1"),
    ("0 0-5/00 * * *", "hour", "0-5/00", "0-5/1"),
    ("1,,2 * * * *", "minute", "", None),
    ("1, * * * *", "minute", "", None),
    (",1 * * * *", "minute", "", None),
    ("1- * * * *", "minute", "1-", None),
    ("-1 * * * *", "minute", "-1", None),
    ("*5 * * * *", "minute", "*5", None),
    ("*-5 * * * *", "minute", "*-5", None),
    ("5/ * * * *", "minute", "5/", None),
    ("*/5*/5 * * * *", "minute", "*/5*/5", None),
    ("1-5/2/3 * * * *", "minute", "1-5/2/3", None),
    ("? * * * *", "minute", "?", None),
    ("MON * * * *", "minute", "MON", None),
    ("0 0 * MON *", "month", "MON", None),
    ("0 0 * * JAN", "day of week", "JAN", None),
    ("0 9 * * MONDAY", "day of week", "MONDAY", "MON"),
    ("0 9 * * mon-friday", "day of week", "friday", "FRI"),
    ("0 0 1 SEPT *", "month", "SEPT", "SEP"),
    ("0 0 1 0JAN *", "month", "0JAN", None),
    ("0060 * * * *", "minute", "0060", "0"),
    ("0 0 25-5 * *", "day of month", "25-5", "1-5,25-31"),
    ("0 0 0 1 1 * 2030-2020", "year", "2030-2020", "1970-2020,2030-3000"),
    ("0 0 25-5/2 * *", "day of month", "25-5/2", None),
    ("0 0 l * *", "day of month", "l", "L"),
    ("0 0 15w * *", "day of month", "15w", "15W"),
    ("0 0 LL * *", "day of month", "LL", None),
    ("0 0 L-0 * *", "day of month", "0", None),
    ("0 0 L-31 * *", "day of month", "31", None),
    ("0 0 32W * *", "day of month", "32", None),
    ("0 0 WL * *", "day of month", "WL", None),
    ("0 0 ?,1 * *", "day of month", "?", None),
    ("0 0 * * 5l", "day of week", "5l", "5L"),
    ("0 0 * * 1#6", "day of week", "6", None),
    ("0 0 * * 1#0", "day of week", "0", None),
    ("0 0 * * 1#-6", "day of week", "6", None),
    ("0 0 * * 8#1", "day of week", "8", None),
    ("0 0 * * MONDAY#1", "day of week", "MONDAY#1", None),
    ("0 0 * * 7W1", "day of week", "7W1", "0W1"),
    ("0 0 * * 1W6", "day of week", "6", None),
    ("0 0 * * 5W", "day of week", "5W", None),
    ("0 0 * * L", "day of week", "L", None),
    ("0 0 * * +", "day of week", "", None),
    ("0 0 * * +?", "day of week", "?", None),
    ("0 0 * * ++1", "day of week", "+1", None),
    ("0 0 +1 * *", "day of month", "+1", None),
    ("WOY:0", "week of year", "0", None),
    ("WOY:54", "week of year", "54", None),
    ("WOY:", "week of year", "", None),
    ("0 9 * * * WOY:1 WOY:2", "week of year", "WOY:1", None),
    ("0 9 * * * TZ:UTC TZ:UTC", "zone", "TZ:UTC", None),
    ("E0D 0 9 * * * E0D", "modifier", "E0D", None),
    ("TZ:UTC", "pattern", "TZ:UTC", None),
    ("0 9 * * * TZ:", "zone", "", None),
    ("0 9 * * * TZ:Mars/Olympus", "zone", "Mars/Olympus", None),
    ("0 9 * * * TZ:europe/paris", "zone", "europe/paris", "Europe/Paris"),
    ("0 9 * * * TZ:New_York", "zone", "New_York", "America/New_York"),
    ("0 9 * * * TZ:utc", "zone", "utc", "UTC"),
    ("0 9 * * * Europe/Nowhere", "zone", "Europe/Nowhere", None),
    ("0 9 * * * TZ:+25:00", "zone", "+25:00", None),
    ("0 9 * * * TZ:+03:60", "zone", "+03:60", None),
    ("0 9 * * * TZ:+3", "zone", "+3", None),
    ("0 9 * * * TZ:../../etc/passwd", "zone", "../../etc/passwd", None),
    ("0 9 * * * TZ:/etc/localtime", "zone", "/etc/localtime", None),
    ("0 9 * * * TZ:localtime", "zone", "localtime", None),
    ("0 9 * * * TZ:right/UTC", "zone", "right/UTC", None),
    ("0 9 * * * TZ:America", "zone", "America", None),
    ("Europe/London 0 9 * * *", "second", "Europe/London", None),
    ("E", "pattern", "E", None),
    ("E0", "modifier", "E0", None),
    ("E0X", "modifier", "E0X", None),
    ("EOD:", "modifier", "EOD:", None),
    ("E0DT", "modifier", "E0DT", None),
    ("ET5M", "pattern", "ET5M", None),
    ("@dayly", "pattern", "@dayly", "@daily"),
    ("@Daily", "pattern", "@Daily", "@daily"),
    ("@", "pattern", "@", None),
    ("@daily 5", "pattern", "5", None),
    ("@every", "duration", "@every", None),
    ("@every 5", "duration", "5", None),
    ("@every 5x", "duration", "5x", None),
    ("@every 0s", "duration", "0s", "1s"),
    ("@every 1h 30m", "duration", "30m", None),
    ("@every -5s", "duration", "-5s", None),
    ("@every 1.5h", "duration", "1.5h", None),
    ("0 9 * * * | ", "pattern", " ", None),
    ("| 0 9 * * *", "pattern", "", None),
    ("0 9 * * * || 0 10 * * *", "pattern", "", None),
    ("0 9 * * *\n", "day of week", "*\n", None),
    ("0 9 * * *\x00", "day of week", "*\x00", None),
    ("0 9 * * ١", "day of week", "١", None),
    ("٠ 9 * * *", "minute", "٠", None),
    ("0\u00a09 * * * *", "minute", "0\u00a09", None),
    ("²  9 * * *", "minute", "²", None),
]


@pytest.mark.parametrize(("pattern", "field", "text", "suggestion"), WRONG)
def test_pattern_error_names_field_position_and_suggestion(
    pattern: str, field: str, text: str, suggestion: str | None
) -> None:
    with pytest.raises(InvalidPattern) as caught:
        Cron(pattern)
    error = caught.value
    assert (error.field, error.suggestion) == (field, suggestion)
    assert pattern[error.position :].startswith(text)
    assert error.pattern == pattern


def test_pattern_error_message_marks_the_position() -> None:
    with pytest.raises(InvalidPattern) as caught:
        Cron("0 9 * * MONDAY")
    assert str(caught.value).splitlines() == [
        "day of week: 'MONDAY' is not one of SUN, MON, TUE, WED, THU, FRI, SAT or 0 to 7",
        "  0 9 * * MONDAY",
        "          ^^^^^^",
        "Did you mean MON?",
    ]


@pytest.mark.parametrize(("pattern", "count"), [("x", "1 field;"), ("* *", "2 fields;")])
def test_field_count_error_is_correct_english(pattern: str, count: str) -> None:
    with pytest.raises(InvalidPattern, match=f"^pattern: {count} a schedule has 5 "):
        Cron(pattern)


def test_pattern_error_message_is_short_and_printable() -> None:
    with pytest.raises(InvalidPattern) as caught:
        Cron("0 9 * * * " + "\x1b[31m\u202e" * 100)
    assert len(str(caught.value)) < 500
    assert all(line.isprintable() for line in str(caught.value).splitlines())


@pytest.mark.parametrize("suggested", [(pattern, text, fix) for pattern, _, text, fix in WRONG if fix])
def test_suggested_patterns_are_valid(suggested: tuple[str, str, str]) -> None:
    pattern, text, fix = suggested
    if text.startswith("@") or "@every" in pattern:
        Cron(pattern.replace(text, fix))
    else:
        at = pattern.rindex(text)
        Cron(pattern[:at] + fix + pattern[at + len(text) :])


def test_patterns_have_a_limit_on_length_and_parts() -> None:
    part = "0 9 * * *"
    Cron(" | ".join([part] * 32))
    with pytest.raises(InvalidPattern, match="33 parts, 32 are allowed"):
        Cron(" | ".join([part] * 33))
    Cron(part + " " * (1000 - len(part)))
    with pytest.raises(InvalidPattern, match="more than the 1000 characters that are allowed"):
        Cron(part + " " * (1001 - len(part)))


def test_invalid_pattern_is_a_value_error_and_a_watchbill_error() -> None:
    assert issubclass(InvalidPattern, ValueError)
    assert issubclass(InvalidPattern, WatchbillError)


def test_invalid_pattern_survives_pickling() -> None:
    with pytest.raises(InvalidPattern) as caught:
        Cron("0 9 * * MONDAY")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.position, copy.field, copy.suggestion) == (str(caught.value), 8, "day of week", "MON")


@pytest.mark.parametrize("zone", ["", "utc", "Mars/Olympus", "+1", "TZ:UTC", "a" * 5000, "\x00", "Europe/Paris\n"])
def test_an_unknown_zone_of_the_schedule_is_rejected(zone: str) -> None:
    with pytest.raises(InvalidPattern) as caught:
        Cron("0 9 * * *", zone)
    assert caught.value.field == "zone"


def test_an_unknown_policy_is_rejected() -> None:
    with pytest.raises(ValueError, match="dst must be default, skip, once or both, not 'twice'"):
        Cron("0 9 * * *", dst="twice")  # type: ignore[arg-type]
